//! A queue pair of whichever transport `--connection` names.
//!
//! # Safety
//!
//! Posts by address and key are the caller's promise, and handed on.
#![allow(unsafe_code, reason = "hands on posts by address and key")]

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use uverbs::provider::AnySq;
use uverbs::{
    Any, Data, DatagramEndpoint, Destination, Endpoint, EndpointError, Frame, GRH_LEN, Gid, Local,
    PostError, QpCap, QueuePair, QueuePairBuilder, RecvQueue, SendOp, Uc, Ud, Wr,
};

/// What `--connection` takes: perftest's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[value(rename_all = "UPPER")]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Connection {
    /// Reliable connection: everything
    #[default]
    Rc,
    /// Unreliable connection: SEND and WRITE, nothing acknowledged
    Uc,
    /// Unreliable datagrams: SEND, of one packet
    Ud,
}

impl Connection {
    /// Whether the peer acknowledges, so that a completion means that a message arrived.
    pub(crate) fn is_reliable(self) -> bool {
        self == Self::Rc
    }

    /// Bytes before the message in a receive.
    pub(crate) fn head(self) -> usize {
        if self == Self::Ud { GRH_LEN } else { 0 }
    }
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        })
    }
}

/// What a peer must know of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Connection(Endpoint),
    Datagram(DatagramEndpoint),
}

impl Reach {
    pub(crate) fn lid(&self) -> u16 {
        match self {
            Self::Connection(endpoint) => endpoint.lid,
            Self::Datagram(endpoint) => endpoint.lid,
        }
    }

    pub(crate) fn qpn(&self) -> u32 {
        match self {
            Self::Connection(endpoint) => endpoint.qpn,
            Self::Datagram(endpoint) => endpoint.qpn,
        }
    }

    pub(crate) fn gid(&self) -> Option<Gid> {
        match self {
            Self::Connection(endpoint) => endpoint.gid,
            Self::Datagram(endpoint) => endpoint.gid,
        }
    }

    /// The first PSN that it sends; a datagram's receiver needs none.
    pub(crate) fn psn(&self) -> u32 {
        match self {
            Self::Connection(endpoint) => endpoint.psn,
            Self::Datagram(_) => 0,
        }
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(endpoint) => endpoint.fmt(f),
            Self::Datagram(endpoint) => endpoint.fmt(f),
        }
    }
}

impl FromStr for Reach {
    type Err = EndpointError;

    /// A datagram's endpoint is the one that tells a Q_Key.
    fn from_str(text: &str) -> Result<Self, EndpointError> {
        match text.contains("qkey=") {
            true => text.parse().map(Self::Datagram),
            false => text.parse().map(Self::Connection),
        }
    }
}

/// See the [module](self).
pub(crate) enum Link {
    Rc(QueuePair),
    Uc(QueuePair<Any, Uc>),
    /// With where its messages go, when that is known.
    Ud(QueuePair<Any, Ud>, Option<Destination>),
}

/// Does the same with a queue pair of each transport.
macro_rules! each {
    ($link:expr, $qp:ident => $does:expr) => {
        match $link {
            Link::Rc($qp) => $does,
            Link::Uc($qp) => $does,
            Link::Ud($qp, _) => $does,
        }
    };
}

impl Link {
    pub(crate) fn build(
        builder: QueuePairBuilder,
        connection: Connection,
    ) -> Result<Self, uverbs::Error> {
        match connection {
            Connection::Rc => builder.build().map(Self::Rc),
            Connection::Uc => builder.uc().build().map(Self::Uc),
            Connection::Ud => builder.ud().build().map(|qp| Self::Ud(qp, None)),
        }
    }

    /// Brings it to where receives can be posted, and says what the peer must know.
    pub(crate) fn prepare(&mut self, local: &Local) -> Result<Reach, uverbs::Error> {
        match self {
            Self::Rc(qp) => qp.prepare(local).map(Reach::Connection),
            Self::Uc(qp) => qp.prepare(local).map(Reach::Connection),
            Self::Ud(qp, _) => qp.bring_up(local).map(Reach::Datagram),
        }
    }

    /// Messages go there from now on.
    pub(crate) fn connect(&mut self, peer: &Reach) -> Result<(), uverbs::Error> {
        match (&mut *self, peer) {
            (Self::Rc(qp), Reach::Connection(peer)) => qp.connect(peer),
            (Self::Uc(qp), Reach::Connection(peer)) => qp.connect(peer),
            (Self::Ud(qp, to), Reach::Datagram(peer)) => {
                *to = Some(qp.destination(peer)?);
                Ok(())
            }
            _ => Err(uverbs::Error::Invalid {
                verb: "connect",
                what: "the peer's endpoint",
                value: peer.to_string(),
                why: "it is of another transport (--connection)",
            }),
        }
    }

