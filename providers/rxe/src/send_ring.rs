//! Rings of sends.
//!
//! # Safety
//!
//! An element is written whole, within the size that [`Ring`] was checked for.
#![allow(unsafe_code, reason = "writes work requests into a ring that the kernel reads")]

use std::sync::{Arc, Mutex, PoisonError};

use uverbs_core::attr::DeviceCaps;
use uverbs_core::queues::work::{PostError, Rekey, SendFlags, WINDOW_MAX};
use uverbs_kernel_abi::rxe::{rxe_send_wqe, rxe_send_wr_ud};
use uverbs_kernel_rings::elements::{ElementLimits, Size};
use uverbs_kernel_rings::{Post, Special};

use crate::Ah;
use crate::ring::Ring;
use crate::wqe;

/// Address handles that elements name.
type Handles = Box<[Option<Ah>]>;

/// Address handles of a queue that was dropped: its work requests may name them until the kernel
/// has destroyed the queue pair.
pub(crate) type Attic = Arc<Mutex<Handles>>;

/// Ring of a send queue.
#[derive(Debug)]
pub struct SendRing {
    ring: Ring,
    room: ElementLimits,
    /// Work requests that change keys are allowed.
    rekeys: bool,
    /// Capabilities for FLUSH and ATOMIC WRITE; `None` if the transport has neither.
    places: Option<DeviceCaps>,
    /// Address handle of each element, which the kernel looks up when it sends: kept until the
    /// element is written again. Empty unless the transport is UD.
    handles: Handles,
    /// Keeps the handles after the queue is dropped.
    attic: Attic,
}

impl SendRing {
    /// Ring of a queue whose elements have `room`.
    pub(crate) fn new(
        ring: Ring,
        room: ElementLimits,
        is_ud: bool,
        rekeys: bool,
        places: Option<DeviceCaps>,
    ) -> Self {
        let handles = if is_ud { ring.mask() as usize + 1 } else { 0 };
        let handles = (0..handles).map(|_| None).collect();
        Self { ring, room, rekeys, places, handles, attic: Attic::default() }
    }

    /// Keeper of the address handles after the queue is dropped.
    pub(crate) fn attic(&self) -> Attic {
        Arc::clone(&self.attic)
    }

    /// Address of the ring.
    #[cfg(test)]
    pub(crate) fn address(&self) -> usize {
        self.ring.element(0).addr()
    }
}

impl Drop for SendRing {
    fn drop(&mut self) {
        let handles = std::mem::take(&mut self.handles);
        *self.attic.lock().unwrap_or_else(PoisonError::into_inner) = handles;
    }
}

// SAFETY: the kernel has finished with elements before its consumer index, and reads only elements
// before the producer index. Each writer writes only the element at its index.
unsafe impl uverbs_kernel_rings::SendRing for SendRing {
    type Ah = Ah;
    type Checked = Size;

    fn slots(&self) -> u32 {
        self.ring.mask() + 1
    }

    fn free(&self, pi: u32) -> u32 {
        self.ring.free(pi)
    }

    #[inline(always)]
    fn check(&self, post: &Post<'_, Ah>) -> Result<Size, PostError> {
        let Post { op, to, data, .. } = post;
        let size = match to {
            Some(_) => wqe::check_datagram(op, data, self.room)?,
            None => wqe::check(op, data, self.room)?,
        };
        // Only a UD queue has room for handles.
        if to.is_some() == self.handles.is_empty() {
            return Err(PostError::BadOperation);
        }
        Ok(size)
    }

    #[inline(always)]
    unsafe fn write(&mut self, post: &Post<'_, Ah>, token: u64, size: Size) {
        let Post { index, wr, op, to, data } = post;
        let peer = to.as_ref().map(|to| {
            let handle = self.handles.get_mut((index & self.ring.mask()) as usize);
            if let Some(handle) = handle {
                *handle = Some(to.ah.clone());
            }
            let [qpn, qkey] = to.peer;
            rxe_send_wr_ud {
                remote_qpn: qpn as u32,
                remote_qkey: qkey as u32,
                ah_num: to.ah.number(),
                ..Default::default()
            }
        });
        // SAFETY: the contract of `write`: the element is free, and `check` measured its room.
        unsafe {
            wqe::write_send(self.ring.element(*index), token, wr.flags, op, peer, data, size);
        }
    }

    fn check_special(&self, op: &Special) -> Result<(), PostError> {
        match op {
            Special::Rekey(_) if !self.rekeys => Err(PostError::BadOperation),
            Special::Rekey(Rekey::Bind { len, .. }) if *len > WINDOW_MAX => {
                Err(PostError::MessageTooLong)
            }
            Special::Rekey(_) => Ok(()),
            Special::Place(op) => {
                let caps = self.places.ok_or(PostError::BadOperation)?;
                // Kernels before Linux 6.2 read beyond their opcode table for an unknown opcode
                // (`rxe_req.c:wr_opcode_mask`).
                if !caps.contains(op.needs()) {
                    return Err(PostError::NotOnDevice);
                }
                wqe::check_place(op, self.room)
            }
        }
    }

    /// The kernel carries out a change of a key before it looks at the next element (kernel
    /// `rxe_req.c:rxe_requester`).
    unsafe fn write_special(&mut self, index: u32, token: u64, flags: SendFlags, op: &Special) {
        let element = self.ring.element(index);
        match op {
            Special::Rekey(op) => {
                let head = wqe::rekey_head(token, flags, op);
                // SAFETY: the element is free, has room for a head, and is aligned as it needs.
                unsafe { element.cast::<rxe_send_wqe>().write(head) };
            }
            // SAFETY: the element is free, and `check_place` saw that it has room.
            Special::Place(op) => unsafe { wqe::write_place(element, token, flags, op) },
        }
    }

    #[inline(always)]
    fn publish(&mut self, _: u32, to: u32) -> bool {
        self.ring.produce(to);
        true
    }

    fn reset(&mut self, _: u32) {
        self.handles.fill(None);
    }
}
