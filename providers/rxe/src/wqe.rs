//! Work requests as the kernel reads them: a head with the opcode, then SGEs or inline data, which
//! share the room (`rdma_user_rxe.h`; rdma-core `rxe.c:init_send_wqe`).
//!
//! The kernel keeps its progress in the element itself, so an element is written whole each time,
//! and never read while the kernel has it.
//!
//! # Safety
//!
//! Writers take a free element, aligned to eight bytes, and write no more than a check allowed.
#![allow(unsafe_code, reason = "writes work requests into a ring by raw address")]

use uverbs_core::queues::placement::PlaceOp;
use uverbs_core::queues::work::{Data, PostError, Rekey, Remote, SendFlags, SendOp, Sge};
use uverbs_kernel_abi::rxe::{
    rxe_dma_info, rxe_recv_wqe, rxe_send_wqe, rxe_send_wr, rxe_send_wr_atomic, rxe_send_wr_mw,
    rxe_send_wr_rdma, rxe_send_wr_ud,
};
use uverbs_kernel_abi::wc as abi;
use uverbs_kernel_rings::elements::{
    ElementLimits, MAX_MESSAGE, Size, check_data, is_inline, write_bytes, write_data, write_list,
};

/// Linux 6.2, `enum ib_uverbs_wr_opcode`.
const IB_WR_FLUSH: u32 = 14;
const IB_WR_ATOMIC_WRITE: u32 = 15;
/// Bytes of an ATOMIC WRITE.
const ATOMIC_WRITE: usize = 8;
/// Offset of a send's SGEs or inline data.
pub(crate) const SEND_HEAD: usize = size_of::<rxe_send_wqe>();
/// Offset of a receive's SGEs.
pub(crate) const RECV_HEAD: usize = size_of::<rxe_recv_wqe>();

/// Checks a datagram.
pub(crate) fn check_datagram(
    op: &SendOp,
    data: &Data<'_>,
    room: ElementLimits,
) -> Result<Size, PostError> {
    match op {
        SendOp::Send | SendOp::SendImm(_) => check(op, data, room),
        _ => Err(PostError::BadOperation),
    }
}

/// Checks a send. The kernel checks the messages of kernel users alone.
#[inline]
pub(crate) fn check(op: &SendOp, data: &Data<'_>, room: ElementLimits) -> Result<Size, PostError> {
    let (answered, atomic) = match op {
        SendOp::Send
        | SendOp::SendImm(_)
        | SendOp::SendInvalidate(_)
        | SendOp::Write(_)
        | SendOp::WriteImm(..) => (false, false),
        SendOp::Read(_) => (true, false),
        SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => (true, true),
    };
    if answered && is_inline(data) {
        return Err(PostError::BadData);
    }
    let size = check_data(data, room)?;
    if atomic && size != (Size { bytes: 8, entries: 1 }) {
        return Err(PostError::BadData);
    }
    Ok(size)
}

/// Flags of the kernel.
fn flags(flags: SendFlags, is_inline: bool) -> u32 {
    let bit = |flag, bit| if flags.contains(flag) { bit } else { 0 };
    bit(SendFlags::SIGNALED, abi::IB_SEND_SIGNALED)
        | bit(SendFlags::FENCE, abi::IB_SEND_FENCE)
        | bit(SendFlags::SOLICITED, abi::IB_SEND_SOLICITED)
        | if is_inline { abi::IB_SEND_INLINE } else { 0 }
}

fn dma(size: Size) -> rxe_dma_info {
    rxe_dma_info {
        length: size.bytes,
        resid: size.bytes,
        num_sge: size.entries,
        ..Default::default()
    }
}

/// Head of a send.
pub(crate) fn send_head(
    token: u64,
    flag: SendFlags,
    op: &SendOp,
    to: Option<rxe_send_wr_ud>,
    is_inline: bool,
    size: Size,
) -> rxe_send_wqe {
    let mut wr =
        rxe_send_wr { wr_id: token, send_flags: flags(flag, is_inline), ..Default::default() };
    if let Some(to) = to {
        wr.set_ud(to);
    }
    let (opcode, imm, iova) = match *op {
        SendOp::Send => (abi::IB_UVERBS_WR_SEND, 0, 0),
        SendOp::SendImm(imm) => (abi::IB_UVERBS_WR_SEND_WITH_IMM, imm, 0),
        // Keys are in the byte order of the host.
        SendOp::SendInvalidate(key) => (abi::IB_UVERBS_WR_SEND_WITH_INV, key.to_be(), 0),
        SendOp::Write(to) => (abi::IB_UVERBS_WR_RDMA_WRITE, 0, set_remote(&mut wr, to)),
        SendOp::WriteImm(to, imm) => {
            (abi::IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, imm, set_remote(&mut wr, to))
        }
        SendOp::Read(from) => (abi::IB_UVERBS_WR_RDMA_READ, 0, set_remote(&mut wr, from)),
        SendOp::CompareSwap { remote, compare, swap } => {
            (abi::IB_UVERBS_WR_ATOMIC_CMP_AND_SWP, 0, set_atomic(&mut wr, remote, compare, swap))
        }
        SendOp::FetchAdd { remote, add } => {
            (abi::IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD, 0, set_atomic(&mut wr, remote, add, 0))
        }
    };
    (wr.opcode, wr.ex) = (opcode, imm.to_be_bytes());
    rxe_send_wqe { wr, iova, dma: dma(size), ..Default::default() }
}

