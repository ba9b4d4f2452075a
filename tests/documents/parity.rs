//! `docs/PARITY.md` against the functions of `infiniband/verbs.h`
//! (`kernel-abi/tests/fixtures/functions*.tsv`, made by `cargo xtask layouts`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Names of all functions of libibverbs.
fn functions() -> Vec<String> {
    let files = ["functions.tsv", "functions_later.tsv"];
    let text = files.map(|file| read(&format!("kernel-abi/tests/fixtures/{file}"))).concat();
    text.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
}

/// A row: functions, support, and the way or the reason. One row may cover several functions.
#[derive(Clone)]
struct Row {
    here: String,
    how: String,
}

fn rows() -> BTreeMap<String, Row> {
    let page = read("docs/PARITY.md");
    let (_, tables) = page.split_once("## Function by function").expect("the section");
    let (tables, _) = tables.split_once("\n## ").expect("the next section");
    let mut rows = BTreeMap::new();
    for line in tables.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [names, here, how] = cells[..] else { panic!("three cells: {line}") };
        let row = Row { here: here.to_owned(), how: how.to_owned() };
        for name in names.split('`').skip(1).step_by(2) {
            let before = rows.insert(name.to_owned(), row.clone());
            assert!(before.is_none(), "two rows: {line}");
        }
    }
    rows
}

fn source(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder of source").flatten() {
        let path: PathBuf = entry.path();
        if path.is_dir() {
            source(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            *text += &std::fs::read_to_string(path).expect("source");
        }
    }
}

#[test]
fn every_function_has_a_row_and_every_row_a_function() {
    let functions = functions();
    assert!(functions.len() > 170, "{}", functions.len());
    let rows = rows();
    let missing: Vec<_> = functions.iter().filter(|name| !rows.contains_key(*name)).collect();
    assert!(missing.is_empty(), "no row for {missing:?}");
    let unknown: Vec<_> = rows.keys().filter(|name| !functions.contains(name)).collect();
    assert!(unknown.is_empty(), "not in verbs.h: {unknown:?}");
}

#[test]
fn every_row_says_how_or_why_not() {
    for (name, Row { here, how }) in rows() {
        match &*here {
            "yes" | "no" => assert!(!how.is_empty(), "{name}"),
            "not yet" => {}
            other => panic!("{name}: yes, no or not yet, not {other:?}"),
        }
    }
}

/// Each item that a row names exists.
#[test]
fn rows_name_what_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    source(&root.join("src"), &mut text);
    source(&root.join("providers/core/src"), &mut text);
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let words: std::collections::HashSet<&str> = text.split(|c| !is_word(c)).collect();
    let mut named = 0;
    for (name, Row { here, how }) in rows() {
        for code in how.split('`').skip(1).step_by(2).filter(|_| here == "yes") {
            for word in code.split(|c| !is_word(c)).filter(|word| !word.is_empty()) {
                assert!(word.starts_with("IBV_") || words.contains(word), "{name}: {code}");
                named += 1;
            }
        }
    }
    assert!(named > 100, "{named}");
}
