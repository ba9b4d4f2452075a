//! Objects that receive in addition to the sending queue pair, in the order of `c/bytes.c`: a
//! shared receive queue, and for XRC or DC a target.

use uverbs::attr::Path;
use uverbs::dc::{DcTarget, DctInitAttr, DctRtrAttr};
use uverbs::transport::Rc;
use uverbs::xrc::{ForXrc, RemoteSrq, XrcDomain, XrcTarget, XrcTargetRtsAttr};
use uverbs::{
    AckTimeout, CompletionQueue, Context, Mlx5, Plain, ProtectionDomain, QueuePairBuilder,
    RecvBatch, RnrTimer, SharedReceiveQueue,
};

use crate::changes;
use crate::tagged::Tagged;
use crate::transports::{MTU, RDMA, Spoken};

/// Destination of a side's sends.
#[derive(Clone, Copy, Default)]
pub(crate) struct Peer {
    pub(crate) qpn: u32,
    pub(crate) srq: Option<RemoteSrq>,
    /// DC: number and key of the target.
    pub(crate) target: Option<(u32, u64)>,
}

/// DC key of the targets.
const DC_KEY: u64 = 0x1234_5678_90ab_cdef;

/// Receivers of a case file.
pub(crate) enum Kind {
    /// Shared receive queue of the side's queue pair.
    Shared,
    /// Tag-matching shared receive queue: maximum tags, and maximum outstanding changes.
    Tags(u32, u32),
    Xrc(XrcDomain),
    Dynamic,
}

/// Receiver of a side.
#[allow(clippy::large_enum_variant, reason = "there are two")]
pub(crate) enum Receiver {
    Shared(SharedReceiveQueue<Mlx5, Plain>),
    Tags(Tagged),
    Xrc { srq: SharedReceiveQueue<Mlx5, ForXrc>, target: XrcTarget<Mlx5> },
    Dynamic { srq: SharedReceiveQueue<Mlx5, Plain>, target: DcTarget<Mlx5>, dctn: u32 },
}

type Batch<'q> = RecvBatch<'q, Mlx5, <Mlx5 as uverbs_core::provider::Provider>::Srq>;

impl Receiver {
    pub(crate) fn new(
        context: &Context<Mlx5>,
        pd: &ProtectionDomain,
        kind: &Kind,
        cq: &CompletionQueue<Mlx5>,
        (max_wr, max_sge): (u32, u32),
        phase: &impl Fn(&str),
    ) -> Self {
        phase("create_srq");
        let queue = context.shared_receive_queue(pd).max_wr(max_wr).max_sge(max_sge);
        match kind {
            Kind::Shared => Self::Shared(queue.build().unwrap()),
            Kind::Tags(tags, changes) => {
                let queue = queue.tags(cq, *tags).max_tag_changes(*changes);
                Self::Tags(Tagged::new(queue.build().unwrap()))
            }
            Kind::Xrc(domain) => {
                let srq = queue.xrc(domain, cq).build().unwrap();
                phase("create_target");
                Self::Xrc { srq, target: context.xrc_target(domain).unwrap() }
            }
            Kind::Dynamic => {
                let srq = queue.build().unwrap();
                phase("create_target");
                let target = context.dc_target(pd, cq, &srq, DC_KEY).unwrap();
                Self::Dynamic { srq, target, dctn: 0 }
            }
        }
    }

    /// Lets the side's queue pair receive from this receiver.
    pub(crate) fn serve<T: Spoken>(
        &self,
        builder: QueuePairBuilder<Mlx5, T>,
    ) -> QueuePairBuilder<Mlx5, T> {
        match self {
            Self::Shared(srq) => builder.max_recv_wr(0).max_recv_sge(0).shared_receives(srq),
            Self::Tags(tagged) => T::with_tags(builder.max_recv_wr(0).max_recv_sge(0), &tagged.srq),
            _ => builder,
        }
    }

