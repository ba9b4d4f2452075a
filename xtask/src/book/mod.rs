//! `cargo xtask book`: checks the links, names and diagrams of the book in docs/book, builds it
//! with mdBook, and types its commands and the README's.

mod build;
mod commands;
mod draw;
mod names;
mod pages;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::step::{Outcome, Steps};

/// Folder of the pages, from the repository's root.
const PAGES: &str = "docs/book/src";

pub(crate) use commands::{check as commands, has_networks};

/// Checks the book, then builds it. `bless` draws the diagrams first.
pub(crate) fn steps(steps: &mut Steps, bless: bool) {
    if bless {
        steps.step("book, diagrams blessed", || outcome(draw::bless()));
    }
    steps.step("book", || outcome(check()));
    steps.step("book, built", build::build);
}

fn check() -> Result<String, String> {
    let pages = pages::check(Path::new(PAGES))?;
    let diagrams = draw::check()?;
    let errors = names::check()?;
    Ok(format!("{pages} pages, {diagrams} diagrams, {errors} errors explained"))
}

fn outcome(result: Result<String, String>) -> Outcome {
    match result {
        Ok(counted) => Outcome::Counted(counted),
        Err(why) => Outcome::Failed(why),
    }
}

/// Files with this extension in a folder and the folders below it.
fn files(folder: &Path, extension: &str) -> Result<BTreeSet<PathBuf>, String> {
    let mut found = BTreeSet::new();
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            found.extend(files(&path, extension)?);
        } else if path.extension().is_some_and(|end| end == extension) {
            found.insert(path);
        }
    }
    Ok(found)
}

/// Reads a file. The error names it.
fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}
