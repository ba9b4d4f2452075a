//! Memory of queues.
//!
//! A queue pair's rings are one buffer: the receive queue, followed by the send queue. The send
//! queue of a raw packet queue pair starts at the next page, because it is a separate device
//! object, which must start in the first half of a page (mlx5_ib
//! `qp.c:create_raw_packet_qp_sq`, `wq.page_offset`).

use std::any::Any;
use std::sync::{Arc, Mutex};

use uverbs_core::attr::QpType;
use uverbs_core::error::Error;
use uverbs_core::memory::allocator::QueueMemory;
use uverbs_core::memory::dbrec::Dbrec;
use uverbs_core::memory::mapping::Mapping;
use uverbs_core::memory::pages::page_size;
use uverbs_core::provider::QpInit;
use uverbs_mlx5_prm::doorbell::MLX5_RCV_DBR;

use crate::Context;
use crate::cq::scattered::WorkRings;
use crate::create::size::{RecvSize, SendSize};
use crate::device::uar::{Register, UarPage};

/// Memory that the device writes of a completion queue, and the page that it is armed through.
#[derive(Debug)]
pub(crate) struct CqMemory {
    /// The ring; each resize replaces it.
    pub(crate) ring: Mutex<Mapping>,
    #[expect(dead_code, reason = "kept for the device")]
    pub(crate) record: Dbrec,
    #[expect(dead_code, reason = "kept for the device")]
    pub(crate) page: Arc<UarPage>,
}

/// Memory that the device reads of a queue pair, and its doorbell register. Kept until the kernel
/// confirmed the destruction, and while a poster lives.
#[derive(Debug)]
pub(crate) struct QpMemory {
    rings: Mapping,
    /// Offset of the send queue; the kernel computes it from count and shift (mlx5_ib
    /// `qp.c:set_user_buf_size`).
    send_offset: usize,
    pub(crate) record: Dbrec,
    pub(crate) register: Register,
}

impl QpMemory {
    /// Allocates zeroed rings.
    pub(crate) fn new(
        context: &Context,
        send: &SendSize,
        recv: &RecvSize,
        register: Register,
        init: &QpInit,
    ) -> Result<Self, Error> {
        let send_offset = match init.qp_type {
            QpType::RawPacket => recv.bytes().next_multiple_of(page_size()),
            _ => recv.bytes(),
        };
        let (by, len) = (init.allocator.as_ref(), send_offset + send.bytes());
        let record = context.dbrecs.alloc_by(by)?;
        let rings = context.memory.alloc_by(by, QueueMemory::Qp, len)?;
        Ok(Self { rings, send_offset, record, register })
    }

    /// WQE rings for the poller, if the queue pair uses scatter to CQE.
    pub(crate) fn work_rings(
        self: &Arc<Self>,
        send: &SendSize,
        recv: &RecvSize,
        nothing: Option<u32>,
    ) -> Box<dyn Any + Send + Sync> {
        Box::new(WorkRings {
            send: self.send(),
            send_mask: send.bytes().wrapping_sub(1),
            recv: self.recv(),
            recv_mask: recv.bytes().wrapping_sub(1),
            recv_stride: 1 << recv.shift,
            posted: self.record.ptr().wrapping_add(MLX5_RCV_DBR),
            nothing,
            _memory: Arc::clone(self) as _,
        })
    }

    /// Size in bytes, which the kernel pins.
    pub(crate) fn len(&self) -> usize {
        self.rings.len()
    }

    /// Address for the kernel.
    pub(crate) fn addr(&self) -> u64 {
        self.rings.addr()
    }

    /// Address of the send queue for the kernel.
    pub(crate) fn send_addr(&self) -> u64 {
        self.rings.addr() + self.send_offset as u64
    }

    /// The receive queue.
    pub(crate) fn recv(&self) -> *mut u8 {
        self.rings.ptr()
    }

    /// The send queue.
    pub(crate) fn send(&self) -> *mut u8 {
        self.rings.ptr().wrapping_add(self.send_offset)
    }
}
