//! Parts of a send queue.

use std::any::Any;
use std::sync::Arc;

use uverbs_core::queues::shared::QpShared;
use uverbs_mlx5_prm::wqe::Service;

use crate::send::doorbell::Doorbell;
use crate::send::packet::Packets;
use crate::send::wqe::WqeLimits;

/// Memory and limits of a send queue.
pub(crate) struct SqParts {
    /// First WQEBB.
    pub(crate) start: *mut u8,
    /// Number of WQEBBs, a power of two; 0 for no queue.
    pub(crate) units: u32,
    /// Maximum outstanding work requests.
    pub(crate) max_wr: u32,
    pub(crate) record: *mut u32,
    pub(crate) doorbell: Doorbell,
    pub(crate) qpn: u32,
    pub(crate) room: WqeLimits,
    pub(crate) service: Service,
    /// True if the queue supports work requests that change keys.
    pub(crate) rekeys: bool,
    /// Properties of raw packets, for a raw packet queue.
    pub(crate) packets: Option<Packets>,
    pub(crate) shared: Arc<QpShared>,
    /// Offset at which the device's file maps the register's page.
    pub(crate) page_offset: u64,
    pub(crate) memory: Arc<dyn Any + Send + Sync>,
}
