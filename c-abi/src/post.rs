//! Posting sends.
//!
//! # Safety
//!
//! What a work request names is the program's promise: C's contract.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::slice;

use uverbs::provider::{AnyAh, AnySq};
use uverbs_core::Errno;
use uverbs_core::provider::SendOps;
use uverbs_core::queues::work::{Data, Destination, PostError, Remote, SendFlags, SendOp, Sge, Wr};

use crate::ah::Ah;
use crate::qp::Qp;
use crate::sys::{
    IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV, ibv_qp,
    ibv_send_wr, ibv_sge,
};

/// The send queue of one provider, which knows its own address handles.
pub(crate) trait Sends: SendOps {
    fn own_ah(ah: &AnyAh) -> Option<&Self::Ah>;
}

impl Sends for uverbs_mlx5::Sq {
    #[inline(always)]
    fn own_ah(ah: &AnyAh) -> Option<&Self::Ah> {
        if let AnyAh::Mlx5(ah) = ah { Some(ah) } else { None }
    }
}

impl Sends for uverbs_rxe::Sq {
    #[inline(always)]
    fn own_ah(ah: &AnyAh) -> Option<&Self::Ah> {
        if let AnyAh::Rxe(ah) = ah { Some(ah) } else { None }
    }
}

/// Pieces of inline data that are gathered at once: more than any device's list has.
const INLINE_PIECES: usize = 64;

pub(crate) unsafe extern "C" fn post_send(
    qp: *const ibv_qp,
    wr: *const ibv_send_wr,
    bad: *mut *const ibv_send_wr,
) -> c_int {
    // SAFETY: C's contract.
    let qp = unsafe { Qp::of(qp) };
    let (signal, datagram) = (qp.signal(), qp.is_datagram());
    let mut send = qp.send().lock();
    // SAFETY: C's contract.
    unsafe {
        match &mut send.sq {
            AnySq::Mlx5(sq) => post_all(sq, wr, bad, signal, datagram),
            AnySq::Rxe(sq) => post_all(sq, wr, bad, signal, datagram),
        }
    }
}

/// Flags of a work request as the providers have them.
#[inline(always)]
pub(crate) fn flags(c: u32) -> SendFlags {
    const {
        assert!(SendFlags::SOLICITED.bits() as u32 == IBV_SEND_SOLICITED);
        assert!(SendFlags::SIGNALED.bits() as u32 == IBV_SEND_SIGNALED >> 1);
        assert!(SendFlags::FENCE.bits() as u32 == IBV_SEND_FENCE << 1);
    }
    let swapped = (c & IBV_SEND_SIGNALED) >> 1 | (c & IBV_SEND_FENCE) << 1;
    SendFlags::from_bits_retain((swapped | c & IBV_SEND_SOLICITED) as u8)
}

/// The number for a work request that was not posted.
#[cold]
pub(crate) fn errno(error: PostError) -> c_int {
    error.to_errno().raw()
}

/// Where a loop over work requests stands: the cursor, the request that comes next or was refused,
/// and why.
///
/// It goes from function to function by value: a cursor whose address is taken is one in memory.
type At<S> = (<S as SendOps>::Cursor, *const ibv_send_wr, Result<(), PostError>);

/// # Safety
///
/// C's contract.
#[inline(always)]
unsafe fn post_all<S: Sends>(
    sq: &mut S,
    mut wr: *const ibv_send_wr,
    bad: *mut *const ibv_send_wr,
    signal: u32,
    datagram: bool,
) -> c_int {
    let mut at = sq.begin();
    let mut posted = Ok(());
    // SAFETY: C's contract: null, or the next one.
    while let Some(one) = unsafe { wr.as_ref() } {
        // SAFETY: C's contract; the cursor is of the `begin` above.
        let after = unsafe {
            if datagram { post_datagram(sq, at, one, signal) } else { some(sq, at, one, signal) }
        };
        (at, wr, posted) = after;
        if posted.is_err() {
            break;
        }
    }
    // SAFETY: as above; a queue pair that is posted to isn't destroyed.
    unsafe { sq.ring(at) };
    match posted {
        Ok(()) => sq.refused().map_or(0, Errno::raw),
        Err(error) => {
            // SAFETY: C's contract.
            unsafe { *bad = wr };
            errno(error)
        }
    }
}