    pub(crate) fn cap(&self) -> &QpCap {
        each!(self, qp => qp.cap())
    }

    pub(crate) fn recv_queue(&mut self) -> &mut RecvQueue {
        each!(self, qp => qp.recv_queue())
    }

    /// The provider's send queue.
    pub(crate) fn sq(&mut self) -> &AnySq {
        each!(self, qp => qp.send_queue().provider())
    }

    /// Begins a batch.
    #[inline]
    pub(crate) fn batch(&mut self) -> Batch<'_> {
        match self {
            Self::Rc(qp) => Batch::Rc(qp.batch()),
            Self::Uc(qp) => Batch::Uc(qp.batch()),
            Self::Ud(qp, to) => Batch::Ud(qp.batch(), to.as_ref()),
        }
    }
}

/// A batch of sends. Nothing is posted until `ring`.
pub(crate) enum Batch<'q> {
    Rc(uverbs::Batch<'q>),
    Uc(uverbs::Batch<'q, Any, Uc>),
    Ud(uverbs::Batch<'q, Any, Ud>, Option<&'q Destination>),
}

impl Batch<'_> {
    /// Posts to the peer. [`PostError::State`] for a datagram before it is known.
    ///
    /// # Safety
    ///
    /// The contract of [`uverbs::RawBatch`].
    #[inline]
    pub(crate) unsafe fn post(
        &mut self,
        wr: Wr,
        op: SendOp,
        data: Data<'_>,
    ) -> Result<(), PostError> {
        match self {
            // SAFETY: the caller's promise.
            Self::Rc(batch) => unsafe { batch.raw().post(wr, op, data) },
            // SAFETY: the caller's promise.
            Self::Uc(batch) => unsafe { batch.raw().post(wr, op, data) },
            // SAFETY: the caller's promise.
            Self::Ud(batch, Some(to)) => unsafe { batch.raw().post_to(wr, op, data, to) },
            Self::Ud(_, None) => Err(PostError::State),
        }
    }

    /// Posts bytes that are copied: they are the caller's at once.
    pub(crate) fn inline(&mut self, id: u64, op: SendOp, bytes: &[u8]) -> Result<(), PostError> {
        // SAFETY: the bytes are copied now; no memory is named by key.
        unsafe { self.post(Wr::new(id), op, Data::Inline(bytes)) }
    }

    /// Posts a frame without its first `skip` bytes; its completion gives it back.
    pub(crate) fn frame(
        &mut self,
        id: u64,
        op: SendOp,
        frame: Frame,
        skip: usize,
    ) -> Result<(), PostError> {
        let part = frame.part(skip..);
        let posted = match (self, op) {
            (Self::Rc(batch), SendOp::Send) => batch.send(id, part),
            (Self::Rc(batch), SendOp::SendImm(imm)) => batch.send_imm(id, part, imm),
            (Self::Rc(batch), SendOp::Write(to)) => batch.write(id, part, to),
            (Self::Rc(batch), SendOp::WriteImm(to, imm)) => batch.write_imm(id, part, to, imm),
            (Self::Rc(batch), SendOp::Read(from)) => batch.read(id, part, from),
            (Self::Rc(batch), SendOp::CompareSwap { remote, compare, swap }) => {
                batch.compare_swap(id, part, remote, compare, swap)
            }
            (Self::Rc(batch), SendOp::FetchAdd { remote, add }) => {
                batch.fetch_add(id, part, remote, add)
            }
            (Self::Rc(batch), SendOp::SendInvalidate(key)) => batch.send_invalidate(id, part, key),
            (Self::Uc(batch), SendOp::Send) => batch.send(id, part),
            (Self::Uc(batch), SendOp::SendImm(imm)) => batch.send_imm(id, part, imm),
            (Self::Uc(batch), SendOp::Write(to)) => batch.write(id, part, to),
            (Self::Uc(batch), SendOp::WriteImm(to, imm)) => batch.write_imm(id, part, to, imm),
            (Self::Ud(batch, Some(to)), SendOp::Send) => batch.send_to(id, part, to),
            (Self::Ud(batch, Some(to)), SendOp::SendImm(imm)) => {
                batch.send_imm_to(id, part, imm, to)
            }
            (Self::Ud(_, None), _) => return Err(PostError::State),
            _ => return Err(PostError::BadOperation),
        };
        posted.map_err(PostError::from)
    }

    /// Publishes the batch.
    #[inline]
    pub(crate) fn ring(self) {
        match self {
            Self::Rc(batch) => batch.ring(),
            Self::Uc(batch) => batch.ring(),
            Self::Ud(batch, _) => batch.ring(),
        }
    }
}
