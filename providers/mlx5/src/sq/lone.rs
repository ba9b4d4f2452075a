//! Work requests that are posted alone, and rung at once. What is rare is left to
//! [`SendOps::post`], so hardly anything here calls a function, and the caller's saves few
//! registers.
//!
//! # Safety
//!
//! As in `mod.rs`. What is written before something rare turns up lies in WQEBBs that are free.
#![allow(unsafe_code, reason = "writes WQEs into a ring that the device reads")]

use uverbs_core::provider::SendOps;
use uverbs_core::queues::slot::Reach;
use uverbs_core::queues::work::{Data, Destination, SendOp, Sge, Wr};
use uverbs_mlx5_prm::ctrl::DS_BYTES;

use super::{SendCursor, Sq};
use crate::Ah;
use crate::doorbell::Posted;
use crate::inline::{is_small, write_small};
use crate::list::is_rare;
use crate::wqe::{self, Head, short_segment};

impl Sq {
    /// Whether there is room, no batch before was forgotten, and no UMR waits for its fence.
    #[inline(always)]
    fn takes_lone(&self) -> bool {
        self.stop != self.count && self.marked == self.pi && self.umr_end.is_none()
    }

    /// Posts one work request and rings, if nothing about it is rare. False if nothing is posted.
    ///
    /// # Safety
    ///
    /// As for [`SendOps::post_lone`].
    #[inline(always)]
    pub(super) unsafe fn lone(&mut self, wr: Wr, op: SendOp, data: Data<'_>) -> bool {
        if !self.takes_lone() {
            return false;
        }
        let head = wqe::head(&op);
        let usual = match &data {
            Data::One(piece) | Data::List([piece]) => is_usual(piece, head),
            // SAFETY: the caller's promise; there is room.
            Data::List(list) => return unsafe { self.lone_list(wr, op, list) },
            Data::Inline(bytes) => {
                is_small(bytes) && bytes.len() <= self.room.max_inline as usize && !head.answered
            }
            Data::InlineList(_) => false,
        };
        if usual {
            // SAFETY: as above.
            unsafe { self.lone_segment(wr, op, &data) };
        }
        usual
    }

    /// Posts one with one segment of data, which is in one WQEBB.
    ///
    /// All is loaded just before it is stored, and stored early: so it fits the registers that need
    /// not be saved.
    ///
    /// # Safety
    ///
    /// As for [`SendOps::post_lone`]; there is room, and the data is one usual piece, or bytes that
    /// are small.
    #[inline(always)]
    unsafe fn lone_segment(&mut self, wr: Wr, op: SendOp, data: &Data<'_>) {
        let (pi, ds) = (self.pi, wqe::head(&op).units + 1);
        let at = self.ring_memory().unit(pi);
        let ctrl = wqe::ctrl(&op, pi, self.qpn_ds(ds), wr.flags);
        // SAFETY: the WQEBB is free, says the caller.
        unsafe { wqe::store(at, ctrl) };
        // SAFETY: as above.
        let behind = unsafe { wqe::write_operation(at.wrapping_add(DS_BYTES), &op) };
        match data {
            // SAFETY: as above; there is room for one more segment behind each operation.
            Data::One(piece) | Data::List([piece, ..]) => unsafe {
                wqe::store(behind, short_segment(piece));
            },
            // SAFETY: as above.
            Data::Inline(bytes) => unsafe { write_small(behind, bytes) },
            Data::List([]) | Data::InlineList(_) => debug_assert!(false, "one segment: {data:?}"),
        }
        let (end, posted) = (pi.wrapping_add(1), self.count.wrapping_add(1));
        self.keep(end, posted);
        // SAFETY: the slot is free as the WQEBB is; this is the only poster.
        unsafe { self.slots.put_counted(pi, wr.id, Reach { end, posted }) };
        // SAFETY: written just now.
        unsafe {
            self.announce::<false>(end, pi, Posted { head: ctrl[0], at, first: pi, ds, units: 1 });
        }
    }

    /// Posts one with a list.
    ///
    /// # Safety
    ///
    /// As for [`SendOps::post_lone`]; there is room.
    #[inline(always)]
    unsafe fn lone_list(&mut self, wr: Wr, op: SendOp, list: &[Sge]) -> bool {
        let mut at = self.published();
        // SAFETY: the caller's promise; the cursor is where a `begin` would be.
        let posted = unsafe { self.post_counted(&mut at, wr, op, list) };
        if posted {
            // SAFETY: written just now.
            unsafe { self.publish_lone::<false>(at) };
        }
        posted
    }

    /// The same of a datagram.
    ///
    /// # Safety
    ///
    /// As for [`SendOps::post_lone_to`].
    #[inline(always)]
    pub(super) unsafe fn lone_to(
        &mut self,
        wr: Wr,
        op: SendOp,
        to: Destination<'_, Ah>,
        data: Data<'_>,
    ) -> bool {
        if !self.takes_lone() {
            return false;
        }
        let mut at = self.published();
        let small = match data {
            Data::One(_) => true,
            Data::Inline(bytes) => is_small(bytes),
            _ => false,
        };
        // SAFETY: the caller's promise; the cursor is where a `begin` would be.
        let posted = small && unsafe { self.post_to(&mut at, wr, op, to, data) }.is_ok();
        if posted {
            self.stop = at.stop;
            // SAFETY: written just now.
            unsafe { self.publish_lone::<true>(at) };
        }
        posted
    }

    /// [`publish`](Self::publish), of one that was posted alone.
    ///
    /// # Safety
    ///
    /// As there.
    #[inline(always)]
    unsafe fn publish_lone<const TO: bool>(&mut self, at: SendCursor) {
        let SendCursor { pi, begin, last, .. } = at;
        self.keep(pi, at.count);
        // With a number that it knows the compiler makes copies to the register without a loop.
        match last.units {
            // SAFETY: the caller's promise.
            1 => unsafe { self.announce::<TO>(pi, begin, last.of::<1>()) },
            // SAFETY: as above.
            2 => unsafe { self.announce::<TO>(pi, begin, last.of::<2>()) },
            // SAFETY: as above.
            _ => unsafe { self.announce::<TO>(pi, begin, last) },
        }
    }
}

/// Whether a piece isn't [rare](is_rare), and has eight bytes for an atomic.
#[inline(always)]
fn is_usual(piece: &Sge, head: Head) -> bool {
    if head.atomic { piece.len == 8 } else { !is_rare(piece) }
}
