//! The soak (`tests/soak`, docs/TESTING.md): every transport between processes, while these and
//! their devices come and go.

use std::process::Command;
use std::time::Duration;

use crate::debian;
use crate::step::{Outcome, run};
use crate::targets;

const BUILD: Duration = Duration::from_secs(1800);
/// What the last cycle and the ends of all processes may take beyond the time asked for, on a busy
/// machine.
const END: Duration = Duration::from_secs(1800);

/// How long, and how it is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How long
    #[arg(long, value_name = "N", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    minutes: u32,
    /// Where random decisions begin [default: another one each time, which is told]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Print one JSON object at the end, and progress on standard error
    #[arg(long)]
    json: bool,
}

/// Builds and runs it.
pub(crate) fn soak(options: &Options) -> Outcome {
    // With debug assertions and overflow checks, and as the workspace's tests are built.
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
