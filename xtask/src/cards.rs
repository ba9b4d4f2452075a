//! `cargo xtask cards`: the test tree on software HCAs with the capabilities of other cards, and on
//! a software device of Omni-Path; `uverbs check` with the other fences.

use std::time::Duration;

use crate::step::{Named, Outcome, named, run_tests};
use crate::targets;

/// Cards beside the default one, by name (`uverbs_softhca::Card`).
const CARDS: [&str; 8] =
    ["connectx-4", "connectx-4lx", "connectx-5", "connectx-7", "bluefield-2", "vf", "sf", "future"];

/// Test programs of the library in which cards differ.
pub(crate) const PROGRAMS: [&str; 4] = ["control", "data", "memory", "completions"];

/// Test program of the connection manager, run on Omni-Path, whose ports are InfiniBand's.
const CONNECTIONS: &str = "connections";

/// Test program of `uverbs check`.
const CHECK: &str = "check";

const LIMIT: Duration = Duration::from_secs(5 * 60);

/// Feature of a build whose fences are rdma-core's.
pub(crate) const CONSERVATIVE: &str = "conservative-fences";

/// Name of the device of Omni-Path, in process.
const OMNI_PATH: &str = "softhfi0";

/// Steps that run the test programs, one for each card and one for Omni-Path.
pub(crate) fn checks() -> Vec<Named<'static>> {
    let one = |name: &'static str| named(format!("card {name}"), move || card(name));
    let mut checks = vec![named(format!("card {OMNI_PATH}"), omni_path)];
    checks.extend(CARDS.map(one));
    checks
}

fn card(name: &str) -> Outcome {
    let words = ["test", "--no-fail-fast", "--quiet"];
    let mut test = targets::of_workspace(&words, "--test", PROGRAMS.iter().chain([&CHECK]));
    test.env("UVERBS_SOFTHCA_PROFILE", name).env("RUST_TEST_THREADS", "4");
    run_tests(test, LIMIT)
}

/// Runs the library's test programs on Omni-Path. Tests of what it lacks are skipped.
fn omni_path() -> Outcome {
    let programs = PROGRAMS.iter().chain([&CONNECTIONS]);
    let mut test = targets::of_workspace(&["test", "--no-fail-fast"], "--test", programs);
    test.env("UVERBS_TEST_DEVICE", OMNI_PATH).env("RUST_TEST_THREADS", "4");
    run_tests(test, 3 * LIMIT)
}

/// Runs the test of `uverbs check` that tries each operation by both kinds of doorbells, on a build
/// with the other fences. It replaces the command line of the usual build, so that nothing may run
/// beside it.
pub(crate) fn conservative_fences() -> Outcome {
    let feature = format!("uverbs-tools/{CONSERVATIVE}");
    let words = ["test", "--features", &feature];
    let mut test = targets::of_workspace(&words, "--test", [CHECK]);
    test.args(["--", "a_software_hca"]);
    run_tests(test, LIMIT)
}
