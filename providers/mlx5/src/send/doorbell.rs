//! Tells the device of posted work requests: doorbell record, then doorbell, with the fences
//! between.
//!
//! # Safety
//!
//! Record and register are raw addresses, kept valid by the queue that rings. The record is stored
//! to atomically, since the device may read it at any time; the register only ever by volatile
//! eight-byte stores.
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

/// How a send queue rings: by a write-combining register of its own (BlueFlame), or by one on a
/// non-cached page, which it shares with others.
#[derive(Debug)]
pub(crate) struct Doorbell {
    /// BlueFlame's first half, or where eight bytes go.
    register: *mut u8,
    /// Offset of the half that comes next: 0 or `half_bytes`.
    half: u32,
    /// 0 on a non-cached page.
    half_bytes: u32,
    /// WQEBBs that are copied to a half and left in the processor's buffer; 0 where that is drained
    /// at once: a queue may go to another thread, whose fences don't drain this processor's.
    kept: u32,
    /// Where `half` is left for the register's next owner, if there will be one.
    leave: Option<Arc<AtomicU32>>,
}

/// A WQE in a ring, as BlueFlame needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    /// Its first eight bytes, as they stand in memory.
    pub(crate) head: u64,
    /// Where its first WQEBB is.
    pub(crate) at: *const u8,
    /// Index of its first WQEBB; free running.
    pub(crate) first: u32,
    /// Its length in units of 16 bytes.
    pub(crate) ds: u32,
    /// Its length in WQEBBs.
    pub(crate) units: u32,
}

impl Posted {
    /// The same with a number of WQEBBs that the compiler knows, and so which lengths it may have.
    #[inline(always)]
    pub(crate) fn of<const UNITS: u32>(self) -> Self {
        debug_assert_eq!(self.units, UNITS);
        let ds = if UNITS == 1 { self.ds } else { self.ds.max((UNITS - 1) * DS_PER_UNIT + 1) };
        Self { units: UNITS, ds, ..self }
    }
}

// SAFETY: an address, which only the queue reads from that wrote there.
unsafe impl Send for Posted {}
// SAFETY: as above.
unsafe impl Sync for Posted {}

impl Doorbell {
    /// A half takes one WQEBB or more, and whole ones.
    pub(crate) fn blue_flame(register: *mut u8, half_bytes: u32, leave: Arc<AtomicU32>) -> Self {
        debug_assert!(half_bytes as usize >= MLX5_SEND_WQE_BB);
        debug_assert_eq!(half_bytes as usize % MLX5_SEND_WQE_BB, 0);
        let half = leave.load(Ordering::Relaxed);
        Self { register, half, half_bytes, kept: 0, leave: Some(leave) }
    }

    pub(crate) fn non_cached(register: *mut u64) -> Self {
        Self { register: register.cast(), half: 0, half_bytes: 0, kept: 0, leave: None }
    }

    /// Where the next doorbell goes.
    #[inline(always)]
    pub(crate) fn register(&self) -> *mut u64 {
        self.register.wrapping_add(self.half as usize).cast()
    }

    /// Its first byte, and how many it has: a half of a BlueFlame register, 0 of another one.
    pub(crate) fn whole(&self) -> (*mut u8, usize) {
        (self.register, self.half_bytes as usize)
    }

    /// One thread rings from now on: see [`SendOps::stay`](uverbs_core::provider::SendOps::stay).
    pub(crate) fn stay(&mut self) {
        self.kept = self.half_bytes / MLX5_SEND_WQE_BB as u32;
    }

    /// Any thread may ring: drains what this one left behind.
    pub(crate) fn leave(&mut self) {
        if self.kept != 0 {
            self.kept = 0;
            doorbell_flush();
        }
    }

    /// Tells the device of what the record tells of. `last` is the last WQE, and if it is the
    /// `only` new one it goes along (BlueFlame), read from `ring`. rdma-core: `qp.c:post_send_db`,
    /// whose rule for when to copy this is.
    ///
    /// # Safety
    ///
    /// The register is mapped, and for BlueFlame no other queue's. `last` lies in the ring, which
    /// is valid to read and which no other thread writes.
    #[inline(always)]
    pub(crate) unsafe fn ring(&mut self, last: Posted, only: bool, ring: Ring) {
        if self.half_bytes == 0 {
            record_before_doorbell(DoorbellMemory::NonCached);
            // SAFETY: a register is aligned, and valid by the caller's promise.
            unsafe { mmio::write64_raw(self.register(), last.head) };
            note(Step::Stored { offset: 0, head: last.head });
            fence::doorbell_flush(DoorbellMemory::NonCached);
            return;
        }
        record_before_doorbell(DoorbellMemory::WriteCombining);
        // One block always fits: see `blue_flame`.
        let fits = last.units == 1 || last.units * MLX5_SEND_WQE_BB as u32 <= self.half_bytes;
        // A WQE of a control segment alone is not copied: rdma-core doesn't either.
        if only && last.ds > 1 && fits {
            // SAFETY: the caller's promise; it fits.
            unsafe { self.copy::<false>(last, ring) };
            if self.kept == 0 {
                doorbell_flush();
            } else {
                copy_flush();
            }
        } else {
            // SAFETY: a register is aligned, and valid by the caller's promise.
            unsafe { mmio::write64_raw(self.register(), last.head) };
            note(Step::Stored { offset: self.half, head: last.head });
            doorbell_flush();
        }
        self.half ^= self.half_bytes;
    }

