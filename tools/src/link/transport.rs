//! A queue pair of the transport that `--connection` names.
//!
//! # Safety
//!
//! Posts by address and key pass the contract of [`uverbs::raw::RawBatch`] to the caller.
#![allow(unsafe_code, reason = "hands on posts by address and key")]

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use uverbs::dc::{DcDestination, DcEndpoint, DcTarget};
use uverbs::provider::AnySq;
use uverbs::raw::{Data, SendOp};
use uverbs::transport::{Dci, XrcIni};
use uverbs::xrc::{RemoteSrq, XrcTarget};
use uverbs::{
    Any, CompletionQueue, DatagramEndpoint, Destination, Endpoint, EndpointError, Frame, GRH_LEN,
    Gid, Local, Mtu, PostError, QpCap, QueuePair, QueuePairBuilder, RecvQueue, Uc, Ud, Wr,
};

use crate::link::receives::Receives;

/// Values of `--connection`: perftest's names.
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
    /// Extended reliable connection: everything, to a shared receive queue of the peer's
    Xrc,
    /// Dynamic connections, of ConnectX: everything, to a target of the peer's
    Dc,
}

impl Connection {
    /// Returns `true` if the peer acknowledges messages: a completion then means that the message
    /// arrived.
    pub(crate) fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::Xrc | Self::Dc)
    }

    /// CQEs to reserve for `receives`. A target's CQ needs room for its whole shared queue, whose
    /// size is rounded up.
    pub(crate) fn completions(self, receives: u32) -> u32 {
        match self {
            Self::Dc => receives.saturating_add(1).checked_next_power_of_two().unwrap_or(u32::MAX),
            Self::Rc | Self::Uc | Self::Ud | Self::Xrc => receives,
        }
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
            Self::Xrc => "XRC",
            Self::Dc => "DC",
        })
    }
}

/// Address of a queue pair that the peer needs to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Connection(Endpoint),
    Datagram(DatagramEndpoint),
    /// XRC: the initiator; the number of the target, which is otherwise equal; the queue.
    Xrc(Endpoint, u32, RemoteSrq),
    /// DC: the target.
    Dc(DcEndpoint),
}

impl Reach {
    pub(crate) fn lid(&self) -> u16 {
        match self {
            Self::Connection(endpoint) | Self::Xrc(endpoint, ..) => endpoint.lid,
            Self::Datagram(endpoint) => endpoint.lid,
            Self::Dc(endpoint) => endpoint.lid,
        }
    }

    pub(crate) fn qpn(&self) -> u32 {
        match self {
            Self::Connection(endpoint) | Self::Xrc(endpoint, ..) => endpoint.qpn,
            Self::Datagram(endpoint) => endpoint.qpn,
            Self::Dc(endpoint) => endpoint.dctn,
        }
    }

    pub(crate) fn gid(&self) -> Option<Gid> {
        match self {
            Self::Connection(endpoint) | Self::Xrc(endpoint, ..) => endpoint.gid,
            Self::Datagram(endpoint) => endpoint.gid,
            Self::Dc(endpoint) => endpoint.gid,
        }
    }

    /// First PSN of its sends. UD receivers and targets need none.
    pub(crate) fn psn(&self) -> u32 {
        match self {
            Self::Connection(endpoint) | Self::Xrc(endpoint, ..) => endpoint.psn,
            Self::Datagram(_) | Self::Dc(_) => 0,
        }
    }

    /// MTU of a connection.
    pub(crate) fn mtu(&self) -> Option<Mtu> {
        match self {
            Self::Connection(endpoint) | Self::Xrc(endpoint, ..) => Some(endpoint.mtu),
            Self::Datagram(_) | Self::Dc(_) => None,
        }
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(endpoint) => endpoint.fmt(f),
            Self::Datagram(endpoint) => endpoint.fmt(f),
            Self::Dc(endpoint) => endpoint.fmt(f),
            Self::Xrc(endpoint, target, srq) => write!(f, "{endpoint} target={target:#x} {srq}"),
        }
    }
}

impl FromStr for Reach {
    type Err = EndpointError;

