//! Words: how comments begin, turns of phrase, and names that stay out of the repository.

use super::files::File;
use super::finding::{Finding, Rule};
use super::prose::Prose;

/// Beginnings that leave the reader without a noun or a verb.
const FIRST: [&str; 15] = [
    "what",
    "who",
    "whose",
    "whether",
    "those",
    "of",
    "where",
    "nothing",
    "nobody",
    "none",
    "the same",
    "as there",
    "as above",
    "one of",
    "in the place of",
];

/// Turns to avoid. A gap, ` ... `, stands for words of one sentence.
const TURNS: [&str; 21] = [
    "nobody",
    "is none",
    "are none",
    "none of it",
    "no news",
    "has not",
    "hasn't",
    "haven't",
    "that of",
    "those of",
    "its like",
    "the latter",
    "likewise",
    "besides",
    "but for",
    "of its own",
    "of their own",
    "of one's own",
    "by itself",
    "by themselves",
    "the one ... the other",
];

/// Hosts of package registries, and folders of one machine: no reader has them.
const NAMES: [&str; 10] = [
    "/work/",
    "/farm/",
    "crates.io",
    "pypi.org",
    "pythonhosted.org",
    "npmjs.org",
    "deb.debian.org",
    "snapshot.debian.org",
    "security.debian.org",
    "proxy.golang.org",
];

/// Comment that begins with a word that tells the reader too little.
pub(crate) fn first_word(file: &File, comment: &Prose) -> Option<Finding> {
    let text = comment.text.trim_start();
    let lower = text.to_lowercase();
    FIRST.iter().find(|first| is_at(&lower, 0, first))?;
    let line = comment.line_at(comment.text.len() - text.len());
    Some(Finding::new(Rule::FirstWord, &file.path, line, file.line(line)))
}

/// Turns of phrase in a comment or in Markdown.
pub(crate) fn turns(file: &File, prose: &Prose) -> Vec<Finding> {
    // ASCII only, and line breaks as spaces: positions stay as in the text.
    let lower = prose.text.to_ascii_lowercase().replace('\n', " ");
    let mut found = Vec::new();
    for turn in TURNS {
        let (head, tail) = turn.split_once(" ... ").unwrap_or((turn, ""));
        for (at, _) in lower.match_indices(head).filter(|&(at, _)| is_at(&lower, at, head)) {
            let sentence = lower[at..].find(". ").map_or(lower.len(), |end| at + end);
            let mut tails = lower[at..sentence].match_indices(tail);
            if tail.is_empty() || tails.any(|(to, _)| is_at(&lower, at + to, tail)) {
                let line = prose.line_at(at);
                let text = format!("\"{turn}\": {}", file.line(line));
                found.push(Finding::new(Rule::Turn, &file.path, line, text));
            }
        }
    }
    found
}

/// Returns true if `word` is at this place, with no letter around it.
fn is_at(text: &str, at: usize, word: &str) -> bool {
    let inside = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    text[at..].starts_with(word)
        && !inside(text[..at].chars().next_back())
        && !inside(text[at + word.len()..].chars().next())
}

/// Names that stay out of the repository, in any text. Lock files name the registry by design.
pub(crate) fn names(file: &File) -> Vec<Finding> {
    if file.path.ends_with(".lock") {
        return Vec::new();
    }
    let mut found = Vec::new();
    for name in NAMES.iter().filter(|name| file.text.contains(**name)) {
        for (number, line) in file.text.lines().enumerate().filter(|(_, line)| line.contains(name))
        {
            let text = format!("\"{name}\": {}", line.trim());
            found.push(Finding::new(Rule::Word, &file.path, number + 1, text));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::files::file;
    use super::super::finding::shown;
    use super::super::lexer::tokens;
    use super::super::prose::{comments, markdown};
    use super::*;

    fn first_words(text: &str) -> Vec<String> {
        let file = file("a.rs", text);
        let comments = comments(&tokens(&file.text));
        let found: Vec<_> = comments.iter().filter_map(|one| first_word(&file, one)).collect();
        shown(&found)
    }

    #[test]
    fn comments_begin_with_a_noun_or_a_verb() {
        let broken = "//! What this is.\n\n/// `x`\n/// is posted.\n///\nlet a; // none left\n\
                      \n// The same\n/* Nobody's. */\n/// Whose turn\n/// it is.\n";
        let wanted = [
            "a.rs:1: //! What this is.",
            "a.rs:6: let a; // none left",
            "a.rs:8: // The same",
            "a.rs:9: /* Nobody's. */",
            "a.rs:10: /// Whose turn",
        ];
        assert_eq!(first_words(broken), wanted);
        let mended = "//! Table.\n\n/// Poster\n/// whose turn it is.\nfn a() {} // empty\n\
                      \n/// `None`: no limit.\n/// Whatsoever.\nlet a = \"// What\"; // Offset";
        assert_eq!(first_words(mended), [""; 0]);
    }

    fn turns_in(text: &str) -> Vec<String> {
        shown(&turns(&file("a.md", text), &markdown(text)))
    }

    #[test]
    fn turns_are_found_across_lines_and_not_in_code() {
        let broken = "All but\nfor one; `x`, Nobody's.\n\nThe one is red, the other not.";
        let wanted = [
            "a.md:2: \"nobody\": for one; `x`, Nobody's.",
            "a.md:1: \"but for\": All but",
            "a.md:4: \"the one ... the other\": The one is red, the other not.",
        ];
        assert_eq!(turns_in(broken), wanted);
        let mended = "All except this nonempty one. Of this none. `nobody` runs it. The one here. \
                      The other there. That offset.";
        assert_eq!(turns_in(mended), [""; 0]);
    }

    #[test]
    fn hosts_and_folders_of_one_machine_are_found() {
        let broken = file("a/b.toml", "one\n# see /work/notes\nurl = \"https://pypi.org/x\"\n");
        let wanted = [
            "a/b.toml:2: \"/work/\": # see /work/notes",
            "a/b.toml:3: \"pypi.org\": url = \"https://pypi.org/x\"",
        ];
        assert_eq!(shown(&names(&broken)), wanted);
        assert_eq!(names(&file("a/b.toml", "# see docs/notes, in network/work\n")), []);
        assert_eq!(names(&file("Cargo.lock", "registry+https://x/crates.io-index")), []);
    }
}
