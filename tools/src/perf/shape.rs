//! Parameters of a measurement, with all defaults that need no device.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::link::doorbell::Doorbell;
use crate::link::transport::Connection;

/// Maximum memory of the default receive depth.
const RECEIVE_BYTES: u64 = 64 << 20;
/// Default receive depth of perftest.
const RX_DEPTH: u32 = 512;

/// Kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Test {
    /// Latency, of each message, one at a time: ib_write_lat, ib_read_lat, ib_send_lat,
    /// ib_atomic_lat
    #[value(alias = "latency")]
    Lat,
    /// Bandwidth and message rate, with many outstanding: ib_write_bw and so on
    #[value(aliases = ["bandwidth", "rate"])]
    Bw,
}

/// The operation that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Operation {
    Write,
    Read,
    Send,
    FetchAdd,
    CompareSwap,
}

impl Operation {
    pub(super) fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap)
    }

    /// The operation has a response, and needs no action of the peer's program.
    pub(super) fn is_one_sided(self) -> bool {
        self.is_atomic() || self == Self::Read
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Send => "send",
            Self::FetchAdd => "fetch-add",
            Self::CompareSwap => "compare-swap",
        })
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lat => "lat",
            Self::Bw => "bw",
        })
    }
}

/// Operation as named on the command line; the kind of atomic is an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Write,
    Read,
    Send,
    Atomic,
}

/// Roles of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Both,
    Server { port: u16, wait: Duration },
    Client { host: String, port: u16 },
}

/// Plan of a command, with all defaults that need no device. All parameters hold for each size of
/// the list.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) sizes: Vec<u32>,
    pub(super) shape: Shape,
    pub(super) role: Role,
    pub(super) device: Option<String>,
    pub(super) json: bool,
    pub(super) out: Option<PathBuf>,
    pub(super) svg: Option<PathBuf>,
    pub(super) png: Option<PathBuf>,
    pub(super) plot: bool,
    pub(super) quiet: bool,
}

/// All parameters of a measurement except its size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Shape {
    pub(super) op: Operation,
    pub(super) test: Test,
    /// Number of messages on each queue pair; `None`: limited by time.
    pub(super) iters: Option<u64>,
    pub(super) duration_s: Option<f64>,
    pub(super) warmup: u64,
    /// Maximum inline bytes; 0 for operations with a response.
    pub(super) inline: u32,
    pub(super) qps: u32,
    pub(super) tx_depth: u32,
    /// Requested receive depth; `None`: what fits, by size.
    pub(super) rx_depth: Option<u32>,
    pub(super) cq_mod: u32,
    pub(super) post_list: u32,
    pub(super) outs: Option<u8>,
    pub(super) bidirectional: bool,
    pub(super) port: u8,
    pub(super) gid_index: Option<u32>,
    /// Bytes.
    pub(super) mtu: Option<u32>,
    /// Requested timeout; `None`: by device.
    pub(super) qp_timeout: Option<u8>,
    pub(super) sl: u8,
    pub(super) traffic_class: u8,
    pub(super) doorbell: Doorbell,
    #[serde(default)]
    pub(super) connection: Connection,
    /// One receive queue for all queue pairs.
    #[serde(default)]
    pub(super) use_srq: bool,
    pub(super) cpu: Option<usize>,
    pub(super) busy: bool,
    /// Sleeps after empty polls.
    #[serde(default)]
    pub(super) events: bool,
    pub(super) check: bool,
    pub(super) timeout_s: f64,
}

impl Shape {
    pub(super) fn timeout(&self) -> Duration {
        Duration::try_from_secs_f64(self.timeout_s).unwrap_or(Duration::from_secs(10))
    }

    pub(super) fn duration(&self) -> Option<Duration> {
        self.duration_s.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }

    /// Bytes of a receive before the message.
    pub(super) fn head(&self) -> u32 {
        self.connection.head() as u32
    }

    /// Receives of a queue pair for messages of this size.
    pub(super) fn receives(&self, size: u32) -> u32 {
        if self.op != Operation::Send {
            // The test uses no receive, but a queue has at least one.
            return 1;
        }
        let fitting = RECEIVE_BYTES / (u64::from(size) * u64::from(self.qps)).max(1);
        self.rx_depth.unwrap_or((fitting as u32).clamp(1, RX_DEPTH))
    }
}
