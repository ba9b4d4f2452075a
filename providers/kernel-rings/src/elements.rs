//! SGEs and inline data of a work request, which the kernel's drivers keep alike: an SGE has 16
//! bytes, and empty ones are left out.
//!
//! # Safety
//!
//! Writers take an element of a ring that is the program's, and write no more than the check
//! allowed.
#![allow(unsafe_code, reason = "writes work requests into a ring by raw address")]

use uverbs_core::queues::work::{Data, PostError, Sge};
use uverbs_kernel_abi::wc::ib_uverbs_sge;

/// Longest message in bytes: one less than the 2 GiB of IBTA (vol 1, 9.7.7), since the kernel keeps
/// lengths in an `int` (kernel `rxe_req.c:rxe_requester`, `siw_qp_tx.c:siw_check_sgl_tx`).
pub const MAX_MESSAGE: u64 = (1 << 31) - 1;
/// Bytes of an SGE.
pub const SGE: usize = size_of::<ib_uverbs_sge>();

/// Room of a send queue's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementLimits {
    /// SGEs.
    pub max_sge: u32,
    /// Bytes of inline data.
    pub max_inline: u32,
}

/// Size of a work request's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Bytes.
    pub bytes: u32,
    /// SGEs that have bytes: the kernel sees no others. 0 for inline data.
    pub entries: u32,
}

/// Checks the data of a send.
///
/// # Errors
///
/// [`PostError::InlineTooLong`], and as for [`check_list`].
#[inline]
pub fn check_data(data: &Data<'_>, room: ElementLimits) -> Result<Size, PostError> {
    match data {
        Data::Inline(bytes) => check_inline(bytes.len(), room),
        Data::InlineList(pieces) => {
            let total =
                pieces.iter().fold(0usize, |total, piece| total.saturating_add(piece.len()));
            check_inline(total, room)
        }
        Data::One(sge) => check_list(std::slice::from_ref(sge), room.max_sge),
        Data::List(list) => check_list(list, room.max_sge),
    }
}

#[inline]
fn check_inline(bytes: usize, room: ElementLimits) -> Result<Size, PostError> {
    if bytes > room.max_inline as usize {
        return Err(PostError::InlineTooLong);
    }
    Ok(Size { bytes: bytes as u32, entries: 0 })
}

/// Checks a scatter or gather list.
///
/// # Errors
///
/// [`PostError::TooManySges`], [`PostError::MessageTooLong`].
#[inline]
pub fn check_list(list: &[Sge], max_sge: u32) -> Result<Size, PostError> {
    if list.len() > max_sge as usize {
        return Err(PostError::TooManySges);
    }
    let (mut bytes, mut entries) = (0u64, 0);
    for sge in list {
        bytes += u64::from(sge.len);
        entries += u32::from(sge.len != 0);
    }
    if bytes > MAX_MESSAGE {
        return Err(PostError::MessageTooLong);
    }
    Ok(Size { bytes: bytes as u32, entries })
}

/// Returns true if the data goes into the element itself.
#[inline(always)]
#[must_use]
pub fn is_inline(data: &Data<'_>) -> bool {
    matches!(data, Data::Inline(_) | Data::InlineList(_))
}

/// Writes SGEs to `list`, or inline data to `inline`. Returns the number of SGEs.
///
/// # Safety
///
/// `list` is aligned to eight bytes. Both are valid to write as much as [`check_data`] allowed.
#[inline]
pub unsafe fn write_data(list: *mut u8, inline: *mut u8, data: &Data<'_>) -> u8 {
    match data {
        Data::Inline(bytes) => {
            // SAFETY: as many bytes as were checked.
            unsafe { write_bytes(inline, bytes) };
            0
        }
        Data::InlineList(pieces) => {
            let mut at = inline;
            for piece in *pieces {
                // SAFETY: as many bytes in all as were checked.
                unsafe { write_bytes(at, piece) };
                at = at.wrapping_add(piece.len());
            }
            0
        }
        // SAFETY: as many SGEs as were checked.
        Data::One(sge) => unsafe { write_list(list, std::slice::from_ref(sge)) },
        // SAFETY: as many SGEs as were checked.
        Data::List(sges) => unsafe { write_list(list, sges) },
    }
}

/// Copies bytes of the program into an element.
///
/// # Safety
///
/// `at` is valid to write as many bytes.
#[inline]
pub unsafe fn write_bytes(at: *mut u8, bytes: &[u8]) {
    // SAFETY: the caller's promise; the source is the program's own memory, and no ring.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
}

/// Writes the SGEs that have bytes. Returns their number, which wraps around: only a driver with
/// fewer SGEs than 256 uses it.
///
/// # Safety
///
/// `at` is aligned to eight bytes, and valid to write as many SGEs.
#[inline]
pub unsafe fn write_list(at: *mut u8, list: &[Sge]) -> u8 {
    let mut end = at.cast::<ib_uverbs_sge>();
    for sge in list.iter().filter(|sge| sge.len != 0) {
        let entry = ib_uverbs_sge { addr: sge.addr, length: sge.len, lkey: sge.lkey };
        // SAFETY: guaranteed by the contract of `write_list`.
        unsafe { end.write(entry) };
        end = end.wrapping_add(1);
    }
    ((end.addr() - at.addr()) / SGE) as u8
}
