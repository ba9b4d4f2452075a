//! Posting sends.
//!
//! # Safety
//!
//! What a work request names is the program's promise: C's contract.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::ptr::null;

use uverbs_core::Errno;
use uverbs_core::queues::work::{PostError, SendOp, Wr};

use crate::base::answer::refuse;
use crate::post::chains::{Chain, Link, carried};
use crate::post::recv::refused;
use crate::post::request::{
    checksums, destination, errno, flags, key_opcode, other_op, plain_op, rekey, with_data,
};
use crate::post::send::{Sends, Side};
use crate::post::table::shape;
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
    // SAFETY: C's contract: null, or the first one.
    let (qp, Some(first)) = (unsafe { (Qp::of(qp), wr.as_ref()) }) else { return 0 };
    match qp.posts().of(first) {
        // SAFETY: C's contract; it is the queue pair's, by what the first one says.
        Some(post) => unsafe { post(qp, wr, bad) },
        // SAFETY: as above.
        None => unsafe { others(qp, wr, bad) },
    }
}

/// Posts a list whose first work request is of an opcode that has no function.
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
    let post = qp.posts().any();
    // SAFETY: the caller's promise; it is the queue pair's.
    unsafe { post(qp, wr, bad) }
}

/// Binds a window of type 1. What the region and the rights must be is in the header, too.
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
    // The key's lowest byte counts (`ibv_inc_rkey`).
    // SAFETY: as above.
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
    // SAFETY: as above; one work request.
    let posted = unsafe { ((*(*qp).context).ops.post_send.unwrap_unchecked())(qp, &wr, &mut bad) };
    if posted == 0 {
        // SAFETY: as above.
        unsafe { (*window).rkey = new };
    }
    posted
}

/// Posts work requests that are alike, which is what programs post: one loop for each kind, since
/// cursor, checks and doorbell of a loop for all go through memory, which takes twice as long. At
/// the first one that is different the rest is [`rest`]'s. `TO` is true of datagrams. Where the
/// provider writes in place, [`chain`] and [`alone`] do this.
///
/// # Safety
///
/// C's contract; there is one at least.
#[inline(never)]
pub(crate) unsafe extern "C" fn alike<
    S: Sends,
    const OPCODE: u32,
    const SHAPE: u8,
    const TO: bool,
>(
    qp: &Qp,
    mut wr: *const ibv_send_wr,
    bad: *mut *const ibv_send_wr,
) -> c_int {
    let mut side = qp.send().lock();
    // SAFETY: the table of functions is of the queue's own provider.
    let Side { sq, .. } = unsafe { S::side(&mut side).unwrap_unchecked() };
    let mut at = sq.begin();
    loop {
        // SAFETY: C's contract; the cursor is of the `begin` above.
        unsafe {
            let one = &*wr;
            let id = Wr { id: one.wr_id, flags: flags(one.send_flags | qp.signal()) };
            let data = carried::<SHAPE>(one);
            let posted = if TO {
                destination::<S>(one)
                    .ok_or(PostError::ForeignAddress)
                    .and_then(|to| sq.post_to(&mut at, id, plain_op::<OPCODE>(one), to, data))
            } else {
                sq.post(&mut at, id, plain_op::<OPCODE>(one), data)
            };
            if let Err(error) = posted {
                return stop(sq, at, wr, error, bad);
            }
            wr = one.next;
            match wr.as_ref() {
                None => break,
                Some(next) if next.opcode == OPCODE && shape(next) == SHAPE => {}
                Some(_) => return rest(qp, sq, at, wr, bad),
            }
        }
    }
    // SAFETY: as above; a queue pair that is posted to isn't destroyed.
    unsafe { sq.ring(at) };
    sq.refused().map_or(0, Errno::raw)
}

/// Posts a lone work request, if nothing about it is rare and the lock is free. False if it isn't
/// posted. This way has no calls, so hardly any registers are saved.
///
/// # Safety
///
/// C's contract; it is of this kind.
#[inline(always)]
pub(crate) unsafe fn alone<S: Sends, const OPCODE: u32, const SHAPE: u8, const TO: bool>(
    qp: &Qp,
    wr: &ibv_send_wr,
) -> bool {
    let Some(mut side) = qp.send().lock_at_once() else { return false };
    // SAFETY: the table of functions is of the queue's own provider.
    let Side { sq, .. } = unsafe { S::side(&mut side).unwrap_unchecked() };
    // SAFETY: C's contract; a queue pair that is posted to isn't destroyed.
    unsafe { sq.post_alone::<TO>(Link::<S, OPCODE, SHAPE>::new(qp.signal(), wr)) }
}

/// Posts a lone work request that [`alone`] didn't, and looks up how many more have room, so that
/// [`alone`] posts those. What is rare goes the general way.
///
/// # Safety
///
/// C's contract; it is of this kind, and the provider writes in place.
#[inline(never)]
pub(crate) unsafe extern "C" fn looked_up<
    S: Sends,
    const OPCODE: u32,
    const SHAPE: u8,
    const TO: bool,
>(
    qp: &Qp,
    wr: *const ibv_send_wr,
    bad: *mut *const ibv_send_wr,
) -> c_int {
    let mut side = qp.send().lock();
    // SAFETY: the table of functions is of the queue's own provider.
    let Side { sq, .. } = unsafe { S::side(&mut side).unwrap_unchecked() };
    let mut run = sq.begin_run::<TO>();
    // SAFETY: C's contract; the run is of the `begin_run` above, and a queue pair that is posted to
    // isn't destroyed.
    unsafe {
        let link = Link::<S, OPCODE, SHAPE>::new(qp.signal(), &*wr);
        if !sq.extend_by_one::<TO>(&mut run, link) {
            return different(qp, sq, run, wr, bad);
        }
        sq.ring(sq.cursor_of(run));
    }
    sq.refused().map_or(0, Errno::raw)
}

