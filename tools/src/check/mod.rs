//! `uverbs check`: what the machine has, what can't work on it, and proof of what does.

mod beside;
mod bundle;
mod connections;
mod messages;
mod numbers;
mod peer;
mod redact;
mod refusals;
mod removal;
mod report;
mod survey;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::base::error::Error;
use crate::base::keeper::Keeper;
use crate::base::select::{self, PortArgs, Two};
use crate::base::units::parse_timeout;
use crate::base::{interrupt, output};
use crate::link::tcp;
use crate::link::verify::Who;
use peer::Peer;
use report::{Report, Row};

/// Check a machine and a device: look at both, and send verified messages of every kind.
///
/// The first part looks: driver, firmware, kernel, port, limits of the process, cgroup, huge pages,
/// NUMA. The second proves: every operation of every transport in loopback on the device, at sizes
/// around its limits, with both kinds of doorbells, each byte verified; connections by address;
/// errors that must be told (wrong key, short receive, no receive); many queue pairs; events; and a
/// short measurement.
/// The answers of ibv_devinfo, if it is installed, are compared.
///
/// With --server on one machine and HOST on another, messages go between the two, and each side
/// verifies what it receives. They meet as `uverbs perf` does: plain text over TCP, for networks
/// you trust.
///
/// It is safe on somebody's machine: it changes no setting, uses memory and queue pairs of this
/// process alone, and ends within --limit. Parts that can't be tried here say why. Only --removal
/// takes the device away, and gives it back.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "EXAMPLES:\n  \
    uverbs check\n  \
    uverbs check -d mlx5_0 --json > check.json\n  \
    uverbs check -d softhca0 --queue-pairs 100\n  \
    uverbs check -d mlx5_0 --bundle bundle.json   # for a bug report\n  \
    uverbs check --server        (on one machine, and on another:)\n  \
    uverbs check that.machine\n\n\
EXIT STATUS:\n  \
    0  all that could be tried works\n  \
    1  something failed\n  \
    2  bad arguments, or no such device\n  \
    3  nothing failed, and something could not be tried")]
pub(crate) struct Args {
    /// Name or address of the server. Without it and without --server, both sides are in this
    /// process
    #[arg(conflicts_with = "server")]
    host: Option<String>,

    /// Wait for a client in another process
    #[arg(long)]
    server: bool,

    /// TCP port of the server, on which both sides meet
    #[arg(long, value_name = "PORT", default_value_t = tcp::PORT)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    /// Seconds that the server waits for a client
    #[arg(long, value_name = "SECONDS", default_value = "600", requires = "server")]
    #[arg(allow_negative_numbers = true, value_parser = parse_timeout)]
    wait: Duration,

    #[command(flatten)]
    at: PortArgs,

    /// Take the device away at the end, and give it back: a software HCA is unplugged; the driver
    /// of a PCI function is unbound, which takes its network interface away, too, and needs root
    #[arg(long)]
    removal: bool,

    /// Write report, capabilities, versions and a trace for a bug report to a JSON file, without
    /// addresses and names of the host
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,

    /// Queue pairs to make at once; 0 for none
    #[arg(long, value_name = "N", default_value_t = 2000)]
    queue_pairs: u32,

    /// Longest message in bytes, for slow machines; with another process on both sides
    #[arg(long, value_name = "BYTES", default_value_t = 1_000_003)]
    #[arg(value_parser = clap::value_parser!(u32).range(8..))]
    longest: u32,

    /// Seconds after which what is left counts as not tried
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    limit: u64,

    /// Print one JSON object on stdout, and no other output
    #[arg(long)]
    json: bool,
}

/// Time that is left.
struct Budget {
    end: Instant,
    stop: Arc<AtomicBool>,
}

impl Budget {
    /// Reason to connect no queue pair by its number: [`over`](Self::over), or iWARP.
    fn bars(&self, devices: &Two) -> Option<&'static str> {
        self.over().or_else(|| devices.client.is_iwarp().then_some(connections::IWARP))
    }

    /// Reason to try no more, once the time is over or the user stopped it.
    fn over(&self) -> Option<&'static str> {
        match self.stop.load(Ordering::Relaxed) {
            true => Some("stopped"),
            false => (Instant::now() >= self.end).then_some("the limit of time (--limit) is over"),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let stop = interrupt::watch()?;
    let device = args.at.device.as_deref();
    let between = args.server || args.host.is_some();
    let devices = match between {
        true => select::reachable(device)?,
        false => select::two(device, args.json)?,
    };
    let bundle = args.bundle.as_deref().map(Keeper::new).transpose()?;
    let limit = Duration::from_secs(args.limit);
    let mut budget = Budget { end: Instant::now() + limit, stop };
    let host = args.host.as_deref();
    let peer = between.then(|| Peer::meet(host, args.port, args.wait, &budget)).transpose()?;
    // Both sides begin now.
    budget.end = Instant::now() + limit;
    let rows = rows(args, &devices, peer.as_ref(), &budget);
    let report = Report::new(devices.client.name(), rows);
    if let Some(bundle) = bundle {
        bundle::write(bundle, &report, &devices.client, &args.at, host)?;
    }
    if args.json {
        output::json(&report)?;
    } else {
        output::print(&report.text())?;
    }
    report.verdict()
}

fn rows(args: &Args, devices: &Two, peer: Option<&Peer>, budget: &Budget) -> Vec<Row> {
    let at = &args.at;
    let mut rows = survey::rows(&devices.client, at.ib_port);
    rows.extend(beside::rows(&devices.client, at.ib_port));
    rows.extend(messages::rows(devices, (at, args.longest), peer, budget));
    let latency = numbers::latency(devices, at, peer, budget);
    // The rest is in this process; the server has it from its client's machine.
    if peer.is_none_or(|peer| peer.who() == Who::Client) {
        rows.extend(connections::rows(devices, args.longest, budget));
        // These have connected queue pairs.
        let connects = !messages::is_efa(&devices.client);
        if connects {
            rows.extend(refusals::rows(devices, at, budget));
        }
        if connects && args.queue_pairs > 0 {
            rows.push(numbers::many(devices, args.queue_pairs, budget));
        }
    }
    rows.push(latency);
    if args.removal {
        rows.extend(removal::rows(&devices.client, budget));
    }
    rows
}
