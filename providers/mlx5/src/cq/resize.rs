//! Resizing of completion queues (rdma-core `verbs.c:mlx5_resize_cq`,
//! `cq.c:mlx5_cq_resize_copy_cqes`).
//!
//! The kernel gives the device a new ring. The device writes a last CQE to the old ring, and
//! continues in the new ring with the next index. The poller moves the CQEs before the last one to
//! the new ring, each one place further on. No other thread polls meanwhile.
//!
//! # Safety
//!
//! The kernel object's memory keeps the new ring instead of the old one. The old ring is freed once
//! the device has left it.
#![allow(unsafe_code, reason = "gives the device another ring")]

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_utils::Backoff;
use uverbs_core::error::Error;
use uverbs_core::memory::allocator::{QueueAllocator, QueueMemory};
use uverbs_core::memory::pool::Pool;
use uverbs_core::order::{device_memory, fence};
use uverbs_core::provider::CqOps;
use uverbs_kernel_abi::mlx5::mlx5_ib_resize_cq;
use uverbs_mlx5_prm::cqe::{CqeOpcode, MLX5_CQE_OWNER_MASK, OpOwn, mlx5_cqe64};
use zerocopy::IntoBytes;

use super::{Cq, OP_OWN_OFFSET, UNWRITTEN};
use crate::create::buffer::CqMemory;
use crate::create::size::cq_entries;

const VERB: &str = "resize_cq";
/// Time limit for the old ring's last CQE, which should be there when the command returns.
const PATIENCE: Duration = Duration::from_secs(1);

/// State for resizing.
#[derive(Clone)]
pub(crate) struct Resizing {
    /// Memory, shared with the kernel object.
    pub(crate) memory: Arc<CqMemory>,
    /// Pool of rings.
    pub(crate) pool: Pool,
    pub(crate) allocator: Option<Arc<dyn QueueAllocator>>,
    /// Maximum number of entries, minus one.
    pub(crate) limit: u32,
}

/// Resizes a completion queue to a capacity of `entries`.
#[cold]
pub(crate) fn resize(cq: &mut Cq, entries: u32) -> Result<(), Error> {
    let Some(resizing) = cq.resizing.as_deref().cloned() else {
        return Err(Error::Unsupported {
            verb: VERB,
            what: "resizing a completion queue without its own ring".to_owned(),
        });
    };
    let size = cq_entries(VERB, entries, resizing.limit)?;
    let mut room = cq.core().room_of(entries, size)?;
    let before = cq.core().room();
    if room.capacity() < before.capacity() {
        // A queue pair that is being created checks for room after it was counted. Either it sees
        // the new room, or the second check here counts it.
        // SAFETY: this is the poller, which continues with the new ring or the old one.
        unsafe { cq.core().set_room(room) };
        cq.core().room_of(entries, size).inspect_err(|_| {
            // SAFETY: the ring is unchanged.
            unsafe { cq.core().set_room(before) };
        })?;
    }
    let is_other = size != cq.entries();
    if is_other {
        // The old ring's last CQE is returned with the next poll, as in rdma-core.
        room = room.with_one_kept();
        // Publishes also the CQEs of a leaked burst, because the device counts the CQEs in the
        // ring.
        cq.publish();
        let moved = move_ring(cq, &resizing, size).inspect_err(|_| {
            // SAFETY: the ring is unchanged.
            unsafe { cq.core().set_room(before) };
        });
        if !moved? {
            // SAFETY: this is the poller, and the ring has that size.
            unsafe { cq.core().set_room(room) };
            let what = "devices that don't end the old ring".to_owned();
            return Err(Error::Unsupported { verb: VERB, what });
        }
    }
    // SAFETY: this is the poller, and the ring has that size.
    unsafe { cq.core().set_room(room) };
    if is_other {
        // SAFETY: this is the poller, and the ring has that size.
        unsafe { cq.core().settle_next() };
    }
    Ok(())
}

/// Gives the device a ring of `size` entries, and moves to it. False if the device did not end the
/// old ring.
fn move_ring(cq: &mut Cq, resizing: &Resizing, size: u32) -> Result<bool, Error> {
    let stride = cq.stride();
    let (by, len) = (resizing.allocator.as_ref(), size as usize * stride);
    let ring = resizing.pool.alloc_by(by, QueueMemory::Cq, len)?;
    let start = ring.ptr();
    // SAFETY: the ring is new and has that length.
    unsafe { fill(start, size, stride, cq.consumer().wrapping_add(1)) };
    let request = mlx5_ib_resize_cq {
        buf_addr: ring.addr(),
        // Size of a CQE: 64 or 128.
        cqe_size: stride as u16,
        ..Default::default()
    };
    let uverbs = cq.core().context().uverbs();
    // SAFETY: the handle belongs to this queue, whose memory keeps the new ring from here on, and
    // which accesses it only by raw pointers.
    unsafe { uverbs.resize_cq(cq.core().handle(), size - 1, request.as_bytes(), &mut []) }
        .map_err(|error| uverbs.tell_memlock(error, ring.len() as u64))?;
    // SAFETY: the ring has that size, and the kernel just gave it to the device.
    let ended = unsafe { cq.move_to(start.wrapping_add(stride - mlx5_cqe64::SIZE), size) };
    let mut kept = resizing.memory.ring.lock().unwrap_or_else(PoisonError::into_inner);
    let old = std::mem::replace(&mut *kept, ring);
    drop(kept);
    if !ended {
        // The device may still use it.
        cq.core().context().bury(old);
    }
    Ok(ended)
}