/// Posts a chain of work requests that are alike.
///
/// # Safety
///
/// C's contract; and the provider writes in place.
#[inline(never)]
pub(crate) unsafe extern "C" fn chain<
    S: Sends,
    const OPCODE: u32,
    const SHAPE: u8,
    const TO: bool,
>(
    qp: &Qp,
    wr: *const ibv_send_wr,
    bad: *mut *const ibv_send_wr,
) -> c_int {
    let mut side = qp.send().lock();
    // SAFETY: the table of functions is of the queue's own provider.
    let Side { sq, .. } = unsafe { S::side(&mut side).unwrap_unchecked() };
    let mut run = sq.begin_run::<TO>();
    // Masked once, not with the flags of each.
    let mut chain = Chain::<S, OPCODE, SHAPE>::new(qp.signal() & IBV_SEND_SIGNALED, wr);
    // SAFETY: C's contract; the run is of the `begin_run` above.
    unsafe {
        sq.extend::<TO, _>(&mut run, &mut chain);
        let left = chain.left();
        if !left.is_null() {
            return different(qp, sq, run, left, bad);
        }
        // A queue pair that is posted to isn't destroyed.
        sq.ring(sq.cursor_of(run));
    }
    sq.refused().map_or(0, Errno::raw)
}

/// Posts the rest of a list whose next work request the run can't take, and rings.
///
/// The cursor is made here, of a run that comes by value. If both ends of [`chain`] used one
/// cursor, the compiler would keep it in memory, and load a word of it that waits for two stores.
///
/// # Safety
///
/// C's contract; the run is the queue's, which is locked.
#[inline(never)]
unsafe fn different<S: Sends>(
    qp: &Qp,
    sq: &mut S,
    run: S::Run,
    wr: *const ibv_send_wr,
    bad: *mut *const ibv_send_wr,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let at = sq.cursor_of(run);
        rest(qp, sq, at, wr, bad)
    }
}

/// Posts work requests of any kinds.
///
/// # Safety
///
/// C's contract.
#[inline(never)]
pub(crate) unsafe extern "C" fn any<S: Sends>(
    qp: &Qp,
    wr: *const ibv_send_wr,
    bad: *mut *const ibv_send_wr,
) -> c_int {
    let mut side = qp.send().lock();
    // One that has no queue isn't of any provider.
    let Some(Side { sq, .. }) = S::side(&mut side) else {
        // SAFETY: C's contract.
        return unsafe { refused(wr, bad) };
    };
    let at = sq.begin();
    // SAFETY: C's contract.
    unsafe { rest(qp, sq, at, wr, bad) }
}

/// Posts the rest of a list, and rings.
///
/// # Safety
///
/// C's contract; the cursor is the queue's, which is locked.
#[inline(never)]
unsafe fn rest<S: Sends>(
    qp: &Qp,
    sq: &mut S,
    mut at: S::Cursor,
    mut wr: *const ibv_send_wr,
    bad: *mut *const ibv_send_wr,
) -> c_int {
    // SAFETY: C's contract: null, or the next one.
    while let Some(one) = unsafe { wr.as_ref() } {
        // SAFETY: as above.
        if let Err(error) = unsafe { post_one(qp, sq, &mut at, one) } {
            // SAFETY: as above.
            return unsafe { stop(sq, at, wr, error, bad) };
        }
        wr = one.next;
    }
    // SAFETY: as above; a queue pair that is posted to isn't destroyed.
    unsafe { sq.ring(at) };
    sq.refused().map_or(0, Errno::raw)
}

/// Rings what comes before a work request that was refused.
///
/// # Safety
///
/// C's contract; the cursor is the queue's.
#[cold]
#[inline(never)]
unsafe fn stop<S: Sends>(
    sq: &mut S,
    at: S::Cursor,
    wr: *const ibv_send_wr,
    error: PostError,
    bad: *mut *const ibv_send_wr,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        sq.ring(at);
        *bad = wr;
    }
    errno(error)
}

/// Posts one work request.
///
/// # Safety
///
/// C's contract; the cursor is the queue's.
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
        // SAFETY: the caller's promise.
        unsafe { sq.rekey(at, id, &op) }?;
        qp.note_sent(index, key_opcode(&op));
        return Ok(());
    }
    let op = other_op(wr)?;
    // SAFETY: the caller's promise. Of a datagram C fills in its member, with a handle of ours.
    unsafe {
        match qp.kind() {
            UD => {}
            RAW_PACKET if op == SendOp::Send => {
                let checksums = checksums(c_flags);
                return with_data(wr, c_flags, |data| sq.post_packet(at, id, checksums, data));
            }
            // One of dynamic connections says where to by `mlx5dv_wr_set_dc_addr` alone.
            RAW_PACKET | DRIVER => return Err(PostError::BadOperation),
            XRC_SEND => {
                return with_data(wr, c_flags, |data| sq.post_xrc(at, id, op, wr.xrc_srqn, data));
            }
            _ => return with_data(wr, c_flags, |data| sq.post(at, id, op, data)),
        }
        let to = destination::<S>(wr).ok_or(PostError::ForeignAddress)?;
        with_data(wr, c_flags, |data| sq.post_to(at, id, op, to, data))
    }
}
