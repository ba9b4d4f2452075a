//! Parameters of a ping-pong, with all defaults that need no device.

use std::time::Duration;

use serde::Serialize;
use uverbs::Mtu;
use uverbs::any_transport::TransportName;

use crate::link::doorbell::Doorbell;
use crate::link::operation::Operation;

/// Parameters of a ping-pong, with all defaults that need no device.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Config {
    #[serde(with = "crate::link::transports::json")]
    pub(crate) connection: TransportName,
    /// Receives from a shared queue, also on transports that need none.
    pub(crate) use_srq: bool,
    pub(crate) opcode: Operation,
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
