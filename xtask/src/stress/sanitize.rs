//! The tests that run in one process, under AddressSanitizer (docs/TESTING.md).
//!
//! The stable toolchain brings the sanitizer's runtime, but not a standard library built for it.
//! Its inlined and generic code is instrumented in our crates all the same.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::debian;
use crate::release::dependencies::OURS;
use crate::step::{Outcome, cargo, output, run_tests};

/// What a build from nothing and the slowed tests may take.
const LIMIT: Duration = Duration::from_secs(2 * 3600);
const PROBE: Duration = Duration::from_secs(60);
/// How the runtime's file ends.
const RUNTIME: &str = "_rt.asan.a";

/// Builds and runs these packages' tests.
pub(crate) fn address() -> Outcome {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    if let Err(why) = find_runtime(&target) {
        return why;
    }
    let mut test = cargo(&["test", "--no-fail-fast", "--lib", "--tests", "--target", &target]);
    test.arg("--target-dir").arg(debian::target().join("sanitize/address"));
    // The tools' tests run other programs; those of the C stack put the device under a C program.
    test.args(OURS.iter().flat_map(|package| ["--package", package]));
    test.args(["--features", "uverbs-softhca/pci"]);
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    test.env("RUSTFLAGS", format!("{flags} -Zsanitizer=address").trim_start());
    // `-Z` on the stable toolchain; with `--target` it reaches neither build scripts nor macros.
    test.env("RUSTC_BOOTSTRAP", "1").env("CARGO_INCREMENTAL", "0").env("RUST_TEST_THREADS", "4");
    // The library leaks on purpose what a device may still write to (docs/UNSAFE.md).
    test.env("ASAN_OPTIONS", "detect_leaks=0");
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
