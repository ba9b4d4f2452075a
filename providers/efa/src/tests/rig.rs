//! A completion queue and a queue pair in RTS, the way to a peer, and the device's side of them.

use std::sync::Arc;

use uverbs_core::attr::{AhAttr, Gid, GlobalRoute, Path, QpCap, QpType};
use uverbs_core::memory::frame::Slab;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::objects::qp::QpCore;
use uverbs_core::provider::{AhOps, ContextOps, CqInit, NewQp, Provider, QpInit, RqOps, SendOps};
use uverbs_core::queues::work::Destination;
use uverbs_kernel_rings::testing;

use super::kernel::Kernel;
use crate::{Ah, Context, Cq, Efa, Rq, Sq};

pub(crate) struct Rig {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) sq: Sq,
    pub(crate) rq: Rq,
    pub(crate) cq: Cq,
    pub(crate) ah: Ah,
    pd: Arc<PdCore>,
    pub(crate) qp: Arc<QpCore>,
    _context: Context,
}

/// Sizes of the queue pair.
pub(crate) const CAP: QpCap =
    QpCap { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 2, max_recv_sge: 2, max_inline_data: 0 };

impl Rig {
    pub(crate) fn new(entries: u32) -> Self {
        let kernel = Arc::new(Kernel::default());
        let context = Efa::open(kernel.core()).unwrap();
        let pd = context.alloc_pd().unwrap();
        let grh = GlobalRoute {
            dgid: Gid::from([1; 16]),
            sgid_index: 0,
            hop_limit: 1,
            traffic_class: 0,
            flow_label: 0,
        };
        let path =
            Path { dlid: 0, grh: Some(grh), service_level: 0, src_path_bits: 0, static_rate: 0 };
        let ah = context.create_ah(&pd, &AhAttr { port: 1, path }).unwrap();
        let (cq_core, cq) = context.create_cq(&CqInit::new(entries)).unwrap();
        let mut init = QpInit::new(Arc::clone(&pd), Arc::clone(&cq_core), cq_core);
        (init.qp_type, init.cap) = (QpType::Srd, CAP);
        let NewQp { core, mut sq, mut rq } = context.create_qp(&init).unwrap();
        sq.enable(true);
        rq.enable(true);
        Self { kernel, sq, rq, cq, ah, pd, qp: core, _context: context }
    }

    pub(crate) fn slab(&self, frame_len: u32, count: u32) -> Slab {
        testing::slab(&self.pd, frame_len, count)
    }

    /// The way to a peer.
    pub(crate) fn to(ah: &Ah) -> Destination<'_, Ah> {
        Destination { ah, peer: ah.peer(7, 0x1111) }
    }
}
