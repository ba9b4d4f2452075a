//! Fences of a queue, each named after the accesses that it orders.
//!
//! A fence has a partner. Here the partner is always the device, which accesses host memory over
//! PCI Express and is notified by a store to its doorbell page. PCI Express keeps posted writes of
//! one requester in order (rev. 5, 2.4.1), so the device's writes need no further ordering. The
//! processor must issue its stores, and perform its loads, in the order that the program means.
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
//! Two more orders are kept without a fence: the consumer index of a completion queue is stored
//! with release ([`crate::order::device_memory::release_record`]), and so is a producer index
//! ([`crate::order::device_memory::store_record`]).
//!
//! *Why so little on x86-64.* Stores to write-back memory become visible in program order, and
//! loads are not reordered with loads (Intel SDM vol 3A, 8.2.2; AMD APM vol 2, 7.2). A store to
//! uncached memory is not reordered with older stores to write-back memory. Write-combining memory
//! gives none of these guarantees (SDM vol 3A, 11.3.1): its stores wait in a buffer and drain in
//! any order, or when an instruction such as `sfence` drains them. So only the doorbell page's
//! memory type matters, and the compiler must not move accesses. Bus masters take part in the
//! coherence protocol, as another processor would; Linux' `dma_wmb` and `dma_rmb` on x86 are
//! compiler barriers for the same reason (`arch/x86/include/asm/barrier.h`). A caller that writes a
//! payload by non-temporal stores must fence them.
//!
//! *aarch64.* The outer shareable domain includes the devices (Arm ARM, B2.7.3, B2.10), hence `osh`
//! instead of `ish`, the domain of processors, which [`std::sync::atomic::fence`] covers. `dsb`
//! also waits for the store to complete, which drains a Normal-NC (write-combining) buffer.
//!
//! The feature `conservative-fences` uses the barriers of rdma-core (`util/udma_barrier.h`), each
//! at least as strong: on x86-64 `lfence` for each completion, which costs 10 ns, and `sfence`
//! before and after each doorbell for both memory types. It is meant for platforms with a doubtful
//! memory model, and to measure the difference. `docs/FENCES.md` compares both;
//! `tests/fence_instructions.rs` compares the page with what the compiler emits.
//!
//! With the feature `adversary`, which only tests enable, `crate::order::adversary` is notified of
//! each fence, and keeps only the orders that the comments here claim.
//!
//! # Safety
//!
//! The only unsafe code is fence instructions, which touch no memory and no register.
#![cfg_attr(not(miri), allow(unsafe_code, reason = "fence instructions that core has no name for"))]

use std::sync::atomic::{Ordering, compiler_fence};

#[cfg(feature = "adversary")]
use crate::order::adversary::{self, Order};
use crate::order::doorbell_memory::DoorbellMemory;

/// Fence between the stores of WQEs and the store of the doorbell record.
///
/// *Orders* the stores of a WQE (and of the payload that it points to) before the store of the
/// producer index in the doorbell record; both are ordinary write-back memory. It also orders
/// earlier stores to records: a consumer index must be visible before the producer index of
/// receives whose CQEs may reuse its entries. *Partner*: the device, which may read the record at
/// any time, also without a doorbell, and then reads the WQEs up to that index. If the index were
/// visible first, the device would execute a stale WQE.
#[inline(always)]
pub fn wqe_before_record() {
    #[cfg(feature = "adversary")]
    adversary::order(Order::WqeBeforeRecord);
    store_store();
}

/// Fence between the store of the doorbell record and the doorbell.
///
/// *Orders* the stores of record and WQEs before the store to the doorbell page. *Partner*: the
/// device, which fetches the record or the WQE as soon as the doorbell arrives. For a
/// write-combining page it also orders earlier doorbells to a non-cached page before this one, and
/// drains an earlier doorbell to a write-combining page.
///
/// The argument is a constant in every caller, so the branch is compiled away.
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

/// Fence after an eight-byte store to a doorbell page.
///
/// *Orders*, for a write-combining page, the doorbell before all later stores, and drains it from
/// the write-combining buffer. The doorbell fills the buffer only partly, and without the fence
/// would stay there until it is evicted by chance. *Partner*: the device, which must be notified
/// now.
///
/// Does nothing for a non-cached page, whose stores reach the device separately and in order.
/// rdma-core flushes in both cases, because it has one code path for both memory types.
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

/// Fence after whole 64-byte blocks were copied to a write-combining doorbell page, by a thread
/// that also rings the next doorbell.
///
/// *Orders* the BlueFlame copy before later doorbells of the same processor, as [`doorbell_flush`]
/// does, but only for completely filled blocks. *Partner*: the device's BlueFlame buffer, which
/// accepts only a whole WQE and otherwise reads it from memory, and whose halves alternate. The
/// copy of the next WQE must not combine with this one. A queue that another thread may ring next
/// needs [`doorbell_flush`], because other processors can't drain this processor's buffer.
///
/// On x86-64 this costs no instruction. The processor drains a full write-combining buffer without
/// being told (SDM vol 3A, 11.3.1; AMD APM vol 2, 7.4.1), and the [`record_before_doorbell`] of the
/// next doorbell drains the rest before its store. UCX omits the fence in the same place
/// (`uct/ib/mlx5/ib_mlx5.inl`, `uct_ib_mlx5_txwq_ring_doorbell`, mode `BF_POST`); rdma-core has it
/// (`mmio_flush_writes`), and also the feature `conservative-fences`.
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

/// Fence between the load of a CQE's ownership bit and the loads of its other fields.
///
/// *Orders* the load of the ownership byte before the loads of the rest of the CQE, and of the data
/// that it reports. *Partner*: the device's write of the CQE, in address order with the ownership
/// byte last. A reader that sees the new ownership byte may read the whole CQE, if its loads stay
/// behind.
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
            // SAFETY: every x86-64 processor has `lfence` (SSE2).
            unsafe { core::arch::x86_64::_mm_lfence() };
        }
        compiler_fence(Ordering::SeqCst);
    }

    #[inline(always)]
    pub(super) fn drain() {
        compiler_fence(Ordering::SeqCst);
        // SAFETY: every x86-64 processor has `sfence` (SSE).
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
        // SAFETY: a barrier accesses no memory.
        unsafe { asm!("dmb oshst", options(nostack, preserves_flags)) };
    }

    #[inline(always)]
    pub(super) fn load_load() {
        // SAFETY: a barrier accesses no memory.
        unsafe { asm!("dmb oshld", options(nostack, preserves_flags)) };
    }

    #[inline(always)]
    pub(super) fn drain() {
        // SAFETY: a barrier accesses no memory.
        unsafe { asm!("dsb st", options(nostack, preserves_flags)) };
    }
}

/// Other architectures: a full fence, the strongest of the language. It orders memory accesses
/// between processors. It may not cover bus masters and device pages (on RISC-V `fence rw,rw`
/// excludes I/O), so an architecture that drives real devices needs its own block above.
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

    /// Message passing as in a queue, with a thread in the role of the device. On x86-64 the
    /// processor keeps the order without fences, so there the test checks only the compiler;
    /// elsewhere it also checks the processor.
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
