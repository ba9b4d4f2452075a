//! Simulation of softhca: seeded programs and wires on virtual time (docs/TESTING.md).

use std::process::Command;
use std::time::Duration;

use crate::step::{Outcome, cargo, run_tests};

/// Limit of the compiler. A seed takes some milliseconds.
const BUILD: Duration = Duration::from_secs(900);
const SEED: Duration = Duration::from_millis(500);

/// Options of `cargo xtask simulate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of seeds
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    seeds: u32,
    /// First seed: a seed that failed fails again
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    first: u64,
}

/// Runs the seeds, optimised.
pub(crate) fn seeds(options: &Options) -> Outcome {
    let words = ["test", "--release", "--package", "uverbs-softhca", "--lib", "simulation"];
    run_seeds(cargo(&words), options)
}

/// Runs the test command's seeds, in the program that its tests have built.
pub(crate) fn usual() -> Outcome {
    let test = cargo(&["test", "--workspace", "--lib", "simulation"]);
    run_seeds(test, &Options { seeds: 3000, first: 1 })
}

fn run_seeds(mut test: Command, options: &Options) -> Outcome {
    test.env("UVERBS_SIMULATION_SEEDS", options.seeds.to_string());
    test.env("UVERBS_SIMULATION_FIRST", options.first.to_string());
    run_tests(test, BUILD + SEED * options.seeds)
}
