//! Posts of alike work requests: their WQEs have equal lengths and operations.
//!
//! # Safety
//!
//! See `queue/mod.rs`. Parts of a WQE that needs the slow path are in free WQEBBs.
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
    reach: Reach,
    /// Offset of its slot, and the offset behind the last slot.
    offset: usize,
    end: usize,
    /// First word of its control segment.
    first: u64,
}

impl Stretch {
    #[inline(always)]
    fn is_over(&self) -> bool {
        self.offset == self.end
    }

    /// Writes one more work request, with a [`wide`] segment if `WIDE`. False if it needs the slow
    /// path.
    ///
    /// # Safety
    ///
    /// As for `RunOps::extend`; the stretch is not full, and was created for requests of this type.
    /// `WIDE` requires [`wide::is_here`].
    #[inline(always)]
    unsafe fn write<const TO: bool, const WIDE: bool>(
        &mut self,
        request: impl Request<Ah = Ah>,
    ) -> bool {
        let head = wqe::head_to::<TO>(&request.op());
        let (flags, data) = (request.flags(), request.data());
        // Loaded once: after a store to the ring the compiler would load it again.
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
            // SAFETY: the stretch is not full, so the WQEBBs are free; the vector fills the first
            // one.
            unsafe { vector.store::<false>(at.wrapping_add(DS_BYTES)) };
            at.wrapping_add(MLX5_SEND_WQE_BB)
        } else {
            // SAFETY: the stretch is not full, so the WQEBBs are free; the vector fills the first
            // one.
            unsafe { wqe::write_operation(at.wrapping_add(DS_BYTES), &request.op()) }
        };
        let [_, second] = wqe::ctrl(&request.op(), 0, 0, flags);
        // SAFETY: the stretch is not full, so the WQEBBs are free; the vector fills the first one.
        unsafe { wqe::store(at, [first, second]) };
        match data {
            // SAFETY: the WQEBBs are free; one segment fits behind each head.
            Data::List([piece]) if WIDE => unsafe { wide::store(behind, piece) },
            // SAFETY: the WQEBBs are free; one segment fits behind each head.
            Data::List([piece]) => unsafe { wqe::store_short(behind, len, piece.lkey, piece.addr) },
            // SAFETY: the WQEBBs are free; one segment fits behind each head.
            Data::Inline(bytes) => unsafe { write_small(behind, bytes) },
            _ => {}
        }
        let units = wqe::units_of_one::<TO>();
        self.reach = self.reach.after(units);
        self.offset += units as usize * SLOT_BYTES;
        self.first = wqe::next_ctrl(first, units);
        // SAFETY: the offset belongs to these slots, and the slot is free like the WQEBBs; this is
        // the only poster.
        unsafe { self.slots.put_at(offset, request.id(), self.reach) };
        true
    }

    /// Writes requests until the stretch is full. False if the requests end before, or one needs
    /// the slow path.
    ///
    /// # Safety
    ///
    /// As for [`write`](Self::write).
    #[inline(always)]
    unsafe fn fill<const TO: bool, const WIDE: bool>(
        &mut self,
        requests: &mut impl Requests<One: Request<Ah = Ah>>,
    ) -> bool {
        // Two requests in each iteration, so that 32 requests take sixteen. Loops of twenty or more
        // iterations are slower, presumably because the processor mispredicts their end.
        loop {
            let Some(one) = requests.first() else { return false };
            // SAFETY: contract of `fill`; the stretch is not full.
            if !unsafe { self.write::<TO, WIDE>(one) } {
                return false;
            }
            requests.advance();
            if self.is_over() {
                return true;
            }
            let Some(one) = requests.first() else { return false };
            // SAFETY: contract of `fill`; the stretch is not full.
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
    /// [`RunOps::extend`] with alike requests. Leaves the run's `stop` to the caller: the run may
    /// exceed it.
    ///
    /// # Safety
    ///
    /// The contract of the method above.
    #[inline(always)]
    pub(super) unsafe fn extend_alike<const TO: bool, R>(&mut self, run: &mut Run, requests: &mut R)
    where
        R: Requests<One: Request<Ah = Ah>>,
    {
        while let Some(request) = requests.first() {
            let Some(mut stretch) = self.stretch_of::<TO>(run, R::One::ALIKE, &request.op()) else {
                // At the end of the ring or of the index range, without room, or for requests that
                // the queue may reject.
                // SAFETY: contract of `extend_alike`.
                if !unsafe { self.extend_by_one::<TO>(run, request) } {
                    return;
                }
                requests.advance();
                continue;
            };
            let filled = if R::One::ALIKE == Alike::Piece && self.wide {
                // SAFETY: contract of `extend_alike`; a new stretch is not full, and the processor
                // supports `wide`.
                unsafe { stretch.fill::<TO, true>(requests) }
            } else {
                // SAFETY: contract of `extend_alike`; a new stretch is not full, and the processor
                // supports `wide`.
                unsafe { stretch.fill::<TO, false>(requests) }
            };
            run.reach = stretch.reach;
            if !filled {
                return;
            }
        }
    }

    /// Creates a stretch at the end of the run, for this operation and kind of data.
    #[inline(always)]
    fn stretch_of<const TO: bool>(&mut self, run: &Run, of: Alike, op: &SendOp) -> Option<Stretch> {
        // Checked once for all requests, instead of in `write`.
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