/// Posts this work request, and those behind it that are of the same kind.
///
/// # Safety
///
/// C's contract; the cursor is the queue's.
#[inline(always)]
unsafe fn some<S: Sends>(sq: &mut S, at: S::Cursor, wr: &ibv_send_wr, signal: u32) -> At<S> {
    let inline = wr.send_flags & IBV_SEND_INLINE != 0;
    // SAFETY: the caller's promise.
    unsafe {
        match (wr.opcode, inline, wr.num_sge) {
            (IBV_WR_SEND, false, 1) => run(sq, at, wr, signal, false, |_| SendOp::Send),
            (IBV_WR_SEND, true, 1) => run(sq, at, wr, signal, true, |_| SendOp::Send),
            (IBV_WR_RDMA_WRITE, false, 1) => {
                run(sq, at, wr, signal, false, |wr| SendOp::Write(remote(wr)))
            }
            (IBV_WR_RDMA_WRITE, true, 1) => {
                run(sq, at, wr, signal, true, |wr| SendOp::Write(remote(wr)))
            }
            (IBV_WR_RDMA_READ, false, 1) => {
                run(sq, at, wr, signal, false, |wr| SendOp::Read(remote(wr)))
            }
            (IBV_WR_ATOMIC_FETCH_AND_ADD, false, 1) => run(sq, at, wr, signal, false, fetch_add),
            _ => post_other(sq, at, wr, signal),
        }
    }
}

/// The peer's memory in a WRITE or READ.
#[inline(always)]
fn remote(wr: &ibv_send_wr) -> Remote {
    // SAFETY: of these C fills in this member; it is numbers.
    let rdma = unsafe { wr.wr.rdma };
    Remote { addr: rdma.remote_addr, rkey: rdma.rkey }
}

#[inline(always)]
fn fetch_add(wr: &ibv_send_wr) -> SendOp {
    // SAFETY: of an atomic C fills in this member; it is numbers.
    let atomic = unsafe { wr.wr.atomic };
    let remote = Remote { addr: atomic.remote_addr, rkey: atomic.rkey };
    SendOp::FetchAdd { remote, add: atomic.compare_add }
}

/// Posts work requests as long as they are of one piece and of the first one's kind.
///
/// # Safety
///
/// C's contract; the cursor is the queue's.
#[inline(always)]
unsafe fn run<S: Sends>(
    sq: &mut S,
    mut at: S::Cursor,
    mut wr: &ibv_send_wr,
    signal: u32,
    inline: bool,
    op: impl Fn(&ibv_send_wr) -> SendOp,
) -> At<S> {
    let opcode = wr.opcode;
    loop {
        let id = Wr { id: wr.wr_id, flags: flags(wr.send_flags | signal) };
        // SAFETY: C's contract: there is one piece; the cursor is the queue's.
        let posted = unsafe {
            let piece = *wr.sg_list;
            let data = if inline { Data::Inline(bytes(&piece)) } else { Data::One(piece) };
            sq.post(&mut at, id, op(wr), data)
        };
        if let Err(error) = posted {
            return (at, wr, Err(error));
        }
        // SAFETY: C's contract: null, or the next one.
        let Some(next) = (unsafe { wr.next.as_ref() }) else { return (at, wr.next, Ok(())) };
        let same = next.opcode == opcode
            && next.num_sge == 1
            && (next.send_flags & IBV_SEND_INLINE != 0) == inline;
        if !same {
            return (at, next, Ok(()));
        }
        wr = next;
    }
}

/// The operation of a work request.
#[inline(never)]
fn other_op(wr: &ibv_send_wr) -> Result<SendOp, PostError> {
    let imm = u32::from_be(wr.imm_data);
    Ok(match wr.opcode {
        IBV_WR_SEND => SendOp::Send,
        IBV_WR_SEND_WITH_IMM => SendOp::SendImm(imm),
        IBV_WR_SEND_WITH_INV => SendOp::SendInvalidate(wr.imm_data),
        IBV_WR_RDMA_WRITE => SendOp::Write(remote(wr)),
        IBV_WR_RDMA_WRITE_WITH_IMM => SendOp::WriteImm(remote(wr), imm),
        IBV_WR_RDMA_READ => SendOp::Read(remote(wr)),
        IBV_WR_ATOMIC_FETCH_AND_ADD => fetch_add(wr),
        IBV_WR_ATOMIC_CMP_AND_SWP => {
            // SAFETY: of an atomic C fills in this member; it is numbers.
            let atomic = unsafe { wr.wr.atomic };
            let remote = Remote { addr: atomic.remote_addr, rkey: atomic.rkey };
            SendOp::CompareSwap { remote, compare: atomic.compare_add, swap: atomic.swap }
        }
        _ => return Err(PostError::BadOperation),
    })
}

