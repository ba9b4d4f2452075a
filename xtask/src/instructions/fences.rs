//! Fences: traffic over a memory that keeps no other order, and their instructions on aarch64.
//!
//! The check of instructions needs a compiler with aarch64's core library.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::step::{Outcome, cargo, run};
use crate::targets;

const MACHINE: &str = "aarch64-unknown-linux-gnu";
const TEST: Duration = Duration::from_secs(600);

/// Checks the reordering memory, then that each fence is needed and no fence is missing.
pub(crate) fn order() -> Outcome {
    let core =
        ["test", "--package", "uverbs-core", "--features", "adversary", "--lib", "adversary"];
    match run(cargo(&core), TEST) {
        Outcome::Passed => {
            let words = ["test", "--features", "uverbs/adversary"];
            run(targets::of_workspace(&words, "--test", ["fences"]), TEST)
        }
        other => other,
    }
}

/// Compiles the fences, and compares their instructions with the table of docs/FENCES.md.
pub(crate) fn aarch64() -> Outcome {
    let compiler = PathBuf::from(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    if !has_library(&compiler) {
        let why = format!("no core library for {MACHINE} (rustup target add {MACHINE})");
        return Outcome::Skipped(why);
    }
    let mut test = targets::of_workspace(&["test"], "--test", ["fence_instructions"]);
    test.args(["--", "on_aarch64"]).env("UVERBS_CROSS_RUSTC", compiler);
    run(test, TEST)
}

/// Returns true if this compiler exists and has aarch64's core library.
fn has_library(compiler: &PathBuf) -> bool {
    let mut probe = Command::new(compiler);
    probe.args(["--print", "target-libdir", "--target", MACHINE]).env_remove("LD_LIBRARY_PATH");
    let folder = probe.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let folder = folder.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let files = folder.and_then(fs::read_dir).into_iter().flatten().flatten();
    files.into_iter().any(|file| file.file_name().to_string_lossy().starts_with("libcore-"))
}
