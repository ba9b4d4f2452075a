//! Posting receives, to a queue pair's own queue or a shared one.
//!
//! # Safety
//!
//! By C's contract (crate root), the memory named by a work request stays registered until its
//! completion.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;

use uverbs::provider::AnySrq;
use uverbs_core::Errno;
use uverbs_core::provider::RecvOps;
use uverbs_core::queues::work::PostError;

use crate::base::lock::{Lock, Stays};
use crate::post::recv_side::RecvSide;
use crate::post::request::{errno, with_list};
use crate::queues::qp::Qp;
use crate::queues::srq::Srq;
use crate::sys::{ibv_qp, ibv_recv_wr, ibv_srq};

/// Receive queue of a provider inside the lock of all providers' queues.
pub(crate) trait Receives<L>: RecvOps + Sized {
    /// Returns the guarded queue if it is this provider's.
    fn of(side: &mut L) -> Option<&mut Self>;
}

/// Implements [`Receives`] for a provider.
macro_rules! receives {
    ($($side:ident::$provider:ident: $queue:ty),* $(,)?) => {
        $(impl Receives<$side> for $queue {
            #[inline(always)]
            fn of(side: &mut $side) -> Option<&mut Self> {
                if let $side::$provider(queue) = side { Some(queue) } else { None }
            }
        })*
    };
}

receives!(
    RecvSide::Mlx5: uverbs_mlx5::Rq,
    RecvSide::Rxe: uverbs_rxe::Rq,
    AnySrq::Mlx5: uverbs_mlx5::Srq,
    AnySrq::Rxe: uverbs_rxe::Srq,
);
receives!(RecvSide::Siw: uverbs_siw::Rq, AnySrq::Siw: uverbs_siw::Srq);
receives!(RecvSide::Rdmavt: uverbs_rdmavt::Rq, AnySrq::Rdmavt: uverbs_rdmavt::Srq);
receives!(RecvSide::Efa: uverbs_efa::Rq, AnySrq::Efa: uverbs_efa::Srq);

/// Refuses receives on an XRC target, which has no queues.
///
/// # Safety
///
/// C's contract.
#[cold]
#[inline(never)]
pub(crate) unsafe fn refused<W>(wr: *const W, bad: *mut *const W) -> c_int {
    // SAFETY: by C's contract.
    unsafe { *bad = wr };
    Errno::EINVAL.raw()
}

pub(crate) unsafe extern "C" fn post_recv<R: Receives<RecvSide>>(
    qp: *const ibv_qp,
    wr: *const ibv_recv_wr,
    bad: *mut *const ibv_recv_wr,
) -> c_int {
    // SAFETY: by C's contract.
    unsafe { post::<_, R>(Qp::of(qp).recv(), wr, bad) }
}

pub(crate) unsafe extern "C" fn post_srq_recv<R: Receives<AnySrq>>(
    srq: *const ibv_srq,
    wr: *const ibv_recv_wr,
    bad: *mut *const ibv_recv_wr,
) -> c_int {
    // SAFETY: by C's contract.
    unsafe { post::<_, R>(Srq::of(srq).queue(), wr, bad) }
}

/// Posts receives to a queue pair's or a shared queue. A single receive of one SGE, on an
/// uncontended lock, takes neither a loop nor a call, so that no registers are saved. [`post_any`]
/// does the rest.
///
/// # Safety
///
/// C's contract.
#[inline(always)]
pub(crate) unsafe fn post<L: Stays, R: Receives<L>>(
    lock: &Lock<L>,
    wr: *const ibv_recv_wr,
    bad: *mut *const ibv_recv_wr,
) -> c_int {
    // SAFETY: C's contract: null, or the first receive of a list.
    if let Some(first) = unsafe { wr.as_ref() }
        && first.next.is_null()
        && first.num_sge == 1
        && let Some(mut side) = lock.lock_at_once()
        && let Some(rq) = R::of(&mut side)
        // SAFETY: C's contract: the receive has one SGE, and the queue is not destroyed during the
        // post.
        && unsafe { rq.post_lone(first.wr_id, &first.sg_list.read_unaligned()) }
    {
        return 0;
    }
    // SAFETY: by C's contract.
    unsafe { post_any::<L, R>(lock, wr, bad) }
}

/// Posts any list of receives, whether or not this thread owns the lock.
///
/// # Safety
///
/// C's contract.
#[inline(never)]
unsafe extern "C" fn post_any<L: Stays, R: Receives<L>>(
    lock: &Lock<L>,
    mut wr: *const ibv_recv_wr,
    bad: *mut *const ibv_recv_wr,
) -> c_int {
    let mut side = lock.lock();
    let Some(rq) = R::of(&mut side) else {
        // SAFETY: by C's contract.
        return unsafe { refused(wr, bad) };
    };
    let mut at = rq.begin();
    // SAFETY: C's contract: null, or the next receive of the list.
    while let Some(one) = unsafe { wr.as_ref() } {
        // SAFETY: by C's contract; the cursor is of the `begin` above. Fast path: one SGE.
        let posted = one.num_sge == 1
            && unsafe { rq.post_at_once(&mut at, one.wr_id, &one.sg_list.read_unaligned()) };
        if !posted {
            // SAFETY: by C's contract; the cursor is of the `begin` above.
            return unsafe { rest(rq, at, wr, bad) };
        }
        wr = one.next;
    }
    // SAFETY: by C's contract; the queue is not destroyed during the post.
    unsafe { rq.ring(at) };
    0
}

/// Posts the rest of a list, and rings the doorbell. Takes the cursor by value, so that the
/// caller's stays in registers.
///
/// # Safety
///
/// C's contract; the cursor is the queue's.
#[cold]
#[inline(never)]
unsafe fn rest<R: RecvOps>(
    rq: &mut R,
    mut at: R::Cursor,
    mut wr: *const ibv_recv_wr,
    bad: *mut *const ibv_recv_wr,
) -> c_int {
    let mut code = 0;
    // SAFETY: C's contract: null, or the next receive of the list.
    while let Some(one) = unsafe { wr.as_ref() } {
        // SAFETY: C's contract: null, or the next receive of the list.
        let posted = unsafe {
            with_list(one.sg_list, one.num_sge, |list| rq.post(&mut at, one.wr_id, list))
        };
        if let Err(error) = posted {
            // SAFETY: C's contract: null, or the next receive of the list.
            unsafe { *bad = wr };
            code = match error {
                // A send with too many SGEs has another error number.
                PostError::TooManySges => Errno::EINVAL.raw(),
                error => errno(error),
            };
            break;
        }
        wr = one.next;
    }
    // SAFETY: by C's contract; the queue is not destroyed during the post.
    unsafe { rq.ring(at) };
    code
}
