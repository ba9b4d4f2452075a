//! `uverbs pingpong`: messages to and fro between two queue pairs, each byte verified, each round trip timed; or with another
//! process, which may be `ibv_rc_pingpong`.

pub(crate) mod args;
mod remote;
mod report;
mod run;
mod side;
pub(crate) mod verify;

pub(crate) use args::Args;
pub(crate) use remote::ExchangeError;
pub(crate) use verify::{Mismatch, WrongWord};

use crate::error::Error;
use crate::{output, select};

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let config = args.config()?;
    if let Some(remote) = args.remote()? {
        return remote::run(&config, &remote);
    }
    let devices = select::two(config.device.as_deref(), config.quiet)?;
    let mut pair = side::Pair::connect(&devices, &config)?;
    let outcome = run::run(&mut pair, &config)?;
    let report = report::Report::new(&config, &pair, &outcome);
    if config.json {
        output::json(&report)
    } else {
        output::print(&report.text(config.quiet, output::is_utf8()))
    }
}
