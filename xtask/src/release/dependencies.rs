//! The library's dependencies are few, and stay few: its users pay for each.

use crate::step::{Outcome, cargo};

/// The library's own packages: the root crate, and what it stands on.
pub(crate) const OURS: [&str; 8] = [
    "uverbs",
    "uverbs-core",
    "uverbs-kernel-abi",
    "uverbs-mlx5",
    "uverbs-mlx5-prm",
    "uverbs-rxe",
    "uverbs-siw",
    "uverbs-softhca",
];

/// What the root crate may bring in besides: the five packages it is allowed, and what those bring.
const ALLOWED: [&str; 12] = [
    // The five.
    "bitflags",
    "libc",
    "memmap2",
    "nix",
    "zerocopy",
    // What nix brings.
    "cfg-if",
    "memoffset",
    // What zerocopy's derive brings, for the compiler only.
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
