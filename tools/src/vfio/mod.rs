//! `uverbs vfio`: ConnectX functions without a kernel driver.

pub(crate) mod access;
mod bind;
mod probe;

use crate::base::error::Error;

/// Drive a ConnectX function without a kernel driver.
///
/// The driver is in this program: it owns the whole function, over the kernel's VFIO or over a
/// vfio-user socket. Not tried on hardware.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Probe(probe::Args),
    Bind(bind::BindArgs),
    Unbind(bind::UnbindArgs),
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Error> {
    match &args.command {
        Command::Probe(args) => probe::run(args),
        Command::Bind(args) => bind::bind(args),
        Command::Unbind(args) => bind::unbind(args),
    }
}
