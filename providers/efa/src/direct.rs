//! Rings and doorbells for programs with their own data path (`efadv_query_cq`,
//! `efadv_query_qp_wqs`), such as libfabric. The kernel's mappings live as long as the queue.

use uverbs_kernel_abi::efa::io::efa_io_rx_desc;

use crate::{Cq, Rq, Sq};

/// Ring of a queue, and its doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direct {
    /// First entry: of a send queue, in the device's memory.
    pub buffer: *mut u8,
    /// Bytes of an entry.
    pub entry_size: u32,
    /// Number of entries.
    pub entries: u32,
    /// Register; null without one.
    pub doorbell: *mut u32,
    /// Entries that a store to the doorbell may announce.
    pub batch: u32,
}

/// Describes a completion queue; `None` if it has several rings.
#[must_use]
pub fn completions(cq: &Cq) -> Option<Direct> {
    cq.ring_ref().direct()
}

/// Describes a send queue.
#[must_use]
pub fn sends(sq: &Sq) -> Direct {
    sq.ring_ref().direct()
}

/// Describes a receive queue; `None` without receives. An entry is an SGE.
#[must_use]
pub fn receives(rq: &Rq) -> Option<Direct> {
    let (buffer, doorbell, entries) = rq.ring_ref().direct()?;
    let entry_size = size_of::<efa_io_rx_desc>() as u32;
    Some(Direct { buffer, entry_size, entries, doorbell, batch: entries })
}
