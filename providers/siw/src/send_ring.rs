//! Rings of sends.
//!
//! # Safety
//!
//! An element is written within its size, and handed over by its flags alone.
#![allow(unsafe_code, reason = "writes work requests into a ring that the kernel reads")]

use uverbs_core::queues::work::{PostError, SendFlags};
use uverbs_kernel_abi::siw::siw_sqe;
use uverbs_kernel_rings::Post;
use uverbs_kernel_rings::elements::ElementLimits;

use crate::Ah;
use crate::ring::Ring;
use crate::wqe::{self, Checked};

/// Bit of a work request's number: the program asked for no completion.
pub(crate) const QUIET: u64 = 1 << 63;

/// Ring of a send queue.
#[derive(Debug)]
pub struct SendRing {
    ring: Ring<siw_sqe>,
    room: ElementLimits,
    /// Flags that each element gets when it is handed over.
    flags: Box<[u16]>,
    /// The connection allows READs from this side.
    reads: bool,
}

impl SendRing {
    /// Ring of a queue whose elements have `room`.
    pub(crate) fn new(ring: Ring<siw_sqe>, room: ElementLimits) -> Self {
        Self { flags: vec![0; ring.mask() as usize + 1].into(), ring, room, reads: true }
    }
}

// SAFETY: the kernel copies an element before it completes it, and reads only elements with the
// valid flag. `write` writes the element at its index, except the flags.
unsafe impl uverbs_kernel_rings::SendRing for SendRing {
    type Ah = Ah;
    type Checked = Checked;

    fn slots(&self) -> u32 {
        self.ring.mask() + 1
    }

    fn free(&self, _: u32) -> u32 {
        self.slots()
    }

    #[inline(always)]
    fn check(&self, post: &Post<'_, Ah>) -> Result<Checked, PostError> {
        let checked = wqe::check(&post.op, &post.data, self.room)?;
        // The kernel fences no READ (`siw_qp.c:siw_activate_tx`).
        if checked.is_read && post.wr.flags.contains(SendFlags::FENCE) {
            return Err(PostError::BadOperation);
        }
        // The kernel rejects the doorbell of such a READ. The READ stays at the head of the queue,
        // so all later doorbells fail too (`siw_qp.c:siw_activate_tx_from_sq`).
        if checked.is_read && !self.reads {
            return Err(PostError::NoReads);
        }
        Ok(checked)
    }

    #[inline(always)]
    unsafe fn write(&mut self, post: &Post<'_, Ah>, token: u64, checked: Checked) {
        let Post { index, wr, data, .. } = post;
        let quiet = if wr.flags.contains(SendFlags::SIGNALED) { 0 } else { QUIET };
        let flags = wqe::flags(&checked, wr.flags, data);
        if let Some(place) = self.flags.get_mut((index & self.ring.mask()) as usize) {
            *place = flags;
        }
        let to = self.ring.element(*index);
        // SAFETY: the contract of `write`: the element is free, and `check` measured the data.
        unsafe { wqe::write_send(to, token | quiet, checked, flags, data) };
    }

    /// Needs no doorbell if the kernel has yet to take the element before `from`: the kernel then
    /// continues with the elements after it.
    #[inline(always)]
    fn publish(&mut self, from: u32, to: u32) -> bool {
        let mut index = from;
        while index != to {
            let flags = self.flags.get((index & self.ring.mask()) as usize);
            self.ring.hand_over(index, flags.copied().unwrap_or_default());
            index = index.wrapping_add(1);
        }
        // If the batch fills the ring, the element before `from` is the batch's last element. It
        // says nothing about the kernel's progress, so the doorbell is needed.
        let is_whole = to.wrapping_sub(from) > self.ring.mask();
        is_whole || !self.ring.is_waiting(from.wrapping_sub(1))
    }

    fn forbid_reads(&mut self) {
        self.reads = false;
    }
}
