//! Posts of alike work requests: their WQEs have equal lengths and operations.
//!
//! # Safety
//!
//! See `queue/mod.rs`. Parts of a WQE that needs the slow path are in free WQEBBs.
#![allow(unsafe_code, reason = "writes WQEs into a ring that the device reads")]

use std::hint::black_box;

use uverbs_core::provider::{Alike, Request, Requests};
use uverbs_core::queues::slot::{RingPosition, SLOT_BYTES, Slots};
use uverbs_core::queues::work::{Data, SendFlags, SendOp};
use uverbs_mlx5_prm::ctrl::MLX5_SEND_WQE_BB;

use super::list::is_usual;
use super::{SendCursor, Sq};
use crate::Ah;
use crate::send::inline::{SMALL_INLINE, is_small, write_small};
use crate::send::ring::unit_at;
use crate::send::wide;
use crate::send::wqe::{self, Address};

/// Alignment of a stretch: indexes between two multiples of it differ only in their lowest byte.
pub(super) const STRETCH: u32 = 1 << 8;

/// A span of contiguous free WQEBBs whose indexes differ only in their lowest byte. So the distance
/// to the next WQE is constant, and the first word of its control segment, which is big-endian,
/// grows by a constant, without masking or byte swaps.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    start: *mut u8,
    slots: Slots,
    /// Index of the next free WQEBB, and the number of work requests before it.
    position: RingPosition,
    /// Offset of the slot of that WQEBB, and the offset behind the last slot.
    offset: usize,
    end: usize,
    /// First word of the control segment at that WQEBB.
    first: u64,
    /// Length of each WQE in units of 16 bytes.
    ds: u32,
}

impl Stretch {
    /// Cursor behind the WQEs written since `begin`.
    #[inline(always)]
    fn behind(&self, begin: SendCursor) -> SendCursor {
        if self.position == begin.position {
            return begin;
        }
        let units = wqe::blocks(self.ds);
        let offset = self.offset.wrapping_sub(units as usize * SLOT_BYTES);
        begin.behind(self.position, offset, self.position.end().wrapping_sub(units), self.ds)
    }

    #[inline(always)]
    fn is_over(&self) -> bool {
        self.offset == self.end
    }

    /// Writes one more work request, with a [`wide`] segment if `WIDE`. False if it needs the slow
    /// path.
    ///
    /// # Safety
    ///
    /// The contract of `SendOps::post_list`. The stretch is not full, and was created for requests
    /// of this type. `WIDE` requires [`wide::is_here`].
    #[inline(always)]
    unsafe fn write<const UD: bool, const WIDE: bool>(
        &mut self,
        request: impl Request<Ah = Ah>,
    ) -> bool {
        let head = wqe::head_to::<UD>(&request.op());
        let (flags, data) = (request.flags(), request.data());
        let len = match data {
            Data::One(piece) => piece.len,
            Data::Inline(bytes) if !head.answered && is_small(bytes) => 1,
            _ => return false,
        };
        if !is_usual(len, head) {
            return false;
        }
        let Self { offset, first, .. } = *self;
        let at = unit_at(self.start, offset);
        let address = if UD {
            let Some(to) = request.to() else { return false };
            Address::Vector(Ah::vector(to))
        } else {
            Address::None
        };
        let [_, second] = wqe::ctrl(&request.op(), 0, 0, flags);
        let (place, ctrl) = ((at, at.wrapping_add(MLX5_SEND_WQE_BB)), [first, second]);
        // SAFETY: the stretch isn't full, so the WQEBBs are free.
        let behind = unsafe { wqe::write_head::<false>(place, ctrl, address, &request.op()) };
        match data {
            // SAFETY: the WQEBBs are free; one segment fits behind each head.
            Data::One(piece) if WIDE => unsafe { wide::store(behind, &piece) },
            // SAFETY: the WQEBBs are free; one segment fits behind each head.
            Data::One(piece) => unsafe {
                wqe::store_short(behind, piece.len, piece.lkey, piece.addr);
            },
            // SAFETY: the WQEBBs are free; one segment fits behind each head.
            Data::Inline(bytes) => unsafe { write_small(behind, bytes) },
            _ => {}
        }
        let units = wqe::units_of_one::<UD>();
        self.position = self.position.after(units);
        self.offset += units as usize * SLOT_BYTES;
        self.first = wqe::next_ctrl(first, units);
        // SAFETY: the offset is inside the table, and the slot is free with the WQEBBs; this is the
        // only poster.
        unsafe { self.slots.put_counted(offset, request.id(), self.position) };
        true
    }

