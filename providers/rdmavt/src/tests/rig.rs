//! A completion queue and a queue pair in RTS, and the kernel's side of them.
#![allow(unsafe_code, reason = "posts and rings without a device")]

use std::sync::Arc;

use uverbs_core::attr::{QpCap, QpType};
use uverbs_core::memory::frame::{Frame, Slab};
use uverbs_core::memory::post::Source;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::objects::qp::QpCore;
use uverbs_core::provider::{
    ContextOps, CqInit, CqOps, NewQp, Polled, Provider, QpInit, RqOps, SendOps, View,
};
use uverbs_core::queues::completion::Completed;
use uverbs_core::queues::work::{Data, PostError, SendOp, Sge, Wr};
use uverbs_kernel_rings::testing;

use super::kernel::Kernel;
use crate::{Context, Cq, Rdmavt, Rq, Sq};

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
    QpCap { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 3, max_recv_sge: 3, max_inline_data: 0 };
pub(crate) const PIECE: Sge = Sge { addr: 0xdead_0000, len: 100, lkey: 0x1100 };

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
        Self::of(QpType::Rc, CAP, entries)
    }

    pub(crate) fn of(qp_type: QpType, cap: QpCap, entries: u32) -> Self {
        let kernel = Arc::new(Kernel::default());
        let context = Rdmavt::open(kernel.core()).unwrap();
        let pd = context.alloc_pd().unwrap();
        let (cq_core, cq) = context.create_cq(&CqInit::new(entries)).unwrap();
        let mut init = QpInit::new(Arc::clone(&pd), Arc::clone(&cq_core), cq_core);
        (init.qp_type, init.cap) = (qp_type, cap);
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

    /// Posts sends, each with a frame if there is one, and rings once.
    pub(crate) fn batch(&mut self, ids: impl IntoIterator<Item = u64>, slab: Option<&Slab>) {
        let mut at = self.sq.begin();
        for id in ids {
            let data = Data::One(PIECE);
            // SAFETY: no device reads the memory.
            let slot = unsafe { self.sq.post(&mut at, Wr::new(id), SendOp::Send, data) }.unwrap();
            if let Some(frame) = slab.and_then(Slab::take) {
                // SAFETY: the slot of the post just made.
                unsafe { self.sq.own(&at, slot, frame.hold()) };
            }
        }
        // SAFETY: the cursor is from the last `begin`.
        unsafe { self.sq.ring(at) };
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
        self.cq.publish();
        Some(Told { id: wr_id, result, byte_len, has_frame })
    }
}
