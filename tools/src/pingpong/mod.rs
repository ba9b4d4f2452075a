//! `uverbs pingpong`: sends messages to and fro between two queue pairs, verifies each byte and
//! measures each round trip. The other side may be another process, also `ibv_rc_pingpong`.

mod args;
mod config;
pub(crate) mod remote;
mod report;
mod run;
mod side;

pub(crate) use args::Args;
pub(crate) use config::Config;
pub(crate) use run::Outcome;
pub(crate) use side::shape;

use std::sync::atomic::AtomicBool;

use crate::base::error::Error;
use crate::base::interrupt;
use crate::base::output;
use crate::base::select::{self, Two};
use crate::perf::clock::Clock;
use crate::perf::ends::{Bench, Pair};

/// A run between two ends in this process.
struct Ran {
    abouts: [side::About; 2],
    outcome: Outcome,
}

fn between(devices: &Two, config: &Config, stop: &AtomicBool) -> Result<Ran, Error> {
    let (shape, clock) = (shape(config), Clock::new());
    let bench = Bench {
        shape: &shape,
        size: config.size,
        clock: &clock,
        stop,
        embedded: devices.embedded,
        quiet: config.quiet,
        part: "",
    };
    let prepared = Pair::prepare(devices, &bench)?;
    let abouts = prepared.each_ref().map(side::About::of);
    let [client, server] = prepared;
    let outcome = run::run(Pair::connect(client, server)?, &bench)?;
    Ok(Ran { abouts, outcome })
}

/// Sends and checks messages between two ends in this process.
pub(crate) fn verify(devices: &Two, config: &Config, stop: &AtomicBool) -> Result<Outcome, Error> {
    between(devices, config, stop).map(|ran| ran.outcome)
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let config = args.config()?;
    let stop = interrupt::watch()?;
    if let Some(remote) = args.remote()? {
        return remote::run(&config, &remote, &stop);
    }
    let devices = select::two(config.device.as_deref(), config.quiet)?;
    let Ran { abouts, outcome } = between(&devices, &config, &stop)?;
    let report = report::Report::new(&config, abouts, &outcome);
    if config.json {
        output::json(&report)
    } else {
        output::print(&report.text(config.quiet, output::is_utf8(), output::width()))
    }
}
