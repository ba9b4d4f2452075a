//! Receive queues of queue pairs of any transport: one per queue pair, or a shared one.
//!
//! # Safety
//!
//! Posts by address and key pass the contract of
//! [`RecvBatch::post_raw`](crate::RecvBatch::post_raw) to the caller.
#![allow(unsafe_code, reason = "hands on posts by address and key")]

use std::sync::Arc;

use uverbs_core::error::Error;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::queues::work::{PostError, Sge};

use super::TransportName;
use crate::dc::DcTarget;
use crate::xrc::{ForXrc, RemoteSrq, XrcDomain, XrcTarget};
use crate::{
    Any, CompletionQueue, Context, Frame, ProtectionDomain, QueuePairBuilder, RecvQueue,
    SharedReceiveQueue, Unposted,
};

/// Receive queues of [`AnyQueuePair`](super::AnyQueuePair)s: one for each queue pair, or one for
/// all.
#[derive(Debug)]
pub struct AnyReceives(Sort);

#[derive(Debug)]
enum Sort {
    Own,
    Shared(Box<SharedReceiveQueue>),
    Xrc(Box<XrcReceives>),
    Dc(Box<DcReceives>),
}

/// Queue of XRC targets, and the objects that a target needs.
#[derive(Debug)]
struct XrcReceives {
    srq: SharedReceiveQueue<Any, ForXrc>,
    domain: XrcDomain,
    context: Context,
}

/// Queue of DC targets, and the objects that a target needs.
#[derive(Debug)]
struct DcReceives {
    srq: SharedReceiveQueue,
    cq: Arc<CqCore>,
    pd: ProtectionDomain,
    context: Context,
}

impl AnyReceives {
    /// A receive queue for each queue pair; not of XRC and DC
    /// ([`needs_shared_receives`](TransportName::needs_shared_receives)).
    #[must_use]
    pub fn own() -> Self {
        Self(Sort::Own)
    }

    /// A shared queue of `count` receives for all queue pairs of a transport. Their completions go
    /// to `cq`, which needs room for them; for DC `count` counts as rounded up to a power of two.
    ///
    /// # Errors
    ///
    /// As for a [`SharedReceiveQueueBuilder`](crate::SharedReceiveQueueBuilder::build); of XRC also
    /// as for [`Context::xrc_domain`].
    pub fn shared(
        context: &Context,
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        transport: TransportName,
        count: u32,
    ) -> Result<Self, Error> {
        let queue = context.shared_receive_queue(pd).max_wr(count);
        let context = context.clone();
        Ok(Self(match transport {
            TransportName::Xrc => {
                let domain = context.xrc_domain()?;
                let srq = queue.xrc(&domain, cq).build()?;
                Sort::Xrc(Box::new(XrcReceives { srq, domain, context }))
            }
            TransportName::Dc => {
                let (srq, cq, pd) = (queue.build()?, Arc::clone(cq.core()), pd.clone());
                Sort::Dc(Box::new(DcReceives { srq, cq, pd, context }))
            }
            TransportName::Rc | TransportName::Uc | TransportName::Ud | TransportName::Srd => {
                Sort::Shared(Box::new(queue.build()?))
            }
        }))
    }

    /// Lets a queue pair receive from here.
    pub(super) fn give_to(&self, builder: QueuePairBuilder) -> QueuePairBuilder {
        match &self.0 {
            Sort::Own | Sort::Xrc(_) | Sort::Dc(_) => builder,
            // The queue's size is rounded up; no more receives are posted than the CQ has room for.
            Sort::Shared(srq) => builder.shared_receives(srq).overcommit(),
        }
    }

    /// Creates an XRC target; returns also the queue that its messages name.
    pub(super) fn xrc_target(&self) -> Result<(XrcTarget, RemoteSrq), Error> {
        match &self.0 {
            Sort::Xrc(xrc) => Ok((xrc.context.xrc_target(&xrc.domain)?, xrc.srq.remote())),
            _ => Err(not_for(TransportName::Xrc)),
        }
    }

    /// Creates a DC target with a random access key.
    pub(super) fn dc_target(&self) -> Result<DcTarget, Error> {
        match &self.0 {
            Sort::Dc(dc) => {
                let key = dc.context.random();
                dc.context.dc_target_on(&dc.pd, &dc.cq, &dc.srq, key)
            }
            _ => Err(not_for(TransportName::Dc)),
        }
    }

    /// Posts a receive; `own` is the queue pair's [queue](super::AnyQueuePair::recv_queue), which a
    /// shared queue ignores.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the frame; [`PostError::BadOperation`] without any queue.
    pub fn post(
        &mut self,
        own: Option<&mut RecvQueue>,
        id: u64,
        frame: Frame,
    ) -> Result<(), Unposted<Frame>> {
        match (&mut self.0, own) {
            (Sort::Shared(srq), _) => srq.post(id, frame),
            (Sort::Xrc(xrc), _) => xrc.srq.post(id, frame),
            (Sort::Dc(dc), _) => dc.srq.post(id, frame),
            (Sort::Own, Some(own)) => own.post(id, frame),
            (Sort::Own, None) => Err(Unposted { error: PostError::BadOperation, data: frame }),
        }
    }

    /// Posts a receive by address and key.
    ///
    /// # Safety
    ///
    /// The contract of [`RecvBatch::post_raw`](crate::RecvBatch::post_raw).
    ///
    /// # Errors
    ///
    /// [`PostError`]; [`PostError::BadOperation`] without any queue.
    pub unsafe fn post_raw(
        &mut self,
        own: Option<&mut RecvQueue>,
        id: u64,
        list: &[Sge],
    ) -> Result<(), PostError> {
        /// Posts to any kind of queue.
        macro_rules! post {
            ($queue:expr) => {{
                let mut batch = $queue.batch();
                // SAFETY: `list` is valid by this function's contract.
                unsafe { batch.post_raw(id, list) }?;
                batch.ring();
            }};
        }
        match (&mut self.0, own) {
            (Sort::Shared(srq), _) => post!(srq),
            (Sort::Xrc(xrc), _) => post!(xrc.srq),
            (Sort::Dc(dc), _) => post!(dc.srq),
            (Sort::Own, Some(own)) => post!(own),
            (Sort::Own, None) => return Err(PostError::BadOperation),
        }
        Ok(())
    }
}

fn not_for(transport: TransportName) -> Error {
    Error::Invalid {
        verb: "create_qp",
        what: "receives",
        value: format!("not made for {transport}"),
        why: "XRC and DC take `AnyReceives::shared` of their own transport",
    }
}
