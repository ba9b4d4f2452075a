//! Parameters of a measurement, with all defaults that need no device.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use uverbs::any_transport::TransportName;

use crate::link::doorbell::Doorbell;
use crate::link::operation::Operation;

/// Maximum memory of the default receive depth.
const RECEIVE_BYTES: u64 = 64 << 20;
/// Default receive depth of perftest.
const RX_DEPTH: u32 = 512;

/// Kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Test {
    /// Latency, of each message, one at a time: ib_write_lat, ib_read_lat, ib_send_lat,
    /// ib_atomic_lat
    #[value(alias = "latency")]
    Lat,
    /// Bandwidth and message rate, with many outstanding: ib_write_bw and so on
    #[value(aliases = ["bandwidth", "rate"])]
    Bw,
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
pub(crate) enum Family {
    Write,
    Read,
    Send,
    Atomic,
}

/// Roles of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Both,
    Server { port: u16, wait: Duration },
    Client { host: String, port: u16 },
}

/// Plan of a command, with all defaults that need no device. All parameters hold for each size of
/// the list.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) sizes: Vec<u32>,
    pub(crate) shape: Shape,
    pub(crate) role: Role,
    pub(crate) device: Option<String>,
    pub(crate) json: bool,
    pub(crate) out: Option<PathBuf>,
    pub(crate) svg: Option<PathBuf>,
    pub(crate) png: Option<PathBuf>,
    pub(crate) plot: bool,
    pub(crate) quiet: bool,
}

/// All parameters of a measurement except its size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) op: Operation,
    pub(crate) test: Test,
    /// Number of messages on each queue pair; `None`: limited by time.
    pub(crate) iters: Option<u64>,
    pub(crate) duration_s: Option<f64>,
    pub(crate) warmup: u64,
    /// Maximum inline bytes; 0 for operations with a response.
    pub(crate) inline: u32,
    pub(crate) qps: u32,
    pub(crate) tx_depth: u32,
    /// Requested receive depth; `None`: what fits, by size.
    pub(crate) rx_depth: Option<u32>,
    pub(crate) cq_mod: u32,
    pub(crate) post_list: u32,
    pub(crate) outs: Option<u8>,
    pub(crate) bidirectional: bool,
    pub(crate) port: u8,
    pub(crate) gid_index: Option<u32>,
    /// Bytes.
    pub(crate) mtu: Option<u32>,
    /// Requested timeout; `None`: by device.
    pub(crate) qp_timeout: Option<u8>,
    pub(crate) sl: u8,
    pub(crate) traffic_class: u8,
    pub(crate) doorbell: Doorbell,
    #[serde(default, with = "crate::link::transports::json")]
    pub(crate) connection: TransportName,
    /// One receive queue for all queue pairs.
    #[serde(default)]
    pub(crate) use_srq: bool,
    pub(crate) cpu: Option<usize>,
    /// Sleeps after empty polls.
    #[serde(default)]
    pub(crate) events: bool,
    pub(crate) check: bool,
    pub(crate) timeout_s: f64,
}

impl Shape {
    pub(crate) fn timeout(&self) -> Duration {
        Duration::try_from_secs_f64(self.timeout_s).unwrap_or(Duration::from_secs(10))
    }

    pub(crate) fn duration(&self) -> Option<Duration> {
        self.duration_s.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }

    /// Bytes of a receive before the message.
    pub(crate) fn head(&self) -> u32 {
        self.connection.recv_offset() as u32
    }

    /// Receives of a queue pair for messages of this size.
    pub(crate) fn receives(&self, size: u32) -> u32 {
        if !self.op.needs_receives() {
            // The test uses no receive, but a queue has at least one.
            return 1;
        }
        let fitting = RECEIVE_BYTES / (u64::from(size) * u64::from(self.qps)).max(1);
        self.rx_depth.unwrap_or((fitting as u32).clamp(1, RX_DEPTH))
    }
}
