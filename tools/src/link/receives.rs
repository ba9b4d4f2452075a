//! Receive queues of a side: one per queue pair, or a shared one.
//!
//! # Safety
//!
//! Posts by address and key pass the contract of [`uverbs::RecvBatch::post_raw`] to the caller.
#![allow(unsafe_code, reason = "hands on posts by address and key")]

use uverbs::dc::DcTarget;
use uverbs::raw::Sge;
use uverbs::xrc::{ForXrc, RemoteSrq, XrcDomain, XrcTarget};
use uverbs::{
    Any, CompletionQueue, Context, Frame, PostError, ProtectionDomain, QueuePairBuilder, RecvQueue,
    SharedReceiveQueue, Unposted,
};

use crate::link::transport::Connection;

/// Receive queues; see the [module](self).
#[allow(clippy::large_enum_variant, reason = "an end has one")]
pub(crate) enum Receives {
    /// A queue for each queue pair.
    Own,
    /// One queue for all queue pairs.
    Shared(SharedReceiveQueue),
    /// One queue for all XRC targets.
    Xrc(Box<XrcReceives>),
    /// One queue for all DC targets.
    Dc(Box<DcReceives>),
}

/// Receive queue of the XRC targets, and the objects that it needs.
pub(crate) struct XrcReceives {
    srq: SharedReceiveQueue<Any, ForXrc>,
    domain: XrcDomain,
    context: Context,
}

/// Receive queue of the DC targets, and the objects that it needs.
pub(crate) struct DcReceives {
    srq: SharedReceiveQueue,
    pd: ProtectionDomain,
    context: Context,
}

/// DC access key of the targets; both sides are this program.
const DC_KEY: u64 = 0x7576_6572_6273;

impl Receives {
    /// Room for `count` receives of a side, if they are shared.
    pub(crate) fn new(
        context: &Context,
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        (connection, shared): (Connection, bool),
        count: u32,
    ) -> Result<Self, uverbs::Error> {
        let queue = || context.shared_receive_queue(pd).max_wr(count);
        if connection == Connection::Xrc {
            let domain = context.xrc_domain()?;
            let srq = queue().xrc(&domain, cq).build()?;
            let context = context.clone();
            return Ok(Self::Xrc(Box::new(XrcReceives { srq, domain, context })));
        }
        if connection == Connection::Dc {
            let (srq, pd, context) = (queue().build()?, pd.clone(), context.clone());
            return Ok(Self::Dc(Box::new(DcReceives { srq, pd, context })));
        }
        match shared {
            true => queue().build().map(Self::Shared),
            false => Ok(Self::Own),
        }
    }

    /// Lets a queue pair receive from here.
    pub(crate) fn give_to(&self, builder: QueuePairBuilder) -> QueuePairBuilder {
        match self {
            Self::Own | Self::Xrc(_) | Self::Dc(_) => builder,
            // The queue's size is rounded up; no more receives are posted than the CQ has room for.
            Self::Shared(srq) => builder.shared_receives(srq).overcommit(),
        }
    }

    /// Creates an XRC target; returns also the queue that its messages name.
    pub(crate) fn target(&self) -> Result<(XrcTarget, RemoteSrq), uverbs::Error> {
        match self {
            Self::Xrc(xrc) => Ok((xrc.context.xrc_target(&xrc.domain)?, xrc.srq.remote())),
            _ => Err(set_up_otherwise("of XRC")),
        }
    }

    /// Creates a DC target, whose completions go to `cq`.
    pub(crate) fn dc_target(&self, cq: &CompletionQueue) -> Result<DcTarget, uverbs::Error> {
        match self {
            Self::Dc(dc) => dc.context.dc_target(&dc.pd, cq, &dc.srq, DC_KEY),
            _ => Err(set_up_otherwise("of DC")),
        }
    }

    /// Posts a receive; `own` is the queue pair's queue.
    pub(crate) fn post(
        &mut self,
        own: Option<&mut RecvQueue>,
        id: u64,
        frame: Frame,
    ) -> Result<(), Unposted<Frame>> {
        match (self, own) {
            (Self::Shared(srq), _) => srq.post(id, frame),
            (Self::Xrc(xrc), _) => xrc.srq.post(id, frame),
            (Self::Dc(dc), _) => dc.srq.post(id, frame),
            (Self::Own, Some(own)) => own.post(id, frame),
            (Self::Own, None) => Err(Unposted { error: PostError::BadOperation, data: frame }),
        }
    }

    /// Posts a receive by address and key.
    ///
    /// # Safety
    ///
    /// The contract of [`uverbs::RecvBatch::post_raw`].
    pub(crate) unsafe fn post_raw(
        &mut self,
        own: Option<&mut RecvQueue>,
        id: u64,
        list: &[Sge],
    ) -> Result<(), PostError> {
        let shared = match self {
            Self::Shared(srq) => Some(srq),
            Self::Dc(dc) => Some(&mut dc.srq),
            Self::Own | Self::Xrc(_) => None,
        };
        if let Some(srq) = shared {
            let mut batch = srq.batch();
            // SAFETY: `list` is valid by this function's contract.
            unsafe { batch.post_raw(id, list) }?;
            batch.ring();
            return Ok(());
        }
        match (self, own) {
            (Self::Xrc(xrc), _) => {
                let mut batch = xrc.srq.batch();
                // SAFETY: `list` is valid by this function's contract.
                unsafe { batch.post_raw(id, list) }?;
                batch.ring();
            }
            (Self::Own, Some(own)) => {
                let mut batch = own.batch();
                // SAFETY: `list` is valid by this function's contract.
                unsafe { batch.post_raw(id, list) }?;
                batch.ring();
            }
            _ => return Err(PostError::BadOperation),
        }
        Ok(())
    }
}

fn set_up_otherwise(value: &str) -> uverbs::Error {
    uverbs::Error::Invalid {
        verb: "create_qp",
        what: "target",
        value: value.to_owned(),
        why: "the side was set up for another transport",
    }
}
