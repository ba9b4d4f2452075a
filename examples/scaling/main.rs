//! How transports scale with the number of peers: what a hub needs to send to each of them and to
//! receive from any of them.
//!
//! `cargo run --release --example scaling`

#[path = "../common/mod.rs"]
mod common;
mod hubs;
mod peer;

use std::time::Instant;

use common::{Outcome, Table};
use hubs::Hub;

const PEERS: [usize; 4] = [1, 8, 64, 256];

fn main() -> Outcome {
    let context = uverbs::device_or_softhca()?.open()?;
    let mut table = Table::new(
        "peers | by | queue pairs | address handles | receives | MiB resident | us a peer",
    );
    for peers in PEERS {
        for (name, hub) in [("RC", hubs::rc as Hub), ("UD", hubs::ud)] {
            let found = hub(&context, peers)?;
            let mib = format!("{:.2}", found.cost.mebibytes);
            let us = format!("{:.1}", found.cost.microseconds / peers as f64);
            table.row(&[
                &peers,
                &name,
                &found.queue_pairs,
                &found.handles,
                &found.receives,
                &mib,
                &us,
            ]);
        }
    }
    table.print();
    Ok(())
}

/// What making something took.
struct Cost {
    mebibytes: f64,
    microseconds: f64,
}

/// Measures what is made from now on.
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
