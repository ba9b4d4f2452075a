//! `cargo xtask judge`: the C stack, unmodified, on our software HCA (`docs/JUDGE.md`).

use std::path::Path;
use std::time::Duration;

use crate::debian;
use crate::debian::apt::failed;
use crate::step::{Outcome, run, run_tests};
use crate::targets;

const MINUTES: Duration = Duration::from_secs(60);

/// Downloads the C stack, builds the preloaded libraries and our command line, and runs the tests
/// in `tests/c-stack`.
pub(crate) fn judge() -> Outcome {
    if !cfg!(target_os = "linux") {
        return Outcome::Skipped("the C stack is Linux's".to_owned());
    }
    let root = match debian::root() {
        Ok(root) => root,
        Err(outcome) => return outcome,
    };
    match run(targets::of_workspace(&["build"], "--bin", ["uverbs"]), 15 * MINUTES) {
        Outcome::Passed => {}
        other => return other,
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/c-stack/tests");
    let names = match targets::names(&folder) {
        Ok(names) => names,
        Err(error) => return failed(&folder, &error),
    };
    let mut test = targets::of_workspace(&["test"], "--test", names);
    test.env("UVERBS_DEBIAN_ROOT", root);
    test.env("UVERBS_TOOL", debian::target().join("debug/uverbs"));
    match debian::frameworks() {
        Ok(root) => {
            test.env("UVERBS_FRAMEWORKS_ROOT", root);
        }
        Err(Outcome::Skipped(why)) => {
            test.env("UVERBS_NO_FRAMEWORKS", why);
        }
        Err(other) => return other,
    }
    // The test `bytes` writes its counts here.
    let counts = debian::target().join("judge-counts.txt");
    let _ = std::fs::remove_file(&counts);
    test.env("UVERBS_JUDGE_COUNTS", &counts);
    match run_tests(test, 20 * MINUTES) {
        Outcome::Passed => match std::fs::read_to_string(&counts) {
            Ok(counts) => Outcome::Counted(counts.trim().to_owned()),
            // Without gcc the test skips itself and writes no counts.
            Err(_) => Outcome::Passed,
        },
        other => other,
    }
}
