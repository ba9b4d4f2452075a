//! Tests of one process, under AddressSanitizer (docs/TESTING.md).
//!
//! The stable toolchain has the sanitizer's runtime, but no standard library built for it. Inlined
//! and generic code of the standard library is instrumented in the project's crates.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::debian;
use crate::release::dependencies::OURS;
use crate::step::{Outcome, cargo, output, run_tests};

/// Limit of a build from nothing and of the slowed tests.
const LIMIT: Duration = Duration::from_secs(2 * 3600);
const PROBE: Duration = Duration::from_secs(60);
/// Seeds of the model of random programs (tests/model).
const SEEDS: &str = "1000";
/// End of the file name of the sanitizer's runtime.
const RUNTIME: &str = "_rt.asan.a";

/// Builds and runs these packages' tests.
pub(crate) fn address() -> Outcome {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    if let Err(why) = find_runtime(&target) {
        return why;
    }
    let mut test = cargo(&["test", "--no-fail-fast", "--lib", "--tests", "--target", &target]);
    test.arg("--target-dir").arg(debian::target().join("sanitize/address"));
    // The tools' tests run other programs, the C stack's tests put the device under a C program.
    let packages = OURS.iter().chain(&["uverbs-streams"]);
    test.args(packages.flat_map(|package| ["--package", package]));
    test.args(["--features", "uverbs-softhca/pci"]);
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    test.env("RUSTFLAGS", format!("{flags} -Zsanitizer=address").trim_start());
    // RUSTC_BOOTSTRAP allows `-Z` on the stable toolchain. With `--target` the flags reach neither
    // build scripts nor macros.
    test.env("RUSTC_BOOTSTRAP", "1").env("CARGO_INCREMENTAL", "0").env("RUST_TEST_THREADS", "4");
    // The library leaks memory on purpose while a device may write to it (docs/UNSAFE.md).
    test.env("ASAN_OPTIONS", "detect_leaks=0");
    test.env("UVERBS_TEST_SEEDS", SEEDS);
    run_tests(test, LIMIT)
}

fn find_runtime(target: &str) -> Result<(), Outcome> {
    let mut ask = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    ask.args(["--print", "target-libdir", "--target", target]);
    let folder = PathBuf::from(output(ask, PROBE)?.trim());
    let mut files = folder.read_dir().into_iter().flatten().flatten();
    if files.any(|file| file.file_name().to_string_lossy().ends_with(RUNTIME)) {
        return Ok(());
    }
    Err(Outcome::Skipped(format!("no {RUNTIME} in {}", folder.display())))
}