    pub(crate) fn batch(&mut self) -> Batch<'_> {
        match self {
            Self::Shared(srq) | Self::Dynamic { srq, .. } => srq.batch(),
            Self::Xrc { srq, .. } => srq.batch(),
            Self::Tags(tagged) => tagged.srq.batch(),
        }
    }

    /// Destination of the peer's sends; `qpn` is the side's queue pair.
    pub(crate) fn peer(&self, qpn: u32) -> Peer {
        match self {
            Self::Shared(_) | Self::Tags(_) => Peer { qpn, ..Peer::default() },
            Self::Xrc { srq, target } => {
                Peer { qpn: target.qpn(), srq: Some(srq.remote()), ..Peer::default() }
            }
            Self::Dynamic { dctn, .. } => Peer { qpn, target: Some((*dctn, DC_KEY)), srq: None },
        }
    }

    /// Moves a target to its last state, for the initiator of this number.
    pub(crate) fn bring_up(&mut self, initiator: u32, path: Path, phase: &impl Fn(&str)) {
        if matches!(self, Self::Shared(_) | Self::Tags(_)) {
            return;
        }
        phase("init");
        match self {
            Self::Shared(_) | Self::Tags(_) => {}
            Self::Xrc { target, .. } => target.init(&Rc::init()).unwrap(),
            Self::Dynamic { target, .. } => {
                target.init(&DctInitAttr { port: 1, pkey_index: 0, access: RDMA }).unwrap();
            }
        }
        phase("ready_to_receive");
        match self {
            Self::Shared(_) | Self::Tags(_) => {}
            Self::Xrc { target, .. } => {
                target.ready_to_receive(&Rc::rtr(initiator, path)).unwrap();
                phase("ready_to_send");
                let sq_psn = Rc::rts().sq_psn;
                let timeout = AckTimeout::from_code(14).unwrap();
                target.ready_to_send(&XrcTargetRtsAttr { sq_psn, timeout }).unwrap();
            }
            Self::Dynamic { target, dctn, .. } => {
                let min_rnr_timer = RnrTimer::from_code(12).unwrap();
                let attr = DctRtrAttr { path_mtu: MTU, path, min_rnr_timer };
                *dctn = target.ready_to_receive(&attr).unwrap();
            }
        }
    }

    /// Opens a target again by its number.
    pub(crate) fn reopen(&self, context: &Context<Mlx5>, phase: &impl Fn(&str)) {
        let Self::Xrc { target, .. } = self else { return };
        phase("open_qp");
        let again = context.open_xrc_target(target.domain(), target.qpn()).unwrap();
        again.destroy().unwrap();
    }

    /// Changes a connected target.
    pub(crate) fn change(&mut self, way: Path, phase: &impl Fn(&str)) {
        if let Self::Xrc { target, .. } = self {
            changes::of_target(target, way, phase);
        }
    }

    /// Sets an SRQ limit, and queries it.
    pub(crate) fn limit(&mut self, phase: &impl Fn(&str)) {
        phase("modify_srq");
        match self {
            Self::Shared(srq) | Self::Dynamic { srq, .. } => srq.set_limit(3).unwrap(),
            Self::Xrc { srq, .. } => srq.set_limit(3).unwrap(),
            Self::Tags(tagged) => tagged.srq.set_limit(3).unwrap(),
        }
        phase("query_srq");
        let attr = match self {
            Self::Shared(srq) | Self::Dynamic { srq, .. } => srq.query().unwrap(),
            Self::Xrc { srq, .. } => srq.query().unwrap(),
            Self::Tags(tagged) => tagged.srq.query().unwrap(),
        };
        assert_eq!(attr.limit, 3);
    }

    pub(crate) fn destroy(self, phase: &impl Fn(&str)) {
        if !matches!(self, Self::Shared(_) | Self::Tags(_)) {
            phase("destroy_target");
        }
        match self {
            Self::Shared(srq) => {
                phase("destroy_srq");
                drop(srq.destroy().unwrap());
            }
            Self::Tags(tagged) => {
                phase("destroy_srq");
                drop(tagged.srq.destroy().unwrap());
            }
            Self::Xrc { srq, target } => {
                target.destroy().unwrap();
                phase("destroy_srq");
                drop(srq.destroy().unwrap());
            }
            Self::Dynamic { srq, target, .. } => {
                target.destroy().unwrap();
                phase("destroy_srq");
                drop(srq.destroy().unwrap());
            }
        }
    }
}
