//! Includes and links of pages: each file, anchor and heading must exist.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::{files, read};

/// Start of an include: `{{#include PATH}}`, or `{{#include PATH:ANCHOR}}`.
const INCLUDE: &str = "{{#include ";
const END: &str = "}}";

/// Checks all pages of a folder. Returns their number.
pub(super) fn check(folder: &Path) -> Result<usize, String> {
    let summary = folder.join("SUMMARY.md");
    let text = read(&summary)?;
    let listed: BTreeSet<PathBuf> =
        links(&text).iter().map(|link| normal(&folder.join(link.target()))).collect();
    let there = files(folder, "md")?;
    let mut wrong = Vec::new();
    for page in there.iter().filter(|page| !listed.contains(*page) && **page != summary) {
        wrong.push(format!("{} isn't in SUMMARY.md", page.display()));
    }
    for page in &there {
        wrong.extend(faults(page)?);
    }
    if wrong.is_empty() { Ok(there.len() - 1) } else { Err(wrong.join("; ")) }
}

/// Faults of a page.
fn faults(page: &Path) -> Result<Vec<String>, String> {
    let text = read(page)?;
    let folder = page.parent().unwrap_or(Path::new("."));
    let mut wrong = Vec::new();
    if let Err(why) = expand(&text, folder) {
        wrong.push(format!("{}: {why}", page.display()));
    }
    for link in links(&text) {
        if let Err(why) = follow(&link, page) {
            wrong.push(format!("{}: {}: {why}", page.display(), link.0));
        }
    }
    Ok(wrong)
}

/// Checks that the target of a link exists.
fn follow(link: &LinkTarget, page: &Path) -> Result<(), String> {
    if link.is_foreign() {
        return Ok(());
    }
    let to = match link.target() {
        "" => page.to_owned(),
        target => normal(&page.parent().unwrap_or(Path::new(".")).join(target)),
    };
    if !to.exists() {
        return Err(format!("there is no {}", to.display()));
    }
    match link.fragment() {
        Some(heading) if to.extension().is_some_and(|extension| extension == "md") => {
            let headings = headings(&read(&to)?);
            if headings.contains(heading) { Ok(()) } else { Err("no such heading".to_owned()) }
        }
        _ => Ok(()),
    }
}

/// Target of a link, as the text has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LinkTarget(pub(super) String);

impl LinkTarget {
    /// Returns true for a link to another site.
    pub(super) fn is_foreign(&self) -> bool {
        self.0.contains("://")
    }

    /// Linked file; empty for the same page.
    pub(super) fn target(&self) -> &str {
        self.0.split_once('#').map_or(self.0.as_str(), |(target, _)| target)
    }

    /// Linked heading.
    pub(super) fn fragment(&self) -> Option<&str> {
        self.0.split_once('#').map(|(_, heading)| heading)
    }
}

/// Links of a page, outside of code.
pub(super) fn links(text: &str) -> BTreeSet<LinkTarget> {
    let mut links = BTreeSet::new();
    for paragraph in prose(text).collect::<Vec<_>>().split(|line| line.trim().is_empty()) {
        // Inline code is every second part, and may continue in the next line.
        let whole = paragraph.join("\n");
        let plain = whole.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for part in plain.split("](").skip(1) {
            if let Some((target, _)) = part.split_once(')') {
                links.insert(LinkTarget(target.to_owned()));
            }
        }
    }
    links
}

/// Lines of a page outside of code blocks.
pub(super) fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// Names of headings in links: small letters, words joined by hyphens.
fn headings(text: &str) -> BTreeSet<String> {
    let titles = prose(text).filter_map(|line| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len()).then_some(title.trim())
    });
    let slug = |title: &str| {
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    titles.map(slug).collect()
}

/// Text of a page with its includes expanded.
///
/// # Errors
///
/// The missing file or anchor.
pub(super) fn expand(text: &str, folder: &Path) -> Result<String, String> {
    let mut whole = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(INCLUDE) {
        let Some((what, behind)) = behind.split_once(END) else {
            return Err("an include has no end".to_owned());
        };
        whole += before;
        let (path, anchor) = match what.split_once(':') {
            Some((path, anchor)) => (path, Some(anchor)),
            None => (what, None),
        };
        let file = normal(&folder.join(path));
        let part = part(&read(&file)?, anchor).ok_or_else(|| format!("no anchor in {what}"))?;
        whole += part.trim_end();
        rest = behind;
    }
    Ok(whole + rest)
}

