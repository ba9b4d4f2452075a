//! Lists of pieces: those of sends are written as they are counted.
//!
//! # Safety
//!
//! As in `sq/mod.rs`. What is written before a work request turns out to be too long lies in WQEBBs
//! that are free.
#![allow(unsafe_code, reason = "writes WQEs into a ring that the device reads")]

use uverbs_core::queues::work::Sge;
use uverbs_mlx5_prm::ctrl::DS_BYTES;
use uverbs_mlx5_prm::data::DATA_SEG_MAX;

use crate::send::ring::Ring;
use crate::send::wqe::{self, Head};

/// Writes a list whose entries all have bytes. False if one has none, or if they have
/// [`DATA_SEG_MAX`] bytes or more in all, and then what is written isn't right.
///
/// # Safety
///
/// As [`wqe::store`], for each of them.
#[inline(always)]
pub(crate) unsafe fn write_counted(start: *mut u8, list: &[Sge]) -> bool {
    let mut total = 0;
    for (nth, piece) in list.iter().enumerate() {
        if is_rare(piece.len) {
            return false;
        }
        let at = start.wrapping_add(nth * DS_BYTES);
        // SAFETY: contract of `write_counted`.
        unsafe { wqe::store(at, wqe::short_segment(piece)) };
        total += u64::from(piece.len);
    }
    total < u64::from(DATA_SEG_MAX)
}

/// Whether a piece of this length has no bytes, or as many as a message may have or more, and so no
/// [`wqe::short_segment`]: one test for all.
#[inline(always)]
pub(crate) fn is_rare(len: u32) -> bool {
    const { assert!(DATA_SEG_MAX == 1 << 31) };
    len.cast_signed() <= 0
}

/// WQEBBs of a work request at `pi` with this head and list, if it can be written as it is counted
/// where there is room for a work request: the list isn't an atomic's, nor longer than the longest
/// one that needs no look, nor does it wrap.
#[inline(always)]
pub(crate) fn counted(ring: Ring, pi: u32, head: Head, longest: u32, list: &[Sge]) -> Option<u32> {
    if list.len() > longest as usize || head.atomic {
        return None;
    }
    let units = wqe::blocks(head.units + list.len() as u32);
    (!ring.wraps(pi, units)).then_some(units)
}
