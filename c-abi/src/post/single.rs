//! `ibv_post_send` and `ibv_bind_mw`.
//!
//! # Safety
//!
//! By C's contract (crate root), a list's work requests, SGEs and handles are valid, and the queue
//! pair is not destroyed during the post.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::ptr::null;

use uverbs_core::Errno;
use uverbs_core::queues::work::{PostError, SendOp, Target, Wr};

use crate::base::answer::refuse;
use crate::post::chains::{Chain, ChainWr};
use crate::post::recv::refused;
use crate::post::request::{checksums, destination, flags, key_opcode, other_op, rekey, with_data};
use crate::post::send::{Sends, Side};
use crate::queues::qp::{DRIVER, Qp, RAW_PACKET, UD, XRC_SEND};
use crate::sys::{
    BindMw, IBV_SEND_SIGNALED, IBV_WR_BIND_MW, SendWr, ibv_mw, ibv_mw_bind, ibv_qp, ibv_send_wr,
    ibv_send_wr_rdma,
};

/// `IBV_ACCESS_ZERO_BASED`.
const ZERO_BASED: u32 = 1 << 5;

pub(crate) unsafe extern "C" fn post_send(
    qp: *const ibv_qp,
    wr: *const ibv_send_wr,
    bad: *mut *const ibv_send_wr,
) -> c_int {
    // SAFETY: C's contract: null, or the first work request.
    let (qp, Some(first)) = (unsafe { (Qp::of(qp), wr.as_ref()) }) else { return 0 };
    match qp.posts().of(first) {
        // SAFETY: C's contract; the table matches the queue pair and the first work request.
        Some(post) => unsafe { post(qp, wr, bad) },
        // SAFETY: C's contract.
        None => unsafe { others(qp, wr, bad) },
    }
}

/// Posts a list whose first opcode is outside the table.
///
/// # Safety
///
/// C's contract.
#[cold]
#[inline(never)]
unsafe extern "C" fn others(
    qp: &Qp,
    wr: *const ibv_send_wr,
    bad: *mut *const ibv_send_wr,
) -> c_int {
    let post = qp.posts().slow();
    // SAFETY: C's contract; the function is of the queue pair's table.
    unsafe { post(qp, wr, bad) }
}

/// Binds a type 1 window. `verbs.h` checks region and access rights before.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *const ibv_qp,
    window: *mut ibv_mw,
    bind: *const ibv_mw_bind,
) -> c_int {
    // SAFETY: C's contract.
    let bind = unsafe { &*bind };
    if bind.bind_info.mw_access_flags & ZERO_BASED != 0 {
        return refuse(Errno::EINVAL);
    }
    // Binding increments the key's lowest byte (`ibv_inc_rkey`).
    // SAFETY: C's contract.
    let rkey = unsafe { (*window).rkey };
    let new = rkey & !0xff | rkey.wrapping_add(1) & 0xff;
    let wr = ibv_send_wr {
        wr_id: bind.wr_id,
        next: null(),
        sg_list: null(),
        num_sge: 0,
        opcode: IBV_WR_BIND_MW,
        send_flags: bind.send_flags,
        imm_data: 0,
        wr: SendWr { rdma: ibv_send_wr_rdma { remote_addr: 0, rkey: 0 } },
        xrc_srqn: 0,
        bind_mw: BindMw { mw: window, rkey: new, bind_info: bind.bind_info },
    };
    let mut bad = null();
    // SAFETY: C's contract; a list of one work request.
    let posted = unsafe { ((*(*qp).context).ops.post_send.unwrap_unchecked())(qp, &wr, &mut bad) };
    if posted == 0 {
        // SAFETY: C's contract.
        unsafe { (*window).rkey = new };
    }
    posted
}

/// Posts a list of one work request; by [`slow`] if the provider leaves it to a single post, or the
/// lock is held. Makes no other calls, so it saves few registers.
///
/// # Safety
///
/// C's contract; the work request has this opcode and shape.
#[inline(never)]
pub(crate) unsafe extern "C" fn single<
    S: Sends,
    const OPCODE: u32,
    const SHAPE: u8,
    const UD: bool,
