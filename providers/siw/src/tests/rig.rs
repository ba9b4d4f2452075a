//! A completion queue and a queue pair that is connected, and the kernel's side of them.

use std::sync::Arc;

use uverbs_core::attr::QpCap;
use uverbs_core::memory::frame::{Frame, Slab};
use uverbs_core::objects::pd::PdCore;
use uverbs_core::objects::qp::QpCore;
use uverbs_core::provider::{
    ContextOps, CqInit, CqOps, NewQp, Polled, Provider, QpInit, RqOps, SendOps, View,
};
use uverbs_core::queues::completion::Completed;
use uverbs_core::queues::work::{Data, PostError, SendOp, Sge, Wr};
use uverbs_kernel_rings::testing;

use super::kernel::Kernel;
use crate::{Context, Cq, Rq, Siw, Sq};

pub(crate) struct Rig {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) context: Context,
    pub(crate) pd: Arc<PdCore>,
    pub(crate) cq: Cq,
    pub(crate) sq: Sq,
    pub(crate) rq: Rq,
    pub(crate) qp: Arc<QpCore>,
}

pub(crate) const CAP: QpCap =
    QpCap { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 3, max_recv_sge: 3, max_inline_data: 80 };

/// A completion, without its buffer's bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) id: u64,
    pub(crate) result: Result<Completed, u8>,
    pub(crate) byte_len: u32,
    pub(crate) has_frame: bool,
}

impl Rig {
    pub(crate) fn new(entries: u32) -> Self {
        let kernel = Arc::new(Kernel::default());
        let context = Siw::open(kernel.core()).unwrap();
        let pd = context.alloc_pd().unwrap();
        let (cq_core, cq) = context.create_cq(&CqInit::new(entries)).unwrap();
        let mut init = QpInit::new(Arc::clone(&pd), Arc::clone(&cq_core), cq_core);
        init.cap = CAP;
        let NewQp { core: qp, mut sq, mut rq } = context.create_qp(&init).unwrap();
        sq.enable(true);
        rq.enable(true);
        Self { kernel, context, pd, cq, sq, rq, qp }
    }

    pub(crate) fn slab(&self, frame_len: u32, count: u32) -> Slab {
        testing::slab(&self.pd, frame_len, count)
    }

    /// Posts one send and rings.
    pub(crate) fn send(
        &mut self,
        wr: impl Into<Wr>,
        op: SendOp,
        data: Data<'_>,
        frame: Option<Frame>,
    ) -> Result<(), PostError> {
        testing::post_send(&mut self.sq, wr.into(), op, data, frame).map(drop)
    }

    /// Posts one receive and rings.
    pub(crate) fn recv(
        &mut self,
        id: u64,
        list: &[Sge],
        frame: Option<Frame>,
    ) -> Result<(), PostError> {
        testing::post_recv(&mut self.rq, id, list, frame).map(drop)
    }

    pub(crate) fn poll(&mut self) -> Option<Told> {
        let Polled { view, wr_id, frame } = self.cq.next()?;
        let result = view.result().map_err(|failure| failure.syndrome);
        let (byte_len, has_frame) = (view.byte_len(), frame.is_some());
        Some(Told { id: wr_id, result, byte_len, has_frame })
    }
}
