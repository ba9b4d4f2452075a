//! Work requests that are posted in several calls (`ibv_wr_*`), written directly into the ring.
//!
//! # Safety
//!
//! See `queue/mod.rs`. Parts of an open work request are in free WQEBBs.
#![allow(unsafe_code, reason = "writes WQEs into a ring that the device reads")]

use std::ptr::null_mut;

use uverbs_core::order::device_memory;
use uverbs_core::provider::{PieceOps, SendOps};
use uverbs_core::queues::slot::{Named, Reach};
use uverbs_core::queues::work::{Data, Destination, PostError, SendOp, Sge, Wr};
use uverbs_mlx5_prm::ctrl::DS_BYTES;
use uverbs_mlx5_prm::data::DATA_SEG_MAX;

use crate::Ah;
use crate::send::inline::{is_small, write_small};
use crate::send::list::{counted, is_rare, write_counted};
use crate::send::queue::{SendCursor, Sq};
use crate::send::wqe::{self, Address, DS_PER_UNIT, Head, Vector};

/// A position in a send queue where WQEs are written piece by piece. It has no more of the last WQE
/// than where it begins: the rest stands there.
///
/// It is in memory between two calls, and caches computed addresses. The order of the fields
/// prevents one load of two separately stored fields, to which the processor can't forward the
/// stores.
#[derive(Debug)]
#[repr(C)]
pub struct Place {
    /// Index of the next free WQEBB.
    pi: u32,
    /// Count at which a post must check for room.
    stop: u32,
    /// First WQEBB of the open WQE; null without one.
    unit: *mut u8,
    /// Address of its data; null while a datagram's destination is missing.
    data: *mut u8,
    /// Slot of the open WQE.
    slot: Named,
    /// [`Head`] of the open WQE, packed.
    head: u32,
    /// Number of work requests before `pi`.
    count: u32,
    /// Index of the first WQEBB of the last WQE.
    first: u32,
}

// SAFETY: addresses in a ring, which only the queue that stored them uses.
unsafe impl Send for Place {}

impl Default for Place {
    fn default() -> Self {
        Self {
            pi: 0,
            stop: 0,
            unit: null_mut(),
            data: null_mut(),
            slot: Named::NONE,
            head: 0,
            count: 0,
            first: 0,
        }
    }
}

/// Flag bits of a packed head. The highest one is tested by the sign, without a constant.
const ATOMIC: u32 = 1 << 31;
const ANSWERED: u32 = 1 << 30;

#[inline(always)]
fn pack(head: Head) -> u32 {
    let answered = if head.answered { ANSWERED } else { 0 };
    let atomic = if head.atomic { ATOMIC } else { 0 };
    head.units | answered | atomic
}

#[inline(always)]
fn unpack(word: u32) -> Head {
    let units = word & !(ATOMIC | ANSWERED);
    Head { units, answered: word & ANSWERED != 0, atomic: word & ATOMIC != 0 }
}

/// True for a valid length: not empty, at most the maximum message, and eight for an atomic.
#[inline(always)]
fn is_usual(len: u32, head: u32) -> bool {
    const { assert!(DATA_SEG_MAX == ATOMIC) };
    (len.wrapping_sub(1) | head) & ATOMIC == 0 || head & ATOMIC != 0 && len == 8
}

impl Place {
    #[inline(always)]
    fn forget(&mut self) {
        (self.unit, self.data) = (null_mut(), null_mut());
    }

    /// Number of work requests that may follow the open one without a check for room. If it is 0,
    /// `look` may have found only the usual room for the open one, and the producer index may wrap
    /// behind it.
    #[inline(always)]
    fn more(&self) -> u32 {
        self.stop.wrapping_sub(self.count.wrapping_add(1))
    }

    /// Value of `stop` for posts by a cursor. Excludes the last work request that `look` found room
    /// for: if that one is not closed, its room may be too small for them.
    #[inline(always)]
    fn stop(&self) -> u32 {
        if self.more() == 0 { self.count } else { self.stop }
    }

    /// Corrects the length in the control segment, which was written for one data segment.
    ///
    /// # Safety
    ///
    /// A WQE is open, and its first WQEBB is free.
    #[inline(always)]
    unsafe fn set_length(&self, segments: u32) {
        let head: *mut u64 = self.unit.cast();
        // The length is the last byte, and at least two, so there is no carry or borrow.
        let last = |byte| u64::from_ne_bytes([0, 0, 0, 0, 0, 0, 0, byte]);
        // SAFETY: contract of `set_length`.
        let ctrl = unsafe { device_memory::read(head) };
        let ctrl = ctrl.wrapping_add(last(segments as u8)).wrapping_sub(last(1));
        // SAFETY: contract of `set_length`.
        unsafe { device_memory::write(head, ctrl) };
    }

