//! The harness in place of a device: it writes completions, and never reads work requests.
//!
//! # Safety
//!
//! Writes entries of a CQ's ring, and reads links of an SRQ's ring, at addresses and sizes that
//! their owner gave.
#![allow(unsafe_code, reason = "reads and writes rings where the device would")]

use uverbs_mlx5_prm::cqe::{CqeOpcode, MLX5_CQE_OWNER_MASK, mlx5_cqe64};
use uverbs_mlx5_prm::data::mlx5_wqe_srq_next_seg;
use uverbs_mlx5_prm::opcode::Opcode;
use zerocopy::{FromZeros, IntoBytes};

/// Ring of a completion queue, and the device's position in it.
#[derive(Debug)]
pub(crate) struct CqRing {
    buf: *mut u8,
    entries: u32,
    stride: usize,
    pi: u32,
    /// The device's counter of completed receives.
    received: u16,
}

/// Content of a completion.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// The send that begins at this WQEBB is done.
    Send(u32),
    /// The oldest receive is done.
    Recv,
    /// The receive in this WQE of the shared queue is done.
    SharedRecv(u16),
}

/// Ring of a shared receive queue, and the WQE that the next message goes to.
#[derive(Debug)]
pub(crate) struct SrqRing {
    buf: *const u8,
    stride: usize,
    next: u16,
}

impl SrqRing {
    pub(crate) fn new(buf: *const u8, stride: usize, first: u32) -> Self {
        Self { buf, stride, next: first as u16 }
    }

    /// Takes a WQE that was posted. It names the one behind it.
    pub(crate) fn take(&mut self) -> u16 {
        let at = self.next;
        let from = self.buf.wrapping_add(usize::from(at) * self.stride);
        // SAFETY: a WQE of the ring, which its owner keeps and which begins with its link; it posts
        // in this thread, and not now.
        let link = unsafe { from.cast::<mlx5_wqe_srq_next_seg>().read_unaligned() };
        self.next = link.next_wqe_index.get();
        at
    }
}

impl CqRing {
    pub(crate) fn new(buf: *mut u8, entries: u32, stride: usize) -> Self {
        Self { buf, entries, stride, pi: 0, received: 0 }
    }

    /// The 64 described bytes of the entry with this free-running index.
    fn entry(&self, index: u32) -> *mut u8 {
        let end = ((index & (self.entries - 1)) as usize + 1) * self.stride;
        self.buf.wrapping_add(end - size_of::<mlx5_cqe64>())
    }

    /// Lines of the last `count` entries.
    pub(crate) fn last(&self, count: u32) -> impl Iterator<Item = *const u8> {
        (self.pi.wrapping_sub(count)..self.pi).map(|index| self.entry(index).cast_const())
    }

    /// Writes a completion, ownership last.
    pub(crate) fn complete(&mut self, uidx: u32, qpn: u32, event: Event) {
        let mut cqe = mlx5_cqe64::new_zeroed();
        cqe.srqn_uidx = uidx.into();
        let (opcode, sop, counter) = match event {
            Event::Send(index) => (CqeOpcode::REQ, Opcode::SEND.0, index as u16),
            Event::Recv => {
                self.received = self.received.wrapping_add(1);
                (CqeOpcode::RESP_SEND, 0, self.received.wrapping_sub(1))
            }
            Event::SharedRecv(index) => (CqeOpcode::RESP_SEND, 0, index),
        };
        cqe.sop_drop_qpn = (u32::from(sop) << 24 | qpn).into();
        cqe.wqe_counter = counter.into();
        cqe.byte_cnt = 64.into();
        let turn = (self.pi / self.entries) as u8 & MLX5_CQE_OWNER_MASK;
        cqe.op_own = opcode.0 << 4 | turn;
        let to = self.entry(self.pi);
        let bytes = cqe.as_bytes();
        // SAFETY: an entry of the ring, which its owner keeps; it polls in this thread, and not
        // now.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        self.pi = self.pi.wrapping_add(1);
    }
}