/// Text between `ANCHOR: name` and `ANCHOR_END: name`, or the whole text, without anchor lines.
fn part(text: &str, anchor: Option<&str>) -> Option<String> {
    let ends_with = |line: &str, word: &str, name: &str| {
        line.split_once(word).is_some_and(|(_, found)| found.trim() == name)
    };
    let mut lines = Vec::new();
    let (mut inside, mut ended) = (anchor.is_none(), anchor.is_none());
    for line in text.lines() {
        if line.contains("ANCHOR: ") || line.contains("ANCHOR_END: ") {
            let Some(name) = anchor else { continue };
            inside |= ends_with(line, "ANCHOR: ", name);
            if ends_with(line, "ANCHOR_END: ", name) {
                (inside, ended) = (false, true);
            }
        } else if inside {
            lines.push(line);
        }
    }
    let margin = lines.iter().filter(|line| !line.trim().is_empty());
    let margin = margin.map(|line| line.len() - line.trim_start().len()).min().unwrap_or(0);
    let lines = lines.iter().map(|line| line.get(margin..).unwrap_or_default());
    (ended).then(|| lines.flat_map(|line| [line, "\n"]).collect())
}

/// Path without `.` and `x/..`.
pub(super) fn normal(path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if whole.file_name().is_some() => {
                whole.pop();
            }
            part => whole.push(part),
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn links_are_found_outside_of_code() {
        let text = "[a](x.md#one) and `[b](y.md)`, `\nno` ![c](img/z.svg)\n```\n[d](w.md)\n```\n\
                    ` is one\n\n[e](#f)";
        let links = links(text);
        let found: Vec<_> = links.iter().map(|link| link.0.as_str()).collect();
        assert_eq!(found, ["#f", "img/z.svg", "x.md#one"]);
        let link = LinkTarget("x.md#one".to_owned());
        assert_eq!((link.target(), link.fragment()), ("x.md", Some("one")));
    }

    #[test]
    fn headings_as_links_name_them() {
        let names = headings("# What is *it*?\n```\n# no\n```\n## `ring` and poll_into\n");
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["ring-and-poll_into", "what-is-it"]);
    }

    #[test]
    fn an_anchor_is_a_part_of_its_file() {
        let text = "a\n    // ANCHOR: one\n    b\n\n      c\n    // ANCHOR_END: one\nd\n";
        assert_eq!(part(text, Some("one")).as_deref(), Some("b\n\n  c\n"));
        assert_eq!(part(text, None).as_deref(), Some("a\n    b\n\n      c\nd\n"));
        assert_eq!(part(text, Some("on")), None);
        assert_eq!(part("// ANCHOR: open\n", Some("open")), None);
    }

    #[test]
    fn a_page_that_leads_nowhere_is_told() {
        let folder = std::env::temp_dir().join(format!("xtask-pages-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        write("SUMMARY.md", "[A](a.md)");
        write("a.md", "# A title\n[itself](#a-title)\n{{#include code.rs:x}}\n");
        write("code.rs", "// ANCHOR: x\n// ANCHOR_END: x\n");
        assert_eq!(check(&folder), Ok(1));
        for (page, why) in [
            ("[x](b.md)", "there is no"),
            ("[x](#b)", "no such heading"),
            ("{{#include code.rs:y}}", "no anchor"),
            ("{{#include b.rs}}", "b.rs"),
        ] {
            write("a.md", page);
            assert!(check(&folder).is_err_and(|said| said.contains(why)), "{page}");
        }
        write("a.md", "");
        write("b.md", "");
        assert!(check(&folder).is_err_and(|said| said.contains("b.md isn't in SUMMARY.md")));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn paths_are_shortened() {
        assert_eq!(normal(Path::new("a/b/../../c/./d")), Path::new("c/d"));
        assert_eq!(normal(Path::new("../a")), Path::new("../a"));
    }
}
