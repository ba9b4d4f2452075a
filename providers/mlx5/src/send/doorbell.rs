//! Publication of work requests: doorbell record, then doorbell, with the fences between.
//!
//! # Safety
//!
//! Record and register are raw addresses, kept valid by the queue that rings. Stores to the record
//! are atomic, because the device may read it at any time; stores to the register are volatile and
//! have eight bytes.
#![allow(
    unsafe_code,
    reason = "doorbell records and registers are raw addresses that the device watches"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use uverbs_core::order::doorbell_memory::DoorbellMemory;
use uverbs_core::order::fence;
use uverbs_core::order::{device_memory, mmio};
use uverbs_mlx5_prm::ctrl::MLX5_SEND_WQE_BB;
use uverbs_mlx5_prm::doorbell::{CqArm, MLX5_CQ_ARM_DB, WQE_COUNTER_MASK};

use crate::send::ring::Ring;
use crate::send::wqe::DS_PER_UNIT;

/// Doorbell of a send queue: a write-combining register that it owns (BlueFlame), or a register on
/// a non-cached page, shared with other queues.
#[derive(Debug)]
pub(crate) struct Doorbell {
    /// First half of the BlueFlame register, or the address of eight-byte doorbells.
    register: *mut u8,
    /// Offset of the next half: 0 or `half_bytes`.
    half: u32,
    /// Size of a half in bytes; 0 on a non-cached page.
    half_bytes: u32,
    /// Maximum WQEBBs of a copy that may stay in the processor's write-combining buffer. 0 drains
    /// the buffer at once: another thread may ring next, and its fences drain only the buffer of
    /// the processor that it runs on.
    kept: u32,
    /// Destination of `half` on drop, for the register's next owner, if the register is reused.
    leave: Option<Arc<AtomicU32>>,
}

/// A written WQE, with what BlueFlame needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    /// Address of its first WQEBB.
    pub(crate) at: *const u8,
    /// Index of its first WQEBB; free running.
    pub(crate) first: u32,
    /// Its length in units of 16 bytes.
    pub(crate) ds: u32,
    /// Its length in WQEBBs.
    pub(crate) units: u32,
}

impl Posted {
    /// First eight bytes of the WQE, in memory order.
    ///
    /// # Safety
    ///
    /// The ring is valid for reads, and no other thread writes it.
    #[inline(always)]
    pub(crate) unsafe fn head(&self) -> u64 {
        // SAFETY: contract of `head`; a WQEBB is aligned.
        unsafe { device_memory::read_own(self.at.cast()) }
    }

    /// Fixes the number of WQEBBs, which tells the compiler the possible lengths.
    #[inline(always)]
    pub(crate) fn of<const UNITS: u32>(self) -> Self {
        debug_assert_eq!(self.units, UNITS);
        let ds = if UNITS == 1 { self.ds } else { self.ds.max((UNITS - 1) * DS_PER_UNIT + 1) };
        Self { units: UNITS, ds, ..self }
    }
}

impl Doorbell {
    /// A BlueFlame register. A half holds one or more whole WQEBBs.
    pub(crate) fn blue_flame(register: *mut u8, half_bytes: u32, leave: Arc<AtomicU32>) -> Self {
        debug_assert!(half_bytes as usize >= MLX5_SEND_WQE_BB);
        debug_assert_eq!(half_bytes as usize % MLX5_SEND_WQE_BB, 0);
        let half = leave.load(Ordering::Relaxed);
        Self { register, half, half_bytes, kept: 0, leave: Some(leave) }
    }

    pub(crate) fn non_cached(register: *mut u64) -> Self {
        Self { register: register.cast(), half: 0, half_bytes: 0, kept: 0, leave: None }
    }

    /// Address of the next doorbell.
    #[inline(always)]
    pub(crate) fn register(&self) -> *mut u64 {
        self.register.wrapping_add(self.half as usize).cast()
    }

    /// Address of the register, and size of a half in bytes, 0 without BlueFlame.
    pub(crate) fn whole(&self) -> (*mut u8, usize) {
        (self.register, self.half_bytes as usize)
    }

    /// One thread rings from now on: see [`SendOps::stay`](uverbs_core::provider::SendOps::stay).
    pub(crate) fn stay(&mut self) {
        self.kept = self.half_bytes / MLX5_SEND_WQE_BB as u32;
    }

    /// From now on any thread may ring: drains this processor's buffer.
    pub(crate) fn leave(&mut self) {
        if self.kept != 0 {
            self.kept = 0;
            doorbell_flush();
        }
    }

