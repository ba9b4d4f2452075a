//! `ibv_poll_cq`.
//!
//! # Safety
//!
//! By C's contract (crate root), `wc` has room for `entries` completions.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;

use uverbs::provider::AnyCq;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::provider::{CqOps, Polled, Sink, Usual, View};

use crate::poll::completion;
use crate::queues::cq::{Cq, step};
use crate::sys::{IBV_WC_IP_CSUM_OK, ibv_cq, ibv_wc};

/// Destination of a completion. `CALLS` is [`Sink::CALLS`].
struct WcSlot<const CALLS: bool>(*mut ibv_wc);

impl<const CALLS: bool> WcSlot<CALLS> {
    /// # Safety
    ///
    /// `to` is valid to write.
    #[inline(always)]
    unsafe fn new(to: *mut ibv_wc) -> Self {
        Self(to)
    }
}

impl<V: View, const CALLS: bool> Sink<V> for WcSlot<CALLS> {
    type Output = ();

    const CALLS: bool = CALLS;

    #[inline(always)]
    fn take(self, view: V, wr_id: u64) {
        // SAFETY: by the contract of `new`.
        unsafe { completion::write(self.0, &view, wr_id) };
    }
}

/// Polls. An empty poll and a single completion make no calls, and the rest is tail calls of C's
/// functions, so no registers are saved.
pub(crate) unsafe extern "C" fn poll_cq(
    cq: *const ibv_cq,
    entries: c_int,
    wc: *mut ibv_wc,
) -> c_int {
    // SAFETY: C's contract.
    let cq = unsafe { Cq::of(cq) };
    let Some(mut poll) = cq.poll().lock_own() else {
        // SAFETY: C's contract.
        return unsafe { poll_shared(cq, entries, wc) };
    };
    let mut count = 0;
    if entries > 0
        && cq.is_usual()
        && let AnyCq::Mlx5(queue) = &mut *poll
    {
        // SAFETY: C's contract: `wc` has room for a completion.
        let place = unsafe { WcSlot::<false>::new(wc) };
        match queue.next_usual(place) {
            Usual::Taken(()) => {
                queue.publish();
                if entries == 1 {
                    return 1;
                }
                count = 1;
            }
            Usual::Nothing => {
                poll.keep();
                // SAFETY: this thread holds the lock.
                return unsafe { cq.found_nothing(0) };
            }
            Usual::Unusual => {}
        }
    }
    poll.keep();
    // SAFETY: C's contract; this thread holds the lock.
    unsafe { poll_on(cq, entries, wc, count) }
}

/// Polls a queue that other threads poll, too.
///
/// # Safety
///
/// C's contract.
#[inline(never)]
unsafe extern "C" fn poll_shared(cq: &Cq, entries: c_int, wc: *mut ibv_wc) -> c_int {
    cq.poll().lock().keep();
    // SAFETY: C's contract; this thread holds the lock.
    unsafe { poll_on(cq, entries, wc, 0) }
}

/// Polls after `count` completions, and releases the lock.
///
/// # Safety
///
/// C's contract; this thread holds the lock.
#[inline(never)]
unsafe extern "C" fn poll_on(cq: &Cq, entries: c_int, wc: *mut ibv_wc, count: c_int) -> c_int {
    // SAFETY: C's contract: `wc` has room; this thread holds the lock.
    let found = unsafe {
        let (to, rest) = (wc.add(count as usize), entries - count);
        match cq.poll().held() {
            AnyCq::Mlx5(poll) if cq.has_extras() => fill(poll, cq, Some(cq), (to, rest)),
            AnyCq::Mlx5(poll) => fill_usual(poll, cq, (to, rest)),
            AnyCq::Rxe(poll) => fill(poll, cq, None, (to, rest)),
            AnyCq::Siw(poll) => fill(poll, cq, None, (to, rest)),
            AnyCq::Rdmavt(poll) => fill(poll, cq, None, (to, rest)),
            AnyCq::Efa(poll) => fill(poll, cq, None, (to, rest)),
        }
    };
    // SAFETY: this thread holds the lock.
    let found = unsafe { cq.checked(cq.poll().held().strays(), count + found) };
    if found == 0 {
        // SAFETY: this thread holds the lock.
        return unsafe { cq.found_nothing(0) };
    }
    cq.poll().release();
    found
}

