//! Shapes of work requests, by which post functions are specialised.

#![allow(unsafe_code, reason = "pointers of C")]

use crate::sys::{IBV_SEND_INLINE, ibv_send_wr};

// Shapes: data of a work request, as far as functions are specialised for it.
/// One SGE.
pub(crate) const ONE: u8 = 0;
/// Any other number of SGEs.
pub(crate) const LIST: u8 = 1;
/// Inline data of one element.
pub(crate) const INLINE: u8 = 2;
/// Inline data of one element that fits the first inline segment: one store pattern.
pub(crate) const SMALL: u8 = 3;
pub(crate) const SMALL_BYTES: u32 = 12;
/// Inline data of any other number of elements.
const OTHER: u8 = 4;

/// Shape of a work request's data.
///
/// # Safety
///
/// C's contract.
#[inline(always)]
pub(crate) unsafe fn shape(wr: &ibv_send_wr) -> u8 {
    match (wr.send_flags & IBV_SEND_INLINE != 0, wr.num_sge) {
        (false, 1) => ONE,
        (false, _) if wr.sg_list.is_aligned() => LIST,
        (false, _) => OTHER,
        // SAFETY: C's contract: the list has one element.
        (true, 1) if unsafe { wr.sg_list.read_unaligned() }.len <= SMALL_BYTES => SMALL,
        (true, 1) => INLINE,
        (true, _) => OTHER,
    }
}
