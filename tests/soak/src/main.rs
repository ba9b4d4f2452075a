//! A soak: every transport between processes and within one, for a given time, while processes are
//! killed and devices come and go. Resources stay bounded, and counts agree.
//!
//! `cargo xtask soak` builds and runs it; docs/TESTING.md says what it checks.

mod bounds;
mod child;
mod conduct;
mod host;
mod kind;
mod patience;
mod processes;
mod random;
mod receiver;
mod report;
mod said;
mod sender;
mod session;
mod trouble;
mod watch;
mod wire;

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::said::{Said, say};
use crate::wire::Wire;

/// Soak: every transport between processes, while these and their devices come and go.
#[derive(Debug, Parser)]
#[command(name = "uverbs-soak", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Conduct a run.
    Run {
        /// How long
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
        minutes: u64,
        /// Seed of random decisions [default: the process's number]
        #[arg(long)]
        seed: Option<u64>,
        /// Print one JSON object at the end, and progress on standard error
        #[arg(long)]
        json: bool,
    },
    /// A host of a run.
    #[command(hide = true)]
    Host {
        #[arg(long)]
        wire: Wire,
        #[arg(long)]
        ip: Ipv4Addr,
    },
    /// A guest of a run.
    #[command(hide = true)]
    Guest {
        #[arg(long)]
        wire: Wire,
        #[arg(long)]
        ip: Ipv4Addr,
        #[arg(long)]
        to: Ipv4Addr,
        /// The host's process
        #[arg(long)]
        host: u32,
        #[arg(long)]
        seed: u64,
        #[arg(long)]
        sessions: u32,
    },
    /// Hosts and guests in one process.
    #[command(hide = true)]
    Inside {
        #[arg(long)]
        seed: u64,
    },
}

fn main() -> ExitCode {
    let ended = match Cli::parse().part {
        Part::Run { minutes, seed, json } => return run(minutes, seed, json),
        Part::Host { wire, ip } => processes::host(wire, ip),
        Part::Guest { wire, ip, to, host, seed, sessions } => {
            processes::guest(wire, ip, (to, host), (seed, sessions))
        }
        Part::Inside { seed } => processes::inside(seed),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            say(&Said::Wrong { why });
            ExitCode::FAILURE
        }
    }
}

fn run(minutes: u64, seed: Option<u64>, json: bool) -> ExitCode {
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    let length = Duration::from_secs(60 * minutes);
    let report = conduct::run(length, seed, |line| eprintln!("{line}"));
    if json {
        println!("{}", serde_json::to_string(&report).expect("its maps have names for keys"));
    } else {
        print!("{report}");
    }
    ExitCode::from(u8::from(!report.faults.is_empty()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