/// Reads the inbox of new and destroyed queue pairs, unless it is empty.
#[inline(always)]
pub(crate) fn settle<C: CqOps>(poll: &mut C, core: &CqCore) {
    if core.has_messages() {
        poll.settle();
    }
}

/// [`IBV_WC_IP_CSUM_OK`] of a raw packet whose IP and transport checksums are right (rdma-core
/// `cq.c:get_csum_ok`). Packets of work queues have no such flag there.
pub(crate) fn checksums<V: View>(view: &V, cq: &Cq) -> u32 {
    let packet = view.packet();
    let received = view.is_recv() && view.result().is_ok();
    let received = received && view.user_index().is_some_and(|index| cq.takes_packets(index));
    match received && packet.ip_checksum_ok && packet.transport_checksum_ok {
        true => IBV_WC_IP_CSUM_OK,
        false => 0,
    }
}

/// Polls an mlx5 queue on the fast path.
///
/// # Safety
///
/// `room.0` has room for `room.1` completions.
#[inline(always)]
unsafe fn fill_usual<C: CqOps>(poll: &mut C, cq: &Cq, room: (*mut ibv_wc, c_int)) -> c_int {
    // SAFETY: by the contract of `fill_usual`.
    unsafe {
        fill_by(poll, cq, room, |poll, to| match poll.next_usual(WcSlot::<true>::new(to)) {
            Usual::Taken(()) => true,
            Usual::Nothing => false,
            Usual::Unusual => fill_one(poll, None, to),
        })
    }
}

/// Polls a queue of any provider, or one with extras.
///
/// # Safety
///
/// As for [`fill_usual`].
#[inline(never)]
unsafe fn fill<C: CqOps>(
    poll: &mut C,
    cq: &Cq,
    extras: Option<&Cq>,
    room: (*mut ibv_wc, c_int),
) -> c_int {
    // SAFETY: by the contract of `fill`.
    unsafe { fill_by(poll, cq, room, |poll, to| fill_one(poll, extras, to)) }
}

/// Fills entries until `next` finds no completion or all are filled.
///
/// # Safety
///
/// As for [`fill_usual`].
#[inline(always)]
unsafe fn fill_by<C: CqOps>(
    poll: &mut C,
    cq: &Cq,
    (mut to, entries): (*mut ibv_wc, c_int),
    next: impl Fn(&mut C, *mut ibv_wc) -> bool,
) -> c_int {
    settle(poll, cq.core());
    let mut found = 0;
    while found < entries {
        // Published in steps, so that the device never runs out of CQEs.
        let step = step(cq.core()).min(entries - found);
        let mut left = step;
        while left != 0 && next(poll, to) {
            to = to.wrapping_add(1);
            left -= 1;
        }
        if left != step {
            poll.publish();
        }
        found += step - left;
        if left != 0 {
            break;
        }
    }
    found
}

/// Writes the next completion of any kind; false if the queue is empty.
///
/// # Safety
///
/// `to` is valid to write.
#[inline(never)]
unsafe fn fill_one<C: CqOps>(poll: &mut C, extras: Option<&Cq>, to: *mut ibv_wc) -> bool {
    let Some(Polled { view, wr_id, .. }) = poll.next() else { return false };
    // SAFETY: by the contract of `fill_one`.
    unsafe { completion::write(to, &view, wr_id) };
    if let Some(cq) = extras {
        // SAFETY: by the contract of `fill_one`; initialized by the line above.
        let wc = unsafe { &mut *to };
        if let Some(opcode) = cq.sent().complete(wc.qp_num, view.send_index()) {
            wc.opcode = opcode;
        }
        wc.wc_flags |= checksums(&view, cq);
    }
    true
}
