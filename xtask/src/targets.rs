//! Targets of cargo's that a folder has.
//!
//! A single package is built with the features that it asks for, and the workspace with all that
//! any member asks for: the dependencies of `--package A --test b` would be compiled once more. So
//! chores name the targets and say `--workspace`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::step::cargo;

/// The targets: files, and folders with a `main.rs`.
pub(crate) fn names(folder: &Path) -> io::Result<BTreeSet<String>> {
    let files = folder.read_dir()?.collect::<Result<Vec<_>, _>>()?;
    let names = files.iter().filter_map(|file| {
        let name = file.file_name().into_string().ok()?;
        match file.path().join("main.rs").exists() {
            true => Some(name),
            false => name.strip_suffix(".rs").map(str::to_owned),
        }
    });
    Ok(names.collect())
}

/// A cargo command for targets of one kind (`--test`) of the workspace.
pub(crate) fn of_workspace<N>(words: &[&str], kind: &str, names: N) -> Command
where
    N: IntoIterator<Item: AsRef<OsStr>>,
{
    let mut command = cargo(words);
    command.arg("--workspace");
    for name in names {
        command.arg(kind).arg(name);
    }
    command
}
