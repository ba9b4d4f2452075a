//! `cargo xtask captures`: Debian's tshark reads the output of `uverbs capture`.

use std::time::Duration;

use crate::debian;
use crate::debian::apt::{Apt, once, unpack};
use crate::step::{Outcome, run_tests};
use crate::targets;

/// Downloads tshark, and runs the tests that use it.
pub(crate) fn captures() -> Outcome {
    let base = debian::target().join("tshark");
    let root = base.join("root");
    let fetched = once(&root, "tshark", || {
        let apt = Apt::of_the_machine(&base)?;
        apt.update();
        let debs = apt.download_all(&["tshark"], None)?;
        unpack(&debs, &root)
    });
    if let Err(outcome) = fetched {
        return outcome;
    }
    let mut test = targets::of_workspace(&["test"], "--test", ["capture"]);
    test.env("UVERBS_TSHARK_ROOT", root);
    run_tests(test, Duration::from_secs(900))
}
