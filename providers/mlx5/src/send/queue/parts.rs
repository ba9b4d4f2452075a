//! What a send queue is made from.

use std::any::Any;
use std::sync::Arc;

use uverbs_core::queues::shared::QpShared;
use uverbs_mlx5_prm::wqe::Service;

use crate::send::doorbell::Doorbell;
use crate::send::packet::Packets;
use crate::send::wqe::Room;

/// Where its memory is, and what fits it.
pub(crate) struct SqParts {
    /// First WQEBB.
    pub(crate) start: *mut u8,
    /// WQEBBs, a power of two; 0 for no queue.
    pub(crate) units: u32,
    /// Work requests outstanding at most.
    pub(crate) max_wr: u32,
    pub(crate) record: *mut u32,
    pub(crate) doorbell: Doorbell,
    pub(crate) qpn: u32,
    pub(crate) room: Room,
    pub(crate) service: Service,
    /// Whether it is made for work requests that change keys.
    pub(crate) rekeys: bool,
    /// How it sends whole packets, if it does nothing else.
    pub(crate) packets: Option<Packets>,
    pub(crate) shared: Arc<QpShared>,
    pub(crate) memory: Arc<dyn Any + Send + Sync>,
}