/// Element of a work request that changes a key (kernel `rxe_req.c:rxe_do_local_ops`), without
/// data.
pub(crate) fn rekey_head(token: u64, flag: SendFlags, op: &Rekey) -> rxe_send_wqe {
    let mut wr = rxe_send_wr { wr_id: token, send_flags: flags(flag, false), ..Default::default() };
    match *op {
        Rekey::Bind { old, new, lkey, addr, len, access, .. } => {
            wr.opcode = abi::IB_UVERBS_WR_BIND_MW;
            wr.set_mw(rxe_send_wr_mw {
                addr,
                length: len,
                mr_lkey: lkey,
                mw_rkey: old,
                rkey: new,
                access: access.bits(),
            });
        }
        Rekey::Invalidate { key } => {
            (wr.opcode, wr.ex) = (abi::IB_UVERBS_WR_LOCAL_INV, key.to_ne_bytes());
        }
    }
    rxe_send_wqe { wr, ..Default::default() }
}

/// Head of a FLUSH or an ATOMIC WRITE (`rdma_user_rxe.h`, `flush` and `atomic_wr`; rdma-core
/// `rxe.c`, `wr_flush` and `wr_atomic_write`). An ATOMIC WRITE has its eight bytes after the head,
/// where other sends have SGEs. The `length` field of `flush` stays 0, as in rdma-core.
pub(crate) fn place_head(token: u64, flag: SendFlags, op: &PlaceOp) -> rxe_send_wqe {
    let mut wr = rxe_send_wr { wr_id: token, send_flags: flags(flag, false), ..Default::default() };
    let (iova, bytes) = match *op {
        PlaceOp::Flush { remote, len, types, level } => {
            wr.opcode = IB_WR_FLUSH;
            wr.wr[..8].copy_from_slice(&remote.addr.to_ne_bytes());
            wr.wr[12..16].copy_from_slice(&remote.rkey.to_ne_bytes());
            (wr.wr[16], wr.wr[17]) = (types.bits(), level as u8);
            (remote.addr, len)
        }
        PlaceOp::AtomicWrite { remote, .. } => {
            wr.opcode = IB_WR_ATOMIC_WRITE;
            (set_remote(&mut wr, remote), ATOMIC_WRITE as u32)
        }
    };
    let dma = rxe_dma_info { length: bytes, resid: bytes, ..Default::default() };
    rxe_send_wqe { wr, iova, dma, ..Default::default() }
}

/// Checks a FLUSH or an ATOMIC WRITE.
pub(crate) fn check_place(op: &PlaceOp, room: ElementLimits) -> Result<(), PostError> {
    match *op {
        PlaceOp::Flush { types, .. } if types.is_empty() => Err(PostError::BadData),
        PlaceOp::Flush { len, .. } if u64::from(len) > MAX_MESSAGE => {
            Err(PostError::MessageTooLong)
        }
        PlaceOp::AtomicWrite { remote, .. } if remote.addr % ATOMIC_WRITE as u64 != 0 => {
            Err(PostError::BadData)
        }
        PlaceOp::AtomicWrite { .. }
            if room.max_sge == 0 && (room.max_inline as usize) < ATOMIC_WRITE =>
        {
            Err(PostError::InlineTooLong)
        }
        _ => Ok(()),
    }
}

/// Writes a FLUSH or an ATOMIC WRITE.
///
/// # Safety
///
/// `to` is a free element with the room that [`check_place`] saw.
pub(crate) unsafe fn write_place(to: *mut u8, token: u64, flag: SendFlags, op: &PlaceOp) {
    let head = place_head(token, flag, op);
    // SAFETY: an element has room for a head, and is aligned as it needs.
    unsafe { to.cast::<rxe_send_wqe>().write(head) };
    if let PlaceOp::AtomicWrite { data, .. } = op {
        // SAFETY: there is room for eight bytes behind the head.
        unsafe { write_bytes(to.wrapping_add(SEND_HEAD), data) };
    }
}

fn set_remote(wr: &mut rxe_send_wr, remote: Remote) -> u64 {
    let Remote { addr: remote_addr, rkey } = remote;
    wr.set_rdma(rxe_send_wr_rdma { remote_addr, rkey, reserved: 0 });
    remote_addr
}

fn set_atomic(wr: &mut rxe_send_wr, remote: Remote, compare_add: u64, swap: u64) -> u64 {
    let Remote { addr: remote_addr, rkey } = remote;
    wr.set_atomic(rxe_send_wr_atomic { remote_addr, compare_add, swap, rkey, reserved: 0 });
    remote_addr
}

/// Writes a send.
///
/// # Safety
///
/// `to` is a free element, and [`check`] allowed the work request.
pub(crate) unsafe fn write_send(
    to: *mut u8,
    token: u64,
    flag: SendFlags,
    op: &SendOp,
    peer: Option<rxe_send_wr_ud>,
    data: &Data<'_>,
    size: Size,
) {
    let head = send_head(token, flag, op, peer, is_inline(data), size);
    // SAFETY: an element has room for a head, and is aligned as it needs.
    unsafe { to.cast::<rxe_send_wqe>().write(head) };
    let at = to.wrapping_add(SEND_HEAD);
    // SAFETY: as much as `check` allowed; SGEs and inline data share the room.
    let _ = unsafe { write_data(at, at, data) };
}

/// Writes a receive.
///
/// # Safety
///
/// As for [`write_send`], in a receive queue.
pub(crate) unsafe fn write_recv(to: *mut u8, token: u64, list: &[Sge], size: Size) {
    let head = rxe_recv_wqe { wr_id: token, dma: dma(size), ..Default::default() };
    // SAFETY: an element has room for a head, and is aligned as it needs.
    unsafe { to.cast::<rxe_recv_wqe>().write(head) };
    // SAFETY: as many entries as `check_list` allowed.
    let _ = unsafe { write_list(to.wrapping_add(RECV_HEAD), list) };
}
