//! Builds the book with mdBook.
//!
//! A page may link to any document of the repository. mdBook reads one folder, so the book is built
//! from a copy in the target folder. There each linked document is a page of the last part, and a
//! link to any other file becomes plain text.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::pages::{expand, links, normal};
use super::{PAGES, read};
use crate::debian;
use crate::step::{Outcome, run};

/// Requirements for pip if the machine has no mdBook: a package of PyPI, fixed by its hash.
const REQUIREMENTS: &str = "xtask/mdbook.txt";
const CONFIGURATION: &str = "docs/book/book.toml";
/// Folder of the repository's documents in the copy.
const OTHERS: &str = "repository";

pub(super) fn build() -> Outcome {
    let Some(program) = mdbook() else {
        return Outcome::Skipped("no mdbook here, and no pip to fetch it".to_owned());
    };
    let copy = debian::target().join("book");
    if let Err(why) = lay_out(&copy) {
        return Outcome::Failed(why);
    }
    let mut command = Command::new(program);
    command.arg("build").arg(&copy);
    match run(command, Duration::from_secs(300)) {
        Outcome::Passed => Outcome::Counted(copy.join("html/index.html").display().to_string()),
        other => other,
    }
}

/// mdBook of the machine, else downloaded to the target folder.
fn mdbook() -> Option<PathBuf> {
    let works = |program: &Path| {
        let mut probe = Command::new(program);
        probe.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    };
    let folder = debian::target().join("mdbook");
    let places = [PathBuf::from("mdbook"), folder.join("bin/mdbook")];
    if let Some(found) = places.iter().find(|place| works(place)) {
        return Some(found.clone());
    }
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]);
    pip.args(["--only-binary", ":all:", "--target"]).arg(&folder).args(["-r", REQUIREMENTS]);
    // After a failure the program is missing, which the caller sees.
    let _ = pip.stdin(Stdio::null()).stderr(Stdio::null()).status();
    places.into_iter().find(|place| works(place))
}

/// Writes the copy.
fn lay_out(copy: &Path) -> Result<(), String> {
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    if copy.exists() {
        fs::remove_dir_all(copy).map_err(|error| failed(copy, error))?;
    }
    let book = Book::gather()?;
    for (from, to) in &book.places {
        let text = if from.extension().is_some_and(|extension| extension == "md") {
            book.page(from)?
        } else {
            read(from)?
        };
        let to = copy.join("src").join(to);
        let folder = to.parent().unwrap_or(copy);
        fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
        fs::write(&to, text).map_err(|error| failed(&to, error))?;
    }
    let to = copy.join("book.toml");
    fs::write(&to, read(Path::new(CONFIGURATION))?).map_err(|error| failed(&to, error))
}

/// Files of the repository with their places in the copy.
struct Book {
    places: BTreeMap<PathBuf, PathBuf>,
}

impl Book {
    /// Collects the files reachable from the summary: pages, pictures and documents.
    fn gather() -> Result<Self, String> {
        let summary = Path::new(PAGES).join("SUMMARY.md");
        let mut todo = VecDeque::from([summary]);
        let mut places = BTreeMap::new();
        while let Some(file) = todo.pop_front() {
            let own = file.strip_prefix(PAGES).map(Path::to_owned);
            let is_page = file.extension().is_some_and(|extension| extension == "md");
            if places.contains_key(&file) || (own.is_err() && !is_page) {
                continue;
            }
            if is_page {
                let folder = file.parent().unwrap_or(Path::new("."));
                let text = read(&file)?;
                let near = links(&text).into_iter().filter(|link| !link.is_foreign());
                let near = near.filter(|link| !link.target().is_empty());
                todo.extend(near.map(|link| normal(&folder.join(link.target()))));
            }
            places.insert(file.clone(), own.unwrap_or_else(|_| place(&file)));
        }
        places.retain(|file, _| file.is_file());
        Ok(Self { places })
    }

    /// Text of a page in the copy: includes are expanded, links lead to the copy.
    fn page(&self, file: &Path) -> Result<String, String> {
        let folder = file.parent().unwrap_or(Path::new("."));
        let mut text = read(file)?;
        if file.starts_with(PAGES) {
            text = expand(&text, folder).map_err(|why| format!("{}: {why}", file.display()))?;
        }
        let here = self.places.get(file).cloned().unwrap_or_default();
        for link in links(&text) {
            if link.is_foreign() || link.target().is_empty() {
                continue;
            }
            let whole = format!("]({})", link.0);
            match self.places.get(&normal(&folder.join(link.target()))) {
                Some(there) => {
                    let fragment = link.fragment().map_or(String::new(), |name| format!("#{name}"));
                    let to = format!("]({}{fragment})", between(&here, there));
                    text = text.replace(&whole, &to);
                }
                None => text = unlinked(&text, &whole),
            }
        }
        if file.file_name().is_some_and(|name| name == "SUMMARY.md") {
            text += &self.others()?;
        }
        Ok(text)
    }

    /// Last part of the summary: the linked documents, by their titles.
    fn others(&self) -> Result<String, String> {
        let mut part = "\n# The repository's documents\n\n".to_owned();
        for (file, to) in self.places.iter().filter(|(_, to)| to.starts_with(OTHERS)) {
            let text = read(file)?;
            let title = text.lines().find_map(|line| line.strip_prefix("# "));
            let title = title.map_or_else(|| file.display().to_string(), str::to_owned);
            part += &format!("- [{title}]({})\n", to.display());
        }
        Ok(part)
    }
}

/// Place of a document in the copy. A README gets another name, since mdBook makes it an index.
fn place(file: &Path) -> PathBuf {
    let place = Path::new(OTHERS).join(file);
    if file.ends_with("README.md") { place.with_file_name("about.md") } else { place }
}

/// Relative path from a page to another. Both paths begin at the copy's root.
fn between(from: &Path, to: &Path) -> String {
    let up = from.components().count().saturating_sub(1);
    format!("{}{}", "../".repeat(up), to.display())
}

/// Text in which each link that ends with `end` becomes plain text.
fn unlinked(text: &str, end: &str) -> String {
    let mut rest = text;
    let mut whole = String::new();
    while let Some((before, behind)) = rest.split_once(end) {
        match before.rsplit_once('[') {
            Some((before, words)) => {
                whole += before;
                whole += words;
            }
            None => whole += before,
        }
        rest = behind;
    }
    whole + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_between_pages() {
        let way = |from: &str, to: &str| between(Path::new(from), Path::new(to));
        assert_eq!(way("a.md", "img/b.svg"), "img/b.svg");
        assert_eq!(way("repository/docs/a.md", "c.md"), "../../c.md");
    }

    #[test]
    fn a_link_to_nowhere_is_its_words() {
        let text = "see [the code](../x.rs), [it](../x.rs) and [this](y.md)";
        assert_eq!(unlinked(text, "](../x.rs)"), "see the code, it and [this](y.md)");
    }
}
