//! Completion queues of another size (rdma-core `verbs.c:mlx5_resize_cq`,
//! `cq.c:mlx5_cq_resize_copy_cqes`).
//!
//! The kernel gives the device another ring. The device ends the old one with an entry that says
//! so, and goes on in the new one with the next index; what stands before that entry is moved by
//! the program, each one place on. The polling side does all that, and so nobody polls meanwhile.
//!
//! # Safety
//!
//! The new ring is kept, in place of the old one, by the memory that the kernel's object keeps; the
//! old one is freed when the device has left it.
#![allow(unsafe_code, reason = "gives the device another ring")]

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use uverbs_core::error::Error;
use uverbs_core::memory::allocator::{QueueAllocator, QueueMemory};
use uverbs_core::memory::pool::Pool;
use uverbs_core::order::{device_memory, fence};
use uverbs_core::provider::CqOps;
use uverbs_kernel_abi::mlx5::mlx5_ib_resize_cq;
use uverbs_mlx5_prm::cqe::{CqeOpcode, MLX5_CQE_OWNER_MASK, OpOwn, mlx5_cqe64};
use zerocopy::IntoBytes;

use super::{Cq, OP_OWN_OFFSET, UNWRITTEN};
use crate::create::queues::CqMemory;
use crate::create::size::cq_entries;

const VERB: &str = "resize_cq";
/// How long the entry that ends a ring may take: it is there when the command's answer is.
const PATIENCE: Duration = Duration::from_secs(1);

/// What another size takes.
#[derive(Clone)]
pub(crate) struct Resizing {
    /// The same that the kernel's object keeps.
    pub(crate) memory: Arc<CqMemory>,
    /// Where rings come from.
    pub(crate) pool: Pool,
    pub(crate) allocator: Option<Arc<dyn QueueAllocator>>,
    /// Entries at most, less one.
    pub(crate) limit: u32,
}

/// Gives a queue room for `entries` completions.
#[cold]
pub(crate) fn resize(cq: &mut Cq, entries: u32) -> Result<(), Error> {
    let Some(resizing) = cq.resizing.as_deref().cloned() else {
        return Err(Error::Unsupported { verb: VERB, what: "a ring of its own".to_owned() });
    };
    let size = cq_entries(VERB, entries, resizing.limit)?;
    let mut room = cq.core().room_of(entries, size)?;
    let before = cq.core().room();
    if room.capacity() < before.capacity() {
        // A queue pair that is just being made looks for room after it was counted. Either it
        // finds this one, or it was counted by the second look here.
        // SAFETY: this is the polling side, which polls on with the new ring or with what was.
        unsafe { cq.core().set_room(room) };
        cq.core().room_of(entries, size).inspect_err(|_| {
            // SAFETY: as it was.
            unsafe { cq.core().set_room(before) };
        })?;
    }
    let is_other = size != cq.entries();
    if is_other {
        // The entry that ends the old ring goes back with the next poll, as rdma-core does it.
        room = room.with_one_kept();
        // As far as a burst that was forgotten got, too: the device counts what is in the ring.
        cq.publish();
        let moved = move_ring(cq, &resizing, size).inspect_err(|_| {
            // SAFETY: the ring is as it was.
            unsafe { cq.core().set_room(before) };
        });
        if !moved? {
            // SAFETY: this is the polling side, and the ring is that large.
            unsafe { cq.core().set_room(room) };
            let what = "a device that doesn't end the ring that it leaves".to_owned();
            return Err(Error::Unsupported { verb: VERB, what });
        }
    }
    // SAFETY: as above.
    unsafe { cq.core().set_room(room) };
    if is_other {
        // SAFETY: as above.
        unsafe { cq.core().settle_next() };
    }
    Ok(())
}

/// Gives the device a ring of `size` entries, and moves to it. False if the device doesn't say that
/// it left the old one.
fn move_ring(cq: &mut Cq, resizing: &Resizing, size: u32) -> Result<bool, Error> {
    let stride = cq.stride();
    let (by, len) = (resizing.allocator.as_ref(), size as usize * stride);
    let ring = resizing.pool.alloc_by(by, QueueMemory::Cq, len)?;
    let start = ring.ptr();
    // SAFETY: the ring is as long, and new.
    unsafe { fill(start, size, stride, cq.consumer().wrapping_add(1)) };
    let request = mlx5_ib_resize_cq {
        buf_addr: ring.addr(),
        // 64 or 128.
        cqe_size: stride as u16,
        ..Default::default()
    };
    let uverbs = cq.core().context().uverbs();
    // SAFETY: the queue is this one, whose memory keeps the ring from here on, and which reaches
    // it by raw pointers only.
    unsafe { uverbs.resize_cq(cq.core().handle(), size - 1, request.as_bytes(), &mut []) }
        .map_err(|error| uverbs.tell_memlock(error, ring.len() as u64))?;
    // SAFETY: the ring is of that size, and the kernel just gave it to the device.
    let ended = unsafe { cq.move_to(start.wrapping_add(stride - mlx5_cqe64::SIZE), size) };
    let mut kept = resizing.memory.ring.lock().unwrap_or_else(PoisonError::into_inner);
    let old = std::mem::replace(&mut *kept, ring);
    drop(kept);
    if !ended {
        // The device may not have left it.
        cq.core().context().bury(old);
    }
    Ok(ended)
}

impl Cq {
    /// Copies the entries of this ring to the ring at `start`, each one place on, until the one
    /// that ends it. False if that doesn't come.
    ///
    /// # Safety
    ///
    /// `start` is where a ring of `size` entries has the described bytes of its first one; the
    /// device goes on there, behind what is copied.
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
            // SAFETY: whole entries of two rings, both the program's: the device wrote the one
            // before it told of the end, and begins behind the other.
            unsafe { device_memory::copy(source, target, self.stride()) };
            let owner = u8::from(next & size != 0);
            let op_own = op_own & !MLX5_CQE_OWNER_MASK | owner;
            // SAFETY: as above; the last byte of the entry.
            unsafe { device_memory::store_owner(to.wrapping_add(OP_OWN_OFFSET), op_own) };
            index = next;
        };
        self.start = start;
        self.size = size;
        self.end = start.wrapping_add(size as usize * self.stride());
        // The entry that ended the ring was one of the program's, too.
        self.seek(self.ci.wrapping_add(1));
        ended
    }

    /// Opcode and ownership of an entry that the device has written, or is about to.
    fn wait_for(&self, index: u32) -> Option<u8> {
        let began = Instant::now();
        loop {
            if let Some(op_own) = self.owned(index)
                && CqeOpcode(OpOwn(op_own).opcode()) != CqeOpcode::INVALID
            {
                return Some(op_own);
            }
            if index.wrapping_sub(self.ci) >= self.size || began.elapsed() > PATIENCE {
                return None;
            }
            std::hint::spin_loop();
        }
    }
}

/// Fills a ring in which the device goes on at an index: with no opcode, and the ownership bit that
/// isn't that of the index which comes next at each place.
///
/// # Safety
///
/// `size` times `stride` bytes are valid to write at `start`, and the device doesn't know them yet.
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

    /// Whatever the index, an empty ring looks empty, and no entry looks like one.
    #[test]
    fn a_new_ring_has_the_bit_that_is_not_expected() {
        const STRIDE: usize = 64;
        for (size, first) in [(4u32, 0u32), (4, 1), (4, 5), (8, 0xffff_fffe), (2, 3)] {
            let mut ring = vec![0u8; size as usize * STRIDE];
            // SAFETY: as long, and no device knows it.
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
