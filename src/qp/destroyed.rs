//! Destroyed queues.

use std::sync::Arc;

use uverbs_core::objects::cq::CqCore;
use uverbs_core::objects::qp::QpCore;
use uverbs_core::objects::wq::WqCore;
use uverbs_core::queues::shared::QpShared;

/// A queue pair or work queue that the kernel confirmed as destroyed.
/// [`reclaim`](crate::CompletionQueue::reclaim) gives its buffers back.
#[derive(Debug)]
#[must_use = "its buffers come back through `CompletionQueue::reclaim`"]
pub struct Destroyed {
    /// `None` for a work queue.
    pub(crate) send_cq: Option<Arc<CqCore>>,
    pub(crate) recv_cq: Arc<CqCore>,
    pub(crate) shared: Arc<QpShared>,
}

impl Destroyed {
    pub(crate) fn of_qp(core: &QpCore) -> Self {
        let (send_cq, recv_cq) = (Arc::clone(core.send_cq()), Arc::clone(core.recv_cq()));
        Self { send_cq: Some(send_cq), recv_cq, shared: Arc::clone(core.shared()) }
    }

    pub(crate) fn of_wq(core: &WqCore) -> Self {
        let (recv_cq, shared) = (Arc::clone(core.cq()), Arc::clone(core.shared()));
        Self { send_cq: None, recv_cq, shared }
    }

    /// The number it had.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.shared.qpn
    }
}