    /// Parses an endpoint. A Q_Key marks UD, a queue number XRC, a target number DC.
    fn from_str(text: &str) -> Result<Self, EndpointError> {
        if text.contains("qkey=") {
            return text.parse().map(Self::Datagram);
        }
        if text.contains("dctn=") {
            return text.parse().map(Self::Dc);
        }
        if !text.contains("srqn=") {
            return text.parse().map(Self::Connection);
        }
        let target = text.split_whitespace().find_map(|word| word.strip_prefix("target="));
        let found = target.unwrap_or_default().to_owned();
        let number = found.strip_prefix("0x").and_then(|hex| u32::from_str_radix(hex, 16).ok());
        let Some(target) = number.filter(|number| *number < 1 << 24) else {
            return Err(EndpointError { part: "target", found });
        };
        Ok(Self::Xrc(text.parse()?, target, text.parse()?))
    }
}

/// Queue pair of any transport; see the [module](self).
pub(crate) enum Link {
    Rc(QueuePair),
    Uc(QueuePair<Any, Uc>),
    /// UD, with the destination once it is known.
    Ud(QueuePair<Any, Ud>, Option<Destination>),
    Xrc(Box<Xrc>),
    Dc(Box<Dc>),
}

/// DC: initiator and target of a side.
pub(crate) struct Dc {
    qp: QueuePair<Any, Dci>,
    target: DcTarget,
    /// The peer's target, once it is known.
    to: Option<DcDestination>,
}

/// XRC: initiator and target of a side.
pub(crate) struct Xrc {
    qp: QueuePair<Any, XrcIni>,
    target: XrcTarget,
    /// Queue that receives the target's messages.
    own: RemoteSrq,
    /// The peer's queue, once it is known.
    to: Option<RemoteSrq>,
}

/// Runs the same code on a queue pair of each transport.
macro_rules! each {
    ($link:expr, $qp:ident => $does:expr) => {
        match $link {
            Link::Rc($qp) => $does,
            Link::Uc($qp) => $does,
            Link::Ud($qp, _) => $does,
            Link::Xrc(xrc) => {
                let $qp = &mut xrc.qp;
                $does
            }
            Link::Dc(dc) => {
                let $qp = &mut dc.qp;
                $does
            }
        }
    };
}

impl Link {
    pub(crate) fn build(
        builder: QueuePairBuilder,
        connection: Connection,
        receives: &Receives,
        cq: &CompletionQueue,
    ) -> Result<Self, uverbs::Error> {
        let builder = receives.give_to(builder);
        match connection {
            Connection::Rc => builder.build().map(Self::Rc),
            Connection::Uc => builder.uc().build().map(Self::Uc),
            Connection::Ud => builder.ud().build().map(|qp| Self::Ud(qp, None)),
            Connection::Xrc => {
                let qp = builder.xrc().build()?;
                let (target, own) = receives.target()?;
                Ok(Self::Xrc(Box::new(Xrc { qp, target, own, to: None })))
            }
            Connection::Dc => {
                let qp = builder.max_recv_wr(0).dci().build()?;
                let target = receives.dc_target(cq)?;
                Ok(Self::Dc(Box::new(Dc { qp, target, to: None })))
            }
        }
    }

    /// Moves the queue pair to a state that allows receives; returns its address for the peer.
    pub(crate) fn prepare(&mut self, local: &Local) -> Result<Reach, uverbs::Error> {
        match self {
            Self::Rc(qp) => qp.prepare(local).map(Reach::Connection),
            Self::Uc(qp) => qp.prepare(local).map(Reach::Connection),
            Self::Ud(qp, _) => qp.bring_up(local).map(Reach::Datagram),
            Self::Xrc(xrc) => {
                let here = xrc.qp.prepare(local)?;
                // One PSN for both directions, so that the two endpoints differ only in their
                // number.
                xrc.target.prepare(&Local { psn: Some(here.psn), ..local.clone() })?;
                Ok(Reach::Xrc(here, xrc.target.qpn(), xrc.own))
            }
            Self::Dc(dc) => {
                dc.qp.bring_up(local)?;
                dc.target.bring_up(local).map(Reach::Dc)
            }
        }
    }

