//! Work requests as the kernel reads them (`siw-abi.h`; rdma-core `siw.c:push_send_wqe`,
//! `push_recv_wqe`).
//!
//! # Safety
//!
//! Writers take an element of the ring that is the program's, and write no more than `check`
//! allowed.
#![allow(unsafe_code, reason = "writes work requests into a ring by raw address")]

use std::mem::offset_of;

use uverbs_core::queues::work::{Data, PostError, Remote, SendFlags, SendOp, Sge};
use uverbs_kernel_abi::siw::{
    SIW_MAX_INLINE, SIW_MAX_SGE, SIW_OP_READ, SIW_OP_SEND, SIW_OP_SEND_REMOTE_INV, SIW_OP_WRITE,
    SIW_WQE_INLINE, SIW_WQE_READ_FENCE, SIW_WQE_SIGNALLED, SIW_WQE_SOLICITED, siw_rqe, siw_sge,
    siw_sqe,
};

/// The longest message, in bytes: the kernel keeps lengths in an `int`
/// (kernel `siw_qp_tx.c:siw_check_sgl_tx`).
const MAX_MESSAGE: u64 = (1 << 31) - 1;
/// What a send queue's elements have room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) max_sge: u32,
    pub(crate) max_inline: u32,
}

/// A send that can be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    opcode: u8,
    rkey: u32,
    raddr: u64,
    /// Bytes in all.
    bytes: u32,
    pub(crate) is_read: bool,
}

/// Whether a send can be posted.
#[inline]
pub(crate) fn check(op: &SendOp, data: &Data<'_>, room: Room) -> Result<Checked, PostError> {
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
    // The kernel takes inline data of plain SENDs and WRITEs alone, and one entry of a READ (kernel
    // `siw_qp.c:siw_activate_tx`).
    let has_inline = opcode == SIW_OP_SEND || opcode == SIW_OP_WRITE;
    let max_sge = if is_read { 1 } else { room.max_sge };
    let bytes = match data {
        Data::Inline(_) | Data::InlineList(_) if !has_inline => return Err(PostError::BadData),
        Data::Inline(bytes) => inline_len(bytes.len(), room)?,
        Data::InlineList(pieces) => {
            let total =
                pieces.iter().fold(0usize, |total, piece| total.saturating_add(piece.len()));
            inline_len(total, room)?
        }
        Data::One(sge) => check_list(std::slice::from_ref(sge), max_sge)?,
        Data::List(list) => check_list(list, max_sge)?,
    };
    let Remote { addr: raddr, rkey } = remote;
    Ok(Checked { opcode: opcode as u8, rkey, raddr, bytes, is_read })
}

fn inline_len(bytes: usize, room: Room) -> Result<u32, PostError> {
    let fits = bytes <= room.max_inline.min(SIW_MAX_INLINE) as usize;
    if fits { Ok(bytes as u32) } else { Err(PostError::InlineTooLong) }
}

/// Whether a list fits, and its bytes.
#[inline]
pub(crate) fn check_list(list: &[Sge], max_sge: u32) -> Result<u32, PostError> {
    if list.len() > max_sge.min(SIW_MAX_SGE) as usize {
        return Err(PostError::TooManySges);
    }
    let bytes: u64 = list.iter().map(|sge| u64::from(sge.len)).sum();
    if bytes > MAX_MESSAGE { Err(PostError::MessageTooLong) } else { Ok(bytes as u32) }
}

/// The kernel's flags. Each work request is to complete, whatever the program asked for:
///
/// - SENDs and WRITEs complete when TCP has them, and READs when the answer came (kernel
///   `siw_qp_tx.c:siw_qp_sq_process`, `siw_qp_rx.c:siw_rdmap_complete`). So a completion says
///   nothing of those before it, and each buffer waits for its own.
/// - Of what isn't to complete the kernel gives TCP the program's own pages, which TCP may need
///   again after completions behind it (`siw_qp_tx.c:siw_tx_hdt`, `use_sendpage`). Else it copies.
pub(crate) fn flags(checked: &Checked, flags: SendFlags, data: &Data<'_>) -> u16 {
    let is_inline = matches!(data, Data::Inline(_) | Data::InlineList(_)) && checked.bytes != 0;
    let bit = |set: bool, bit: u32| if set { bit } else { 0 };
    let all = SIW_WQE_SIGNALLED
        | bit(flags.contains(SendFlags::SOLICITED), SIW_WQE_SOLICITED)
        | bit(flags.contains(SendFlags::FENCE), SIW_WQE_READ_FENCE)
        | bit(is_inline, SIW_WQE_INLINE);
    all as u16
}

