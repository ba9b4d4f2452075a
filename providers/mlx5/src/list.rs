//! Lists of pieces: those of sends are written as they are counted.
//!
//! # Safety
//!
//! As in `sq.rs`. What is written before a work request turns out to be too long lies in WQEBBs
//! that are free.
#![allow(unsafe_code, reason = "writes WQEs into a ring that the device reads")]

use uverbs_core::queues::work::{Data, PostError, SendOp, Sge, Wr};
use uverbs_mlx5_prm::ctrl::DS_BYTES;
use uverbs_mlx5_prm::data::DATA_SEG_MAX;

use crate::doorbell::Posted;
use crate::sq::{SendCursor, Sq};
use crate::wqe::{self, Head};

/// Writes the entries of a list that have bytes. Gives how many; `None` if they have
/// [`DATA_SEG_MAX`] bytes or more in all, and then what is written isn't right.
///
/// # Safety
///
/// As [`wqe::store`], for each of them.
#[inline(always)]
pub(crate) unsafe fn write_counted(start: *mut u8, list: &[Sge]) -> Option<u32> {
    let (mut at, mut total) = (start, 0);
    for sge in list {
        if sge.len != 0 {
            // SAFETY: the caller's promise.
            unsafe { wqe::store(at, wqe::short_segment(sge)) };
            at = at.wrapping_add(DS_BYTES);
            total += u64::from(sge.len);
        }
    }
    let written = at.addr() - start.addr();
    (total < u64::from(DATA_SEG_MAX)).then_some((written / DS_BYTES) as u32)
}

/// Whether a piece has no bytes, or as many as a message may have or more, and so no
/// [`wqe::short_segment`]: one comparison for all.
#[inline(always)]
pub(crate) fn is_rare(piece: &Sge) -> bool {
    piece.len.wrapping_sub(1) >= DATA_SEG_MAX - 1
}

impl Sq {
    /// Whether a list can be written as it is counted, behind this head at the WQEBB `pi`: there is
    /// room for a work request, and the list isn't an atomic's, nor may it become too long for that
    /// or wrap.
    #[inline(always)]
    pub(crate) fn takes_counted(&self, head: Head, pi: u32, left: u32, list: &[Sge]) -> bool {
        let most = (head.units as usize + list.len()).div_ceil(wqe::DS_PER_UNIT as usize);
        list.len() <= self.room().max_sge as usize
            && left != 0
            && !self.is_long(most as u32)
            && !head.atomic
            && !self.ring_memory().wraps(pi, most as u32)
    }

    /// Writes a WQE with a list at the cursor. It goes through the list once where that
    /// [can be](Self::takes_counted); [`post_measured`](Self::post_measured) does the rest.
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
    ) -> Result<u32, PostError> {
        let (ring, slots, head) = (self.ring_memory(), self.slots(), wqe::head(&op));
        let to = ring.unit(at.pi);
        let count = if self.takes_counted(head, at.pi, at.left, list) {
            // SAFETY: as many WQEBBs are free, in one piece; nothing of this is the device's yet.
            let behind = unsafe { wqe::write_operation(to.wrapping_add(DS_BYTES), &op) };
            // SAFETY: as above.
            unsafe { write_counted(behind, list) }
        } else {
            None
        };
        let Some(count) = count else {
            // SAFETY: the caller's promise.
            let (next, slot) = unsafe { self.post_measured(*at, wr, op, list) }?;
            *at = next;
            return Ok(slot);
        };
        let ds = head.units + count;
        let ctrl = wqe::ctrl(&op, at.pi, self.qpn_ds(ds), wr.flags);
        // SAFETY: as above.
        unsafe { wqe::store(to, ctrl) };
        let units = ds.div_ceil(wqe::DS_PER_UNIT);
        at.left -= 1;
        let last = Posted { head: ctrl[0], at: to, first: at.pi, ds, units };
        // SAFETY: the WQEBBs are free; this is the only poster.
        Ok(unsafe { Self::note(slots, at, wr.id, last) })
    }

    /// The same by a look at the list before. By value: a batch stays in registers.
    ///
    /// # Safety
    ///
    /// As there.
    #[cold]
    #[inline(never)]
    unsafe fn post_measured(
        &mut self,
        mut at: SendCursor,
        wr: Wr,
        op: SendOp,
        list: &[Sge],
    ) -> Result<(SendCursor, u32), PostError> {
        let data = Data::List(list);
        let ds = wqe::measure(&op, &data, self.room())?;
        let units = wqe::units(ds, &data);
        self.reserve(&mut at, units)?;
        // SAFETY: the caller's promise; it was just measured, and there is room.
        let slot = unsafe { self.write(&mut at, wr, (ds, units, 0), None, op, data) };
        Ok((at, slot))
    }
}
