//! Work requests that CQEs complete: takes their slots.
//!
//! # Safety
//!
//! Each function says what the device has done.
#![allow(unsafe_code, reason = "takes slots that the device names")]

use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::slots::Taken;

use crate::cqe::OwnedCqe;

/// Takes and retires the send that a CQE completes; `None` if no outstanding send starts there, for
/// example after a repeated completion, or for a WQE that the program wrote itself.
///
/// # Safety
///
/// The device completed it, and the caller is the only poller.
#[inline(always)]
pub(super) unsafe fn take_send(shared: &QpShared, entry: OwnedCqe) -> Option<Taken> {
    // SAFETY: contract of this function. The table has at least one slot, even if the queue has
    // none.
    let taken = unsafe { shared.send.take_ahead(entry.wqe_counter()) }?;
    // SAFETY: it was just taken.
    unsafe { shared.send.retire(taken.position) };
    Some(taken)
}

/// Takes and retires the oldest receive, because a queue pair's receive queue completes in order. A
/// CQE of another index belongs to a shared receive queue, or is a repeated completion (`None`).
/// The device counts a queue pair's receives modulo 65536 (Linux's mlx5e finds its receives by the
/// same field, `en_rx.c:mlx5e_handle_rx_cqe`).
///
/// # Safety
///
/// The device completed it, and the caller is the only poller.
#[inline(always)]
pub(super) unsafe fn take_recv(shared: &QpShared, entry: OwnedCqe) -> Option<Taken> {
    // SAFETY: contract of this function. The table has at least one slot, even if the queue has
    // none.
    let Some(taken) = (unsafe { shared.recv.take_next(entry.wqe_counter()) }) else {
        // SAFETY: contract of `take_recv`.
        return unsafe { take_shared(shared, entry) };
    };
    // SAFETY: it was just taken.
    unsafe { shared.recv.retire(taken.position) };
    Some(taken)
}

/// Takes the receive that a CQE completes in a shared receive queue, whose WQE it names by index;
/// `None` if none is in flight there. In a receive queue that completes out of order, takes and
/// retires the receive.
///
/// # Safety
///
/// The device completed it.
#[inline(never)]
pub(super) unsafe fn take_shared(shared: &QpShared, entry: OwnedCqe) -> Option<Taken> {
    let Some(srq) = shared.srq.as_ref() else {
        // SAFETY: contract of `take_shared`.
        let taken = unsafe { shared.recv.take_out_of_turn(entry.wqe_counter()) }?;
        // SAFETY: the queue completes out of order, and one more slot was taken.
        unsafe { shared.recv.retire(taken.position) };
        return Some(taken);
    };
    // SAFETY: contract of `take_shared`.
    unsafe { srq.take(entry.wqe_counter().into()) }
}
