//! Work requests that are posted in several calls (`ibv_wr_*`), written directly into the ring.
//!
//! # Safety
//!
//! See `queue/mod.rs`. Parts of an open work request are in free WQEBBs.
#![allow(unsafe_code, reason = "writes WQEs into a ring that the device reads")]

use std::ptr::null_mut;

use uverbs_core::order::device_memory;
use uverbs_core::provider::{BuildOps, SendOps};
use uverbs_core::queues::work::{Data, Destination, PostError, SendOp, Sge, Wr};
use uverbs_mlx5_prm::ctrl::DS_BYTES;
use uverbs_mlx5_prm::data::DATA_SEG_MAX;

use crate::Ah;
use crate::send::inline::{is_small, write_small};
use crate::send::list::{counted, write_counted};
use crate::send::queue::{SendCursor, Sq};
use crate::send::wqe::{self, Address, DS_PER_UNIT, Head};

/// A WQE at the cursor whose data is missing.
#[derive(Debug)]
pub struct Open {
    /// Address of its data; null without an open WQE, or while a datagram's destination is missing.
    data: *mut u8,
    /// Offset of its slot.
    offset: u32,
    /// Its [`Head`], packed; 0 without an open datagram.
    head: u32,
    /// True if the batch can be [rung at once](BuildOps::ring_at_once): its WQEs were built here,
    /// each has data, and none needed a check for room. So no UMR waits for its fence, and neither
    /// `stop` nor the count of a wrapping index was changed.
    plain: bool,
}

// SAFETY: an address in a ring, which only the queue that stored it uses.
unsafe impl Send for Open {}

impl Default for Open {
    fn default() -> Self {
        Self { data: null_mut(), offset: 0, head: 0, plain: false }
    }
}

/// Flag bits of a packed head. The highest one is tested by the sign, without a constant: data of
/// one segment may need more than a store.
const RARE: u32 = 1 << 31;
const ANSWERED: u32 = 1 << 30;
const ATOMIC: u32 = 1 << 29;
/// No room was found for the longest WQE, or the producer index may wrap: `close` decides.
const CRAMPED: u32 = 1 << 28;

#[inline(always)]
fn pack(head: Head) -> u32 {
    let answered = if head.answered { ANSWERED } else { 0 };
    let atomic = if head.atomic { ATOMIC | RARE } else { 0 };
    head.units | answered | atomic
}

impl Open {
    #[inline(always)]
    fn head(&self) -> Head {
        let units = self.head & (CRAMPED - 1);
        let (answered, atomic) = (self.head & ANSWERED != 0, self.head & ATOMIC != 0);
        Head { units, answered, atomic }
    }

    /// True for a valid length of one SGE: not empty, at most the maximum message, and eight for an
    /// atomic.
    #[inline(always)]
    fn is_usual(&self, len: u32) -> bool {
        const { assert!(DATA_SEG_MAX == RARE) };
        (len.wrapping_sub(1) | self.head) & RARE == 0
            || self.head & (ATOMIC | CRAMPED) == ATOMIC && len == 8
    }
}

impl Sq {
    /// Moves the cursor over the open WQE, which is written and has `units` WQEBBs.
    ///
    /// # Safety
    ///
    /// The WQE is open at this cursor.
    #[inline(always)]
    unsafe fn end(&self, at: &mut SendCursor, open: &mut Open, units: u32) {
        at.pass(open.offset, units);
        // SAFETY: the slot was named when the WQE was opened, and is free; this is the only poster.
        unsafe { self.slots().end(open.offset as usize, at.position) };
        open.data = null_mut();
    }

    /// Corrects the length in the control segment, which was written for one data segment.
    ///
    /// # Safety
    ///
    /// The WQE is open, and its first WQEBB is free.
    #[inline(always)]
    unsafe fn set_length(&self, open: &Open, segments: u32) {
        let head: *mut u64 = self.unit_at(open.offset as usize).cast();
        // The length is the last byte, and at least two, so there is no carry or borrow.
        let last = |byte| u64::from_ne_bytes([0, 0, 0, 0, 0, 0, 0, byte]);
        // SAFETY: contract of `set_length`.
        let ctrl = unsafe { device_memory::read_own(head) };
        let ctrl = ctrl.wrapping_add(last(segments as u8)).wrapping_sub(last(1));
        // SAFETY: contract of `set_length`.
        unsafe { device_memory::write(head, ctrl) };
    }

    /// Closes a WQE with a list, if the list [can](counted) be written and counted in one pass.
    /// False: the WQE is still open, and the written data is ignored.
    ///
    /// # Safety
    ///
    /// As for [`BuildOps::close`].
    #[inline(always)]
    unsafe fn close_counted(&self, at: &mut SendCursor, open: &mut Open, list: &[Sge]) -> bool {
        // A WQE without data isn't plain, which `close` notes.
        if open.head & (CRAMPED | ATOMIC) != 0 || list.is_empty() {
            return false;
        }
        let head = Head { atomic: false, ..open.head() };
        let Some(units) = counted(self.ring_memory(), at.pi(), head, self.longest_list(), list)
        else {
            return false;
        };
        // SAFETY: there is room for the longest list of this queue; the WQEBBs are contiguous.
        if !unsafe { write_counted(open.data, list) } {
            return false;
        }
        let segments = list.len() as u32;
        // SAFETY: the WQE is open, and its WQEBBs are free.
        unsafe { self.set_length(open, segments) };
        // SAFETY: the WQE is open, and its data is written.
        unsafe { self.end(at, open, units) };
        true
    }
}

// SAFETY: a closed WQE passed the checks of a post, and is noted in its slot.
unsafe impl BuildOps for Sq {
    type Open = Open;

    const IN_PLACE: bool = true;

