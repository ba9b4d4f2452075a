//! Work requests that are made piece by piece, written where the device reads them.
//!
//! # Safety
//!
//! As in `sq.rs`. What is written before a work request is ended lies in a WQEBB that is free.
#![allow(unsafe_code, reason = "writes WQEs into a ring that the device reads")]

use std::num::NonZeroU64;

use uverbs_core::order::device_memory;
use uverbs_core::provider::{PieceOps, SendOps};
use uverbs_core::queues::slot::Reach;
use uverbs_core::queues::work::{Data, Destination, PostError, SendOp, Sge, Wr};
use uverbs_mlx5_prm::ctrl::{DS_BYTES, DS_MAX, QpnDs};
use uverbs_mlx5_prm::data::DATA_SEG_MAX;
use zerocopy::IntoBytes;

use crate::Ah;
use crate::doorbell::Posted;
use crate::list::write_counted;
use crate::ring::Ring;
use crate::sq::{SendCursor, Sq};
use crate::wqe::{self, Head, Vector, Words};

/// A position in a send queue where WQEs are written piece by piece. It has no more of the last WQE
/// than where it begins: the rest stands there.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pi: u32,
    count: u32,
    left: u32,
    begin: u32,
    /// The first WQEBB of the last WQE.
    first: u32,
}

/// A WQE whose address and operands are written.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// The control segment, without the length. It is stored with it: what is stored in parts a
    /// BlueFlame copy can't read at once.
    ctrl: Words,
    /// Its [`Head`] in one word: it lies in memory between two calls, and what is stored in parts
    /// and loaded as a whole the processor doesn't forward. Not 0, which tells that there is none.
    head: NonZeroU64,
}

/// Bits of a head beside its length.
const ANSWERED: u64 = 1 << 32;
const ATOMIC: u64 = 1 << 33;

#[inline(always)]
fn pack(head: Head) -> NonZeroU64 {
    let answered = if head.answered { ANSWERED } else { 0 };
    let atomic = if head.atomic { ATOMIC } else { 0 };
    let word = u64::from(head.units) | answered | atomic;
    // A control segment at least, as the compiler sees.
    NonZeroU64::new(word).unwrap_or(NonZeroU64::MIN)
}

#[inline(always)]
fn unpack(word: NonZeroU64) -> Head {
    let word = word.get();
    Head { units: word as u32, answered: word & ANSWERED != 0, atomic: word & ATOMIC != 0 }
}

/// What stands before the data of a datagram.
const DATAGRAM: Head = Head { units: wqe::DATAGRAM_HEAD, answered: false, atomic: false };

impl Sq {
    /// Begins a WQE that has `head` before its data, and writes what is known of that.
    ///
    /// # Safety
    ///
    /// As for [`PieceOps::open`]; the WQEBB at the place is free.
    #[inline(always)]
    unsafe fn open_here(&self, at: &Place, wr: Wr, op: SendOp, head: Head) -> Begun {
        let behind = self.ring_memory().unit(at.pi).wrapping_add(DS_BYTES);
        // SAFETY: this WQEBB is free, and takes what `head` counts.
        unsafe { wqe::write_operation(behind, &op) };
        // SAFETY: its slot is free, too; this is the only poster.
        unsafe { self.slots().name(at.pi, wr.id) };
        let ctrl = wqe::ctrl(&op, at.pi, self.qpn_ds(0), wr.flags);
        Begun { ctrl, head: pack(head) }
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
        at: &mut Place,
        wr: Wr,
        op: SendOp,
        head: Head,
        begun: &mut Option<Begun>,
    ) -> Result<(), PostError> {
        at.left = self.make_room(at.pi, at.count, 1)? + 1;
        // SAFETY: the caller's promise, and there is room.
        *begun = Some(unsafe { self.open_here(at, wr, op, head) });
        Ok(())
    }