    /// Closes a WQE of `units` WQEBBs, which is completely written.
    ///
    /// # Safety
    ///
    /// The WQE is open.
    #[inline(always)]
    unsafe fn end(&mut self, units: u32) {
        self.first = self.pi;
        self.pi = self.pi.wrapping_add(units);
        self.count = self.count.wrapping_add(1);
        // SAFETY: the slot was named when the WQE was opened, and is free; this is the only poster.
        unsafe { self.slot.end(Reach::new(self.pi, self.count)) };
        self.forget();
    }
}

impl Sq {
    /// Closes a WQE of known length.
    ///
    /// # Safety
    ///
    /// As for [`PieceOps::close`]; `ds` was measured with this data.
    #[inline(always)]
    unsafe fn close_measured(
        &mut self,
        at: &mut Place,
        ds: u32,
        data: Data<'_>,
    ) -> Result<(), PostError> {
        let Place { pi, count, .. } = *at;
        let (units, head) = (ds.div_ceil(DS_PER_UNIT), unpack(at.head).units);
        at.stop = if at.more() == 0 {
            self.make_room(pi, count, units)?
        } else if self.is_long(units) {
            self.make_long_room(pi, (count, at.stop), units)?
        } else {
            at.stop
        };
        let ring = self.ring_memory();
        if ring.wraps(pi, units) {
            // SAFETY: there is room for what was measured.
            unsafe { wqe::write_wrapped(ring, pi, (head, ds), data) };
        } else {
            let behind = ring.unit(pi).wrapping_add(head as usize * DS_BYTES);
            // SAFETY: there is room for the measured units, which are contiguous.
            unsafe { wqe::write_data(behind, &data) };
        }
        // SAFETY: there is room for the measured units, which are contiguous.
        unsafe { at.set_length(ds - head) };
        // SAFETY: the WQE is open, and its data is written.
        unsafe { at.end(units) };
        Ok(())
    }

    /// Closes a WQE with a list, if the list [can](counted) be written and counted in one pass.
    /// False: the WQE is still open, and the written data is ignored.
    ///
    /// # Safety
    ///
    /// As for [`PieceOps::close`].
    #[inline(always)]
    unsafe fn close_counted(&mut self, at: &mut Place, list: &[Sge]) -> bool {
        if at.more() == 0 {
            return false;
        }
        let (ring, head) = (self.ring_memory(), unpack(at.head));
        let Some(units) = counted(ring, at.pi, head, self.longest_list(), list) else {
            return false;
        };
        // SAFETY: there is room for another work request behind this one, so this one has the room
        // that the queue was created for; its WQEBBs are contiguous.
        if !unsafe { write_counted(at.data, list) } {
            return false;
        }
        // SAFETY: there is room for another work request behind this one, so this one has the room
        // that the queue was created for; its WQEBBs are contiguous.
        unsafe { at.set_length(list.len() as u32) };
        // SAFETY: the WQE is open, and its data is written.
        unsafe { at.end(units) };
        true
    }
}

// SAFETY: a closed WQE passed the checks of a post, and is noted in its slot.
unsafe impl PieceOps for Sq {
    type Place = Place;

    const IN_PLACE: bool = true;

    #[inline(always)]
    fn start(&mut self, at: &mut Place) {
        let begin = self.begin();
        (at.pi, at.count, at.stop) = (begin.pi(), begin.count(), begin.stop);
        at.forget();
    }

    fn cursor(&mut self, at: &Place) -> SendCursor {
        let Place { pi, count, first, .. } = *at;
        let units = pi.wrapping_sub(first);
        self.position_behind(Reach::new(pi, count), at.stop(), units)
    }

    fn move_to(at: &mut Place, cursor: &SendCursor) {
        (at.pi, at.count) = (cursor.pi(), cursor.count());
        (at.stop, at.first) = (cursor.stop, cursor.pi().wrapping_sub(cursor.units.into()));
        at.forget();
    }

    #[inline]
    fn refuse(at: &mut Place) {
        at.stop = at.count;
        at.forget();
    }

    #[inline(always)]
    fn is_full(at: &Place) -> bool {
        at.count == at.stop
    }

    #[inline(always)]
    fn look(&mut self, at: &mut Place) -> Result<(), PostError> {
        at.forget();
        // The WQE may become as long as the queue was created for. If there is less room, no WQE
        // may follow it, and `close` checks again.
        at.stop = match self.make_room(at.pi, at.count, self.longest()) {
            Err(PostError::Full) => self.make_room(at.pi, at.count, self.usual())?,
            stop => stop?,
        };
        Ok(())
    }

