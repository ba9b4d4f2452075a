//! Scatter to CQE: the device places short messages, and short responses of READs and atomics, in
//! the CQE, and the poller copies them to the buffer of the work request (PRM "Scatter to CQE";
//! rdma-core `cq.c`, `qp.c:mlx5_copy_to_recv_wqe`, `mlx5_copy_to_send_wqe`).
//!
//! # Safety
//!
//! The scatter list is read from the ring before the slot is retired, so the poster did not
//! overwrite it; the rings are kept. The list names memory of the program at that address, which
//! only the device uses until the completion is returned. For safe posts the slot holds that
//! memory; for raw posts it is the caller's contract. Copies are atomic stores, because exposed
//! memory may be read meanwhile.
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

use super::Cq;
use super::take::{take_recv, take_send};
use crate::cqe::{Cqe, OwnedCqe, Unloaded};

/// Maximum data in a 64-byte CQE (its first half), and in a 128-byte CQE (the bytes before the used
/// half).
const SMALL: usize = mlx5_cqe64::SIZE / 2;
const LARGE: usize = mlx5_cqe64::SIZE;
/// Number of segments before the SGEs of a READ, and of an atomic.
const READ_HEAD: usize = 2;
const ATOMIC_HEAD: usize = 3;

/// WQE rings of a queue pair, whose SGEs name the buffers of data in CQEs.
pub(crate) struct WorkRings {
    /// Address of the send queue, and its size minus one.
    pub(crate) send: *const u8,
    pub(crate) send_mask: usize,
    /// Address of the receive queue, its size minus one, and the size of a WQE.
    pub(crate) recv: *const u8,
    pub(crate) recv_mask: usize,
    pub(crate) recv_stride: usize,
    /// Word of the doorbell record that counts posted receives.
    pub(crate) posted: *mut u32,
    /// Local key that names no memory.
    pub(crate) nothing: Option<u32>,
    /// Keeps the rings and the record.
    pub(crate) _memory: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the pointers go to memory that `_memory` keeps; it is read only by raw pointers, where no
// thread writes.
unsafe impl Send for WorkRings {}
// SAFETY: the pointers go to memory that `_memory` keeps; it is read only by raw pointers, where no
// thread writes.
unsafe impl Sync for WorkRings {}

type Segment = mlx5_wqe_data_seg;

/// # Safety
///
/// `at` names sixteen bytes of the ring that no thread writes now.
unsafe fn load(ring: *const u8, at: usize) -> [u8; DS_BYTES] {
    // SAFETY: contract of `load`.
    unsafe { device_memory::read(ring.wrapping_add(at).cast()) }
}

/// # Safety
///
/// As for [`load`].
unsafe fn segment(ring: *const u8, at: usize) -> Segment {
    // SAFETY: contract of `segment`.
    let bytes = unsafe { load(ring, at) };
    Segment::read_from_bytes(&bytes).unwrap_or(Segment::TERMINATOR)
}

impl Cq {
    /// Copies the data in the next CQE to the buffer of its work request, as much as fits.
    ///
    /// # Errors
    ///
    /// The reason why some or all of the data was not copied.
    ///
    /// # Safety
    ///
    /// Software owns the entry, and its queue pair is the last one.
    pub(super) unsafe fn unload(&self, entry: OwnedCqe, op_own: u8) -> Result<(), Unloaded> {
        let opcode = CqeOpcode(OpOwn(op_own).opcode());
        let data = match op_own & (MLX5_INLINE_SCATTER_32 | MLX5_INLINE_SCATTER_64) {
            0 => return Ok(()),
            _ if opcode.0 > CqeOpcode::RESP_SEND_INV.0 => return Ok(()),
            MLX5_INLINE_SCATTER_32 => &entry.bytes::<SMALL>(0)[..],
            MLX5_INLINE_SCATTER_64 if self.stride() > LARGE => &entry.bytes::<LARGE>(LARGE)[..],
            _ => return Err(Unloaded::Unasked),
        };
        // SAFETY: the last queue pair is in a table, by the contract.
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
                // For atomics the CQE's byte count is meaningless (rdma-core `cq.c`).
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
                // A WQE may wrap to the ring's beginning.
                let place = at.wrapping_add(index * DS_BYTES) & rings.send_mask;
                // SAFETY: it is outstanding.
                let segment = unsafe { segment(rings.send, place) };
                // SAFETY: an SGE that the program posted; see the file's head.
                left = unsafe { fill(&segment, left, rings.nothing) };
            }
        } else {
            // SAFETY: aligned, and kept together with the rings; the poster stores atomically.
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
                // SAFETY: an SGE that the program posted; see the file's head.
                left = unsafe { fill(&segment, left, rings.nothing) };
            }
        }
        if left.is_empty() { Ok(()) } else { Err(Unloaded::Length) }
    }

    /// Takes the work request of a success whose data could not be copied, and reports it as
    /// failed. `None` if it is not outstanding.
    ///
    /// # Safety
    ///
    /// As for [`succeed`](Self::succeed).
    #[cold]
    pub(super) unsafe fn fail_unloaded<'a>(
        &mut self,
        entry: OwnedCqe,
        opcode: CqeOpcode,
        why: Unloaded,
    ) -> Option<Polled<Cqe<'a>>> {
        if why == Unloaded::Absent {
            return None;
        }
        // SAFETY: contract of `fail_unloaded`.
        let shared = unsafe { &*self.last };
        let taken = match opcode {
            // SAFETY: the device completed this send; this is the only poller.
            CqeOpcode::REQ => unsafe { take_send(shared, entry) },
            // SAFETY: the device completed this receive; this is the only poller.
            _ => unsafe { take_recv(shared, entry) },
        };
        let Taken { wr_id, frame, .. } = taken?;
        self.step();
        // SAFETY: as in `succeed`.
        let view = unsafe { Cqe::unloaded(entry, why) };
        Some(Polled { view, wr_id, frame })
    }
}

/// Copies data to an SGE, and returns the part that does not fit.
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
        // SAFETY: the program named this memory, by the contract of `fill`; aligned, as just
        // checked.
        unsafe { AtomicU64::from_ptr(at) }.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
    }
    let behind = to.wrapping_add(size_of_val(words));
    for (index, byte) in bytes.iter().enumerate() {
        // SAFETY: contract of `fill`.
        unsafe { AtomicU8::from_ptr(behind.wrapping_add(index)) }.store(*byte, Ordering::Relaxed);
    }
    rest
}
