//! A completion queue and a queue pair in RTS, and the kernel's side of them.

use std::sync::Arc;

use uverbs_core::attr::QpCap;
use uverbs_core::memory::frame::{Frame, Slab};
use uverbs_core::objects::cq::CqCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::objects::qp::QpCore;
use uverbs_core::provider::{
    ContextOps, CqInit, CqOps, NewQp, Provider, QpInit, RqOps, SendOps, View,
};
use uverbs_core::queues::work::{Data, PostError, SendOp, Sge, Wr};

use super::driver::Lab;
use super::kernel::Kernel;
use crate::testing::{post_recv, post_send, slab};
use crate::{Context, Cq, Rq, Sq};

pub(super) const CAP: QpCap =
    QpCap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 2, max_recv_sge: 2, max_inline_data: 0 };
pub(super) const SGE: Sge = Sge { addr: 0x1000, len: 64, lkey: 0x1100 };

pub(super) struct Rig {
    pub(super) kernel: Arc<Kernel>,
    pub(super) context: Context<Lab>,
    pub(super) pd: Arc<PdCore>,
    pub(super) cq_core: Arc<CqCore>,
    pub(super) cq: Cq<Lab>,
    pub(super) sq: Sq<Lab>,
    pub(super) rq: Rq<Lab>,
    pub(super) qp: Arc<QpCore>,
}

/// Places of the kernel's rings in the order they were made.
pub(super) const COMPLETIONS: usize = 0;
pub(super) const SENDS: usize = 1;
pub(super) const RECVS: usize = 2;

impl Rig {
    pub(super) fn new(entries: u32) -> Self {
        let kernel = Arc::new(Kernel::default());
        let context = Lab::open(kernel.core()).unwrap();
        let pd = context.alloc_pd().unwrap();
        let (cq_core, cq) = context.create_cq(&CqInit::new(entries)).unwrap();
        let mut init = QpInit::new(Arc::clone(&pd), Arc::clone(&cq_core), Arc::clone(&cq_core));
        init.cap = CAP;
        let NewQp { core: qp, mut sq, mut rq } = context.create_qp(&init).unwrap();
        sq.enable(true);
        rq.enable(true);
        Self { kernel, context, pd, cq_core, cq, sq, rq, qp }
    }

    pub(super) fn slab(&self, count: u32) -> Slab {
        slab(&self.pd, 64, count)
    }

    pub(super) fn send(&mut self, id: u64, frame: Option<Frame>) -> Result<u32, PostError> {
        post_send(&mut self.sq, Wr::new(id), SendOp::Send, Data::One(SGE), frame)
    }

    pub(super) fn recv(&mut self, id: u64, frame: Option<Frame>) -> Result<u32, PostError> {
        post_recv(&mut self.rq, id, &[SGE], frame)
    }

    /// Token of the oldest work request in the ring `of`, which is taken.
    pub(super) fn take(&self, of: usize) -> Option<u64> {
        self.kernel.state().made[of].take()
    }

    pub(super) fn complete(&self, token: u64, status: u32, bytes: u32) -> bool {
        self.kernel.state().made[COMPLETIONS].complete(token, status, bytes)
    }

    /// Polls once: number, whether it failed, bytes of the frame.
    pub(super) fn poll(&mut self) -> Option<(u64, bool, Option<usize>)> {
        let polled = self.cq.next()?;
        let failed = polled.view.result().is_err();
        Some((polled.wr_id, failed, polled.frame.map(|frame| frame.len())))
    }
}
