//! Work requests that are made piece by piece, written where the device reads them.
//!
//! # Safety
//!
//! As in `sq.rs`. What is written before a work request is ended lies in a WQEBB that is free.
#![allow(unsafe_code, reason = "writes WQEs into a ring that the device reads")]

use uverbs_core::order::device_memory;
use uverbs_core::provider::PieceOps;
use uverbs_core::queues::work::{Data, PostError, SendOp, Wr};
use uverbs_mlx5_prm::ctrl::{DS_BYTES, DS_MAX};
use zerocopy::IntoBytes;

use crate::doorbell::Posted;
use crate::ring::Ring;
use crate::sq::{SendCursor, Sq};
use crate::wqe::{self, Head, Words};

/// A WQE whose remote address and operands are written.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// The control segment, without the length. It is stored with it: what is stored in parts a
    /// BlueFlame copy can't read at once.
    ctrl: Words,
    wr_id: u64,
    /// Its [`Head`] in one word: it lies in memory between two calls, and what is stored in parts
    /// and loaded as a whole the processor doesn't forward.
    head: u64,
}

/// Bits of a head beside its length.
const ANSWERED: u64 = 1 << 32;
const ATOMIC: u64 = 1 << 33;

#[inline(always)]
fn pack(head: Head) -> u64 {
    let answered = if head.answered { ANSWERED } else { 0 };
    let atomic = if head.atomic { ATOMIC } else { 0 };
    u64::from(head.units) | answered | atomic
}

#[inline(always)]
fn unpack(word: u64) -> Head {
    Head { units: word as u32, answered: word & ANSWERED != 0, atomic: word & ATOMIC != 0 }
}

impl Sq {
    /// Writes what stands before the data.
    ///
    /// # Safety
    ///
    /// As for [`PieceOps::open`]; the WQEBB at the cursor is free.
    #[inline(always)]
    unsafe fn open_here(&self, at: &SendCursor, wr: Wr, op: SendOp) -> Begun {
        let behind = self.ring_memory().unit(at.pi).wrapping_add(DS_BYTES);
        // SAFETY: this WQEBB is free, and takes what `head` counts.
        unsafe { wqe::write_operation(behind, &op) };
        let ctrl = wqe::ctrl(&op, at.pi, self.qpn_ds(0), wr.flags);
        Begun { ctrl, wr_id: wr.id, head: pack(wqe::head(&op)) }
    }

    /// The same after a look whether the WQEBB is free.
    ///
    /// # Safety
    ///
    /// As for [`PieceOps::open`].
    #[cold]
    #[inline(never)]
    unsafe fn open_behind_room(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        op: SendOp,
        begun: &mut Option<Begun>,
    ) -> Result<(), PostError> {
        at.left = self.make_room(at.pi, at.count, 1)? + 1;
        // SAFETY: the caller's promise, and there is room.
        *begun = Some(unsafe { self.open_here(at, wr, op) });
        Ok(())
    }

    /// Ends a work request.
    ///
    /// # Safety
    ///
    /// As for [`PieceOps::close`]; `ds` was measured, and its `units` WQEBBs are free.
    #[inline(always)]
    unsafe fn close_here(
        &mut self,
        at: &mut SendCursor,
        begun: &Begun,
        (ds, units): (u32, u32),
        data: Data<'_>,
    ) -> u32 {
        let Begun { ctrl: [first, second], wr_id, head } = *begun;
        let head = unpack(head);
        let (ring, slots) = (self.ring_memory(), self.slots());
        let to = ring.unit(at.pi);
        if ring.wraps(at.pi, units) {
            // SAFETY: there is room for what was measured, says the caller.
            unsafe { write_wrapped(ring, at.pi, (head.units, ds), data) };
        } else {
            let behind = to.wrapping_add(head.units as usize * DS_BYTES);
            // SAFETY: as above, in one piece.
            unsafe { wqe::write_data(behind, &data) };
        }
        let first = first | u64::from(ds).to_be();
        // SAFETY: the first unit of the same.
        unsafe { wqe::store(to, [first, second]) };
        let last = Posted { head: first, at: to, first: at.pi, ds, units };
        // SAFETY: the WQEBBs are free, says the caller; this is the only poster.
        unsafe { Self::note(slots, at, wr_id, last) }
    }

    /// The same after a look whether the WQEBBs are free.
    ///
    /// # Safety
    ///
    /// As for [`PieceOps::close`]; `ds` was measured.
    #[cold]
    #[inline(never)]
    unsafe fn close_behind_room(
        &mut self,
        at: &mut SendCursor,
        begun: &Begun,
        (ds, units): (u32, u32),
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        at.left = self.make_room(at.pi, at.count, units)?;
        // SAFETY: the caller's promise, and there is room.
        Ok(unsafe { self.close_here(at, begun, (ds, units), data) })
    }
}

// SAFETY: what is ended passed the same checks as a post, and is noted in its slot as one.
unsafe impl PieceOps for Sq {
    type Begun = Begun;

    #[inline(always)]
    unsafe fn open(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        op: SendOp,
        begun: &mut Option<Begun>,
    ) -> Result<(), PostError> {
        if at.left == 0 {
            // All of it out of line, and nothing behind it: so the common case saves no registers.
            // SAFETY: the caller's promise.
            return unsafe { self.open_behind_room(at, wr, op, begun) };
        }
        // SAFETY: as above; there is a WQEBB at least.
        *begun = Some(unsafe { self.open_here(at, wr, op) });
        Ok(())
    }

    #[inline(always)]
    unsafe fn close(
        &mut self,
        at: &mut SendCursor,
        begun: &Begun,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        let ds = wqe::measure_behind(unpack(begun.head), &data, self.room())?;
        let units = wqe::units(ds, &data);
        match at.left.checked_sub(units) {
            Some(left) => at.left = left,
            // SAFETY: the caller's promise; it was just measured.
            None => return unsafe { self.close_behind_room(at, begun, (ds, units), data) },
        }
        // SAFETY: as above, and there is room.
        Ok(unsafe { self.close_here(at, begun, (ds, units), data) })
    }
}

/// Writes the data of a WQE that goes over the ring's end, behind its head, which doesn't.
///
/// # Safety
///
/// `head` and `ds` units of 16 bytes from the WQEBB `index` on, around the end, are free, and `ds`
/// is at most [`DS_MAX`] and what was measured with this data.
#[cold]
#[inline(never)]
unsafe fn write_wrapped(ring: Ring, index: u32, (head, ds): (u32, u32), data: Data<'_>) {
    let mut aside = [[0u64; 2]; DS_MAX as usize];
    let (behind, all) = (head as usize * DS_BYTES, ds as usize * DS_BYTES);
    let start: *mut u8 = aside.as_mut_ptr().cast();
    // SAFETY: the head lies in this WQEBB; there is room for the longest WQE.
    unsafe { device_memory::copy(ring.unit(index), start, behind) };
    // SAFETY: as above.
    unsafe { wqe::write_data(start.wrapping_add(behind), &data) };
    let bytes = aside.as_bytes().get(..all).unwrap_or_default();
    // SAFETY: the caller's promise.
    unsafe { ring.copy_in(index, bytes) };
}
