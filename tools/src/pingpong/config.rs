//! Parameters of a ping-pong, with all defaults that need no device.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use uverbs::Mtu;

use crate::link::doorbell::Doorbell;
use crate::link::transport::Connection;

/// Operation of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Opcode {
    /// SEND into the peer's receive
    Send,
    /// SEND with immediate data, which is checked, too
    SendImm,
    /// RDMA WRITE; the peer polls its memory
    Write,
    /// RDMA WRITE with immediate data, which tells the peer
    WriteImm,
    /// RDMA READ, of each side from the other
    Read,
    /// Atomic compare-and-swap; every fourth is one that must not swap
    #[value(alias = "cas")]
    CompareSwap,
    /// Atomic fetch-and-add
    #[value(aliases = ["atomic", "faa"])]
    FetchAdd,
}

impl Opcode {
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// Executed by the peer's device, without the peer's program.
    pub(crate) fn is_one_sided(self) -> bool {
        self.is_atomic() || self == Self::Read
    }

    /// Accesses the peer's memory by address.
    pub(crate) fn needs_memory(self) -> bool {
        !matches!(self, Self::Send | Self::SendImm)
    }

    /// Uses a receive of the peer.
    pub(crate) fn needs_receives(self) -> bool {
        matches!(self, Self::Send | Self::SendImm | Self::WriteImm)
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "send",
            Self::SendImm => "send-imm",
            Self::Write => "write",
            Self::WriteImm => "write-imm",
            Self::Read => "read",
            Self::CompareSwap => "compare-swap",
            Self::FetchAdd => "fetch-add",
        })
    }
}

/// Parameters of a ping-pong, with all defaults that need no device.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Config {
    pub(crate) connection: Connection,
    /// Receives from a shared queue, also on transports that need none.
    pub(crate) use_srq: bool,
    pub(crate) opcode: Opcode,
    pub(crate) size: u32,
    pub(crate) iters: u64,
    pub(crate) warmup: u64,
    /// Sleeps for completions instead of polling.
    pub(crate) events: bool,
    /// Maximum inline bytes; 0 for operations with a response.
    pub(crate) inline: u32,
    pub(crate) port: u8,
    pub(crate) gid_index: Option<u32>,
    #[serde(serialize_with = "mtu_bytes")]
    pub(crate) mtu: Option<Mtu>,
    pub(crate) rx_depth: u32,
    pub(crate) doorbell: Doorbell,
    #[serde(rename = "timeout_ns", serialize_with = "nanoseconds")]
    pub(crate) timeout: Duration,
    #[serde(skip)]
    pub(crate) device: Option<String>,
    #[serde(skip)]
    pub(crate) json: bool,
    #[serde(skip)]
    pub(crate) quiet: bool,
}

pub(crate) fn mtu_bytes<S: serde::Serializer>(mtu: &Option<Mtu>, to: S) -> Result<S::Ok, S::Error> {
    mtu.and_then(Mtu::bytes).serialize(to)
}

pub(crate) fn nanoseconds<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Role of this side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Waits for the client, and answers.
    Server,
    /// Connects, and sends first.
    Client { host: String },
}

/// Parameters of the two-process form, in addition to [`Config`].
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    pub(crate) role: Role,
    /// TCP port of the exchange.
    pub(crate) port: u16,
    pub(crate) service_level: u8,
    /// Checks page starts of each message; the C program checks the last message.
    pub(crate) check: bool,
    /// Time that the server waits for its client.
    pub(crate) wait: Duration,
}
