//! What receives by XRC: a shared receive queue and a target, as `c/bytes.c` makes them.

use uverbs::transport::Rc;
use uverbs::{
    AckTimeout, CompletionQueue, Context, ForXrc, Mlx5, Path, ProtectionDomain, SharedReceiveQueue,
    XrcDomain, XrcTarget, XrcTargetRtsAttr,
};

use crate::driver::Peer;
use crate::transports::Spoken;

/// One side's.
pub(crate) struct Receiver {
    pub(crate) srq: SharedReceiveQueue<Mlx5, ForXrc>,
    target: XrcTarget<Mlx5>,
}

impl Receiver {
    pub(crate) fn new(
        context: &Context<Mlx5>,
        pd: &ProtectionDomain,
        domain: &XrcDomain,
        cq: &CompletionQueue<Mlx5>,
        (max_wr, max_sge): (u32, u32),
        phase: &impl Fn(&str),
    ) -> Self {
        phase("create_srq");
        let queue = context.shared_receive_queue(pd).max_wr(max_wr).max_sge(max_sge);
        let srq = queue.xrc(domain, cq).build().unwrap();
        phase("create_target");
        Self { srq, target: context.xrc_target(domain).unwrap() }
    }

    pub(crate) fn peer(&self) -> Peer {
        Peer { qpn: self.target.qpn(), srq: Some(self.srq.remote()) }
    }

    /// To RTS, for the initiator of this number.
    pub(crate) fn bring_up(&mut self, initiator: u32, path: Path, phase: &impl Fn(&str)) {
        phase("init");
        self.target.init(&Rc::init()).unwrap();
        phase("ready_to_receive");
        self.target.ready_to_receive(&Rc::rtr(initiator, path)).unwrap();
        phase("ready_to_send");
        let sq_psn = Rc::rts().sq_psn;
        let timeout = AckTimeout::from_code(14).unwrap();
        self.target.ready_to_send(&XrcTargetRtsAttr { sq_psn, timeout }).unwrap();
    }

    /// A target once more, by its number.
    pub(crate) fn reopen(&self, context: &Context<Mlx5>, phase: &impl Fn(&str)) {
        phase("open_qp");
        let again = context.open_xrc_target(self.target.domain(), self.target.qpn()).unwrap();
        again.destroy().unwrap();
    }

    pub(crate) fn destroy(self, phase: &impl Fn(&str)) {
        phase("destroy_target");
        self.target.destroy().unwrap();
        phase("destroy_srq");
        drop(self.srq.destroy().unwrap());
    }
}
