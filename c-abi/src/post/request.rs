//! Decodes C's work requests: operation, destination, flags and data.
//!
//! # Safety
//!
//! By C's contract (crate root), the lists and data that a work request names are valid until it
//! completes, and its handles are objects of this library.
#![allow(unsafe_code, reason = "pointers of C")]

use std::ffi::c_int;
use std::slice;

use uverbs_core::provider::AhOps;
use uverbs_core::queues::work::{
    Checksums, Data, Destination, PostError, Rekey, Remote, SendFlags, SendOp, Sge,
};

use crate::memory::mw;
use crate::post::send::Sends;
use crate::queues::ah::Ah;
use crate::sys::{
    BindMw, IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_IP_CSUM, IBV_SEND_SIGNALED,
    IBV_SEND_SOLICITED, IBV_WC_BIND_MW, IBV_WC_LOCAL_INV, IBV_WR_ATOMIC_CMP_AND_SWP,
    IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV, IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
    IBV_WR_SEND_WITH_INV, ibv_send_wr, ibv_sge,
};

/// Maximum elements of an inline list; larger than any device's limit.
const INLINE_PIECES: usize = 64;

/// Destination of a UD send; `None` if another provider made the address handle.
///
/// # Safety
///
/// C's contract; the queue pair is UD or SRD.
#[inline(always)]
pub(crate) unsafe fn destination<'a, S: Sends>(wr: &ibv_send_wr) -> Option<Destination<'a, S::Ah>> {
    // SAFETY: C fills in the union's `ud` member of such a send, with a handle of ours.
    let (ud, ah) = unsafe { (wr.wr.ud, Ah::of(wr.wr.ud.ah)) };
    let ah = S::own_ah(ah.any())?;
    Some(ah.to(ud.remote_qpn, ud.remote_qkey))
}

/// Key operation of a work request; `None` if the work request is another operation.
pub(crate) fn rekey(wr: &ibv_send_wr) -> Option<Rekey> {
    match wr.opcode {
        IBV_WR_BIND_MW => {
            let BindMw { mw, rkey, bind_info } = &wr.bind_mw;
            // SAFETY: C fills in `bind_mw` of this opcode, with a window of ours.
            Some(unsafe { mw::bind(*mw, *rkey, bind_info) })
        }
        IBV_WR_LOCAL_INV => Some(Rekey::Invalidate { key: wr.imm_data }),
        _ => None,
    }
}

/// `IBV_WC_*` of a key operation.
pub(crate) fn key_opcode(op: &Rekey) -> u32 {
    match op {
        Rekey::Bind { .. } => IBV_WC_BIND_MW,
        Rekey::Invalidate { .. } => IBV_WC_LOCAL_INV,
    }
}

/// Converts C's send flags; unknown flags are dropped.
#[inline(always)]
pub(crate) fn flags(c: u32) -> SendFlags {
    const {
        assert!(SendFlags::SOLICITED.bits() as u32 == IBV_SEND_SOLICITED);
        assert!(SendFlags::SIGNALED.bits() as u32 == IBV_SEND_SIGNALED);
        assert!(SendFlags::FENCE.bits() as u32 == IBV_SEND_FENCE);
    }
    SendFlags::from_bits_truncate(c as u8)
}

/// Checksums that the device fills in.
pub(crate) fn checksums(c: u32) -> Checksums {
    if c & IBV_SEND_IP_CSUM == 0 { Checksums::AsTheyAre } else { Checksums::Filled }
}

/// Error number of a failed post.
#[cold]
pub(crate) fn errno(error: PostError) -> c_int {
    error.to_errno().raw()
}

/// Remote address and key of a WRITE or READ.
#[inline(always)]
fn remote(wr: &ibv_send_wr) -> Remote {
    // SAFETY: C fills in the union's `rdma` member of these opcodes; any bits are valid.
    let rdma = unsafe { wr.wr.rdma };
    Remote { addr: rdma.remote_addr, rkey: rdma.rkey }
}

#[inline(always)]
fn fetch_add(wr: &ibv_send_wr) -> SendOp {
    // SAFETY: C fills in the union's `atomic` member of atomics; any bits are valid.
    let atomic = unsafe { wr.wr.atomic };
    let remote = Remote { addr: atomic.remote_addr, rkey: atomic.rkey };
    SendOp::FetchAdd { remote, add: atomic.compare_add }
}

