//! Completions that bring data along: the device puts short messages, and short answers of READs
//! and atomics, into the entry, and the polling side copies them to where the work request says
//! (PRM "Scatter to CQE"; rdma-core `cq.c`, `qp.c:mlx5_copy_to_recv_wqe`, `mlx5_copy_to_send_wqe`).
//!
//! # Safety
//!
//! The list is read from the ring before the slot is given back, so the posting side has not
//! written over it; the rings are kept. What the list names is the program's memory, at that
//! address, and nobody's but the device's until the completion is handed out: safe posts name what
//! is held in the slot, which is emptied later; of raw posts the caller says so. Copies are atomic
//! stores, since exposed memory may be read meanwhile.
#![allow(unsafe_code, reason = "copies from an entry to memory that a work request names")]

use std::any::Any;
use std::ptr::with_exposed_provenance_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use uverbs_core::order::device_memory;
use uverbs_core::provider::Polled;
use uverbs_core::queues::slots::Taken;
use uverbs_mlx5_prm::cqe::{
    CqeOpcode, MLX5_INLINE_SCATTER_32, MLX5_INLINE_SCATTER_64, OpOwn, mlx5_cqe64,
};
use uverbs_mlx5_prm::ctrl::{DS_BYTES, MLX5_SEND_WQE_BB, mlx5_wqe_ctrl_seg};
use uverbs_mlx5_prm::data::{MLX5_INVALID_LKEY, mlx5_wqe_data_seg};
use uverbs_mlx5_prm::opcode::Opcode;
use zerocopy::FromBytes;

use super::{Cq, take_recv, take_send};
use crate::cqe::{Cqe, Entry, Unloaded};

/// Bytes of a described entry's half, and of what stands before it in a large one.
const SMALL: usize = mlx5_cqe64::SIZE / 2;
const LARGE: usize = mlx5_cqe64::SIZE;
/// Segments before the data of a READ, and of an atomic.
const READ_HEAD: usize = 2;
const ATOMIC_HEAD: usize = 3;

/// Where the work requests of a queue pair are, which says where data goes.
pub(crate) struct WorkRings {
    /// First byte of the send queue, and its bytes less one.
    pub(crate) send: *const u8,
    pub(crate) send_mask: usize,
    /// The same of the receive queue, and bytes of one WQE.
    pub(crate) recv: *const u8,
    pub(crate) recv_mask: usize,
    pub(crate) recv_stride: usize,
    /// Where the receive queue's doorbell record counts what was posted.
    pub(crate) posted: *mut u32,
    /// The local key of no memory.
    pub(crate) nothing: Option<u32>,
    /// Keeps all three.
    pub(crate) _memory: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the pointers go to memory that `_memory` keeps; it is read by raw pointer only, where no
// one writes.
unsafe impl Send for WorkRings {}
// SAFETY: as above.
unsafe impl Sync for WorkRings {}

type Segment = mlx5_wqe_data_seg;

/// # Safety
///
/// Sixteen bytes of a ring, which nobody writes now.
unsafe fn load(ring: *const u8, at: usize) -> [u8; DS_BYTES] {
    // SAFETY: the caller's promise.
    unsafe { device_memory::read(ring.wrapping_add(at).cast()) }
}

/// # Safety
///
/// As for [`load`].
unsafe fn segment(ring: *const u8, at: usize) -> Segment {
    // SAFETY: the caller's promise.
    let bytes = unsafe { load(ring, at) };
    Segment::read_from_bytes(&bytes).unwrap_or(Segment::TERMINATOR)
}

impl Cq {
    /// Copies the data that the next entry brings along to where its work request says, as much as
    /// has room there.
    ///
    /// # Errors
    ///
    /// Why the data, or some of it, was not copied.
    ///
    /// # Safety
    ///
    /// The entry is the program's, and its queue pair is the last one.
    pub(super) unsafe fn unload(&self, entry: Entry, op_own: u8) -> Result<(), Unloaded> {
        let opcode = CqeOpcode(OpOwn(op_own).opcode());
        let data = match op_own & (MLX5_INLINE_SCATTER_32 | MLX5_INLINE_SCATTER_64) {
            0 => return Ok(()),
            _ if opcode.0 > CqeOpcode::RESP_SEND_INV.0 => return Ok(()),
            MLX5_INLINE_SCATTER_32 => &entry.bytes::<SMALL>(0)[..],
            MLX5_INLINE_SCATTER_64 if self.stride() > LARGE => &entry.bytes::<LARGE>(LARGE)[..],
            _ => return Err(Unloaded::Unasked),
        };
        // SAFETY: the queue pair is in a table, says the caller.
        let shared = unsafe { &*self.last };
        let Some(rings) = self.rings_of(entry) else { return Err(Unloaded::Unasked) };
        let counter = entry.wqe_counter();
        let cut = |len: u32| &data[..(len as usize).min(data.len())];
        let mut left = cut(entry.byte_count());
        if opcode == CqeOpcode::REQ {
            // SAFETY: the device completed this send; this is the only poller.
            if !unsafe { shared.send.is_ahead(counter) } {
                return Err(Unloaded::Absent);
            }
            let head = match entry.send_opcode() {
                Opcode::RDMA_READ => READ_HEAD,
                // Of these the entry's count is nothing to go by (rdma-core `cq.c`).
                Opcode::ATOMIC_CS | Opcode::ATOMIC_FA => {
                    left = cut(8);
                    ATOMIC_HEAD
                }
                _ => return Err(Unloaded::Operation),
            };
            let at = usize::from(counter) * MLX5_SEND_WQE_BB;
            // SAFETY: it is outstanding.
            let control: [u8; DS_BYTES] = unsafe { load(rings.send, at & rings.send_mask) };
            let control = mlx5_wqe_ctrl_seg::read_from_bytes(&control).unwrap_or_default();
            for index in head..usize::from(control.word1().ds()) {
                // A WQE goes on at the ring's beginning.
                let place = at.wrapping_add(index * DS_BYTES) & rings.send_mask;
                // SAFETY: as above.
                let segment = unsafe { segment(rings.send, place) };
                // SAFETY: of a list that the program posted; see the file's head.
                left = unsafe { fill(&segment, left, rings.nothing) };
            }
        } else {
            // SAFETY: aligned, and kept as the rings are; the posting side stores atomically.
            let posted = unsafe { AtomicU32::from_ptr(rings.posted) }.load(Ordering::Acquire);
            if !shared.recv.is_next(counter) || u32::from_be(posted) as u16 == counter {
                return Err(Unloaded::Absent);
            }
            let at = (usize::from(counter) * rings.recv_stride) & rings.recv_mask;
            for index in 0..rings.recv_stride / DS_BYTES {
                // SAFETY: it is outstanding.
                let segment = unsafe { segment(rings.recv, at + index * DS_BYTES) };
                if segment.lkey.get() == MLX5_INVALID_LKEY {
                    break;
                }
                // SAFETY: of a list that the program posted; see the file's head.
                left = unsafe { fill(&segment, left, rings.nothing) };
            }
        }
        if left.is_empty() { Ok(()) } else { Err(Unloaded::Length) }
    }

