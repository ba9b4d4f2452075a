//! Messages of a run's processes to their conductor: a JSON object a line.

use std::io::{BufRead, Write};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use uverbs::softhca::SoftHca;
use uverbs_kernel_abi::mlx5::MLX5_IB_OBJECT_UAR;

use crate::host::Counts;

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Said {
    /// The process is ready, its device is back, or it is idle.
    Ready,
    /// A host's answer.
    Status(Status),
    /// A session of a guest that ended as planned.
    Session { messages: u64, lost: u64 },
    /// One that didn't, and when it began, by [`monotonic`] in milliseconds. Starved: for half of
    /// its time a thread of the guest's or the host's waited for a processor.
    Failed { why: String, excusable: bool, began: u64, starved: bool },
    /// A round in one process: a pair of devices, with or without an end in mid-traffic, and the
    /// sessions that ended since the process was kept from running.
    Round { sessions: u64, broken: u64, messages: u64, unplugged: bool, starved: u64 },
    /// A failure that no kill or removal excuses.
    Wrong { why: String },
}

/// Counts of a host's sessions, and the objects that its device holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) counts: Counts,
    pub(crate) held: Held,
    /// Packets with a wrong checksum or shape, and damaged rings.
    pub(crate) damaged: u64,
    pub(crate) retransmits: u64,
    /// Reasons of the last broken sessions, and the device's counters.
    pub(crate) broken: Vec<String>,
    pub(crate) counters: String,
}

/// Objects that a device holds for its clients, except doorbell pages: these are taken when queues
/// need them, seventeen at most, and kept until the device is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) objects: u64,
    pub(crate) ids: u64,
    pub(crate) pinned: u64,
}

impl Held {
    pub(crate) fn of(hca: &SoftHca) -> Self {
        let kinds = hca.objects().into_iter();
        let objects = kinds.filter(|(kind, _)| *kind != MLX5_IB_OBJECT_UAR);
        Self {
            objects: objects.map(|(_, count)| count as u64).sum(),
            ids: hca.cm_ids() as u64,
            pinned: hca.pinned_bytes(),
        }
    }
}

/// Time since the machine started: the same in all processes.
pub(crate) fn monotonic() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has this clock").into()
}

/// Prints a line. Ends the process if the line has no reader: then the conductor is gone.
pub(crate) fn say(said: &Said) {
    let line = serde_json::to_string(said).expect("it has no maps");
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

/// The next command, `None` at the end.
pub(crate) fn command() -> Option<String> {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(1..) => Some(line.trim_end().to_owned()),
        _ => None,
    }
}
