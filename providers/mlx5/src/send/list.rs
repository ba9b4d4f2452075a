//! SGE lists of sends, written and counted in one pass.
//!
//! # Safety
//!
//! See `queue/mod.rs`. If a work request turns out to be too long, the segments already written are
//! in free WQEBBs.
#![allow(unsafe_code, reason = "writes WQEs into a ring that the device reads")]

use uverbs_core::queues::work::Sge;
use uverbs_mlx5_prm::ctrl::DS_BYTES;
use uverbs_mlx5_prm::data::DATA_SEG_MAX;

use crate::send::ring::Ring;
use crate::send::wqe::{self, Head};

/// Writes a list of non-empty SGEs. False, with invalid segments written, if an SGE is empty, or if
/// the total is [`DATA_SEG_MAX`] bytes or more.
///
/// # Safety
///
/// As [`wqe::store`], for each SGE.
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

/// True if an SGE of this length is empty, or as long as the maximum message or longer, so that it
/// has no [`wqe::short_segment`]. A single test.
#[inline(always)]
pub(crate) fn is_rare(len: u32) -> bool {
    const { assert!(DATA_SEG_MAX == 1 << 31) };
    len.cast_signed() <= 0
}

/// WQEBBs of a work request at `pi` with this head and list, if the list can be written and counted
/// in one pass. `None` for an atomic, for a list longer than `longest`, and for a WQE that wraps.
#[inline(always)]
pub(crate) fn counted(ring: Ring, pi: u32, head: Head, longest: u32, list: &[Sge]) -> Option<u32> {
    if list.len() > longest as usize || head.atomic {
        return None;
    }
    let units = wqe::blocks(head.units + list.len() as u32);
    (!ring.wraps(pi, units)).then_some(units)
}