    /// Connects to the peer, or sets it as destination.
    pub(crate) fn connect(&mut self, peer: &Reach) -> Result<(), uverbs::Error> {
        match (&mut *self, peer) {
            (Self::Rc(qp), Reach::Connection(peer)) => qp.connect(peer),
            (Self::Uc(qp), Reach::Connection(peer)) => qp.connect(peer),
            (Self::Ud(qp, to), Reach::Datagram(peer)) => {
                *to = Some(qp.destination(peer)?);
                Ok(())
            }
            (Self::Xrc(xrc), Reach::Xrc(peer, target, srq)) => {
                xrc.to = Some(*srq);
                xrc.target.connect(peer)?;
                xrc.qp.connect(&Endpoint { qpn: *target, ..*peer })
            }
            (Self::Dc(dc), Reach::Dc(peer)) => {
                dc.to = Some(dc.qp.destination(peer)?);
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

    pub(crate) fn cap(&mut self) -> &QpCap {
        each!(self, qp => qp.cap())
    }

    /// Receive queue of the queue pair, if it has one.
    pub(crate) fn recv_queue(&mut self) -> Option<&mut RecvQueue> {
        match self {
            Self::Rc(qp) => Some(qp.recv_queue()),
            Self::Uc(qp) => Some(qp.recv_queue()),
            Self::Ud(qp, _) => Some(qp.recv_queue()),
            Self::Xrc(_) | Self::Dc(_) => None,
        }
    }

    /// Send queue of the provider.
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
            Self::Xrc(xrc) => Batch::Xrc(xrc.qp.batch(), xrc.to.as_ref()),
            Self::Dc(dc) => Batch::Dc(dc.qp.batch(), dc.to.as_ref()),
        }
    }
}

/// A batch of sends. Unposted until `ring`.
pub(crate) enum Batch<'q> {
    Rc(uverbs::Batch<'q>),
    Uc(uverbs::Batch<'q, Any, Uc>),
    Ud(uverbs::Batch<'q, Any, Ud>, Option<&'q Destination>),
    Xrc(uverbs::Batch<'q, Any, XrcIni>, Option<&'q RemoteSrq>),
    Dc(uverbs::Batch<'q, Any, Dci>, Option<&'q DcDestination>),
}

impl Batch<'_> {
    /// Posts to the peer. [`PostError::State`] if the post needs a destination that is unknown yet.
    ///
    /// # Safety
    ///
    /// The contract of [`uverbs::raw::RawBatch`].
    #[inline]
    pub(crate) unsafe fn post(
        &mut self,
        wr: Wr,
        op: SendOp,
        data: Data<'_>,
    ) -> Result<(), PostError> {
        match self {
            // SAFETY: `data` is valid by this function's contract.
            Self::Rc(batch) => unsafe { batch.raw().post(wr, op, data) },
            // SAFETY: `data` is valid by this function's contract.
            Self::Uc(batch) => unsafe { batch.raw().post(wr, op, data) },
            // SAFETY: `data` is valid by this function's contract.
            Self::Ud(batch, Some(to)) => unsafe { batch.raw().post_to(wr, op, data, to) },
            // SAFETY: `data` is valid by this function's contract.
            Self::Xrc(batch, Some(to)) => unsafe { batch.raw().post_to(wr, op, data, to) },
            // SAFETY: `data` is valid by this function's contract.
            Self::Dc(batch, Some(to)) => unsafe { batch.raw().post_to(wr, op, data, to) },
            Self::Ud(_, None) | Self::Xrc(_, None) | Self::Dc(_, None) => Err(PostError::State),
        }
    }

    /// Posts a SEND of inline bytes, which the caller may reuse at once.
    pub(crate) fn send_inline(&mut self, id: u64, bytes: &[u8]) -> Result<(), PostError> {
        // SAFETY: the bytes are copied now; no memory is named by key.
        unsafe { self.post(Wr::new(id), SendOp::Send, Data::Inline(bytes)) }
    }

    /// Posts a SEND of a frame without its first `skip` bytes; its completion returns it.
    pub(crate) fn send(&mut self, id: u64, frame: Frame, skip: usize) -> Result<(), PostError> {
        let part = frame.part(skip..);
        let posted = match self {
            Self::Rc(batch) => batch.send(id, part),
            Self::Uc(batch) => batch.send(id, part),
            Self::Ud(batch, Some(to)) => batch.send_to(id, part, to),
            Self::Xrc(batch, Some(to)) => batch.send_to(id, part, to),
            Self::Dc(batch, Some(to)) => batch.send_to(id, part, to),
            Self::Ud(_, None) | Self::Xrc(_, None) | Self::Dc(_, None) => {
                return Err(PostError::State);
            }
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
            Self::Xrc(batch, _) => batch.ring(),
            Self::Dc(batch, _) => batch.ring(),
        }
    }
}
