//! Fences of a queue: places where the processor must keep an order, each named after what it
//! orders.
//!
//! A fence has a partner. Here it is always the device, which reads and writes host memory over PCI
//! Express and is told to look by a store to its doorbell page. PCI Express keeps posted writes of
//! one requester in order (rev. 5, 2.4.1), so the device's own writes need nothing more from it;
//! what is needed is that the processor issues its stores, and uses its loads, in the order that
//! the program means.
//!
//! | | x86-64 | aarch64 | other |
//! |---|---|---|---|
//! | [`wqe_before_record`] | compiler | `dmb oshst` | full fence |
//! | [`record_before_doorbell`], non-cached | compiler | `dmb oshst` | full fence |
//! | [`record_before_doorbell`], write-combining | `sfence` | `dsb st` | full fence |
//! | [`doorbell_flush`], non-cached | nothing | nothing | nothing |
//! | [`doorbell_flush`], write-combining | `sfence` | `dsb st` | full fence |
//! | [`copy_flush`] | compiler | `dsb st` | full fence |
//! | [`cqe_owner_before_body`] | compiler | `dmb oshld` | full fence |
//!
//! Two more orders need no fence: the consumer index of a completion queue is stored with release
//! ([`crate::order::device_memory::release_record`]), and so is a producer index
//! ([`crate::order::device_memory::store_record`]).
//!
//! *Why so little on x86-64.* Stores to write-back memory become visible in program order, and
//! loads are not reordered with loads (Intel SDM vol 3A, 8.2.2; AMD APM vol 2, 7.2). A store to
//! uncached memory is not reordered with older stores to write-back memory. Write-combining memory
//! has none of this (SDM vol 3A, 11.3.1): its stores sit in a buffer and drain in any order until
//! something drains them, such as `sfence`. So only the doorbell page's type matters, and the
//! compiler must be kept from moving accesses. Bus masters take part in the coherence protocol, as
//! another processor would; Linux' `dma_wmb` and `dma_rmb` on x86 are compiler barriers for the
//! same reason (`arch/x86/include/asm/barrier.h`). Non-temporal stores to a payload are the
//! caller's to fence.
//!
//! *aarch64.* The outer shareable domain includes the devices (Arm ARM, B2.7.3, B2.10), hence `osh`
//! and not `ish`, the domain of processors that [`std::sync::atomic::fence`] covers. `dsb` waits
//! besides for the store to complete, which drains a Normal-NC (write-combining) buffer.
//!
//! The feature `conservative-fences` takes the barrier that rdma-core has in the same place
//! (`util/udma_barrier.h`), which is nowhere weaker: on x86-64 `lfence` for a completion, at 10 ns
//! each, and `sfence` before and after each doorbell, whatever the page's type. For a platform
//! whose memory model one doubts, and to measure the difference. `docs/FENCES.md` has both side by
//! side; `tests/fence_instructions.rs` compares the page with what the compiler emits.
//!
//! With the feature `adversary`, for tests alone, `crate::order::adversary` is told of each, and
//! keeps no other order than what the texts here claim.
//!
//! # Safety
//!
//! The only unsafe code is fence instructions, which touch no memory and no register.
#![cfg_attr(not(miri), allow(unsafe_code, reason = "fence instructions that core has no name for"))]

use std::sync::atomic::{Ordering, compiler_fence};

#[cfg(feature = "adversary")]
use crate::order::adversary::{self, Order};
use crate::order::doorbell_memory::DoorbellMemory;

/// After the WQE's stores, before the store of the doorbell record.
///
/// *Orders* the stores of a work queue entry (and of the payload it points to) before the store of
/// the producer index in the doorbell record; both are ordinary write-back memory. So it does with
/// stores to records before it: a consumer index must be out before the index of receives that may
/// complete in its place. *Partner*: the device, which may read the record at any time, not only
/// after a doorbell, and then reads the entries up to that index. If the index went first, it would
/// execute a stale entry.
#[inline(always)]
pub fn wqe_before_record() {
    #[cfg(feature = "adversary")]
    adversary::order(Order::WqeBeforeRecord);
    store_store();
}

/// After the doorbell record's store, before the doorbell.
///
/// *Orders* the stores of record and entries before the store to the doorbell page. *Partner*: the
/// device's reaction to the doorbell: it fetches the record or the entry at once, and must find
/// what the doorbell tells of. Towards a write-combining page it also keeps a doorbell of before,
/// to a non-cached one, from being overtaken, and drains what is left of one to a write-combining
/// page.
///
/// The argument is a constant in every caller, and the branch goes away.
#[inline(always)]
pub fn record_before_doorbell(memory: DoorbellMemory) {
    #[cfg(feature = "adversary")]
    adversary::order(Order::RecordBeforeDoorbell(memory));
    match memory {
        DoorbellMemory::NonCached => {
            if cfg!(feature = "conservative-fences") {
                drain();
            } else {
                store_store();
            }
        }
        DoorbellMemory::WriteCombining => drain(),
    }
}

/// After an eight-byte store to a doorbell page.
///
/// *Orders*, behind a write-combining page, the eight-byte doorbell before all later stores, and
/// drains it from the write-combining buffer, of which it fills a part: without this it waits there
/// until chance evicts it. *Partner*: the device, which is to hear of the work now.
///
/// Does nothing for a non-cached page, whose stores each reach the device separately and in order.
/// rdma-core flushes there too: it has one path for both types of page.
#[inline(always)]
pub fn doorbell_flush(memory: DoorbellMemory) {
    match memory {
        DoorbellMemory::NonCached => {
            if cfg!(feature = "conservative-fences") {
                drain();
            }
        }
        DoorbellMemory::WriteCombining => {
            #[cfg(feature = "adversary")]
            adversary::order(Order::DoorbellFlush);
            drain();
        }
    }
}

