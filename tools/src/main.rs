//! The `uverbs` command line: what RDMA devices are here, what they can do, and whether data goes through them unharmed.

mod devices;
mod devinfo;
mod error;
mod histogram;
mod output;
mod perf;
mod pingpong;
mod progress;
mod select;
mod softhca;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use crate::error::{Error, USAGE};

/// RDMA devices: list them, look into them, and send verified data through them.
#[derive(Debug, Parser)]
#[command(name = "uverbs", version, max_term_width = 100, propagate_version = true)]
#[command(
    long_about = "RDMA devices: list them, look into them, and send verified data through them.\n\n\
    Where the machine has no RDMA device, the commands work on the embedded software HCA \
    (softhca), a software model of a ConnectX, and say so."
)]
#[command(after_long_help = "EXIT STATUS:\n  \
    0  success\n  \
    1  a failure at run time: data that arrived changed, a silent peer, a refused call\n  \
    2  bad arguments, or no device of that name\n\n\
    ENVIRONMENT:\n  \
    SYSFS_PATH              where sysfs is mounted, if not on /sys\n  \
    LC_ALL, LC_CTYPE, LANG  an UTF-8 locale gives finer bars in histograms")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Devices(devices::Args),
    Devinfo(devinfo::Args),
    Pingpong(pingpong::Args),
    Softhca(softhca::Args),
    Perf(Box<perf::Args>),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let done = match cli.command {
        Command::Devices(args) => devices::run(&args),
        Command::Devinfo(args) => devinfo::run(&args),
        Command::Pingpong(args) => pingpong::run(&args),
        Command::Softhca(args) => softhca::run(&args),
        Command::Perf(args) => perf::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of our output has seen enough: no error of ours.
        Err(Error::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            output::complain(&error);
            ExitCode::from(error.status())
        }
    }
}

/// Help and version are printed as clap lays them out; an error becomes one line, as all errors here are.
fn refuse(error: &clap::Error) -> ExitCode {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    match error.kind() {
        DisplayHelp | DisplayVersion => {
            // A closed pipe is the only way this fails, and then nobody reads.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(USAGE)
        }
        _ => {
            output::complain(&one_line(&error.to_string()));
            ExitCode::from(USAGE)
        }
    }
}

/// The part of clap's text that says what is wrong, on one line.
fn one_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let lines = text.lines().map(str::trim);
    let said =
        lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more info"));
    said.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_error_is_one_line() {
        for (args, says) in [
            (&["uverbs", "pingpong", "--size", "x"][..], "'x' for '--size"),
            (&["uverbs", "pingpong", "--opcode", "sned"], "[possible values: send, "),
            (&["uverbs", "pingpong", "--sise", "1"], "'--sise'"),
            (&["uverbs", "devinof"], "'devinof'"),
        ] {
            let line = one_line(&Cli::try_parse_from(args).unwrap_err().to_string());
            assert!(line.contains(says), "{line}");
            assert!(!line.contains('\n') && !line.contains("Usage"), "{line}");
        }
    }
}
