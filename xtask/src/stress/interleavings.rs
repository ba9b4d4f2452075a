//! Every interleaving of small cases of lock-free structures, by loom
//! (`providers/core/src/queues/interleavings.rs`, `providers/softhca/src/wire/shared`).

use std::time::Duration;

use crate::debian;
use crate::step::{Outcome, cargo, run_tests};

/// Crates of the library that have such tests.
const PACKAGES: [&str; 2] = ["uverbs-core", "uverbs-softhca"];

/// Builds these crates' tests with loom's atomics, in a separate target folder, and runs the tests
/// of interleavings. Optimised, since there are many.
pub(crate) fn check() -> Outcome {
    let mut test = cargo(&["test", "--release", "--lib"]);
    test.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    test.arg("interleavings").arg("--target-dir").arg(debian::target().join("interleavings"));
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    test.env("RUSTFLAGS", format!("{flags} --cfg uverbs_loom").trim_start());
    run_tests(test, Duration::from_secs(1800))
}