    /// Writes requests until the stretch is full. False if the requests end before, or one needs
    /// the slow path.
    ///
    /// # Safety
    ///
    /// As for [`write`](Self::write).
    #[inline(always)]
    unsafe fn fill<const UD: bool, const WIDE: bool>(
        &mut self,
        requests: &mut impl Requests<One: Request<Ah = Ah>>,
    ) -> bool {
        // Two requests in each iteration, so that 32 requests take sixteen. Loops of twenty or more
        // iterations are slower, presumably because the processor mispredicts their end.
        loop {
            let Some(one) = requests.first() else { return false };
            // SAFETY: contract of `fill`; the stretch isn't full.
            if !unsafe { self.write::<UD, WIDE>(one) } {
                return false;
            }
            requests.advance();
            if self.is_over() {
                return true;
            }
            let Some(one) = requests.first() else { return false };
            // SAFETY: contract of `fill`; the stretch isn't full.
            if !unsafe { self.write::<UD, WIDE>(one) } {
                return false;
            }
            requests.advance();
            if self.is_over() {
                return true;
            }
        }
    }
}

impl Sq {
    /// [`write_list`](Sq::write_list) with alike requests.
    ///
    /// # Safety
    ///
    /// The contract of [`write_list`](Sq::write_list).
    #[inline(always)]
    pub(super) unsafe fn write_alike<const UD: bool, R>(
        &mut self,
        cursor: &mut SendCursor,
        requests: &mut R,
    ) where
        R: Requests<One: Request<Ah = Ah>>,
    {
        let mut at = *cursor;
        while let Some(request) = requests.first() {
            let Some(mut stretch) = self.stretch_of::<UD>(at, R::One::ALIKE, &request.op()) else {
                // The ring or the index wraps, there is no room, or the queue may refuse it.
                // SAFETY: contract of `write_alike`.
                let Some(behind) = (unsafe { self.look_and_write::<UD>(at, request) }) else {
                    break;
                };
                at = behind;
                requests.advance();
                continue;
            };
            let filled = if R::One::ALIKE == Alike::Piece && self.wide {
                // SAFETY: contract of `write_alike`; the processor stores wide segments.
                unsafe { stretch.fill::<UD, true>(requests) }
            } else {
                // SAFETY: contract of `write_alike`.
                unsafe { stretch.fill::<UD, false>(requests) }
            };
            at = stretch.behind(at);
            if !filled {
                break;
            }
        }
        // A stretch may go beyond `stop`, by what it looked up; then no more room is known.
        let beyond = at.stop.wrapping_sub(at.count()).cast_signed() < 0;
        at.stop = if beyond { at.count() } else { at.stop };
        // Hidden, because the compiler would keep loop counters for values derived from it.
        at.position = black_box(at.position);
        *cursor = at;
    }

    /// Stretch at the cursor, for this operation and data of this kind; `None` without known room.
    #[inline(always)]
    fn stretch_of<const UD: bool>(
        &mut self,
        at: SendCursor,
        of: Alike,
        op: &SendOp,
    ) -> Option<Stretch> {
        // Equal for all requests of the list, so `write` doesn't test them.
        let fits = of != Alike::Inline || self.room.max_inline as usize >= SMALL_INLINE;
        let known = !UD || matches!(op, SendOp::Send | SendOp::SendImm(_));
        if !fits || !known {
            return None;
        }
        let (position, units) = (at.position, wqe::units_of_one::<UD>());
        let requests = if UD { self.stretch::<2>(position) } else { self.stretch::<1>(position) };
        let ds = wqe::head_to::<UD>(op).units + 1;
        let [first, _] = wqe::ctrl(op, position.end(), self.qpn_ds(ds), SendFlags::empty());
        let (start, slots) = (self.start, self.slots);
        let offset = slots.offset(position.end());
        let end = black_box(offset + (requests * units) as usize * SLOT_BYTES);
        (requests != 0).then_some(Stretch { start, slots, position, offset, end, first, ds })
    }
}