    /// Rings the doorbell after the record was stored. `last` is the last WQE. If it is the `only`
    /// new one, BlueFlame copies it from `ring` to the register, by the rule of rdma-core
    /// `qp.c:post_send_db`.
    ///
    /// # Safety
    ///
    /// The register is mapped; a BlueFlame register belongs to this queue. `last` is in the ring,
    /// which is valid for reads and which no other thread writes.
    #[inline(always)]
    pub(crate) unsafe fn ring(&mut self, last: Posted, only: bool, ring: Ring) {
        if self.half_bytes == 0 {
            // SAFETY: the ring is valid for reads, by the contract.
            let head = unsafe { last.head() };
            record_before_doorbell(DoorbellMemory::NonCached);
            // SAFETY: a register is aligned, and valid by the contract.
            unsafe { mmio::write64_raw(self.register(), head) };
            note(Step::Stored { offset: 0, head });
            fence::doorbell_flush(DoorbellMemory::NonCached);
            return;
        }
        record_before_doorbell(DoorbellMemory::WriteCombining);
        // One block always fits: see `blue_flame`.
        let fits = last.units == 1 || last.units * MLX5_SEND_WQE_BB as u32 <= self.half_bytes;
        // A WQE with only a control segment is not copied, as in rdma-core.
        if only && last.ds > 1 && fits {
            // SAFETY: contract of `ring`; the WQE fits the half.
            unsafe { self.copy::<false>(last, ring) };
            if self.kept == 0 {
                doorbell_flush();
            } else {
                copy_flush();
            }
        } else {
            // SAFETY: the ring is valid for reads, by the contract.
            let head = unsafe { last.head() };
            // SAFETY: a register is aligned, and valid by the contract.
            unsafe { mmio::write64_raw(self.register(), head) };
            note(Step::Stored { offset: self.half, head });
            doorbell_flush();
        }
        self.half ^= self.half_bytes;
    }

    /// [`ring`](Self::ring) for a batch of one, with a fast path for a short WQE if one thread
    /// rings by BlueFlame: `kept` replaces the separate checks of `ring`. `WHOLE`: each segment of
    /// the first WQEBB was stored by one sixteen-byte store, so sixteen-byte loads don't stall.
    ///
    /// # Safety
    ///
    /// The contract of the method above.
    #[inline(always)]
    pub(crate) unsafe fn ring_short<const WHOLE: bool>(&mut self, last: Posted, ring: Ring) {
        if !self.keeps(last.units) || last.ds <= 1 {
            // SAFETY: contract of `ring_short`.
            return unsafe { self.ring(last, true, ring) };
        }
        // SAFETY: contract of `ring_short`; the WQE may be kept.
        unsafe { self.ring_kept::<WHOLE>(last, ring) };
    }

    /// True if a copy of so many WQEBBs may stay in the processor's write-combining buffer.
    #[inline(always)]
    pub(crate) fn keeps(&self, units: u32) -> bool {
        units <= self.kept
    }

    /// [`ring_short`](Self::ring_short) of a WQE that the buffer [`keeps`](Self::keeps).
    ///
    /// # Safety
    ///
    /// The contract of [`ring_short`](Self::ring_short).
    #[inline(always)]
    pub(crate) unsafe fn ring_kept<const WHOLE: bool>(&mut self, last: Posted, ring: Ring) {
        record_before_doorbell(DoorbellMemory::WriteCombining);
        // SAFETY: contract of `ring_kept`; `kept` is at most the size of a half.
        unsafe { self.copy::<WHOLE>(last, ring) };
        copy_flush();
        self.half ^= self.half_bytes;
    }

