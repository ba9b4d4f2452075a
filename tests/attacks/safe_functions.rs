//! `docs/UNSAFE.md` lists the public safe functions of the types that keep bookkeeping. A new
//! function fails here until somebody has considered its misuse and listed it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders with the types that safe posts and polls rely on.
const FOLDERS: [&str; 10] = [
    "providers/core/src/memory",
    "providers/core/src/objects",
    "providers/core/src/provider",
    "providers/core/src/queues",
    "providers/mlx5/src",
    "providers/rxe/src",
    "providers/siw/src",
    "providers/rdmavt/src",
    "src",
    "adapters/streams/src",
];
/// For tests alone.
const TESTS: [&str; 4] = ["tests", "fuzzing", "slots_tests", "interleavings"];
const HEADING: &str = "## Which safe functions keep bookkeeping";

/// An owner (a type, a trait, or the file of a free function), and a function.
type Functions = BTreeSet<(String, String)>;

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if TESTS.contains(&stem) {
            continue;
        }
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|end| end == "rs") {
            into.push(path);
        }
    }
}

/// The identifier that `text` begins with.
fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The type of an inherent `impl`. `None` for a trait's `impl`: the trait declares its functions.
fn implemented(line: &str) -> Option<String> {
    let rest = line.strip_prefix("impl")?;
    let mut depth = 0;
    let mut before = ' ';
    let end = rest.find(|c| {
        depth += i32::from(c == '<') - i32::from(c == '>' && before != '-');
        before = c;
        depth == 0 && c == ' '
    })?;
    let header = &rest[end..];
    (!header.contains(" for ")).then(|| word(header.trim_start()))
}

/// The trait that a line declares for others.
fn declared(line: &str) -> Option<String> {
    let rest = line.strip_prefix("pub trait ").or_else(|| line.strip_prefix("pub unsafe trait "));
    rest.map(word)
}

/// The safe function that begins in this line, behind one of these words.
fn function(line: &str, visibility: &str) -> Option<String> {
    let rest = line.strip_prefix(visibility)?;
    rest.strip_prefix("const ").unwrap_or(rest).strip_prefix("fn ").map(word)
}

/// Safe functions that a source has for other crates.
fn of_source(path: &Path, into: &mut Functions) {
    let text = fs::read_to_string(path).expect("a source");
    let file = path.file_name().and_then(|name| name.to_str()).expect("a name");
    // Unit tests stand at the end.
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let (mut owner, mut within) = (None, "");
    for line in text.lines() {
        if line.starts_with('}') {
            owner = None;
        } else if let Some(name) = declared(line) {
            (owner, within) = (Some(name), "    ");
        } else if line.starts_with("impl") {
            (owner, within) = (implemented(line), "    pub ");
        } else if let Some(name) = function(line, "pub ") {
            into.insert((file.to_owned(), name));
        } else if let (Some(owner), Some(name)) = (&owner, function(line, within)) {
            into.insert((owner.clone(), name));
        }
    }
}

/// Owners with their functions, which the first column of the section's table lists.
fn listed(document: &str) -> Functions {
    let section = document.split(HEADING).nth(1).expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut all = Functions::new();
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let cell = row.split('|').nth(1).unwrap_or_default();
        for owned in cell.split(';') {
            let (owner, functions) = owned.split_once(':').expect("an owner's functions");
            let name = |text: &str| text.trim().trim_matches('`').to_owned();
            all.extend(functions.split(',').map(|function| (name(owner), name(function))));
        }
    }
    all
}

#[test]
fn each_safe_function_that_keeps_bookkeeping_was_looked_at() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = root.join("docs/UNSAFE.md");
    if !root.join("providers").is_dir() {
        return; // The published package has neither.
    }
    let mut files = Vec::new();
    FOLDERS.iter().for_each(|folder| sources(&root.join(folder), &mut files));
    let mut there = Functions::new();
    files.iter().for_each(|file| of_source(file, &mut there));
    let listed = listed(&fs::read_to_string(document).expect("docs/UNSAFE.md"));
    assert!(there.len() > 900, "the sources are read: {} functions", there.len());
    let new: Vec<_> = there.difference(&listed).collect();
    assert!(
        new.is_empty(),
        "ask what a lie to these does; list them in docs/UNSAFE.md, or make them unsafe: {new:?}"
    );
    let gone: Vec<_> = listed.difference(&there).collect();
    assert!(gone.is_empty(), "docs/UNSAFE.md lists what is no more: {gone:?}");
}
