//! `uverbs pingpong`: sends messages to and fro between two queue pairs, verifies each byte and
//! measures each round trip. The other side may be another process, also `ibv_rc_pingpong`.

mod args;
mod config;
pub(crate) mod remote;
mod report;
mod run;
mod side;

pub(crate) use args::Args;

use crate::base::error::Error;
use crate::base::interrupt;
use crate::base::output;
use crate::base::select;

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let config = args.config()?;
    let stop = interrupt::watch()?;
    if let Some(remote) = args.remote()? {
        return remote::run(&config, &remote, &stop);
    }
    let devices = select::two(config.device.as_deref(), config.quiet)?;
    let mut pair = side::Pair::connect(&devices, &config, &stop)?;
    let outcome = run::run(&mut pair, &config)?;
    let report = report::Report::new(&config, &pair, &outcome);
    if config.json {
        output::json(&report)
    } else {
        output::print(&report.text(config.quiet, output::is_utf8(), output::width()))
    }
}
