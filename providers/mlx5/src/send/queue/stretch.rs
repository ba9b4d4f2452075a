//! Work requests in a row that are alike: their WQEs have one length and one operation.
//!
//! # Safety
//!
//! As in `mod.rs`. What is written before something rare turns up lies in WQEBBs that are free.
#![allow(unsafe_code, reason = "writes WQEs into a ring that the device reads")]

use std::hint::black_box;

use uverbs_core::provider::{Alike, Request, Requests, RunOps};
use uverbs_core::queues::slot::{Reach, SLOT_BYTES, Slots};
use uverbs_core::queues::work::{Data, SendFlags, SendOp};
use uverbs_mlx5_prm::ctrl::{DS_BYTES, MLX5_SEND_WQE_BB};

use super::Run;
use super::Sq;
use super::run::is_usual;
use crate::Ah;
use crate::send::inline::{SMALL_INLINE, is_small, write_small};
use crate::send::wide;
use crate::send::wqe::{self, Vector};

/// Indexes from a multiple of this one to the next differ in their lowest byte alone.
pub(super) const STRETCH: u32 = 1 << 8;

/// Free WQEBBs in one piece, whose indexes differ in their lowest byte alone. So the next WQE is
/// always as far away, and the first word of its control segment, which is big endian, grows by the
/// same number: neither is masked or swapped.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    start: *mut u8,
    slots: Slots,
    /// The next free WQEBB, and the work requests before it.
    reach: Reach,
    /// The offset of its slot, and that behind the last one.
    offset: usize,
    end: usize,
    /// The first word of its control segment.
    first: u64,
}

impl Stretch {
    #[inline(always)]
    fn is_over(&self) -> bool {
        self.offset == self.end
    }

    /// Writes one more, with a [`wide`] segment if that is `WIDE`. False if it is rare.
    ///
    /// # Safety
    ///
    /// As for `RunOps::extend`; the stretch isn't over, and it is of requests of this type. `WIDE`
    /// isn't true where the processor can't.
    #[inline(always)]
    unsafe fn write<const TO: bool, const WIDE: bool>(
        &mut self,
        request: impl Request<Ah = Ah>,
    ) -> bool {
        let head = wqe::head_to::<TO>(&request.op());
        let (flags, data) = (request.flags(), request.data());
        // Once: behind a store to the ring the compiler would load it anew.
        let len = match data {
            Data::List([piece]) => piece.len,
            Data::Inline(bytes) if !head.answered && is_small(bytes) => 1,
            _ => return false,
        };
        if !is_usual(len, head) {
            return false;
        }
        let Self { offset, first, .. } = *self;
        let at = self.start.wrapping_add(offset * (MLX5_SEND_WQE_BB / SLOT_BYTES));
        let behind = if TO {
            let Some(to) = request.to() else { return false };
            let vector = Vector { template: to.ah.template(), first: to.peer };
            // SAFETY: the stretch isn't at its end, so the WQEBBs are free; it fills the first one.
            unsafe { vector.store::<false>(at.wrapping_add(DS_BYTES)) };
            at.wrapping_add(MLX5_SEND_WQE_BB)
        } else {
            // SAFETY: as above.
            unsafe { wqe::write_operation(at.wrapping_add(DS_BYTES), &request.op()) }
        };
        let [_, second] = wqe::ctrl(&request.op(), 0, 0, flags);
        // SAFETY: as above.
        unsafe { wqe::store(at, [first, second]) };
        match data {
            // SAFETY: as above; one segment fits behind each head.
            Data::List([piece]) if WIDE => unsafe { wide::store(behind, piece) },
            // SAFETY: as above.
            Data::List([piece]) => unsafe { wqe::store_short(behind, len, piece.lkey, piece.addr) },
            // SAFETY: as above.
            Data::Inline(bytes) => unsafe { write_small(behind, bytes) },
            _ => {}
        }
        let units = wqe::units_of_one::<TO>();
        self.reach = self.reach.after(units);
        self.offset += units as usize * SLOT_BYTES;
        self.first = wqe::next_ctrl(first, units);
        // SAFETY: the offset is of these slots, and the slot free as the WQEBBs are; this is the
        // only poster.
        unsafe { self.slots.put_at(offset, request.id(), self.reach) };
        true
    }

    /// Writes requests until the stretch is over. False if none is left before, or one is rare.
    ///
    /// # Safety
    ///
    /// As for [`write`](Self::write).
    #[inline(always)]
    unsafe fn fill<const TO: bool, const WIDE: bool>(
        &mut self,
        requests: &mut impl Requests<One: Request<Ah = Ah>>,
    ) -> bool {
        // Two in a turn, so that a burst of 32 has sixteen turns: a loop of twenty takes longer, as
        // if the processor didn't foresee its end.
        loop {
            let Some(one) = requests.first() else { return false };
            // SAFETY: the caller's promise; it isn't over.
            if !unsafe { self.write::<TO, WIDE>(one) } {
                return false;
            }
            requests.advance();
            if self.is_over() {
                return true;
            }
            let Some(one) = requests.first() else { return false };
            // SAFETY: as above.
            if !unsafe { self.write::<TO, WIDE>(one) } {
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
    /// [`RunOps::extend`] with requests that are alike. Where the run must stop is left to the
    /// caller: it may be beyond.
    ///
    /// # Safety
    ///
    /// As there.
    #[inline(always)]
    pub(super) unsafe fn extend_alike<const TO: bool, R>(&mut self, run: &mut Run, requests: &mut R)
    where
        R: Requests<One: Request<Ah = Ah>>,
    {
        while let Some(request) = requests.first() {
            let Some(mut stretch) = self.stretch_of::<TO>(run, R::One::ALIKE, &request.op()) else {
                // The end of the ring or of the indexes, no room, or what the queue may refuse.
                // SAFETY: contract of `extend_alike`.
                if !unsafe { self.extend_by_one::<TO>(run, request) } {
                    return;
                }
                requests.advance();
                continue;
            };
            let filled = if R::One::ALIKE == Alike::Piece && self.wide {
                // SAFETY: as above; a new stretch isn't over, and the processor can.
                unsafe { stretch.fill::<TO, true>(requests) }
            } else {
                // SAFETY: as above.
                unsafe { stretch.fill::<TO, false>(requests) }
            };
            run.reach = stretch.reach;
            if !filled {
                return;
            }
        }
    }

    /// A stretch behind the run, for this operation and data of this kind.
    #[inline(always)]
    fn stretch_of<const TO: bool>(&mut self, run: &Run, of: Alike, op: &SendOp) -> Option<Stretch> {
        // These are the same for all, so `write` doesn't ask them for each.
        let fits = of != Alike::Inline || self.room.max_inline as usize >= SMALL_INLINE;
        let known = !TO || matches!(op, SendOp::Send | SendOp::SendImm(_));
        if !fits || !known {
            return None;
        }
        let (reach, units) = (run.reach, wqe::units_of_one::<TO>());
        let requests = if TO { self.stretch::<2>(reach) } else { self.stretch::<1>(reach) };
        let qpn_ds = self.qpn_ds(wqe::head_to::<TO>(op).units + 1);
        let [first, _] = wqe::ctrl(op, reach.end(), qpn_ds, SendFlags::empty());
        let (start, slots) = (self.start, self.slots);
        let offset = slots.offset(reach.end());
        let end = black_box(offset + (requests * units) as usize * SLOT_BYTES);
        (requests != 0).then_some(Stretch { start, slots, reach, offset, end, first })
    }
}
