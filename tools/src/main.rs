//! The `uverbs` command line: lists and describes RDMA devices, and sends verified and timed
//! messages through them.

mod base;
mod capture;
mod check;
mod cm;
mod devices;
mod devinfo;
mod explain;
mod files;
#[cfg(test)]
mod fuzzing;
mod inspect;
mod link;
mod manual;
mod multicast;
mod perf;
mod pingpong;
mod rping;
mod rstream;
mod run;
mod softhca;
mod topology;
mod trace;
mod vfio;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};

use crate::base::error::{Error, USAGE};

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
    UVERBS_DEVICE  device of commands without -d\n  \
    SYSFS_PATH     where sysfs is mounted, if not on /sys\n  \
    COLUMNS        columns of a report that doesn't go to a terminal\n  \
    LANG           a UTF-8 locale gives finer bars; LC_ALL and LC_CTYPE come first")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Devices(devices::Args),
    Devinfo(devinfo::Args),
    Counters(inspect::counters::Args),
    Resources(inspect::resources::Args),
    Check(check::Args),
    Topology(topology::Args),
    Top(inspect::top::Args),
    Pingpong(pingpong::Args),
    Softhca(softhca::Args),
    Perf(Box<perf::Args>),
    Capture(capture::Args),
    Run(run::Args),
    Rping(rping::Args),
    Rstream(rstream::Args),
    SendFile(files::SendArgs),
    RecvFile(files::RecvArgs),
    Explain(explain::Args),
    Trace(trace::Args),
    Manual(manual::ManualArgs),
    Completions(manual::CompletionsArgs),
    Multicast(multicast::Args),
    Cm(cm::Args),
    Vfio(vfio::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let done = match cli.command {
        Command::Devices(args) => devices::run(&args),
        Command::Devinfo(args) => devinfo::run(&args),
        Command::Counters(args) => inspect::counters::run(&args),
        Command::Resources(args) => inspect::resources::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Topology(args) => topology::run(&args),
        Command::Top(args) => inspect::top::run(&args),
        Command::Pingpong(args) => pingpong::run(&args),
        Command::Softhca(args) => softhca::run(&args),
        Command::Perf(args) => perf::run(&args),
        Command::Capture(args) => capture::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Rping(args) => rping::run(&args),
        Command::Rstream(args) => rstream::run(&args),
        Command::SendFile(args) => files::send(&args),
        Command::RecvFile(args) => files::receive(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Manual(args) => manual::manual(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::Multicast(args) => multicast::run(&args),
        Command::Cm(args) => cm::run(&args),
        Command::Vfio(args) => vfio::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of our output has closed the pipe: not an error.
        Err(Error::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            base::output::complain(&error);
            ExitCode::from(error.status())
        }
    }
}

/// Prints clap's help and version unchanged; errors become a line, like all errors here.
fn refuse(error: &clap::Error) -> ExitCode {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    match error.kind() {
        DisplayHelp | DisplayVersion => {
            // Printing fails only if the pipe is closed; then there is no reader.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(USAGE)
        }
        _ => {
            base::output::complain(&complaint(error, &std::env::args().collect::<Vec<_>>()));
            ExitCode::from(USAGE)
        }
    }
}

/// Error text for the words of a command line.
fn complaint(error: &clap::Error, words: &[String]) -> String {
    let command = words.get(1).map_or("", String::as_str);
    let unknown = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(option))) => Some(option),
        _ => None,
    };
    let instead = unknown.and_then(|option| base::foreign::instead(command, option));
    instead.unwrap_or_else(|| one_line(&error.to_string()))
}

/// The part of clap's text that names the error, on one line.
fn one_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let lines = text.lines().map(str::trim);
    let said =
        lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more info"));
    let said = said.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    said.replace(" tip: ", "; tip: ")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Options that are listed as missing are missing.
    #[test]
    fn options_of_other_programs_are_named() {
        for (words, says) in [
            ("perf write lat -U", "-U is perftest's, and not in uverbs perf: use --json"),
            ("perf write bw --run_infinitely", "use --duration SECONDS"),
            ("perf send bw --rate_limit=5", "--rate_limit is perftest's"),
            ("pingpong -l 3", "-l is ibv_rc_pingpong's, and not in uverbs pingpong: use -S"),
            ("pingpong --ts", "--ts is ibv_rc_pingpong's"),
            ("pingpong --sise 3", "'--sise' found; tip: "),
            ("rping -S 100 HOST", "-S is rping's, and not in uverbs rping: use -s"),
            ("rping -C 3", "not provided: <HOST>"),
        ] {
            let words: Vec<String> = "uverbs "
                .chars()
                .chain(words.chars())
                .collect::<String>()
                .split(' ')
                .map(str::to_owned)
                .collect();
            let said = complaint(&Cli::try_parse_from(&words).unwrap_err(), &words);
            assert!(said.contains(says) && !said.contains('\n'), "{words:?}: {said}");
        }
    }

    #[test]
    fn a_letter_means_the_same_everywhere() {
        let mut meanings = std::collections::BTreeMap::new();
        let cli = Cli::command();
        let perf = cli.find_subcommand("perf").unwrap().get_subcommands();
        let commands = cli.get_subcommands().filter(|command| command.get_name() != "perf");
        for command in commands.chain(perf) {
            for option in command.get_arguments() {
                let letters = option.get_short_and_visible_aliases().unwrap_or_default();
                for letter in letters {
                    let id = meanings.entry(letter).or_insert(option.get_id());
                    assert_eq!(*id, option.get_id(), "-{letter} of {}", command.get_name());
                }
            }
        }
        assert!(meanings.len() > 15, "{meanings:?}");
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
