//! Lists of pieces: those of sends are written as they are counted.
//!
//! # Safety
//!
//! As in `sq/mod.rs`. What is written before a work request turns out to be too long lies in WQEBBs
//! that are free.
#![allow(unsafe_code, reason = "writes WQEs into a ring that the device reads")]

use uverbs_core::queues::work::{SendOp, Sge, Wr};
use uverbs_mlx5_prm::ctrl::DS_BYTES;
use uverbs_mlx5_prm::data::DATA_SEG_MAX;

use crate::doorbell::Posted;
use crate::sq::{SendCursor, Sq};
use crate::wqe::{self, Head};

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
        if is_rare(piece) {
            return false;
        }
        let at = start.wrapping_add(nth * DS_BYTES);
        // SAFETY: the caller's promise.
        unsafe { wqe::store(at, wqe::short_segment(piece)) };
        total += u64::from(piece.len);
    }
    total < u64::from(DATA_SEG_MAX)
}

/// Whether a piece has no bytes, or as many as a message may have or more, and so no
/// [`wqe::short_segment`]: one test for all.
#[inline(always)]
pub(crate) fn is_rare(piece: &Sge) -> bool {
    const { assert!(DATA_SEG_MAX == 1 << 31) };
    piece.len.cast_signed() <= 0
}

impl Sq {
    /// WQEBBs of a work request with this head and list, if it can be written as it is counted
    /// where there is room for a work request: the list isn't an atomic's, nor too long for that,
    /// nor does it wrap.
    #[inline(always)]
    pub(crate) fn counted(&self, head: Head, pi: u32, list: &[Sge]) -> Option<u32> {
        if list.len() > self.longest_list() as usize || head.atomic {
            return None;
        }
        let ds = head.units + list.len() as u32;
        let units = wqe::blocks(ds);
        debug_assert!(!self.is_long(units), "behind a longer head than `longest_list` counts");
        (!self.ring_memory().wraps(pi, units)).then_some(units)
    }

    /// Writes a WQE with a list at the cursor, if that [can be](Self::counted) as it is counted.
    ///
    /// # Safety
    ///
    /// See [`SendOps::post`](uverbs_core::provider::SendOps::post).
    #[inline(always)]
    pub(crate) unsafe fn post_counted(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        op: SendOp,
        list: &[Sge],
    ) -> bool {
        let (ring, slots, head) = (self.ring_memory(), self.slots(), wqe::head(&op));
        if at.count == at.stop {
            return false;
        }
        let Some(units) = self.counted(head, at.pi, list) else { return false };
        let (to, ds) = (ring.unit(at.pi), head.units + list.len() as u32);
        let ctrl = wqe::ctrl(&op, at.pi, self.qpn_ds(ds), wr.flags);
        // SAFETY: as many WQEBBs are free, in one piece; nothing of this is the device's yet.
        unsafe { wqe::store(to, ctrl) };
        // SAFETY: as above.
        let behind = unsafe { wqe::write_operation(to.wrapping_add(DS_BYTES), &op) };
        // SAFETY: as above.
        if !unsafe { write_counted(behind, list) } {
            return false;
        }
        let last = Posted { head: ctrl[0], at: to, first: at.pi, ds, units };
        // SAFETY: the WQEBBs are free; this is the only poster.
        unsafe { Self::note(slots, at, wr.id, last) };
        true
    }
}