/// After whole 64-byte blocks were copied to a write-combining doorbell page, by a thread that
/// rings the next doorbell there, too.
///
/// *Orders* the BlueFlame copy before later doorbells of the same processor, as [`doorbell_flush`]
/// does, and no partly filled block. *Partner*: the device's BlueFlame buffer, which takes a WQE
/// whole or falls back to reading it from memory, and whose halves alternate: the copy of the next
/// WQE must not combine with this one. A queue that may be rung by another thread next needs
/// [`doorbell_flush`]: what is left in this processor's buffer no other one drains.
///
/// On x86-64 this costs no instruction. A write-combining buffer that is full goes out by itself,
/// since there is nothing more to combine (SDM vol 3A, 11.3.1; AMD APM vol 2, 7.4.1), and the next
/// doorbell's [`record_before_doorbell`] drains whatever is left before it stores anything. UCX
/// leaves the fence out in the same place (`uct/ib/mlx5/ib_mlx5.inl`,
/// `uct_ib_mlx5_txwq_ring_doorbell`, mode `BF_POST`); rdma-core has it (`mmio_flush_writes`), and
/// so has the feature `conservative-fences`.
#[inline(always)]
pub fn copy_flush() {
    #[cfg(feature = "adversary")]
    adversary::order(Order::CopyFlush);
    if cfg!(all(target_arch = "x86_64", not(feature = "conservative-fences"))) {
        compiler_fence(Ordering::SeqCst);
    } else {
        drain();
    }
}

/// After a completion's ownership bit was seen to be ours, before its other fields are read.
///
/// *Orders* the load of the byte that holds the ownership bit before the loads of the rest (and of
/// the data that the completion tells of). *Partner*: the device's write of the entry, which it
/// makes in address order, and the ownership byte is its last; so whoever sees that byte new may
/// read all of it, if the loads stay behind.
#[inline(always)]
pub fn cqe_owner_before_body() {
    #[cfg(feature = "adversary")]
    adversary::order(Order::CqeOwnerBeforeBody);
    load_load();
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod arch {
    use super::{Ordering, compiler_fence};

    #[inline(always)]
    pub(super) fn store_store() {
        compiler_fence(Ordering::SeqCst);
    }

    #[inline(always)]
    pub(super) fn load_load() {
        if cfg!(feature = "conservative-fences") {
            // SAFETY: lfence is in every x86-64 processor (SSE2).
            unsafe { core::arch::x86_64::_mm_lfence() };
        }
        compiler_fence(Ordering::SeqCst);
    }

    #[inline(always)]
    pub(super) fn drain() {
        compiler_fence(Ordering::SeqCst);
        // SAFETY: sfence is in every x86-64 processor (SSE).
        unsafe { core::arch::x86_64::_mm_sfence() };
        compiler_fence(Ordering::SeqCst);
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod arch {
    use core::arch::asm;

    // No `nomem`: each is a barrier to the compiler too.

    #[inline(always)]
    pub(super) fn store_store() {
        // SAFETY: a barrier touches nothing.
        unsafe { asm!("dmb oshst", options(nostack, preserves_flags)) };
    }

    #[inline(always)]
    pub(super) fn load_load() {
        // SAFETY: a barrier touches nothing.
        unsafe { asm!("dmb oshld", options(nostack, preserves_flags)) };
    }

    #[inline(always)]
    pub(super) fn drain() {
        // SAFETY: a barrier touches nothing.
        unsafe { asm!("dsb st", options(nostack, preserves_flags)) };
    }
}

/// Elsewhere a full fence, the strongest that the language has. It orders memory accesses between
/// processors; whether a bus master and a device page count as well is the platform's word (on
/// RISC-V `fence rw,rw` doesn't cover I/O), so an architecture that is to drive real devices gets a
/// block of its own above.
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod arch {
    use std::sync::atomic::fence;

    use super::{Ordering, compiler_fence};

    #[inline(always)]
    pub(super) fn store_store() {
        compiler_fence(Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    #[inline(always)]
    pub(super) fn load_load() {
        store_store();
    }

    #[inline(always)]
    pub(super) fn drain() {
        store_store();
    }
}

use arch::{drain, load_load, store_store};

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64};

    use super::*;

    /// Message passing as a queue does it, with a thread in the device's place. On x86-64 the
    /// processor would keep the order even without fences, so this watches the compiler there, and
    /// the processor elsewhere.
    #[test]
    fn what_was_published_is_seen_whole() {
        const ROUNDS: u64 = 20_000;
        static BODY: AtomicU64 = AtomicU64::new(0);
        static RECORD: AtomicU64 = AtomicU64::new(0);
        static STOP: AtomicBool = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let device = scope.spawn(|| {
                let mut seen = 0;
                while !STOP.load(Ordering::Relaxed) || seen != ROUNDS {
                    let record = RECORD.load(Ordering::Relaxed);
                    cqe_owner_before_body();
                    let body = BODY.load(Ordering::Relaxed);
                    assert!(body >= record, "record {record} was seen before body {body}");
                    seen = record;
                }
            });
            for round in 1..=ROUNDS {
                BODY.store(round, Ordering::Relaxed);
                wqe_before_record();
                RECORD.store(round, Ordering::Relaxed);
                record_before_doorbell(DoorbellMemory::NonCached);
                record_before_doorbell(DoorbellMemory::WriteCombining);
                doorbell_flush(DoorbellMemory::NonCached);
                doorbell_flush(DoorbellMemory::WriteCombining);
                copy_flush();
            }
            STOP.store(true, Ordering::Relaxed);
            device.join().unwrap();
        });
    }
}
