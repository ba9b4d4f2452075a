//! Skips a test, with the reason.

use std::io::Write as _;

/// Says that the running test leaves itself, or its rest, out: a line `skipped: TEST: REASON` on
/// standard error.
///
/// `cargo xtask` counts these lines (docs/TESTING.md). A passing test's captured output is thrown
/// away, so this goes past the capture. The harness may have begun a line with the test's name, so
/// it begins a new one.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("?");
    let line = format!("\nskipped: {test}: {}\n", reason.replace('\n', " "));
    // One write, so that no other thread's line comes between.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