    /// As [`PieceOps::open`], of a WQE with this head.
    ///
    /// # Safety
    ///
    /// As there.
    #[inline(always)]
    unsafe fn open_with(
        &mut self,
        at: &mut Place,
        wr: Wr,
        op: SendOp,
        head: Head,
        begun: &mut Option<Begun>,
    ) -> Result<(), PostError> {
        if at.left == 0 {
            // All of it out of line, and nothing behind it: so the common case saves no registers.
            // SAFETY: the caller's promise.
            return unsafe { self.open_behind_room(at, wr, op, head, begun) };
        }
        // SAFETY: as above; there is a WQEBB at least.
        *begun = Some(unsafe { self.open_here(at, wr, op, head) });
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
        at: &mut Place,
        begun: &Begun,
        (ds, units): (u32, u32),
        data: Data<'_>,
    ) {
        let (ring, head) = (self.ring_memory(), unpack(begun.head));
        if ring.wraps(at.pi, units) {
            // SAFETY: there is room for what was measured, says the caller.
            unsafe { write_wrapped(ring, at.pi, (head.units, ds), data) };
        } else {
            let behind = ring.unit(at.pi).wrapping_add(head.units as usize * DS_BYTES);
            // SAFETY: as above, in one piece.
            unsafe { wqe::write_data(behind, &data) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.end_here(at, begun, (ds, units)) };
    }

    /// Writes the control segment of a work request whose rest is there, and moves the place.
    ///
    /// # Safety
    ///
    /// As for [`close_here`](Self::close_here).
    #[inline(always)]
    unsafe fn end_here(&mut self, at: &mut Place, begun: &Begun, (ds, units): (u32, u32)) {
        let Begun { ctrl: [first, second], .. } = *begun;
        let (slots, to) = (self.slots(), self.ring_memory().unit(at.pi));
        // SAFETY: the first unit of the same.
        unsafe { wqe::store(to, [first | u64::from(ds).to_be(), second]) };
        let (slot, end, count) = (at.pi, at.pi.wrapping_add(units), at.count.wrapping_add(1));
        // SAFETY: the WQEBBs are free, says the caller; this is the only poster.
        unsafe { slots.end_counted(slot, Reach { end, posted: count }) };
        (at.pi, at.count, at.first) = (end, count, slot);
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
        at: &mut Place,
        begun: &Begun,
        (ds, units): (u32, u32),
        data: Data<'_>,
    ) -> Result<(), PostError> {
        at.left = self.make_room(at.pi, at.count, units)?;
        // SAFETY: the caller's promise, and there is room.
        unsafe { self.close_here(at, begun, (ds, units), data) };
        Ok(())
    }

    /// As [`PieceOps::close`], with a list, which is written as it is counted where the longest
    /// that it can come to fits.
    ///
    /// # Safety
    ///
    /// As there.
    #[inline(always)]
    unsafe fn close_list(
        &mut self,
        at: &mut Place,
        begun: &Begun,
        list: &[Sge],
    ) -> Result<(), PostError> {
        let (ring, head) = (self.ring_memory(), unpack(begun.head));
        let most = (head.units as usize + list.len()).div_ceil(wqe::DS_PER_UNIT as usize);
        let fits = list.len() <= self.room().max_sge as usize && most <= at.left as usize;
        if head.atomic || !fits || ring.wraps(at.pi, most as u32) {
            // SAFETY: the caller's promise.
            return unsafe { self.close_measured_list(at, begun, list) };
        }
        let behind = ring.unit(at.pi).wrapping_add(head.units as usize * DS_BYTES);
        // SAFETY: as many WQEBBs are free, in one piece; nothing of this is the device's yet.
        let (count, total) = unsafe { write_counted(behind, list) };
        if total > u64::from(DATA_SEG_MAX) {
            return Err(PostError::MessageTooLong);
        }
        let ds = head.units + count;
        let units = ds.div_ceil(wqe::DS_PER_UNIT);
        at.left -= units;
        // SAFETY: as above.
        unsafe { self.end_here(at, begun, (ds, units)) };
        Ok(())
    }

    /// The same by a look at the list before.
    ///
    /// # Safety
    ///
    /// As there.
    #[cold]
    #[inline(never)]
    unsafe fn close_measured_list(
        &mut self,
        at: &mut Place,
        begun: &Begun,
        list: &[Sge],
    ) -> Result<(), PostError> {
        let data = Data::List(list);
        let ds = wqe::measure_behind(unpack(begun.head), &data, self.room())?;
        let units = ds.div_ceil(wqe::DS_PER_UNIT);
        // SAFETY: the caller's promise; it was just measured.
        unsafe { self.close_measured(at, begun, (ds, units), data) }
    }

    /// As [`PieceOps::close`], of a WQE that is so long.
    ///
    /// # Safety
    ///
    /// As there; `ds` was measured, and is of so many WQEBBs.
    #[inline(always)]
    unsafe fn close_measured(
        &mut self,
        at: &mut Place,
        begun: &Begun,
        (ds, units): (u32, u32),
        data: Data<'_>,
    ) -> Result<(), PostError> {
        match at.left.checked_sub(units) {
            Some(left) => at.left = left,
            // SAFETY: the caller's promise; it was just measured.
            None => return unsafe { self.close_behind_room(at, begun, (ds, units), data) },
        }
        // SAFETY: as above, and there is room.
        unsafe { self.close_here(at, begun, (ds, units), data) };
        Ok(())
    }
}

// SAFETY: what is ended passed the same checks as a post, and is noted in its slot as one.
unsafe impl PieceOps for Sq {
    type Place = Place;
    type Begun = Begun;