    /// [`ring`](Self::ring) with a shorter way for a short WQE where one thread rings by BlueFlame:
    /// `kept` answers what `ring` asks for one by one. `WHOLE` says that each segment of the first
    /// WQEBB was stored by one store of sixteen bytes; then loads of sixteen bytes needn't wait.
    ///
    /// # Safety
    ///
    /// As there.
    #[inline(always)]
    pub(crate) unsafe fn ring_short<const WHOLE: bool>(
        &mut self,
        last: Posted,
        only: bool,
        ring: Ring,
    ) {
        if last.units > self.kept || !only || last.ds <= 1 {
            // SAFETY: contract of `ring_short`.
            return unsafe { self.ring(last, only, ring) };
        }
        record_before_doorbell(DoorbellMemory::WriteCombining);
        // SAFETY: as above; no more is kept than a half has.
        unsafe { self.copy::<WHOLE>(last, ring) };
        copy_flush();
        self.half ^= self.half_bytes;
    }

    /// Copies a WQE, which may be [`WHOLE`](Self::ring_short), to the half that comes next.
    ///
    /// # Safety
    ///
    /// As for [`ring`](Self::ring), and the half has as many bytes.
    #[inline(always)]
    unsafe fn copy<const WHOLE: bool>(&self, last: Posted, ring: Ring) {
        for block in 0..last.units {
            // Block by block, since the WQE may wrap.
            let next = ring.unit(last.first.wrapping_add(block)).cast_const();
            let from = if block == 0 { last.at } else { next }.cast();
            let to =
                self.register().wrapping_add(block as usize * (mmio::BLOCK / size_of::<u64>()));
            match last.ds {
                // SAFETY: 64 bytes of the half, since all blocks fit it; 64 bytes of the ring: the
                // WQE's first, or one whose number is masked. Ring and register begin at a WQEBB's
                // multiple.
                _ if WHOLE && block == 0 => unsafe { mmio::copy_block::<0>(to, from) },
                // SAFETY: as above.
                _ if last.units > 1 => unsafe { mmio::copy_block::<2>(to, from) },
                // What is behind the WQE wasn't stored just before.
                // SAFETY: as above.
                ..=2 => unsafe { mmio::copy_block::<4>(to, from) },
                // SAFETY: as above.
                3 => unsafe { mmio::copy_block::<6>(to, from) },
                // SAFETY: as above.
                _ => unsafe { mmio::copy_blocks(to, from, 1) },
            }
        }
        note(Step::Copied { offset: self.half, blocks: last.units });
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        // The register's next owner may be another thread.
        Self::leave(self);
        if let Some(leave) = &self.leave {
            // Relaxed: the register goes back under a lock, later.
            leave.store(self.half, Ordering::Relaxed);
        }
    }
}

/// Stores a producer counter in the record, behind the WQEs that it counts.
///
/// # Safety
///
/// `record` has two words and `word` is 0 or 1; it is valid while the queue lives, and other
/// accesses to it are atomic, or the device's.
#[inline(always)]
pub(crate) unsafe fn store_record(record: *mut u32, word: usize, counter: u32) {
    fence::wqe_before_record();
    note(Step::WqeBeforeRecord);
    let value = counter & WQE_COUNTER_MASK;
    // SAFETY: the caller's promise; a record is aligned to 8 bytes.
    unsafe { device_memory::store_record(record.wrapping_add(word), value.to_be()) };
    note(Step::Record { word, value });
}

/// Arms a completion queue: the arm word in its record, then both words of its doorbell. rdma-core:
/// `cq.c:mlx5_arm_cq`.
///
/// The page is non-cached, so the doorbell leaves at once and in order. No load need be kept behind
/// it: the word says how far was polled, and the device raises the event at once if there is more
/// by then.
///
/// # Safety
///
/// `record` is a completion queue's and `register` the doorbell of completion queues on a page that
/// is mapped non-cached; both are valid now, and other accesses to the record are atomic, or the
/// device's.
#[inline]
pub(crate) unsafe fn arm(record: *mut u32, register: *mut u64, word: CqArm, cqn: u32) {
    let at = record.wrapping_add(MLX5_CQ_ARM_DB);
    // SAFETY: the caller's promise; a record has two words.
    unsafe { device_memory::release_record(at, word.0.to_be()) };
    note(Step::Record { word: MLX5_CQ_ARM_DB, value: word.0 });
    record_before_doorbell(DoorbellMemory::NonCached);
    let bell = u64::from(word.0) << 32 | u64::from(cqn);
    // SAFETY: a register is aligned, and valid by the caller's promise.
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

/// What ringing did, in order, for the tests.
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