    /// Takes the work request of a success whose data could not be copied, as a failed one. `None`
    /// if it isn't outstanding.
    ///
    /// # Safety
    ///
    /// As for [`succeed`](Self::succeed).
    #[cold]
    pub(super) unsafe fn fail_unloaded<'a>(
        &mut self,
        entry: Entry,
        opcode: CqeOpcode,
        why: Unloaded,
    ) -> Option<Polled<Cqe<'a>>> {
        if why == Unloaded::Absent {
            return None;
        }
        // SAFETY: the caller's promise.
        let shared = unsafe { &*self.last };
        let taken = match opcode {
            // SAFETY: the device completed this send; this is the only poller.
            CqeOpcode::REQ => unsafe { take_send(shared, entry) },
            // SAFETY: as above, a receive.
            _ => unsafe { take_recv(shared, entry) },
        };
        let Taken { wr_id, frame, .. } = taken?;
        self.step();
        // SAFETY: as in `succeed`.
        let view = unsafe { Cqe::unloaded(entry, why) };
        Some(Polled { view, wr_id, frame })
    }
}

/// Copies as much as a segment has room for, and gives the rest.
///
/// # Safety
///
/// The program named the memory in a work request that is outstanding.
unsafe fn fill<'a>(segment: &Segment, data: &'a [u8], nothing: Option<u32>) -> &'a [u8] {
    let (now, rest) = data.split_at(data.len().min(segment.length() as usize));
    if nothing == Some(segment.lkey.get()) {
        return rest;
    }
    let to: *mut u8 = with_exposed_provenance_mut(segment.addr.get() as usize);
    let (words, bytes) = match to.addr() % size_of::<u64>() {
        0 => now.as_chunks::<8>(),
        _ => (&[][..], now),
    };
    for (index, word) in words.iter().enumerate() {
        let at = to.wrapping_add(index * size_of::<u64>()).cast();
        // SAFETY: the caller's promise; aligned, as just looked at.
        unsafe { AtomicU64::from_ptr(at) }.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
    }
    let behind = to.wrapping_add(size_of_val(words));
    for (index, byte) in bytes.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { AtomicU8::from_ptr(behind.wrapping_add(index)) }.store(*byte, Ordering::Relaxed);
    }
    rest
}