>(
    qp: &Qp,
    wr: *const ibv_send_wr,
    bad: *mut *const ibv_send_wr,
) -> c_int {
    if let Some(mut side) = qp.send().lock_at_once() {
        // SAFETY: the table of functions belongs to the queue pair's provider.
        let Side { sq, .. } = unsafe { S::side(&mut side).unwrap_unchecked() };
        // SAFETY: C's contract; the queue pair is not destroyed.
        unsafe {
            if sq.post_alone::<UD>(ChainWr::<S, OPCODE, SHAPE>::new(qp.signal(), &*wr)) {
                return rung(sq, wr, bad);
            }
        }
    }
    // SAFETY: C's contract.
    unsafe { slow::<S>(qp, wr, bad) }
}

/// Posts a list whose first work request has opcode `OPCODE` and shape `SHAPE`.
///
/// # Safety
///
/// C's contract; the provider writes in place.
#[inline(never)]
pub(crate) unsafe extern "C" fn list<
    S: Sends,
    const OPCODE: u32,
    const SHAPE: u8,
    const UD: bool,
>(
    qp: &Qp,
    wr: *const ibv_send_wr,
    bad: *mut *const ibv_send_wr,
) -> c_int {
    let mut side = qp.send().lock();
    // SAFETY: the table of functions belongs to the queue pair's provider.
    let Side { sq, .. } = unsafe { S::side(&mut side).unwrap_unchecked() };
    let mut at = sq.begin();
    // Masked once, here, not with each work request's flags.
    let mut chain = Chain::<S, OPCODE, SHAPE>::new(qp.signal() & IBV_SEND_SIGNALED, wr);
    // SAFETY: C's contract; the cursor is of the `begin` above.
    unsafe {
        sq.post_list::<UD, _>(&mut at, &mut chain);
        let left = chain.left();
        if !left.is_null() {
            return rest(qp, sq, at, (wr, left), bad);
        }
        // Ringing relies on the queue pair not being destroyed: C's contract.
        sq.ring(at);
        rung(sq, wr, bad)
    }
}

/// Posts a list of any work requests.
///
/// # Safety
///
/// C's contract.
#[inline(never)]
pub(crate) unsafe extern "C" fn slow<S: Sends>(
    qp: &Qp,
    wr: *const ibv_send_wr,
    bad: *mut *const ibv_send_wr,
) -> c_int {
    let mut side = qp.send().lock();
    // A queue pair without a send queue has no provider.
    let Some(Side { sq, .. }) = S::side(&mut side) else {
        // SAFETY: C's contract.
        return unsafe { refused(wr, bad) };
    };
    let at = sq.begin();
    // SAFETY: C's contract.
    unsafe { rest(qp, sq, at, (wr, wr), bad) }
}

/// Result of a ring: the doorbell's errno, or 0. Reports the first work request that the kernel
/// refused in `bad`; the list from `wr` on was rung.
///
/// # Safety
///
/// C's contract.
#[inline(always)]
unsafe fn rung<S: Sends>(sq: &S, wr: *const ibv_send_wr, bad: *mut *const ibv_send_wr) -> c_int {
    match sq.doorbell_error() {
        None => 0,
        // SAFETY: by the contract of `rung`.
        Some(errno) => unsafe { turned_away(sq.returned(), wr, bad, errno) },
    }
}

/// [`rung`] of a refused doorbell, of whose work requests the last `returned` came back.
///
/// # Safety
///
/// C's contract.
#[cold]
#[inline(never)]
unsafe fn turned_away(
    returned: u32,
    mut wr: *const ibv_send_wr,
    bad: *mut *const ibv_send_wr,
    errno: Errno,
) -> c_int {
    // SAFETY: C's contract, and no more steps than the list has work requests.
    unsafe {
        if returned == 0 {
            return errno.raw();
        }
        for _ in returned..left(wr) {
            wr = (*wr).next;
        }
        *bad = wr;
    }
    errno.raw()
}

