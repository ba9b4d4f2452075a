//! Posts of several work requests with one data segment or a list.
//!
//! # Safety
//!
//! See `queue/mod.rs`. Parts of a WQE that needs the slow path are in free WQEBBs.
#![allow(unsafe_code, reason = "writes WQEs into a ring that the device reads")]

use std::hint::black_box;

use uverbs_core::provider::{Alike, Request, Requests, RunOps, SendOps};
use uverbs_core::queues::slot::{Reach, SLOT_BYTES};
use uverbs_core::queues::work::{Data, SendOp};
use uverbs_mlx5_prm::ctrl::{DS_BYTES, MLX5_SEND_WQE_BB};

use super::SendCursor;
use super::Sq;
use crate::Ah;
use crate::send::doorbell::Posted;
use crate::send::inline::{inline_units, is_small, write_inline};
use crate::send::list::{counted, is_rare, write_counted};
use crate::send::wqe::{self, Head, Vector};

/// A compact position in a send queue.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Index of the next free WQEBB, and the number of work requests before it.
    pub(super) reach: Reach,
    /// Count at which a post must check for room.
    stop: u32,
    /// WQEBBs of the last work request, if any.
    units: u32,
}

impl Run {
    /// True if there is known room.
    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        self.reach.posted() != self.stop
    }

    /// Index of the next free WQEBB.
    #[inline(always)]
    fn pi(&self) -> u32 {
        self.reach.end()
    }

    /// Number of work requests before the position.
    #[inline(always)]
    fn count(&self) -> u32 {
        self.reach.posted()
    }
}

/// True if an SGE of this length is not [rare](is_rare), and has eight bytes for an atomic.
#[inline(always)]
pub(super) fn is_usual(len: u32, head: Head) -> bool {
    if head.atomic { len == 8 } else { !is_rare(len) }
}

impl Sq {
    /// Writes one more work request at the end of the run, if there is room and it needs no slow
    /// path. For `WHOLE` see [`wqe::store_as`]; it applies to control segment and address vector.
    ///
    /// # Safety
    ///
    /// As for [`RunOps::extend`].
    #[inline(always)]
    unsafe fn write_in_run<const TO: bool, const WHOLE: bool>(
        &self,
        run: &mut Run,
        request: impl Request<Ah = Ah>,
    ) -> Option<Posted> {
        if !run.has_room() {
            return None;
        }
        let op = request.op();
        let head = wqe::head_to::<TO>(&op);
        let (ring, pi) = (self.ring_memory(), run.pi());
        let (mut units, mut segments) = (wqe::units_of_one::<TO>(), 1);
        let (flags, data) = (request.flags(), request.data());
        let usual = match data {
            _ if TO && !matches!(op, SendOp::Send | SendOp::SendImm(_)) => false,
            Data::One(piece) => is_usual(piece.len, head),
            Data::List([piece]) => is_usual(piece.len, head),
            Data::Inline(bytes) if bytes.len() > self.room.max_inline as usize => false,
            Data::Inline(_) if head.answered => false,
            Data::Inline(bytes) if is_small(bytes) => true,
            Data::Inline(bytes) => {
                segments = inline_units(bytes.len());
                units = wqe::blocks(head.units + segments);
                segments != 0 && units <= self.per_request.get() && !ring.wraps(pi, units)
            }
            Data::List(list) => match counted(ring, pi, head, self.longest_list, list) {
                Some(all) => {
                    (units, segments) = (all, list.len() as u32);
                    true
                }
                None => false,
            },
            Data::InlineList(_) => false,
        };
        if !usual {
            return None;
        }
        // A WQEBB is four times the size of a slot, so memory operands can scale the slot's offset.
        let offset = self.slots.offset(pi);
        let at = ring.start.wrapping_add(offset * (MLX5_SEND_WQE_BB / SLOT_BYTES));
        let behind = if TO {
            let to = request.to()?;
            let vector = Vector { template: to.ah.template(), first: to.peer };
            // SAFETY: there is room, so the WQEBBs are free; the vector fills the first one.
            unsafe { vector.store::<WHOLE>(at.wrapping_add(DS_BYTES)) };
            ring.unit(pi.wrapping_add(1))
        } else {
            // SAFETY: there is room, so the WQEBBs are free; the vector fills the first one.
            unsafe { wqe::write_operation(at.wrapping_add(DS_BYTES), &request.op()) }
        };
        let ds = head.units + segments;
        let ctrl = wqe::ctrl_in_row(&request.op(), pi, self.qpn_ds(ds), flags);
        // SAFETY: there is room, so the WQEBBs are free; the vector fills the first one.
        unsafe { wqe::store_as::<WHOLE>(at, ctrl) };
        match data {
            // SAFETY: the WQEBBs are free; one segment fits behind each head.
            Data::One(piece) => unsafe { wqe::store(behind, wqe::short_segment(&piece)) },
            // SAFETY: the WQEBBs are free; one segment fits behind each head.
            Data::List([piece]) => unsafe { wqe::store(behind, wqe::short_segment(piece)) },
            // SAFETY: the WQEBBs are free and contiguous, and were counted for this data.
            Data::Inline(bytes) => unsafe { write_inline(behind, bytes) },
            Data::List(list) => {
                // SAFETY: the WQEBBs are free and contiguous.
                if !unsafe { write_counted(behind, list) } {
                    return None;
                }
            }
            Data::InlineList(_) => {}
        }
        run.reach = run.reach.after(units);
        run.units = units;
        // SAFETY: the offset belongs to these slots, and the slot is free like the WQEBBs; this is
        // the only poster.
        unsafe { self.slots.put_at(offset, request.id(), run.reach) };
        Some(Posted { head: ctrl[0], at, first: pi, ds, units })
    }

