//! Post lists, and lone work requests, whose WQEs have one segment of data or a list of SGEs.
//!
//! # Safety
//!
//! As in `mod.rs`. What is written before something rare turns up lies in WQEBBs that are free.
#![allow(unsafe_code, reason = "writes WQEs into a ring that the device reads")]

#[cfg(doc)]
use uverbs_core::provider::SendOps;
use uverbs_core::provider::{Alike, Request, Requests};
use uverbs_core::queues::work::{Data, SendOp};

use super::{SendCursor, Sq};
use crate::Ah;
use crate::send::doorbell::Posted;
use crate::send::inline::{inline_units, is_small, write_inline};
use crate::send::list::{counted, is_rare, write_counted};
use crate::send::wqe::{self, Address, Head, Vector};

/// Whether a piece of this length isn't [rare](is_rare), and has eight bytes for an atomic.
#[inline(always)]
pub(super) fn is_usual(len: u32, head: Head) -> bool {
    if head.atomic { len == 8 } else { !is_rare(len) }
}

impl Sq {
    /// Writes one more work request at the cursor, if there is room and nothing about it is rare,
    /// and moves the cursor over it. `WHOLE` is that of [`wqe::store_as`], for control segment and
    /// address vector.
    ///
    /// # Safety
    ///
    /// As for [`SendOps::post_list`].
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
            Address::Vector(Vector { template: to.ah.template(), first: to.peer })
        } else {
            Address::None
        };
        let ds = head.units + segments;
        let ctrl = wqe::ctrl_in_row(&op, pi, self.qpn_ds(ds), flags);
        let at = self.unit_at(self.slots.offset(pi));
        let next = ring.unit(pi.wrapping_add(1));
        // SAFETY: there is room, so the WQEBBs are free.
        let behind = unsafe { wqe::write_head::<WHOLE>((at, next), ctrl, address, &request.op()) };
        match data {
            // SAFETY: as above; one segment fits behind each head.
            Data::One(piece) => unsafe { wqe::store(behind, wqe::short_segment(&piece)) },
            // SAFETY: as above.
            Data::List([piece]) => unsafe { wqe::store(behind, wqe::short_segment(piece)) },
            // SAFETY: as above; they are in one piece, of as many units as were counted.
            Data::Inline(bytes) => unsafe { write_inline(behind, bytes) },
            Data::List(list) => {
                // SAFETY: as above; they are in one piece.
                if !unsafe { write_counted(behind, list) } {
                    return false;
                }
            }
            Data::InlineList(_) => {}
        }
        // SAFETY: as above; this is the only poster.
        unsafe { self.note(cursor, request.id(), (ds, units)) };
        true
    }

    /// Looks up room and writes one work request. `None` if it isn't written. Takes and gives the
    /// cursor by value: it stays in registers.
    ///
    /// # Safety
    ///
    /// As for [`SendOps::post_list`].
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn look_and_write<const UD: bool>(
        &mut self,
        mut at: SendCursor,
        request: impl Request<Ah = Ah>,
    ) -> Option<SendCursor> {
        at.stop = self.look(at.reach);
        // SAFETY: the caller's promise.
        unsafe { self.write_in_row::<UD, false>(&mut at, request) }.then_some(at)
    }

    /// [`SendOps::post_list`], up to a work request that is rare.
    ///
    /// # Safety
    ///
    /// As there.
    #[inline(always)]
    pub(super) unsafe fn write_list<const UD: bool, R>(
        &mut self,
        at: &mut SendCursor,
        requests: &mut R,
    ) where
        R: Requests<One: Request<Ah = Ah>>,
    {
        if R::One::ALIKE != Alike::No {
            // SAFETY: the caller's promise.
            return unsafe { self.write_alike::<UD, R>(at, requests) };
        }
        while let Some(request) = requests.first() {
            if !at.has_room() {
                at.stop = self.look(at.reach);
            }
            // SAFETY: the caller's promise.
            if !unsafe { self.write_in_row::<UD, false>(at, request) } {
                return;
            }
            requests.advance();
        }
    }

    /// [`SendOps::post_alone`], if no batch before was forgotten, there is room, and the work
    /// request isn't rare.
    ///
    /// # Safety
    ///
    /// As there.
    #[inline(always)]
    pub(super) unsafe fn write_alone<const UD: bool>(
        &mut self,
        request: impl Request<Ah = Ah>,
    ) -> bool {
        // Behind a UMR that waits for its fence there is a look first: see `publish_behind_umr`.
        if self.marked != self.producer() {
            return false;
        }
        // Before it is written: behind that the compiler would load it anew.
        let (first, ring, mut at) = (self.producer(), self.ring_memory(), self.position());
        // A datagram's first WQEBB is written and copied by sixteen bytes: `Doorbell::ring_short`.
        // SAFETY: the caller's promise; the cursor is where a `begin` would be.
        if !unsafe { self.write_in_row::<UD, UD>(&mut at, request) } {
            return false;
        }
        self.keep(at.reach);
        let last = Posted { first, ..self.last(&at) };
        // SAFETY: written just now.
        unsafe { self.announce::<UD>(ring, at.pi(), true, last) };
        true
    }
}
