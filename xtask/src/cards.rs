//! `cargo xtask cards`: the test tree on software HCAs with the capabilities of other cards, and on
//! a software device of Omni-Path.

use std::time::Duration;

use crate::step::{Outcome, run, run_tests};
use crate::targets;

/// Cards beside the default one, by name (`uverbs_softhca::Card`).
const CARDS: [&str; 8] =
    ["connectx-4", "connectx-4lx", "connectx-5", "connectx-7", "bluefield-2", "vf", "sf", "future"];

/// Test programs of the library in which cards differ.
const PROGRAMS: [&str; 4] = ["control", "data", "memory", "completions"];

/// Test program of `uverbs check`.
const CHECK: &str = "check";

const LIMIT: Duration = Duration::from_secs(5 * 60);

/// Runs the test programs on each card.
pub(crate) fn check() -> Outcome {
    for card in CARDS {
        eprintln!("--- {card}");
        let words = ["test", "--no-fail-fast", "--quiet"];
        let mut test = targets::of_workspace(&words, "--test", PROGRAMS.iter().chain([&CHECK]));
        test.env("UVERBS_SOFTHCA_PROFILE", card).env("RUST_TEST_THREADS", "4");
        match run(test, LIMIT) {
            Outcome::Passed => {}
            Outcome::Failed(why) => return Outcome::Failed(format!("{card}: {why}")),
            other => return other,
        }
    }
    omni_path()
}

/// Name of the device of Omni-Path, in process.
const OMNI_PATH: &str = "softhfi0";

/// Runs the library's test programs on it. Tests of what it lacks are skipped.
fn omni_path() -> Outcome {
    eprintln!("--- {OMNI_PATH}");
    let mut test = targets::of_workspace(&["test", "--no-fail-fast"], "--test", PROGRAMS);
    test.env("UVERBS_TEST_DEVICE", OMNI_PATH).env("RUST_TEST_THREADS", "4");
    match run_tests(test, 3 * LIMIT) {
        Outcome::Failed(why) => Outcome::Failed(format!("{OMNI_PATH}: {why}")),
        other => other,
    }
}