    /// Copies a WQE to the next half. `WHOLE`: see [`ring_short`](Self::ring_short).
    ///
    /// # Safety
    ///
    /// As for [`ring`](Self::ring), and the WQE fits the half.
    #[inline(always)]
    unsafe fn copy<const WHOLE: bool>(&self, last: Posted, ring: Ring) {
        for block in 0..last.units {
            // Block by block, because the WQE may wrap.
            let next = ring.unit(last.first.wrapping_add(block)).cast_const();
            let from = if block == 0 { last.at } else { next }.cast();
            let to =
                self.register().wrapping_add(block as usize * (mmio::BLOCK / size_of::<u64>()));
            match last.ds {
                // SAFETY: 64 bytes of the half, which holds all blocks, and 64 bytes of the ring:
                // the WQE's first WQEBB, or one whose index is masked. Ring and register are
                // aligned to a WQEBB.
                _ if WHOLE && block == 0 => unsafe { mmio::copy_block::<0>(to, from) },
                // SAFETY: 64 bytes of the half, which holds all blocks, and 64 bytes of the ring:
                // the WQE's first WQEBB, or one whose index is masked. Ring and register are
                // aligned to a WQEBB.
                _ if last.units > 1 => unsafe { mmio::copy_block::<2>(to, from) },
                // The bytes behind the WQE were not stored recently.
                // SAFETY: 64 bytes of the half, which holds all blocks, and 64 bytes of the ring:
                // the WQE's first WQEBB, or one whose index is masked. Ring and register are
                // aligned to a WQEBB.
                ..=2 => unsafe { mmio::copy_block::<4>(to, from) },
                // SAFETY: 64 bytes of the half, which holds all blocks, and 64 bytes of the ring:
                // the WQE's first WQEBB, or one whose index is masked. Ring and register are
                // aligned to a WQEBB.
                3 => unsafe { mmio::copy_block::<6>(to, from) },
                // SAFETY: 64 bytes of the half, which holds all blocks, and 64 bytes of the ring:
                // the WQE's first WQEBB, or one whose index is masked. Ring and register are
                // aligned to a WQEBB.
                _ => unsafe { mmio::copy_blocks(to, from, 1) },
            }
        }
        note(Step::Copied { offset: self.half, blocks: last.units });
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        // The register's next owner may run on another thread.
        Self::leave(self);
        if let Some(leave) = &self.leave {
            // Relaxed: the register is returned under a lock later.
            leave.store(self.half, Ordering::Relaxed);
        }
    }
}

/// Stores a producer counter in the record, after the WQEs that it counts.
///
/// # Safety
///
/// `record` has two words and `word` is 0 or 1; it is valid while the queue lives, and all other
/// accesses to it are atomic or by the device.
#[inline(always)]
pub(crate) unsafe fn store_record(record: *mut u32, word: usize, counter: u32) {
    fence::wqe_before_record();
    note(Step::WqeBeforeRecord);
    let value = counter & WQE_COUNTER_MASK;
    // SAFETY: contract of `store_record`; a record is aligned to 8 bytes.
    unsafe { device_memory::store_record(record.wrapping_add(word), value.to_be()) };
    note(Step::Record { word, value });
}

/// Arms a completion queue: the arm word in its record, then both words of its doorbell. rdma-core:
/// `cq.c:mlx5_arm_cq`.
///
/// The page is non-cached, so the doorbell leaves at once and in order. Later loads need no order
/// after it: the word contains the consumer index, and the device raises the event at once if there
/// are newer CQEs.
///
/// # Safety
///
/// `record` belongs to a completion queue, and `register` is the doorbell of completion queues on a
/// non-cached page. Both are valid now, and all other accesses to the record are atomic or by the
/// device.
#[inline]
pub(crate) unsafe fn arm(record: *mut u32, register: *mut u64, word: CqArm, cqn: u32) {
    let at = record.wrapping_add(MLX5_CQ_ARM_DB);
    // SAFETY: contract of `arm`; a record has two words.
    unsafe { device_memory::release_record(at, word.0.to_be()) };
    note(Step::Record { word: MLX5_CQ_ARM_DB, value: word.0 });
    record_before_doorbell(DoorbellMemory::NonCached);
    let bell = u64::from(word.0) << 32 | u64::from(cqn);
    // SAFETY: a register is aligned, and valid by the contract.
    unsafe { mmio::write64_be(register, bell) };
    note(Step::Stored { offset: 0, head: bell });
    fence::doorbell_flush(DoorbellMemory::NonCached);
}

#[inline(always)]
fn record_before_doorbell(memory: DoorbellMemory) {
    fence::record_before_doorbell(memory);
    note(Step::RecordBeforeDoorbell(memory));
}

#[inline(always)]
fn doorbell_flush() {
    fence::doorbell_flush(DoorbellMemory::WriteCombining);
    note(Step::Flush);
}

#[inline(always)]
fn copy_flush() {
    fence::copy_flush();
    note(Step::CopyFlush);
}

/// A step of ringing, for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    WqeBeforeRecord,
    Record { word: usize, value: u32 },
    RecordBeforeDoorbell(DoorbellMemory),
    Copied { offset: u32, blocks: u32 },
    Stored { offset: u32, head: u64 },
    Flush,
    CopyFlush,
}

#[cfg(not(test))]
#[inline(always)]
fn note(_: Step) {}

#[cfg(test)]
fn note(step: Step) {
    STEPS.with_borrow_mut(|steps| steps.push(step));
}

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::RefCell<Vec<Step>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// The steps since the last call, of this thread.
#[cfg(test)]
pub(crate) fn steps() -> Vec<Step> {
    STEPS.take()
}
