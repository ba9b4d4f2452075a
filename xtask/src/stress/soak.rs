//! Soak test (`tests/soak`, docs/TESTING.md): every transport between processes, while processes
//! and devices come and go.

use std::process::Command;
use std::time::Duration;

use crate::debian;
use crate::step::{Outcome, run};
use crate::targets;

const BUILD: Duration = Duration::from_secs(1800);
/// Limit beyond the requested time: the last cycle and the end of all processes, on a busy machine.
const END: Duration = Duration::from_secs(1800);

/// Options of `cargo xtask soak`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Minutes
    #[arg(long, value_name = "N", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    minutes: u32,
    /// Seed of the random decisions [default: a new one each time, which is printed]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Print one JSON object at the end, and progress on standard error
    #[arg(long)]
    json: bool,
}

/// Builds and runs the soak test.
pub(crate) fn soak(options: &Options) -> Outcome {
    // The dev profile has debug assertions and overflow checks, as the workspace's tests do.
    let build = targets::of_workspace(&["build", "--quiet"], "--bin", ["uverbs-soak"]);
    match run(build, BUILD) {
        Outcome::Passed => {}
        other => return other,
    }
    let mut command = Command::new(debian::target().join("debug/uverbs-soak"));
    command.args(["run", "--minutes", &options.minutes.to_string()]);
    command.args(options.seed.map(|seed| format!("--seed={seed}")));
    command.args(options.json.then_some("--json"));
    run(command, Duration::from_secs(60 * u64::from(options.minutes)) + END)
}
