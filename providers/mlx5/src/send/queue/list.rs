//! Lists of work requests, and single ones with a doorbell, on the fast path.
//!
//! # Safety
//!
//! See `queue/mod.rs`. Parts of a WQE that needs the slow path are in free WQEBBs.
#![allow(unsafe_code, reason = "writes WQEs into a ring that the device reads")]

#[cfg(doc)]
use uverbs_core::provider::SendOps;
use uverbs_core::provider::{Alike, Request, Requests};
use uverbs_core::queues::work::{Data, SendOp};

use super::{SendCursor, Sq};
use crate::Ah;
use crate::send::inline::{inline_units, is_small, write_inline};
use crate::send::list::{counted, is_rare, write_counted};
use crate::send::wqe::{self, Address, Head};

/// True for an SGE of a length that is not [rare](is_rare), and of eight bytes for an atomic.
#[inline(always)]
pub(super) fn is_usual(len: u32, head: Head) -> bool {
    if head.atomic { len == 8 } else { !is_rare(len) }
}

impl Sq {
    /// Writes one work request, and moves the cursor over it. False if the room isn't known, or the
    /// work request needs the slow path. `WHOLE` is passed to [`wqe::store_as`], for control
    /// segment and address vector.
    ///
    /// # Safety
    ///
    /// The contract of [`SendOps::post_list`].
    #[inline(always)]
    unsafe fn write_in_row<const UD: bool, const WHOLE: bool>(
        &self,
        cursor: &mut SendCursor,
        request: impl Request<Ah = Ah>,
    ) -> bool {
        if !cursor.has_room() {
            return false;
        }
        let op = request.op();
        let head = wqe::head_to::<UD>(&op);
        let (ring, pi) = (self.ring_memory(), cursor.pi());
        let (mut units, mut segments) = (wqe::units_of_one::<UD>(), 1);
        let (flags, data) = (request.flags(), request.data());
        let usual = match data {
            _ if UD && !matches!(op, SendOp::Send | SendOp::SendImm(_)) => false,
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
            return false;
        }
        let address = if UD {
            let Some(to) = request.to() else { return false };
            Address::Vector(Ah::vector(to))
        } else {
            Address::None
        };
        let ds = head.units + segments;
        let ctrl = wqe::ctrl_in_row(&op, pi, self.qpn_ds(ds), flags);
        let at = self.unit_at(self.slots.offset(pi));
        let next = ring.unit(pi.wrapping_add(1));
        // SAFETY: the WQEBBs are free, because there is room.
        let behind = unsafe { wqe::write_head::<WHOLE>((at, next), ctrl, address, &request.op()) };
        match data {
            // SAFETY: the WQEBBs are free; one segment fits behind each head.
            Data::One(piece) => unsafe { wqe::store(behind, wqe::short_segment(&piece)) },
            // SAFETY: the WQEBBs are free; one segment fits behind each head.
            Data::List([piece]) => unsafe { wqe::store(behind, wqe::short_segment(piece)) },
            // SAFETY: the counted WQEBBs are free and contiguous.
            Data::Inline(bytes) => unsafe { write_inline(behind, bytes) },
            Data::List(list) => {
                // SAFETY: the counted WQEBBs are free and contiguous.
                if !unsafe { write_counted(behind, list) } {
                    return false;
                }
            }
            Data::InlineList(_) => {}
        }
        // SAFETY: the WQEBBs are free; this is the only poster.
        unsafe { self.note(cursor, request.id(), (ds, units)) };
        true
    }

    /// Looks up room and writes one work request. `None` if it needs the slow path. Takes and
    /// returns the cursor by value, so that it stays in registers.
    ///
    /// # Safety
    ///
    /// The contract of [`SendOps::post_list`].
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn look_and_write<const UD: bool>(
        &mut self,
        mut at: SendCursor,
        request: impl Request<Ah = Ah>,
    ) -> Option<SendCursor> {
        at.stop = self.look(at.position);
        // SAFETY: contract of `look_and_write`.
        unsafe { self.write_in_row::<UD, false>(&mut at, request) }.then_some(at)
    }

    /// [`SendOps::post_list`], up to a work request that needs the slow path.
    ///
    /// # Safety
    ///
    /// The contract of [`SendOps::post_list`].
    #[inline(always)]
    pub(super) unsafe fn write_list<const UD: bool, R>(
        &mut self,
        at: &mut SendCursor,
        requests: &mut R,
    ) where
        R: Requests<One: Request<Ah = Ah>>,
    {
        if R::One::ALIKE != Alike::No {
            // SAFETY: contract of `write_list`.
            return unsafe { self.write_alike::<UD, R>(at, requests) };
        }
        while let Some(request) = requests.first() {
            if !at.has_room() {
                at.stop = self.look(at.position);
            }
            // SAFETY: contract of `write_list`.
            if !unsafe { self.write_in_row::<UD, false>(at, request) } {
                return;
            }
            requests.advance();
        }
    }

    /// [`SendOps::post_alone`], unless an earlier batch was dropped, no room is known, or the work
    /// request needs the slow path.
    ///
    /// # Safety
    ///
    /// The contract of [`SendOps::post_alone`].
    #[inline(always)]
    pub(super) unsafe fn write_alone<const UD: bool>(
        &mut self,
        request: impl Request<Ah = Ah>,
    ) -> bool {
        // A UMR without its fence leaves no known room: see `publish_behind_umr`.
        if self.marked != self.producer() {
            return false;
        }
        // Loaded first: after a store to the ring the compiler would load them again.
        let (ring, mut at) = (self.ring_memory(), self.position());
        // A datagram's first WQEBB is written and copied by sixteen bytes: `Doorbell::ring_short`.
        // SAFETY: contract of `write_alone`; the cursor is where `begin` would return it.
        if !unsafe { self.write_in_row::<UD, UD>(&mut at, request) } {
            return false;
        }
        self.keep(at.position);
        // SAFETY: the last WQE was just written.
        unsafe { self.announce::<UD>(ring, at.pi(), self.last(&at)) };
        true
    }
}
