//! A completion queue and a queue pair in RTS, and the kernel's side of them.

use std::sync::{Arc, Mutex};

use uverbs_core::attr::{QpCap, QpType, SendOpSet};
use uverbs_core::memory::frame::Slab;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::objects::qp::QpCore;
use uverbs_core::provider::{ContextOps, CqInit, NewQp, Provider, QpInit, RqOps, SendOps};
use uverbs_core::queues::work::{Data, PostError, SendOp, Sge, Wr};
use uverbs_kernel_rings::testing;

use super::kernel::{Kernel, Queue};
use crate::{Cq, Rq, Rxe, Sq};

pub(crate) struct Rig {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) pd: Arc<PdCore>,
    pub(crate) cq: Cq,
    pub(crate) sq: Sq,
    pub(crate) rq: Rq,
    pub(crate) qp: Arc<QpCore>,
    /// The kernel's sides.
    pub(crate) completions: Arc<Mutex<Queue>>,
    pub(crate) sends: Arc<Mutex<Queue>>,
    pub(crate) recvs: Arc<Mutex<Queue>>,
}

pub(crate) const CAP: QpCap = QpCap {
    max_send_wr: 7,
    max_recv_wr: 7,
    max_send_sge: 3,
    max_recv_sge: 3,
    max_inline_data: 100,
};

impl Rig {
    pub(crate) fn new(entries: u32) -> Self {
        Self::with(entries, 0, CAP)
    }

    /// A device with these capabilities, and queues of this size.
    pub(crate) fn with(entries: u32, caps: u64, cap: QpCap) -> Self {
        let kernel = Arc::new(Kernel::default());
        kernel.state().caps = caps;
        let context = Rxe::open(kernel.core()).unwrap();
        let pd = context.alloc_pd().unwrap();
        let (cq_core, cq) = context.create_cq(&CqInit::new(entries)).unwrap();
        let mut init = QpInit::new(Arc::clone(&pd), Arc::clone(&cq_core), cq_core);
        init.cap = cap;
        init.send_ops = Some(SendOpSet::of(QpType::Rc) | SendOpSet::REKEY);
        let NewQp { core: qp, mut sq, mut rq } = context.create_qp(&init).unwrap();
        sq.enable(true);
        rq.enable(true);
        let [completions, recvs, sends] = <[_; 3]>::try_from(kernel.state().made.clone()).unwrap();
        Self { kernel, pd, cq, sq, rq, qp, completions, sends, recvs }
    }

    /// Everything has been going on for so long.
    pub(crate) fn start_at(&mut self, index: u32) {
        self.sq.start_at(index);
        self.rq.start_at(index);
        self.cq.ring_mut().start_at(index);
        for queue in [&self.completions, &self.sends, &self.recvs] {
            queue.lock().unwrap().start_at(index);
        }
    }

    pub(crate) fn slab(&self, frame_len: u32, count: u32) -> Slab {
        testing::slab(&self.pd, frame_len, count)
    }

    pub(crate) fn kicks(&self) -> u32 {
        self.kernel.state().kicks
    }

    /// Posts one send and rings.
    pub(crate) fn send(&mut self, wr: Wr, op: SendOp, data: Data<'_>) -> Result<u32, PostError> {
        testing::post_send(&mut self.sq, wr, op, data, None)
    }

    /// Posts one receive and rings.
    pub(crate) fn recv(&mut self, id: u64, list: &[Sge]) -> Result<u32, PostError> {
        testing::post_recv(&mut self.rq, id, list, None)
    }

    /// Takes the oldest send, and completes it (kernel `do_complete`: the index moves first).
    /// `None` if there is no send; false if the completion found no room.
    pub(crate) fn complete_send(&self, status: u32, opcode: u32) -> Option<bool> {
        let mut sends = self.sends.lock().unwrap();
        let wqe = sends.head()?;
        sends.advance();
        let length = u32::from_ne_bytes(wqe[184..188].try_into().unwrap());
        let entry = wc(&wqe[..8], status, opcode, length, None);
        Some(self.completions.lock().unwrap().post(&entry))
    }

    /// Takes the oldest receive, and completes it.
    pub(crate) fn complete_recv(
        &self,
        status: u32,
        opcode: u32,
        length: u32,
        imm: Option<u32>,
    ) -> Option<bool> {
        let mut recvs = self.recvs.lock().unwrap();
        let wqe = recvs.head()?;
        recvs.advance();
        let entry = wc(&wqe[..8], status, opcode, length, imm);
        Some(self.completions.lock().unwrap().post(&entry))
    }
}

/// `struct ib_uverbs_wc` by its offsets. Of a failure it has number, status and queue pair alone.
pub(crate) fn wc(wr_id: &[u8], status: u32, opcode: u32, length: u32, imm: Option<u32>) -> Vec<u8> {
    let mut bytes = vec![0; 48];
    bytes[..8].copy_from_slice(wr_id);
    bytes[8..12].copy_from_slice(&status.to_ne_bytes());
    bytes[28..32].copy_from_slice(&0x11u32.to_ne_bytes());
    if status == 0 {
        bytes[12..16].copy_from_slice(&opcode.to_ne_bytes());
        bytes[20..24].copy_from_slice(&length.to_ne_bytes());
        if let Some(imm) = imm {
            bytes[24..28].copy_from_slice(&imm.to_be_bytes());
            bytes[36..40].copy_from_slice(&2u32.to_ne_bytes());
        }
    }
    bytes
}
