//! Every interleaving of small cases of what threads share without a lock, by loom
//! (`providers/core/src/queues/interleavings.rs`, `providers/softhca/src/wire/shared`).

use std::time::Duration;

use crate::debian;
use crate::step::{Outcome, cargo, run_tests};

/// Crates that have such tests, among those of the library.
const PACKAGES: [&str; 2] = ["uverbs-core", "uverbs-softhca"];

/// Builds these crates' tests with loom's atomics, in a target folder of their own, and runs those
/// that try interleavings. Optimised: there are many.
pub(crate) fn check() -> Outcome {
    let mut test = cargo(&["test", "--release", "--lib"]);
    test.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    test.arg("interleavings").arg("--target-dir").arg(debian::target().join("interleavings"));
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    test.env("RUSTFLAGS", format!("{flags} --cfg uverbs_loom").trim_start());
    run_tests(test, Duration::from_secs(1800))
}
