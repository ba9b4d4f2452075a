//! Every interleaving of small cases of what threads share without a lock, by loom
//! (`providers/core/src/queues/interleavings.rs`).

use std::time::Duration;

use crate::debian;
use crate::step::{Outcome, cargo, run_tests};

/// Builds core's tests with loom's atomics, in a target folder of their own, and runs those that
/// try interleavings. Optimised: there are many.
pub(crate) fn check() -> Outcome {
    let words = ["test", "--release", "--package", "uverbs-core", "--lib", "interleavings"];
    let mut test = cargo(&words);
    test.arg("--target-dir").arg(debian::target().join("interleavings"));
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    test.env("RUSTFLAGS", format!("{flags} --cfg uverbs_loom").trim_start());
    run_tests(test, Duration::from_secs(1800))
}
