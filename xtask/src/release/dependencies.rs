//! Dependencies of the library: its users pay for each, so the list is short and fixed.

use crate::step::{Outcome, cargo};

/// Packages of the library: the root crate, and the crates that it is made of.
pub(crate) const OURS: [&str; 13] = [
    "uverbs",
    "uverbs-core",
    "uverbs-efa",
    "uverbs-front",
    "uverbs-kernel-abi",
    "uverbs-kernel-rings",
    "uverbs-mlx5",
    "uverbs-mlx5-prm",
    "uverbs-rxe",
    "uverbs-siw",
    "uverbs-rdmavt",
    "uverbs-softefa",
    "uverbs-softhca",
];

/// Other packages that the root crate may bring in: six direct dependencies, and theirs.
const ALLOWED: [&str; 13] = [
    // Direct dependencies.
    "bitflags",
    "crossbeam-utils",
    "libc",
    "memmap2",
    "nix",
    "zerocopy",
    // Dependencies of nix.
    "cfg-if",
    "memoffset",
    // Dependencies of zerocopy's derive, which run in the compiler.
    "proc-macro2",
    "quote",
    "syn",
    "unicode-ident",
    "zerocopy-derive",
];

/// Compares `cargo tree` with the list.
pub(crate) fn check() -> Outcome {
    let words = ["tree", "--package", "uverbs", "--edges", "normal", "--prefix", "none"];
    let output = match cargo(&words).output() {
        Ok(output) if output.status.success() => output,
        Ok(output) => return Outcome::Failed(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => return Outcome::Failed(error.to_string()),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let mut strangers: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|package| !OURS.contains(package) && !ALLOWED.contains(package))
        .collect();
    strangers.sort_unstable();
    strangers.dedup();
    if strangers.is_empty() {
        println!("only what is allowed");
        Outcome::Passed
    } else {
        Outcome::Failed(format!("the library must not depend on {}", strangers.join(", ")))
    }
}
