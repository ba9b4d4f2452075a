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
    let mut code = 0;
    // SAFETY: C's contract: null, or the next one.
    while let Some(one) = unsafe { wr.as_ref() } {
        let flags = one.send_flags | signal;
        // SAFETY: C's contract; the cursor is of the `begin` above.
        let posted = unsafe {
            if datagram {
                post_datagram(sq, &mut at, one, flags)
            } else {
                post_one(sq, &mut at, one, flags)
            }
        };
        if let Err(error) = posted {
            code = errno(error);
            // SAFETY: C's contract.
            unsafe { *bad = wr };
            break;
        }
        wr = one.next;
    }
    // SAFETY: as above; a queue pair that is posted to isn't destroyed.
    unsafe { sq.ring(at) };
    if code == 0 {
        code = sq.refused().map_or(0, Errno::raw);
    }
    code
}

/// # Safety
///
/// C's contract; the cursor is the queue's.
#[inline(always)]
unsafe fn post_one<S: Sends>(
    sq: &mut S,
    at: &mut S::Cursor,
    wr: &ibv_send_wr,
    flags: u32,
) -> Result<(), PostError> {
    match wr.opcode {
        // SAFETY: the caller's promise.
        IBV_WR_SEND => unsafe { post_op(sq, at, wr, flags, SendOp::Send) },
        IBV_WR_RDMA_WRITE => {
            // SAFETY: of a WRITE C fills in this member.
            let rdma = unsafe { wr.wr.rdma };
            let op = SendOp::Write(Remote { addr: rdma.remote_addr, rkey: rdma.rkey });
            // SAFETY: the caller's promise.
            unsafe { post_op(sq, at, wr, flags, op) }
        }
        IBV_WR_RDMA_READ => {
            // SAFETY: of a READ C fills in this member.
            let rdma = unsafe { wr.wr.rdma };
            let op = SendOp::Read(Remote { addr: rdma.remote_addr, rkey: rdma.rkey });
            // SAFETY: the caller's promise.
            unsafe { post_op(sq, at, wr, flags, op) }
        }
        _ => {
            let op = other_op(wr)?;
            // SAFETY: the caller's promise.
            unsafe { post_other(sq, at, wr, flags, op) }
        }
    }
}

/// The operations that are posted by one common function.
#[inline(never)]
fn other_op(wr: &ibv_send_wr) -> Result<SendOp, PostError> {
    // SAFETY: which member C fills in depends on the operation; all are numbers.
    let (rdma, atomic) = unsafe { (wr.wr.rdma, wr.wr.atomic) };
    let at = Remote { addr: atomic.remote_addr, rkey: atomic.rkey };
    let imm = u32::from_be(wr.imm_data);
    Ok(match wr.opcode {
        IBV_WR_SEND => SendOp::Send,
        IBV_WR_SEND_WITH_IMM => SendOp::SendImm(imm),
        IBV_WR_SEND_WITH_INV => SendOp::SendInvalidate(wr.imm_data),
        IBV_WR_RDMA_WRITE_WITH_IMM => {
            SendOp::WriteImm(Remote { addr: rdma.remote_addr, rkey: rdma.rkey }, imm)
        }
        IBV_WR_ATOMIC_CMP_AND_SWP => {
            SendOp::CompareSwap { remote: at, compare: atomic.compare_add, swap: atomic.swap }
        }
        IBV_WR_ATOMIC_FETCH_AND_ADD => SendOp::FetchAdd { remote: at, add: atomic.compare_add },
        _ => return Err(PostError::BadOperation),
    })
}

/// # Safety
///
/// As [`post_op`].
#[inline(never)]
unsafe fn post_other<S: Sends>(
    sq: &mut S,
    at: &mut S::Cursor,
    wr: &ibv_send_wr,
    flags: u32,
    op: SendOp,
) -> Result<(), PostError> {
    // SAFETY: the caller's promise.
    unsafe { post_op(sq, at, wr, flags, op) }
}

/// Posts one operation with what it carries.
///
/// # Safety
///
/// C's contract; the cursor is the queue's.
#[inline(always)]
unsafe fn post_op<S: Sends>(
    sq: &mut S,
    at: &mut S::Cursor,
    wr: &ibv_send_wr,
    c_flags: u32,
    op: SendOp,
) -> Result<(), PostError> {
    let id = Wr { id: wr.wr_id, flags: flags(c_flags) };
    if c_flags & IBV_SEND_INLINE == 0 && wr.num_sge == 1 {
        // SAFETY: C's contract.
        let data = Data::One(unsafe { *wr.sg_list });
        // SAFETY: as above; the cursor is the queue's.
        return unsafe { sq.post(at, id, op, data) }.map(drop);
    }
    // SAFETY: as above.
    unsafe { with_data(wr, c_flags, |data| sq.post(at, id, op, data)) }
}

/// # Safety
///
/// C's contract; the cursor is the queue's.
#[inline(always)]
unsafe fn post_datagram<S: Sends>(
    sq: &mut S,
    at: &mut S::Cursor,
    wr: &ibv_send_wr,
    c_flags: u32,
) -> Result<(), PostError> {
    let op = other_op(wr)?;
    // SAFETY: of a datagram C fills in this member.
    let ud = unsafe { wr.wr.ud };
    // SAFETY: C's contract.
    let ah = S::own_ah(unsafe { Ah::of(ud.ah) }.any()).ok_or(PostError::ForeignAddress)?;
    let to = Destination { ah, qpn: ud.remote_qpn, qkey: ud.remote_qkey };
    let id = Wr { id: wr.wr_id, flags: flags(c_flags) };
    // SAFETY: as above; the cursor is the queue's.
    unsafe { with_data(wr, c_flags, |data| sq.post_to(at, id, op, to, data)) }
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
