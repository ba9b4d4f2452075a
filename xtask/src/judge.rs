//! `cargo xtask judge`: the C stack, unmodified, on our software HCA (`docs/JUDGE.md`).

use std::time::Duration;

use crate::debian;
use crate::step::{Outcome, cargo, run, run_tests};

const MINUTES: Duration = Duration::from_secs(60);

/// Fetches the C stack, builds what is preloaded and our command line, and runs the tests in
/// `tests/c-stack`.
pub(crate) fn judge() -> Outcome {
    if !cfg!(target_os = "linux") {
        return Outcome::Skipped("the C stack is Linux's".to_owned());
    }
    let root = match debian::root() {
        Ok(root) => root,
        Err(outcome) => return outcome,
    };
    match run(cargo(&["build", "--package", "uverbs-tools"]), 15 * MINUTES) {
        Outcome::Passed => {}
        other => return other,
    }
    let mut test = cargo(&["test", "--package", "uverbs-c-stack"]);
    test.env("UVERBS_DEBIAN_ROOT", root);
    test.env("UVERBS_TOOL", debian::target().join("debug/uverbs"));
    // The test of the bytes leaves its counts here.
    let counts = debian::target().join("judge-counts.txt");
    let _ = std::fs::remove_file(&counts);
    test.env("UVERBS_JUDGE_COUNTS", &counts);
    match run_tests(test, 20 * MINUTES) {
        Outcome::Passed => match std::fs::read_to_string(&counts) {
            Ok(counts) => Outcome::Counted(counts.trim().to_owned()),
            // No gcc: the test says so.
            Err(_) => Outcome::Passed,
        },
        other => other,
    }
}