/// Writes a send, all but its flags.
///
/// # Safety
///
/// `to` is an element of a ring that the program may write, and `checked` is of this `data`.
pub(crate) unsafe fn write_send(
    to: *mut siw_sqe,
    id: u64,
    checked: Checked,
    flags: u16,
    data: &Data<'_>,
) {
    let Checked { opcode, rkey, raddr, bytes, is_read } = checked;
    let list = field::<siw_sge>(to.cast(), offset_of!(siw_sqe, sge));
    // Inline data has the place of the entries behind the first, which has its length.
    let inline = list.wrapping_add(1).cast::<u8>();
    let entries = match data {
        Data::Inline(_) | Data::InlineList(_) if bytes == 0 => 0,
        Data::Inline(piece) => {
            // SAFETY: as many bytes as `check` allowed.
            unsafe { write_bytes(inline, piece) };
            1
        }
        Data::InlineList(pieces) => {
            let mut at = inline;
            for piece in *pieces {
                // SAFETY: as many bytes in all as `check` allowed.
                unsafe { write_bytes(at, piece) };
                at = at.wrapping_add(piece.len());
            }
            1
        }
        // SAFETY: as many entries as `check` allowed.
        Data::One(sge) => unsafe { write_list(list, std::slice::from_ref(sge)) },
        // SAFETY: as many entries as `check` allowed.
        Data::List(pieces) => unsafe { write_list(list, pieces) },
    };
    let is_inline = u32::from(flags) & SIW_WQE_INLINE != 0;
    // The kernel takes a READ's first entry, whether there is one or not.
    if is_inline || (is_read && entries == 0) {
        let first = siw_sge { laddr: 0, length: bytes, lkey: 0 };
        // SAFETY: an element has room for an entry.
        unsafe { list.write(first) };
    }
    let num_sge = if is_read { 1 } else { entries };
    // SAFETY: the element's fields; the flags are not among them.
    unsafe { field::<u64>(to.cast(), offset_of!(siw_sqe, id)).write(id) };
    // SAFETY: as above.
    unsafe { field::<u8>(to.cast(), offset_of!(siw_sqe, num_sge)).write(num_sge) };
    // SAFETY: as above.
    unsafe { field::<u8>(to.cast(), offset_of!(siw_sqe, opcode)).write(opcode) };
    // SAFETY: as above.
    unsafe { field::<u32>(to.cast(), offset_of!(siw_sqe, rkey)).write(rkey) };
    // SAFETY: as above.
    unsafe { field::<u64>(to.cast(), offset_of!(siw_sqe, raddr)).write(raddr) };
}

/// Writes a receive, all but its flags.
///
/// # Safety
///
/// As for [`write_send`], in a receive queue; `check_list` allowed the list.
pub(crate) unsafe fn write_recv(to: *mut siw_rqe, id: u64, list: &[Sge]) {
    let at = field::<siw_sge>(to.cast(), offset_of!(siw_rqe, sge));
    // SAFETY: as many entries as `check_list` allowed.
    let entries = unsafe { write_list(at, list) };
    // SAFETY: the element's fields; the flags are not among them.
    unsafe { field::<u64>(to.cast(), offset_of!(siw_rqe, id)).write(id) };
    // SAFETY: as above.
    unsafe { field::<u8>(to.cast(), offset_of!(siw_rqe, num_sge)).write(entries) };
}

/// Where a field of an element is.
fn field<T>(to: *mut u8, offset: usize) -> *mut T {
    to.wrapping_add(offset).cast()
}

/// # Safety
///
/// `at` is valid to write as many bytes.
unsafe fn write_bytes(at: *mut u8, bytes: &[u8]) {
    // SAFETY: the caller's promise; the source is the program's own memory, and no ring.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
}

/// Entries without bytes are left out. Gives how many are written.
///
/// # Safety
///
/// `at` is aligned to eight bytes, and valid to write as many entries.
unsafe fn write_list(at: *mut siw_sge, list: &[Sge]) -> u8 {
    let mut written = 0;
    for sge in list.iter().filter(|sge| sge.len != 0) {
        let entry = siw_sge { laddr: sge.addr, length: sge.len, lkey: sge.lkey };
        // SAFETY: the caller's promise.
        unsafe { at.wrapping_add(usize::from(written)).write(entry) };
        written += 1;
    }
    written
}
