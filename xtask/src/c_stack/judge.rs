//! `cargo xtask judge`: the C stack, unmodified, on our software HCA (`docs/JUDGE.md`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::c_stack::testpmd;
use crate::debian;
use crate::debian::apt::failed;
use crate::step::{Outcome, run, run_tests};
use crate::targets;
use crate::vm::fetch::trixie;

const MINUTES: Duration = Duration::from_secs(60);

/// libibverbs and its providers of Debian 13, and the libc that they are built for.
const NEWER: [&str; 6] = [
    "ibverbs-providers",
    "libc6",
    "libibverbs-dev",
    "libibverbs1",
    "libnl-3-200",
    "libnl-route-3-200",
];

/// Folder with the unpacked packages of Debian 13.
fn newer() -> Result<PathBuf, Outcome> {
    debian::unpacked_by(&debian::target().join("debian-13"), &NEWER, trixie)
}

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
    for (packages, folder, missing) in [
        (debian::frameworks(), "UVERBS_FRAMEWORKS_ROOT", "UVERBS_NO_FRAMEWORKS"),
        (newer(), "UVERBS_TRIXIE_ROOT", "UVERBS_NO_TRIXIE"),
        (testpmd::dpdk(), "UVERBS_DPDK_ROOT", "UVERBS_NO_DPDK"),
    ] {
        match packages {
            Ok(root) => test.env(folder, root),
            Err(Outcome::Skipped(why)) => test.env(missing, why),
            Err(other) => return other,
        };
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