    const DATAGRAMS: bool = true;

    #[inline(always)]
    fn start(&mut self) -> Place {
        let SendCursor { pi, count, left, begin, .. } = self.begin();
        Place { pi, count, left, begin, first: pi }
    }

    #[inline]
    fn cursor(&self, at: &Place) -> SendCursor {
        let Place { pi, count, left, begin, first } = *at;
        let at = self.ring_memory().unit(first);
        SendCursor { pi, count, left, begin, last: Posted { head: 0, at, first, ds: 0, units: 0 } }
    }

    #[inline]
    fn place_of(at: &SendCursor) -> Place {
        let SendCursor { pi, count, left, begin, last } = *at;
        Place { pi, count, left, begin, first: last.first }
    }

    #[inline(always)]
    unsafe fn open(
        &mut self,
        at: &mut Place,
        wr: Wr,
        op: SendOp,
        begun: &mut Option<Begun>,
    ) -> Result<(), PostError> {
        // SAFETY: the caller's promise.
        unsafe { self.open_with(at, wr, op, wqe::head(&op), begun) }
    }

    #[inline(always)]
    unsafe fn close(
        &mut self,
        at: &mut Place,
        begun: &Begun,
        data: Data<'_>,
    ) -> Result<(), PostError> {
        if let Data::List(list) = data {
            // SAFETY: the caller's promise.
            return unsafe { self.close_list(at, begun, list) };
        }
        let ds = wqe::measure_behind(unpack(begun.head), &data, self.room())?;
        let units = wqe::units(ds, &data);
        // SAFETY: the caller's promise; it was just measured.
        unsafe { self.close_measured(at, begun, (ds, units), data) }
    }

    #[inline(always)]
    unsafe fn open_to(
        &mut self,
        at: &mut Place,
        wr: Wr,
        op: SendOp,
        begun: &mut Option<Begun>,
    ) -> Result<(), PostError> {
        if !matches!(op, SendOp::Send | SendOp::SendImm(_)) {
            return Err(PostError::BadOperation);
        }
        // SAFETY: the caller's promise; this head fills its WQEBB.
        unsafe { self.open_with(at, wr, op, DATAGRAM, begun) }
    }

    #[inline(always)]
    unsafe fn address(&mut self, at: &Place, to: Destination<'_, Ah>) {
        let vector = Vector { template: to.ah.template(), first: to.peer };
        let behind = self.ring_memory().unit(at.pi).wrapping_add(DS_BYTES);
        // SAFETY: `open_to` found this WQEBB free, which the vector fills.
        unsafe { vector.store(behind) };
    }

    #[inline(always)]
    unsafe fn close_to(
        &mut self,
        at: &mut Place,
        begun: &Begun,
        data: Data<'_>,
    ) -> Result<(), PostError> {
        if let Data::List(list) = data {
            // SAFETY: as above.
            return unsafe { self.close_list(at, begun, list) };
        }
        let ds = wqe::measure_behind(DATAGRAM, &data, self.room())?;
        let units = ds.div_ceil(wqe::DS_PER_UNIT);
        // SAFETY: the caller's promise; it was just measured.
        unsafe { self.close_measured(at, begun, (ds, units), data) }
    }

    #[inline(always)]
    unsafe fn finish(&mut self, at: &Place) {
        let Place { pi, count, left, begin, first } = *at;
        if pi == begin {
            return;
        }
        if self.umr_end.is_some() {
            // SAFETY: the caller's promise.
            return unsafe { self.publish_behind_umr(pi, count, left, first) };
        }
        let [head, _] = self.ctrl_at(first);
        let at = self.ring_memory().unit(first);
        // In its second word.
        let ds = u32::from(QpnDs(head.to_be() as u32).ds());
        let last = Posted { head, at, first, ds, units: pi.wrapping_sub(first) };
        // SAFETY: as above.
        unsafe { self.publish(SendCursor { pi, count, left, begin, last }) };
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
pub(crate) unsafe fn write_wrapped(ring: Ring, index: u32, (head, ds): (u32, u32), data: Data<'_>) {
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