    #[inline(always)]
    fn begin_at_once<const UD: bool>(&mut self, at: &mut SendCursor, open: &mut Open) -> bool {
        if self.marked != self.producer() {
            return false;
        }
        let begin = self.position();
        (at.position, at.stop) = (begin.position, begin.stop);
        (open.data, open.plain) = (null_mut(), true);
        if UD {
            open.head = 0;
        }
        true
    }

    #[inline(always)]
    fn has_room(at: &SendCursor) -> bool {
        at.has_room()
    }

    #[inline(always)]
    unsafe fn open<const UD: bool, const LOOK: bool>(
        &mut self,
        at: &mut SendCursor,
        open: &mut Open,
        wr: Wr,
        op: SendOp,
    ) -> Result<(), PostError> {
        if UD && !matches!(op, SendOp::Send | SendOp::SendImm(_)) {
            return Err(PostError::BadOperation);
        }
        let head = wqe::head_to::<UD>(&op);
        let mut packed = pack(head);
        if LOOK {
            open.plain = false;
            at.stop = self.look(at.position);
            if !at.has_room() {
                self.make_room(at.pi(), at.count(), self.usual())?;
                packed |= CRAMPED | RARE;
            }
        }
        let (pi, slots) = (at.pi(), self.slots());
        let offset = slots.offset(pi);
        let unit = self.unit_at(offset);
        // SAFETY: the slot and the WQEBB are free; this is the only poster.
        unsafe { slots.name(offset, wr.id) };
        // Written for one data segment, the common case; `set_length` corrects others.
        let ctrl = wqe::ctrl(&op, pi, self.qpn_ds(head.units + 1), wr.flags);
        // SAFETY: this WQEBB is free, and has room for the segments that `head` counts; an address
        // vector is written later.
        let data = unsafe { wqe::write_head::<false>((unit, unit), ctrl, Address::None, &op) };
        open.data = if UD { null_mut() } else { data };
        (open.offset, open.head) = (offset as u32, packed);
        Ok(())
    }

    #[inline(always)]
    fn is_open(open: &Open) -> bool {
        open.head != 0
    }

    #[inline(always)]
    fn takes_data(open: &Open) -> bool {
        !open.data.is_null()
    }

    #[inline(always)]
    unsafe fn address(&mut self, at: &SendCursor, open: &mut Open, to: Destination<'_, Ah>) {
        let vector = Ah::vector(to);
        // The vector fills the first WQEBB.
        open.data = self.ring_memory().unit(at.pi().wrapping_add(1));
        let unit = self.unit_at(open.offset as usize);
        // SAFETY: the first WQEBB is free.
        unsafe { vector.store::<false>(unit.wrapping_add(DS_BYTES)) };
    }

    #[inline(always)]
    unsafe fn close_at_once<const UD: bool>(
        &mut self,
        at: &mut SendCursor,
        open: &mut Open,
        data: Data<'_>,
    ) -> bool {
        match data {
            Data::One(piece) if open.is_usual(piece.len) => {
                // SAFETY: the segment is in a free WQEBB.
                unsafe { wqe::store(open.data, wqe::data_segment(&piece)) };
            }
            Data::List(list) => {
                // SAFETY: contract of `close_at_once`.
                let closed = unsafe { self.close_counted(at, open, list) };
                if UD && closed {
                    open.head = 0;
                }
                return closed;
            }
            Data::Inline(bytes)
                if is_small(bytes)
                    && bytes.len() <= self.room().max_inline as usize
                    && open.head & (ANSWERED | CRAMPED) == 0 =>
            {
                // SAFETY: the segment is in a free WQEBB.
                unsafe { write_small(open.data, bytes) };
            }
            _ => return false,
        }
        // SAFETY: the WQE is open, by the contract; one segment fits behind each head.
        unsafe { self.end(at, open, wqe::units_of_one::<UD>()) };
        if UD {
            open.head = 0;
        }
        true
    }

    #[inline(always)]
    unsafe fn close(
        &mut self,
        at: &mut SendCursor,
        open: &mut Open,
        data: Data<'_>,
    ) -> Result<(), PostError> {
        if let Data::List(list) = data
            // SAFETY: contract of `close`.
            && unsafe { self.close_counted(at, open, list) }
        {
            open.head = 0;
            return Ok(());
        }
        let head = open.head();
        let ds = wqe::measure_behind(head, &data, self.room())?;
        let units = ds.div_ceil(DS_PER_UNIT);
        open.plain &= ds > head.units && at.has_room() && !self.is_long(units);
        self.reserve(at, units)?;
        let (ring, pi) = (self.ring_memory(), at.pi());
        if ring.wraps(pi, units) {
            // SAFETY: `reserve` found room for the measured units.
            unsafe { wqe::write_wrapped(ring, pi, (head.units, ds), data) };
        } else {
            let behind = ring.unit(pi).wrapping_add(head.units as usize * DS_BYTES);
            // SAFETY: `reserve` found room for the measured units, which are contiguous.
            unsafe { wqe::write_data(behind, &data) };
        }
        // SAFETY: the WQE is open, and its WQEBBs are free.
        unsafe { self.set_length(open, ds - head.units) };
        // SAFETY: the WQE is open, and its data is written.
        unsafe { self.end(at, open, units) };
        open.head = 0;
        Ok(())
    }

    #[inline(always)]
    unsafe fn ring_at_once(&mut self, at: &SendCursor, open: &Open) -> bool {
        // SAFETY: contract of `ring_at_once`; a plain batch is one of those.
        open.plain && unsafe { self.publish_at_once(at) }
    }

    unsafe fn ring_built(&mut self, at: SendCursor) {
        // SAFETY: contract of `ring_built`.
        unsafe { self.ring(self.measured(at)) };
    }
}
