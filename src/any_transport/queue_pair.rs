//! A queue pair of any transport, with its one peer.

use uverbs_core::attr::QpCap;
use uverbs_core::error::Error;

use super::batch::{AnyBatch, Sort as Posts};
use super::{AnyEndpoint, AnyReceives, TransportName};
use crate::dc::{DcDestination, DcTarget};
use crate::provider::AnySq;
use crate::transport::{Dci, Srd, XrcIni};
use crate::xrc::{RemoteSrq, XrcTarget};
use crate::{
    Any, Destination, Endpoint, Local, QueuePair, QueuePairBuilder, Rc, RecvQueue, Uc, Ud,
};

/// Queue pair whose transport is known at run time; see the [module](super) for an example. It has
/// one peer, over datagrams too. Of XRC and DC it is an initiator and a target.
#[derive(Debug)]
pub struct AnyQueuePair(Sort);

/// A queue pair, and its destination once it is known.
#[derive(Debug)]
enum Sort {
    Rc(QueuePair<Any, Rc>),
    Uc(QueuePair<Any, Uc>),
    Ud(QueuePair<Any, Ud>, Option<Destination>),
    Srd(QueuePair<Any, Srd>, Option<Destination>),
    Xrc(Box<Xrc>),
    Dc(Box<Dc>),
}

/// XRC: initiator and target of a side.
#[derive(Debug)]
struct Xrc {
    qp: QueuePair<Any, XrcIni>,
    target: XrcTarget,
    /// Queue that receives the target's messages.
    own: RemoteSrq,
    /// The peer's queue.
    to: Option<RemoteSrq>,
}

/// DC: initiator and target of a side.
#[derive(Debug)]
struct Dc {
    qp: QueuePair<Any, Dci>,
    target: DcTarget,
    /// The peer's target.
    to: Option<DcDestination>,
}

impl AnyQueuePair {
    /// Creates a queue pair that receives from `receives`, in RESET.
    ///
    /// # Errors
    ///
    /// As for [`QueuePairBuilder::build`]; [`Error::Unsupported`] on a device without the
    /// transport; [`Error::Invalid`] for XRC or DC with receives that weren't made for it.
    pub fn build(
        builder: QueuePairBuilder,
        transport: TransportName,
        receives: &AnyReceives,
    ) -> Result<Self, Error> {
        let builder = receives.give_to(builder);
        Ok(Self(match transport {
            TransportName::Rc => Sort::Rc(builder.build()?),
            TransportName::Uc => Sort::Uc(builder.uc().build()?),
            TransportName::Ud => Sort::Ud(builder.ud().build()?, None),
            TransportName::Srd => Sort::Srd(builder.srd().build()?, None),
            TransportName::Xrc => {
                let qp = builder.xrc().build()?;
                let (target, own) = receives.xrc_target()?;
                Sort::Xrc(Box::new(Xrc { qp, target, own, to: None }))
            }
            TransportName::Dc => {
                let qp = builder.dci().build()?;
                let target = receives.dc_target()?;
                Sort::Dc(Box::new(Dc { qp, target, to: None }))
            }
        }))
    }

    /// Brings the queue pair to a state in which receives can be posted, and returns the endpoint
    /// for the peer.
    ///
    /// # Errors
    ///
    /// As for a connected queue pair's [`prepare`](QueuePair::prepare).
    pub fn bring_up(&mut self, local: &Local) -> Result<AnyEndpoint, Error> {
        match &mut self.0 {
            Sort::Rc(qp) => qp.prepare(local).map(AnyEndpoint::Connected),
            Sort::Uc(qp) => qp.prepare(local).map(AnyEndpoint::Connected),
            Sort::Ud(qp, _) => qp.bring_up(local).map(AnyEndpoint::Datagram),
            Sort::Srd(qp, _) => qp.bring_up(local).map(AnyEndpoint::Datagram),
            Sort::Xrc(xrc) => {
                let initiator = xrc.qp.prepare(local)?;
                // One PSN for both directions, so that the two endpoints differ only in their
                // number.
                xrc.target.prepare(&Local { psn: Some(initiator.psn), ..local.clone() })?;
                Ok(AnyEndpoint::Xrc { initiator, target: xrc.target.qpn(), srq: xrc.own })
            }
            Sort::Dc(dc) => {
                dc.qp.bring_up(local)?;
                dc.target.bring_up(local).map(AnyEndpoint::Dc)
            }
        }
    }