impl Cq {
    /// Copies the CQEs of this ring before its last one to the ring at `start`, each one place
    /// further on. False if the last one does not arrive.
    ///
    /// # Safety
    ///
    /// `start` points to the used bytes of the first entry in a ring of `size` entries. The device
    /// continues there, after the copied CQEs.
    unsafe fn move_to(&mut self, start: *mut u8, size: u32) -> bool {
        let lead = self.stride() - mlx5_cqe64::SIZE;
        let mut index = self.ci;
        let ended = loop {
            let Some(op_own) = self.wait_for(index) else { break false };
            fence::cqe_owner_before_body();
            if OpOwn(op_own).opcode() == CqeOpcode::RESIZE_CQ.0 {
                break true;
            }
            if self.expand(index) {
                continue;
            }
            let next = index.wrapping_add(1);
            let to = start.wrapping_add((next & (size - 1)) as usize * self.stride());
            let (source, target) = (self.at(index).wrapping_sub(lead), to.wrapping_sub(lead));
            // SAFETY: whole entries of two rings, both owned by software: the device wrote the
            // source before it ended the ring, and continues behind the target.
            unsafe { device_memory::copy(source, target, self.stride()) };
            let owner = u8::from(next & size != 0);
            let op_own = op_own & !MLX5_CQE_OWNER_MASK | owner;
            // SAFETY: the last byte of an entry that software owns.
            unsafe { device_memory::store_owner(to.wrapping_add(OP_OWN_OFFSET), op_own) };
            index = next;
        };
        self.start = start;
        self.size = size;
        self.end = start.wrapping_add(size as usize * self.stride());
        // Software also consumed the old ring's last CQE.
        self.seek(self.ci.wrapping_add(1));
        ended
    }

    /// Waits until the device has written an entry; returns its opcode and ownership.
    fn wait_for(&self, index: u32) -> Option<u8> {
        let (began, backoff) = (Instant::now(), Backoff::new());
        loop {
            if let Some(op_own) = self.owned(index)
                && CqeOpcode(OpOwn(op_own).opcode()) != CqeOpcode::INVALID
            {
                return Some(op_own);
            }
            if index.wrapping_sub(self.ci) >= self.size || began.elapsed() > PATIENCE {
                return None;
            }
            backoff.snooze();
        }
    }
}

/// Fills a ring in which the device continues at index `first`: each entry gets no opcode, and the
/// ownership bit that its next index does not expect.
///
/// # Safety
///
/// `size` times `stride` bytes at `start` are valid for writes, and the device does not use them
/// yet.
unsafe fn fill(start: *mut u8, size: u32, stride: usize, first: u32) {
    for index in (0..size).map(|ahead| first.wrapping_add(ahead)) {
        let turn = u8::from(index & size != 0);
        let last = start.wrapping_add(((index & (size - 1)) as usize + 1) * stride - 1);
        // SAFETY: the last byte of an entry of the ring.
        unsafe { last.write(UNWRITTEN & !MLX5_CQE_OWNER_MASK | turn ^ MLX5_CQE_OWNER_MASK) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For any index an empty ring looks empty, and no entry looks written.
    #[test]
    fn a_new_ring_has_the_bit_that_is_not_expected() {
        const STRIDE: usize = 64;
        for (size, first) in [(4u32, 0u32), (4, 1), (4, 5), (8, 0xffff_fffe), (2, 3)] {
            let mut ring = vec![0u8; size as usize * STRIDE];
            // SAFETY: the vector is as long, and no device uses it.
            unsafe { fill(ring.as_mut_ptr(), size, STRIDE, first) };
            for index in (0..size).map(|ahead| first.wrapping_add(ahead)) {
                let last = ring[((index & (size - 1)) as usize + 1) * STRIDE - 1];
                let expected = u8::from(index & size != 0);
                assert_eq!(last & MLX5_CQE_OWNER_MASK, 1 - expected, "{size} {index}");
                assert_eq!(last >> 4, UNWRITTEN >> 4);
            }
        }
    }
}