    #[inline(always)]
    unsafe fn open<const TO: bool>(
        &mut self,
        at: &mut Place,
        wr: Wr,
        op: SendOp,
    ) -> Result<(), PostError> {
        if TO && !matches!(op, SendOp::Send | SendOp::SendImm(_)) {
            return Err(PostError::BadOperation);
        }
        let head = wqe::head_to::<TO>(&op);
        let (pi, unit) = (at.pi, self.ring_memory().unit(at.pi));
        // SAFETY: the slot and the WQEBB are free; this is the only poster.
        at.slot = unsafe { self.slots().name(pi, wr.id) };
        // Written for one data segment, the common case; `set_length` corrects others.
        let ctrl = wqe::ctrl(&op, pi, self.qpn_ds(head.units + 1), wr.flags);
        at.head = pack(head);
        at.unit = unit;
        let behind = unit.wrapping_add(head.units as usize * DS_BYTES);
        at.data = if TO { null_mut() } else { behind };
        // SAFETY: this WQEBB is free, and it takes what `head` counts; an address vector comes
        // later.
        unsafe { wqe::write_head::<false>((unit, unit), ctrl, Address::None, &op) };
        Ok(())
    }

    #[inline(always)]
    fn is_open(at: &Place) -> bool {
        !at.unit.is_null()
    }

    #[inline(always)]
    fn takes_data(at: &Place) -> bool {
        !at.data.is_null()
    }

    #[inline(always)]
    unsafe fn address(&mut self, at: &mut Place, to: Destination<'_, Ah>) {
        let vector = Vector { template: to.ah.template(), first: to.peer };
        // The vector fills the first WQEBB.
        at.data = self.ring_memory().unit(at.pi.wrapping_add(1));
        // SAFETY: the first WQEBB is free.
        unsafe { vector.store::<false>(at.unit.wrapping_add(DS_BYTES)) };
    }

    #[inline(always)]
    unsafe fn close_at_once<const TO: bool>(&mut self, at: &mut Place, data: Data<'_>) -> bool {
        // A datagram's data is in a second WQEBB.
        let units = wqe::units_of_one::<TO>();
        match data {
            // A datagram is never an atomic, so the head is not checked.
            Data::One(piece) if TO && !is_rare(piece.len) => {
                // SAFETY: the segment is in a free WQEBB.
                unsafe { wqe::store(at.data, wqe::short_segment(&piece)) };
            }
            Data::One(piece) if !TO && is_usual(piece.len, at.head) => {
                // SAFETY: the segment is in a free WQEBB.
                unsafe { wqe::store(at.data, wqe::data_segment(&piece)) };
            }
            Data::List(list) => {
                // SAFETY: contract of `close_at_once`.
                return unsafe { self.close_counted(at, list) };
            }
            Data::Inline(bytes)
                if is_small(bytes)
                    && bytes.len() <= self.room().max_inline as usize
                    && at.head & ANSWERED == 0 =>
            {
                // SAFETY: contract of `close_at_once`.
                unsafe { write_small(at.data, bytes) };
            }
            _ => return false,
        }
        // SAFETY: the WQE is open, by the contract; one segment fits behind each head.
        unsafe { at.end(units) };
        true
    }

    #[inline(always)]
    unsafe fn close(&mut self, at: &mut Place, data: Data<'_>) -> Result<(), PostError> {
        if let Data::List(list) = data
            // SAFETY: contract of `close`.
            && unsafe { self.close_counted(at, list) }
        {
            return Ok(());
        }
        let ds = wqe::measure_behind(unpack(at.head), &data, self.room())?;
        // SAFETY: contract of `close`; the data was just measured.
        unsafe { self.close_measured(at, ds, data) }
    }

    #[inline(always)]
    fn is_usual(&self, at: &Place) -> bool {
        at.unit.is_null() && self.umr_end.is_none() && at.pi.wrapping_sub(at.first) <= 2
    }

    #[inline(always)]
    unsafe fn finish(&mut self, at: &Place) {
        debug_assert!(self.is_usual(at));
        let Place { pi, count, stop, first, .. } = *at;
        let begin = self.producer();
        if pi == begin {
            return;
        }
        // Stored before the doorbell, so that it occupies no registers afterwards.
        self.stop = stop;
        self.keep(Reach::new(pi, count));
        let (ring, last) = (self.ring_memory(), self.written_at(first, pi.wrapping_sub(first)));
        // SAFETY: the caller's promise.
        unsafe { self.announce::<false>(ring, pi, last.first == begin, last) };
    }
}