/// Operation of a work request whose opcode is `OPCODE`, one of those with a table entry.
#[inline(always)]
pub(crate) fn plain_op<const OPCODE: u32>(wr: &ibv_send_wr) -> SendOp {
    match OPCODE {
        IBV_WR_SEND => SendOp::Send,
        IBV_WR_RDMA_WRITE => SendOp::Write(remote(wr)),
        IBV_WR_RDMA_READ => SendOp::Read(remote(wr)),
        _ => fetch_add(wr),
    }
}

/// Operation of a work request of any opcode, except key operations.
pub(crate) fn other_op(wr: &ibv_send_wr) -> Result<SendOp, PostError> {
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
            // SAFETY: C fills in the union's `atomic` member of atomics; any bits are valid.
            let atomic = unsafe { wr.wr.atomic };
            let remote = Remote { addr: atomic.remote_addr, rkey: atomic.rkey };
            SendOp::CompareSwap { remote, compare: atomic.compare_add, swap: atomic.swap }
        }
        _ => return Err(PostError::BadOperation),
    })
}

/// Calls `post` with the data of a work request: SGEs or inline bytes.
///
/// # Safety
///
/// C's contract.
#[inline(always)]
pub(crate) unsafe fn with_data(
    wr: &ibv_send_wr,
    flags: u32,
    post: impl FnOnce(Data<'_>) -> Result<u32, PostError>,
) -> Result<(), PostError> {
    // SAFETY: C's contract.
    unsafe { with_list(wr.sg_list, wr.num_sge, |list| with_list_of(list, flags, post)) }
}

/// Calls `post` with an SGE list, or with its bytes.
///
/// # Safety
///
/// C's contract.
#[inline(always)]
unsafe fn with_list_of(
    list: &[Sge],
    flags: u32,
    post: impl FnOnce(Data<'_>) -> Result<u32, PostError>,
) -> Result<(), PostError> {
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

/// Slice of an SGE list. An empty list may be null.
///
/// # Safety
///
/// C's contract; the list is aligned.
#[inline(always)]
pub(crate) unsafe fn pieces<'a>(list: *const ibv_sge, count: c_int) -> &'a [Sge] {
    if count <= 0 {
        return &[];
    }
    // SAFETY: by C's contract the list has `count` elements.
    unsafe { slice::from_raw_parts(list, count as usize) }
}

/// Elements of an SGE list.
///
/// # Safety
///
/// C's contract.
pub(crate) unsafe fn copied(list: *const ibv_sge, count: u32) -> Vec<Sge> {
    // SAFETY: C's contract: the list has `count` elements.
    (0..count as usize).map(|at| unsafe { list.add(at).read_unaligned() }).collect()
}

/// Elements that [`with_list`] copies: more than a queue of any device takes.
const COPIED: usize = 64;

/// Calls `take` with an SGE list, or with a copy of an unaligned one: programs have lists in packed
/// structs.
///
/// # Safety
///
/// C's contract.
#[inline(always)]
pub(crate) unsafe fn with_list<T>(
    list: *const ibv_sge,
    count: c_int,
    take: impl FnOnce(&[Sge]) -> T,
) -> T {
    // SAFETY: C's contract.
    unsafe {
        match list.is_aligned() {
            true => take(pieces(list, count)),
            false => with_copy(list, count, take),
        }
    }
}

/// # Safety
///
/// C's contract.
#[cold]
#[inline(never)]
unsafe fn with_copy<T>(list: *const ibv_sge, count: c_int, take: impl FnOnce(&[Sge]) -> T) -> T {
    let mut copy = [Sge { addr: 0, len: 0, lkey: 0 }; COPIED];
    let copy = &mut copy[..COPIED.min(count.max(0) as usize)];
    for (at, to) in copy.iter_mut().enumerate() {
        // SAFETY: C's contract: the list has `count` elements.
        *to = unsafe { list.add(at).read_unaligned() };
    }
    take(copy)
}

/// Bytes of an element of an inline list, read at its address.
///
/// # Safety
///
/// C's contract.
#[inline(always)]
pub(crate) unsafe fn bytes<'a>(piece: &Sge) -> &'a [u8] {
    // SAFETY: by C's contract the element names valid memory.
    unsafe { memory(std::ptr::with_exposed_provenance(piece.addr as usize), piece.len as usize) }
}

/// Slice of the program's memory; null only if `len` is 0.
///
/// # Safety
///
/// C's contract.
#[inline(always)]
pub(crate) unsafe fn memory<'a>(addr: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: by C's contract the memory is valid; it is not empty, so not null.
    unsafe { slice::from_raw_parts(addr, len) }
}
