//! Names in the book: every error of the API has a row in the page of errors, and the names in the
//! tables of migration exist in the source.

use std::collections::HashSet;
use std::path::Path;

use uverbs_mlx5_prm::syndrome::Syndrome;

use super::{PAGES, files, read};

/// Enums of errors, with the files that declare them.
const ENUMS: [(&str, &str); 4] = [
    ("providers/core/src/error/mod.rs", "Error"),
    ("providers/core/src/queues/work.rs", "PostError"),
    ("providers/core/src/queues/completion.rs", "Status"),
    ("providers/core/src/connection.rs", "ConnectionErrorKind"),
];

/// Pages with tables of another library's names in the first column, and ours in the second.
const MIGRATIONS: [&str; 3] = ["from-c.md", "from-ibverbs.md", "from-sideway.md"];
/// Folders of the sources that declare our names.
const SOURCES: [&str; 6] = [
    "src",
    "adapters/streams/src",
    "providers/core/src",
    "providers/front/src",
    "providers/mlx5/src",
    "providers/softhca/src",
];

/// Returns the number of errors with a row. Fails on an error without a row, and on a name that the
/// source lacks.
pub(super) fn check() -> Result<usize, String> {
    let mut source = String::new();
    for folder in SOURCES {
        for file in files(Path::new(folder), "rs")? {
            source += &read(&file)?;
        }
    }
    let words: HashSet<&str> = source.split(|c| !is_word(c)).collect();
    for page in MIGRATIONS {
        let text = read(&Path::new(PAGES).join(page))?;
        let strange = strange(&text, &words);
        if !strange.is_empty() {
            return Err(format!("{page} names {}, which the source doesn't", strange.join(", ")));
        }
    }
    errors()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Words of code in the second column of tables that are not in `words`.
fn strange<'a>(page: &'a str, words: &HashSet<&str>) -> Vec<&'a str> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").nth(1));
    let code = rows.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let named = code.flat_map(|code| code.split(|c| !is_word(c)));
    let named = named.filter(|word| word.len() > 1 && !words.contains(word));
    named.filter(|word| !word.starts_with(|first: char| first.is_ascii_digit())).collect()
}

/// Number of errors with a row.
fn errors() -> Result<usize, String> {
    let page = read(&Path::new(PAGES).join("errors.md"))?;
    let mut names: Vec<String> =
        Syndrome::ALL.iter().filter_map(|syndrome| syndrome.name().map(str::to_owned)).collect();
    for (file, name) in ENUMS {
        let found = variants(&read(Path::new(file))?, name);
        if found.len() < 3 {
            return Err(format!("{file}: no enum {name}"));
        }
        names.extend(found.iter().map(|variant| format!("{name}::{variant}")));
    }
    let missing: Vec<_> = names
        .iter()
        .filter(|name| !page.contains(&format!("`{name}`")))
        .map(String::as_str)
        .collect();
    if missing.is_empty() {
        Ok(names.len())
    } else {
        Err(format!("errors.md has no row for {}", missing.join(", ")))
    }
}

/// Variants of an enum in rustfmt's layout: four spaces before each name.
fn variants(source: &str, name: &str) -> Vec<String> {
    let Some((_, body)) = source.split_once(&format!("pub enum {name} {{\n")) else {
        return Vec::new();
    };
    let lines = body.lines().take_while(|line| *line != "}");
    let names = lines.filter_map(|line| {
        let rest = line.strip_prefix("    ")?;
        let word: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
        word.starts_with(char::is_uppercase).then_some(word)
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::{strange, variants};

    #[test]
    fn what_the_second_column_names_is_looked_up() {
        let page = "| `them` | `Ours::call(n)`, words | `theirs` |\n|---|---|---|\nno `table`\n";
        assert_eq!(strange(page, &["Ours"].into()), ["call"]);
        assert!(strange(page, &["Ours", "call"].into()).is_empty());
    }

    #[test]
    fn variants_of_every_form() {
        let text = "pub enum E {\n    /// Doc.\n    A,\n    B {\n        C: u8,\n    },\n    \
                    #[x]\n    D(u8),\n}\nenum F {\n    G,\n}\n";
        assert_eq!(variants(text, "E"), ["A", "B", "D"]);
        assert!(variants(text, "F").is_empty(), "it isn't public");
    }
}
