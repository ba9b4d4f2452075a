//! Work requests as the kernel reads them (`siw-abi.h`; rdma-core `siw.c:push_send_wqe`,
//! `push_recv_wqe`).
//!
//! # Safety
//!
//! Writers take a free element of the ring, and write no more than a check allowed.
#![allow(unsafe_code, reason = "writes work requests into a ring by raw address")]

use std::mem::offset_of;

use uverbs_core::queues::work::{Data, PostError, Remote, SendFlags, SendOp, Sge};
use uverbs_kernel_abi::siw::{
    SIW_OP_READ, SIW_OP_SEND, SIW_OP_SEND_REMOTE_INV, SIW_OP_WRITE, SIW_WQE_INLINE,
    SIW_WQE_READ_FENCE, SIW_WQE_SIGNALLED, SIW_WQE_SOLICITED, siw_rqe, siw_sge, siw_sqe,
};
use uverbs_kernel_rings::elements::{
    ElementLimits, Size, check_data, is_inline, write_data, write_list,
};

/// A send that passed the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    opcode: u8,
    rkey: u32,
    raddr: u64,
    /// Total bytes.
    bytes: u32,
    pub(crate) is_read: bool,
}

/// Checks a send.
#[inline]
pub(crate) fn check(
    op: &SendOp,
    data: &Data<'_>,
    room: ElementLimits,
) -> Result<Checked, PostError> {
    let none = Remote { addr: 0, rkey: 0 };
    let (opcode, remote) = match *op {
        SendOp::Send => (SIW_OP_SEND, none),
        SendOp::SendInvalidate(rkey) => (SIW_OP_SEND_REMOTE_INV, Remote { addr: 0, rkey }),
        SendOp::Write(to) => (SIW_OP_WRITE, to),
        SendOp::Read(from) => (SIW_OP_READ, from),
        SendOp::SendImm(_)
        | SendOp::WriteImm(..)
        | SendOp::CompareSwap { .. }
        | SendOp::FetchAdd { .. } => return Err(PostError::BadOperation),
    };
    let is_read = opcode == SIW_OP_READ;
    // The kernel accepts inline data only in plain SENDs and WRITEs, and one SGE in a READ (kernel
    // `siw_qp.c:siw_activate_tx`).
    let has_inline = opcode == SIW_OP_SEND || opcode == SIW_OP_WRITE;
    if is_inline(data) && !has_inline {
        return Err(PostError::BadData);
    }
    let max_sge = if is_read { 1 } else { room.max_sge };
    let Size { bytes, .. } = check_data(data, ElementLimits { max_sge, ..room })?;
    let Remote { addr: raddr, rkey } = remote;
    Ok(Checked { opcode: opcode as u8, rkey, raddr, bytes, is_read })
}

/// Flags of the kernel. Each work request is signaled, whatever the program asked for:
///
/// - SENDs and WRITEs complete when TCP has them, and READs when the answer came (kernel
///   `siw_qp_tx.c:siw_qp_sq_process`, `siw_qp_rx.c:siw_rdmap_complete`). So a completion says
///   nothing about earlier work requests, and each buffer waits for its own.
/// - For an unsignaled work request the kernel gives TCP the program's own pages, which TCP may
///   read again even after later completions (`siw_qp_tx.c:siw_tx_hdt`, `use_sendpage`). For a
///   signaled one the kernel copies the data.
pub(crate) fn flags(checked: &Checked, flags: SendFlags, data: &Data<'_>) -> u16 {
    let is_inline = is_inline(data) && checked.bytes != 0;
    let bit = |set: bool, bit: u32| if set { bit } else { 0 };
    let all = SIW_WQE_SIGNALLED
        | bit(flags.contains(SendFlags::SOLICITED), SIW_WQE_SOLICITED)
        | bit(flags.contains(SendFlags::FENCE), SIW_WQE_READ_FENCE)
        | bit(is_inline, SIW_WQE_INLINE);
    all as u16
}

/// Writes a send, except its flags.
///
/// # Safety
///
/// `to` is a free element of a send ring. `checked` is the result of [`check`] for this `data` and
/// this element's room.
pub(crate) unsafe fn write_send(
    to: *mut siw_sqe,
    id: u64,
    checked: Checked,
    flags: u16,
    data: &Data<'_>,
) {
    let Checked { opcode, rkey, raddr, bytes, is_read } = checked;
    let list = field::<siw_sge>(to.cast(), offset_of!(siw_sqe, sge));
    // The first SGE has the length of inline data, and the data replaces the other SGEs.
    // SAFETY: `check` limited the data to the element's room.
    let entries = unsafe { write_data(list.cast(), list.wrapping_add(1).cast(), data) };
    let has_inline = u32::from(flags) & SIW_WQE_INLINE != 0;
    // The kernel reads the first SGE of a READ even if the list is empty.
    if has_inline || (is_read && entries == 0) {
        let first = siw_sge { laddr: 0, length: bytes, lkey: 0 };
        // SAFETY: each element has room for an SGE.
        unsafe { list.write(first) };
    }
    let num_sge = if has_inline || is_read { 1 } else { entries };
    // SAFETY: the element's fields; the flags are not among them.
    unsafe { field::<u64>(to.cast(), offset_of!(siw_sqe, id)).write(id) };
    // SAFETY: the element's fields; the flags are not among them.
    unsafe { field::<u8>(to.cast(), offset_of!(siw_sqe, num_sge)).write(num_sge) };
    // SAFETY: the element's fields; the flags are not among them.
    unsafe { field::<u8>(to.cast(), offset_of!(siw_sqe, opcode)).write(opcode) };
    // SAFETY: the element's fields; the flags are not among them.
    unsafe { field::<u32>(to.cast(), offset_of!(siw_sqe, rkey)).write(rkey) };
    // SAFETY: the element's fields; the flags are not among them.
    unsafe { field::<u64>(to.cast(), offset_of!(siw_sqe, raddr)).write(raddr) };
}

/// Writes a receive, except its flags.
///
/// # Safety
///
/// `to` is a free element of a receive ring, and `list` has no more than `SIW_MAX_SGE` entries.
pub(crate) unsafe fn write_recv(to: *mut siw_rqe, id: u64, list: &[Sge]) {
    let at = field::<u8>(to.cast(), offset_of!(siw_rqe, sge));
    // SAFETY: each element has room for `SIW_MAX_SGE` SGEs.
    let entries = unsafe { write_list(at, list) };
    // SAFETY: the element's fields; the flags are not among them.
    unsafe { field::<u64>(to.cast(), offset_of!(siw_rqe, id)).write(id) };
    // SAFETY: the element's fields; the flags are not among them.
    unsafe { field::<u8>(to.cast(), offset_of!(siw_rqe, num_sge)).write(entries) };
}

/// Address of an element's field.
fn field<T>(to: *mut u8, offset: usize) -> *mut T {
    to.wrapping_add(offset).cast()
}
