//! Scaling of transports with the number of peers: the objects that a hub needs to send to each of
//! them and to receive from any of them.
//!
//! `cargo run --release --example scaling`

#[path = "../common/mod.rs"]
mod common;
mod dc;
mod peer;
mod rc;
mod ud;
mod xrc;

use std::process::{Command, Stdio};
use std::time::Instant;

use common::{Outcome, Table};
use uverbs::Context;

const PEERS: [usize; 4] = [1, 8, 64, 256];

/// Receives that the hub posts on each of its queue pairs.
const RECEIVES: usize = 32;

/// Makes a hub for so many peers, and sends to each.
type Hub = fn(&Context, usize) -> Outcome<Found>;

/// Objects of the hub, and their cost.
struct Found {
    queue_pairs: usize,
    handles: usize,
    receives: usize,
    cost: Cost,
}

/// In the order of the table; soft-RoCE has neither XRC nor DC.
const HUBS: [(&str, Hub); 4] =
    [("RC", rc::hub), ("XRC", xrc::hub), ("DC", dc::hub), ("UD", ud::hub)];

fn main() -> Outcome {
    let args: Vec<_> = std::env::args().collect();
    if let [_, name, peers] = &args[..] {
        return one(name, peers.parse()?);
    }
    let mut table = Table::new(
        "peers | by | queue pairs | address handles | receives | MiB resident | us a peer",
    );
    for peers in PEERS {
        for (name, _) in HUBS {
            // A new process for each hub, so that it reuses no memory of an earlier one.
            let mut child = Command::new(std::env::current_exe()?);
            let output =
                child.args([name, &peers.to_string()]).stderr(Stdio::inherit()).output()?;
            if !output.status.success() {
                return Err(format!("{name} with {peers} peers: {}", output.status).into());
            }
            let text = String::from_utf8(output.stdout)?;
            let cells: Vec<_> = text.split_whitespace().collect();
            if let [pairs, handles, receives, mib, us] = cells[..] {
                table.row(&[&peers, &name, &pairs, &handles, &receives, &mib, &us]);
            }
        }
    }
    table.print();
    Ok(())
}

/// Prints a row's numbers, or nothing if the device has no such transport.
fn one(name: &str, peers: usize) -> Outcome {
    let context = uverbs::device_or_softhca()?.open()?;
    let (_, hub) = HUBS.into_iter().find(|(known, _)| *known == name).ok_or("no such hub")?;
    let found = match hub(&context, peers) {
        Err(error) if is_unsupported(&*error) => return Ok(()),
        found => found?,
    };
    let (mib, us) = (found.cost.mebibytes, found.cost.microseconds / peers as f64);
    println!("{} {} {} {mib:.2} {us:.1}", found.queue_pairs, found.handles, found.receives);
    Ok(())
}

fn is_unsupported(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(uverbs::Error::Unsupported { .. }))
}

/// Memory and time that the objects took to make.
struct Cost {
    mebibytes: f64,
    microseconds: f64,
}

/// Measures the objects made from now on.
struct Meter {
    before: f64,
    start: Instant,
}

impl Meter {
    fn new() -> Outcome<Self> {
        Ok(Self { before: resident()?, start: Instant::now() })
    }

    fn stop(self) -> Outcome<Cost> {
        let microseconds = self.start.elapsed().as_secs_f64() * 1e6;
        Ok(Cost { mebibytes: resident()? - self.before, microseconds })
    }
}

/// MiB of memory that this process has, the software HCA's part included.
fn resident() -> Outcome<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()).ok_or("no VmRSS")?;
    Ok(kib.parse::<f64>()? / 1024.0)
}