    /// [`RunOps::extend_by_one`] with the run by value, so that it stays in registers.
    ///
    /// # Safety
    ///
    /// The contract of the method above.
    #[cold]
    #[inline(never)]
    unsafe fn look_and_write<const TO: bool>(
        &mut self,
        mut run: Run,
        request: impl Request<Ah = Ah>,
    ) -> Option<Run> {
        run.stop = self.look(run.reach);
        // SAFETY: contract of `look_and_write`.
        unsafe { self.write_in_run::<TO, false>(&mut run, request) }?;
        Some(run)
    }

    /// A run at the published position.
    #[inline(always)]
    fn run<const TO: bool>(&self) -> Run {
        Run {
            reach: Reach::new(self.pi, self.count),
            stop: self.stop,
            units: wqe::units_of_one::<TO>(),
        }
    }
}

// SAFETY: each WQE passed the checks of a post, and is noted in its slot.
unsafe impl RunOps for Sq {
    type Run = Run;

    #[inline(always)]
    fn begin_run<const TO: bool>(&mut self) -> Run {
        self.begin();
        self.run::<TO>()
    }

    #[inline(always)]
    unsafe fn cursor_of(&self, run: Run) -> SendCursor {
        // Otherwise the compiler would keep loop counters for the differences computed here.
        let reach = black_box(run.reach);
        let (pi, count) = (reach.end(), reach.posted());
        let Run { stop, units, .. } = run;
        if pi == self.pi {
            // There is no WQE, and possibly no ring.
            return SendCursor { stop, ..self.published() };
        }
        let last = self.written_at(pi.wrapping_sub(units), units);
        SendCursor { pi, count, stop, begin: self.pi, last }
    }

    #[inline(always)]
    unsafe fn extend<const TO: bool, R>(&mut self, run: &mut Run, requests: &mut R)
    where
        R: Requests<One: Request<Ah = Ah>>,
    {
        if R::One::ALIKE != Alike::No {
            let before = run.reach;
            // SAFETY: contract of `extend`.
            unsafe { self.extend_alike::<TO, R>(run, requests) };
            if run.reach != before {
                run.units = wqe::units_of_one::<TO>();
            }
            // Stretches may exceed `stop`, by their own checks; then no room is known behind them.
            let beyond = run.stop.wrapping_sub(run.count()).cast_signed() < 0;
            run.stop = if beyond { run.count() } else { run.stop };
            return;
        }
        while let Some(request) = requests.first() {
            if !run.has_room() {
                run.stop = self.look(run.reach);
            }
            // SAFETY: contract of `extend`.
            if unsafe { self.write_in_run::<TO, false>(run, request) }.is_none() {
                return;
            }
            requests.advance();
        }
    }

    #[inline(always)]
    unsafe fn extend_by_one<const TO: bool>(
        &mut self,
        run: &mut Run,
        request: impl Request<Ah = Ah>,
    ) -> bool {
        // SAFETY: contract of `extend_by_one`.
        let longer = unsafe { self.look_and_write::<TO>(*run, request) };
        *run = longer.unwrap_or(*run);
        longer.is_some()
    }

    #[inline(always)]
    unsafe fn post_alone<const TO: bool>(&mut self, request: impl Request<Ah = Ah>) -> bool {
        // After a UMR that waits for its fence, the slow path is needed; see `publish_behind_umr`.
        if self.marked != self.pi {
            return false;
        }
        // Loaded before the WQE is written, because the compiler would load it again afterwards.
        let (begin, ring) = (self.pi, self.ring_memory());
        let mut run = self.run::<TO>();
        // A datagram's first WQEBB is written and copied in units of sixteen bytes; see
        // `Doorbell::ring_short`.
        // SAFETY: contract of `post_alone`; the run equals the one of `begin_run`.
        let Some(last) = (unsafe { self.write_in_run::<TO, TO>(&mut run, request) }) else {
            return false;
        };
        self.keep(run.pi(), run.count());
        // SAFETY: the WQE was just written.
        unsafe { self.announce::<TO>(ring, run.pi(), begin, last) };
        true
    }
}