/// Posts one work request of any kind.
///
/// # Safety
///
/// C's contract; the cursor is the queue's.
#[inline(never)]
unsafe fn post_other<S: Sends>(
    sq: &mut S,
    mut at: S::Cursor,
    wr: &ibv_send_wr,
    signal: u32,
) -> At<S> {
    let c_flags = wr.send_flags | signal;
    let id = Wr { id: wr.wr_id, flags: flags(c_flags) };
    let posted = other_op(wr).and_then(|op| {
        // SAFETY: the caller's promise.
        unsafe { with_data(wr, c_flags, |data| sq.post(&mut at, id, op, data)) }
    });
    (at, if posted.is_ok() { wr.next } else { wr }, posted)
}

/// Posts one datagram.
///
/// # Safety
///
/// C's contract; the cursor is the queue's.
#[inline(never)]
unsafe fn post_datagram<S: Sends>(
    sq: &mut S,
    mut at: S::Cursor,
    wr: &ibv_send_wr,
    signal: u32,
) -> At<S> {
    let c_flags = wr.send_flags | signal;
    let id = Wr { id: wr.wr_id, flags: flags(c_flags) };
    let posted = other_op(wr).and_then(|op| {
        // SAFETY: of a datagram C fills in this member, with a handle of ours.
        let (ud, ah) = unsafe { (wr.wr.ud, S::own_ah(Ah::of(wr.wr.ud.ah).any())) };
        let ah = ah.ok_or(PostError::ForeignAddress)?;
        let to = Destination { ah, qpn: ud.remote_qpn, qkey: ud.remote_qkey };
        // SAFETY: the caller's promise.
        unsafe { with_data(wr, c_flags, |data| sq.post_to(&mut at, id, op, to, data)) }
    });
    (at, if posted.is_ok() { wr.next } else { wr }, posted)
}

/// Calls `post` with what a work request carries.
///
/// # Safety
///
/// C's contract.
#[inline(always)]
unsafe fn with_data(
    wr: &ibv_send_wr,
    flags: u32,
    post: impl FnOnce(Data<'_>) -> Result<u32, PostError>,
) -> Result<(), PostError> {
    // SAFETY: C's contract.
    let list = unsafe { pieces(wr.sg_list, wr.num_sge) };
    if flags & IBV_SEND_INLINE == 0 {
        return post(Data::List(list)).map(drop);
    }
    if let [one] = list {
        // SAFETY: C's contract.
        return post(Data::Inline(unsafe { bytes(one) })).map(drop);
    }
    if list.len() > INLINE_PIECES {
        return Err(PostError::TooManySges);
    }
    let mut all = [&[][..]; INLINE_PIECES];
    for (to, piece) in all.iter_mut().zip(list) {
        // SAFETY: C's contract.
        *to = unsafe { bytes(piece) };
    }
    post(Data::InlineList(&all[..list.len()])).map(drop)
}

/// A gather list; C lets an empty one be null.
///
/// # Safety
///
/// C's contract.
#[inline(always)]
pub(crate) unsafe fn pieces<'a>(list: *const ibv_sge, count: c_int) -> &'a [Sge] {
    if count <= 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(list, count as usize) }
}

/// The bytes of a piece of inline data, which is named by its address.
///
/// # Safety
///
/// C's contract.
#[inline(always)]
unsafe fn bytes<'a>(piece: &Sge) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { memory(std::ptr::with_exposed_provenance(piece.addr as usize), piece.len as usize) }
}

/// Bytes of the program; C lets none of them be at null.
///
/// # Safety
///
/// C's contract.
#[inline(always)]
pub(crate) unsafe fn memory<'a>(addr: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(addr, len) }
}