/// Posts the rest of a list of any work requests, and rings. The list begins at `head`, its rest at
/// `wr`.
///
/// # Safety
///
/// C's contract; the cursor is of this queue, and this thread holds the lock.
#[inline(never)]
unsafe fn rest<S: Sends>(
    qp: &Qp,
    sq: &mut S,
    mut at: S::Cursor,
    (head, mut wr): (*const ibv_send_wr, *const ibv_send_wr),
    bad: *mut *const ibv_send_wr,
) -> c_int {
    // SAFETY: C's contract: null, or the next work request.
    while let Some(one) = unsafe { wr.as_ref() } {
        // SAFETY: C's contract; the cursor is of this queue.
        if let Err(error) = unsafe { post_one(qp, sq, &mut at, one) } {
            // SAFETY: C's contract; the cursor is of this queue.
            return unsafe { stop(sq, at, (head, wr), error, bad) };
        }
        wr = one.next;
    }
    // SAFETY: C's contract; the cursor is of this queue.
    unsafe {
        sq.ring(at);
        rung(sq, head, bad)
    }
}

/// Rings the work requests before a refused one, and reports it in `bad`.
///
/// # Safety
///
/// C's contract; the cursor is of this queue.
#[cold]
#[inline(never)]
unsafe fn stop<S: Sends>(
    sq: &mut S,
    at: S::Cursor,
    (head, wr): (*const ibv_send_wr, *const ibv_send_wr),
    error: PostError,
    bad: *mut *const ibv_send_wr,
) -> c_int {
    // SAFETY: by the contract of `stop`.
    unsafe {
        sq.ring(at);
        *bad = wr;
        // The kernel refused an earlier one.
        match (sq.doorbell_error(), sq.returned()) {
            (None, _) | (_, 0) => S::errno(error).raw(),
            (Some(errno), returned) => turned_away(returned + left(wr), head, bad, errno),
        }
    }
}

/// Work requests of the list from `wr` on.
///
/// # Safety
///
/// C's contract.
unsafe fn left(mut wr: *const ibv_send_wr) -> u32 {
    let mut count = 0;
    // SAFETY: C's contract: null, or the next work request.
    while let Some(one) = unsafe { wr.as_ref() } {
        (wr, count) = (one.next, count + 1);
    }
    count
}

/// Posts one work request.
///
/// # Safety
///
/// C's contract; the cursor is of this queue.
unsafe fn post_one<S: Sends>(
    qp: &Qp,
    sq: &mut S,
    at: &mut S::Cursor,
    wr: &ibv_send_wr,
) -> Result<(), PostError> {
    let c_flags = wr.send_flags | qp.signal();
    let id = Wr { id: wr.wr_id, flags: flags(c_flags) };
    if let Some(op) = rekey(wr) {
        let index = S::index(at);
        // SAFETY: by the contract of `post_one`.
        unsafe { sq.rekey(at, id, &op) }?;
        qp.note_sent(index, key_opcode(&op));
        return Ok(());
    }
    let op = other_op(wr)?;
    // SAFETY: by the contract of `post_one`. `destination` is called for UD and SRD only.
    unsafe {
        match qp.kind() {
            UD => {}
            // READ and WRITE have no room for a peer in C's work request.
            DRIVER if S::DRIVER_NAMES_PEERS && matches!(op, SendOp::Send | SendOp::SendImm(_)) => {}
            RAW_PACKET if op == SendOp::Send => {
                let checksums = checksums(c_flags);
                return with_data(wr, c_flags, |data| sq.post_packet(at, id, checksums, data));
            }
            // Dynamic connections take destinations by `mlx5dv_wr_set_dc_addr` only.
            RAW_PACKET | DRIVER => return Err(PostError::BadOperation),
            XRC_SEND => {
                let to = Target::Srq(wr.xrc_srqn);
                return with_data(wr, c_flags, |data| sq.post_to_target(at, id, op, to, data));
            }
            _ => return with_data(wr, c_flags, |data| sq.post(at, id, op, data)),
        }
        let to = destination::<S>(wr).ok_or(PostError::ForeignAddress)?;
        with_data(wr, c_flags, |data| sq.post_to(at, id, op, to, data))
    }
}
