//! Cargo's targets by name, built as part of the workspace.
//!
//! Cargo builds a dependency with the union of the features of all selected packages. `--package A`
//! and `--workspace` select different features, so the dependency is compiled twice. Chores
//! therefore select the workspace and name the targets.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::step::cargo;

/// Names of the targets in a folder: files, and folders with a `main.rs`.
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

/// Example that each unoptimised build has, too: without a test or an example, Cargo leaves out the
/// features of dev-dependencies, compiles dependencies again, and overwrites `libibverbs.so` under
/// a running test.
const EXAMPLE: &str = "list_devices";

/// A cargo command for targets of one kind (`--test`) of the workspace.
pub(crate) fn of_workspace<N>(words: &[&str], kind: &str, names: N) -> Command
where
    N: IntoIterator<Item: AsRef<OsStr>>,
{
    let mut command = cargo(words);
    command.arg("--workspace");
    if words.contains(&"build") && !words.contains(&"--release") {
        command.args(["--example", EXAMPLE]);
    }
    for name in names {
        command.arg(kind).arg(name);
    }
    command
}