    /// Connects to the peer, or makes it the destination of all posts.
    ///
    /// # Errors
    ///
    /// As for [`QueuePair::connect`] or `destination`; [`Error::Invalid`] for an endpoint of
    /// another transport.
    pub fn connect(&mut self, peer: &AnyEndpoint) -> Result<(), Error> {
        match (&mut self.0, peer) {
            (Sort::Rc(qp), AnyEndpoint::Connected(peer)) => qp.connect(peer),
            (Sort::Uc(qp), AnyEndpoint::Connected(peer)) => qp.connect(peer),
            (Sort::Ud(qp, to), AnyEndpoint::Datagram(peer)) => {
                *to = Some(qp.destination(peer)?);
                Ok(())
            }
            (Sort::Srd(qp, to), AnyEndpoint::Datagram(peer)) => {
                *to = Some(qp.destination(peer)?);
                Ok(())
            }
            (Sort::Xrc(xrc), AnyEndpoint::Xrc { initiator, target, srq }) => {
                xrc.to = Some(*srq);
                xrc.target.connect(initiator)?;
                xrc.qp.connect(&Endpoint { qpn: *target, ..*initiator })
            }
            (Sort::Dc(dc), AnyEndpoint::Dc(peer)) => {
                dc.to = Some(dc.qp.destination(peer)?);
                Ok(())
            }
            _ => Err(Error::Invalid {
                verb: "connect",
                what: "the peer's endpoint",
                value: peer.to_string(),
                why: "it is of another transport",
            }),
        }
    }

    /// Sizes that the device gave.
    #[must_use]
    pub fn cap(&self) -> &QpCap {
        match &self.0 {
            Sort::Rc(qp) => qp.cap(),
            Sort::Uc(qp) => qp.cap(),
            Sort::Ud(qp, _) => qp.cap(),
            Sort::Srd(qp, _) => qp.cap(),
            Sort::Xrc(xrc) => xrc.qp.cap(),
            Sort::Dc(dc) => dc.qp.cap(),
        }
    }

    /// Receive queue; `None` of XRC and DC.
    #[must_use]
    pub fn recv_queue(&mut self) -> Option<&mut RecvQueue> {
        match &mut self.0 {
            Sort::Rc(qp) => Some(qp.recv_queue()),
            Sort::Uc(qp) => Some(qp.recv_queue()),
            Sort::Ud(qp, _) => Some(qp.recv_queue()),
            Sort::Srd(qp, _) => Some(qp.recv_queue()),
            Sort::Xrc(_) | Sort::Dc(_) => None,
        }
    }

    /// The provider's posting side.
    #[must_use]
    pub fn provider(&mut self) -> &AnySq {
        match &mut self.0 {
            Sort::Rc(qp) => qp.send_queue().provider(),
            Sort::Uc(qp) => qp.send_queue().provider(),
            Sort::Ud(qp, _) => qp.send_queue().provider(),
            Sort::Srd(qp, _) => qp.send_queue().provider(),
            Sort::Xrc(xrc) => xrc.qp.send_queue().provider(),
            Sort::Dc(dc) => dc.qp.send_queue().provider(),
        }
    }

    /// Begins a batch.
    #[inline]
    pub fn batch(&mut self) -> AnyBatch<'_> {
        AnyBatch(match &mut self.0 {
            Sort::Rc(qp) => Posts::Rc(qp.batch()),
            Sort::Uc(qp) => Posts::Uc(qp.batch()),
            Sort::Ud(qp, to) => Posts::Ud(qp.batch(), to.as_ref()),
            Sort::Srd(qp, to) => Posts::Srd(qp.batch(), to.as_ref()),
            Sort::Xrc(xrc) => Posts::Xrc(xrc.qp.batch(), xrc.to.as_ref()),
            Sort::Dc(dc) => Posts::Dc(dc.qp.batch(), dc.to.as_ref()),
        })
    }
}
