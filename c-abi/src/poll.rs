//! Polling.
//!
//! # Safety
//!
//! C's contract; completions are written where the program points.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;

use uverbs::provider::AnyCq;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::provider::{CqOps, Polled, View};

use crate::completion;
use crate::cq::Cq;
use crate::sys::{IBV_WC_DRIVER2, ibv_cq, ibv_wc};

pub(crate) unsafe extern "C" fn poll_cq(
    cq: *const ibv_cq,
    entries: c_int,
    wc: *mut ibv_wc,
) -> c_int {
    // SAFETY: C's contract.
    let cq = unsafe { Cq::of(cq) };
    let mut poll = cq.poll().lock();
    // SAFETY: C's contract: there is room for as many.
    let count = unsafe {
        match &mut *poll {
            AnyCq::Mlx5(poll) if cq.raw_queues().is_any() => fill_raw(poll, cq, entries, wc),
            AnyCq::Mlx5(poll) => fill(poll, cq.core(), entries, wc),
            AnyCq::Rxe(poll) => fill(poll, cq.core(), entries, wc),
            #[cfg(feature = "any-siw")]
            AnyCq::Siw(poll) => fill(poll, cq.core(), entries, wc),
        }
    };
    drop(poll);
    if count == 0 {
        cq.found_nothing();
    }
    count
}

/// Learns of queue pairs that came and went, if there are any.
#[inline(always)]
pub(crate) fn settle<C: CqOps>(poll: &mut C, core: &CqCore) {
    if core.has_messages() {
        poll.settle();
    }
}

/// # Safety
///
/// There is room for `entries` completions.
#[inline(always)]
unsafe fn fill<C: CqOps>(poll: &mut C, core: &CqCore, entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { fill_with(poll, core, (entries, wc), |_, _| {}) }
}

/// The same of a queue where sends may be WQEs of the program's own.
///
/// # Safety
///
/// As for [`fill`].
#[cold]
#[inline(never)]
unsafe fn fill_raw<C: CqOps>(poll: &mut C, cq: &Cq, entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        fill_with(poll, cq.core(), (entries, wc), |wc, index| {
            if cq.raw_queues().complete(wc.qp_num, index) {
                wc.opcode = IBV_WC_DRIVER2;
            }
        })
    }
}

/// Polls, and calls `then` for each completion that it wrote, with the send's index.
///
/// # Safety
///
/// As for [`fill`].
#[inline(always)]
unsafe fn fill_with<C: CqOps>(
    poll: &mut C,
    core: &CqCore,
    (entries, wc): (c_int, *mut ibv_wc),
    then: impl Fn(&mut ibv_wc, Option<u16>),
) -> c_int {
    settle(poll, core);
    let lag = core.lag();
    let (mut count, mut unpublished) = (0, 0);
    while count < entries {
        let Some(Polled { view, wr_id, .. }) = poll.next() else { break };
        // SAFETY: the caller's promise.
        unsafe {
            let to = wc.add(count as usize);
            completion::write(to, &view, wr_id);
            then(&mut *to, view.send_index());
        }
        count += 1;
        unpublished += 1;
        if unpublished == lag {
            // The device must not run out of entries.
            poll.publish();
            unpublished = 0;
        }
    }
    if unpublished != 0 {
        poll.publish();
    }
    count
}
