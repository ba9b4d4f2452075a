//! Send queues.
//!
//! # Safety
//!
//! A [`Sq`] is the only poster of its queue, and holds on to the memory that its pointers go to.
//! WQEBBs between the retired and the published index are the device's to read; it writes WQEs
//! behind the published one only, and the check against the ring's size keeps it from coming around
//! to what the device has not finished. The slots are `shared`'s.
#![allow(unsafe_code, reason = "writes WQEs into a ring that the device reads")]

use std::any::Any;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use uverbs_core::order::device_memory;
use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::slot::{Reach, Slots};
use uverbs_core::queues::work::{Data, SendOp, Wr};
use uverbs_mlx5_prm::ctrl::QpnDs;
use uverbs_mlx5_prm::doorbell::MLX5_SND_DBR;
use uverbs_mlx5_prm::wqe::Service;

use crate::send::doorbell::{Doorbell, Posted, store_record};
use crate::send::packet::Packets;
use crate::send::ring::Ring;
use crate::send::wide;
use crate::send::wqe::{self, Room, Vector};

mod ops;
mod parts;
mod room;
mod run;
mod stretch;

pub(crate) use self::parts::SqParts;
pub use self::run::Run;

/// A tentative position in a send queue. Nothing of it is in the queue before it is rung.
#[derive(Clone, Copy, Debug)]
pub struct SendCursor {
    /// The next free WQEBB, free running.
    pub(crate) pi: u32,
    /// Work requests written, with all before; free running.
    pub(crate) count: u32,
    /// The count at which there must be a look at what is outstanding; see `room.rs`.
    pub(crate) stop: u32,
    /// The published position that it began at.
    pub(crate) begin: u32,
    /// The last WQE written.
    pub(crate) last: Posted,
}

impl SendCursor {
    /// Index of the next WQE modulo 65536, by which its completion names it.
    #[must_use]
    pub fn index(&self) -> u16 {
        self.pi as u16
    }
}

/// The poster of a send queue.
#[repr(C, align(64))]
pub struct Sq {
    // Two cache lines: what posting and ringing need.
    /// First WQEBB of the ring, which has as many as there are slots.
    start: *mut u8,
    slots: Slots,
    /// Published producer index in WQEBBs, free running. The device knows its low 16 bits.
    pi: u32,
    /// Work requests published; free running.
    count: u32,
    /// The count at which there must be a look at what is outstanding: up to there the ring has
    /// `per_request` WQEBBs for each work request, which are not fewer than `usual`, and the
    /// producer index doesn't wrap. It is `count` while posting isn't allowed.
    pub(crate) stop: u32,
    /// The queue's number, where a control segment has it.
    qpn_shifted: u32,
    room: Room,
    /// WQEBBs that the ring has for each work request; 1 at least.
    per_request: NonZeroU32,
    /// Pieces of the longest list that needs no look at its length: it is allowed, and a work
    /// request with it isn't longer than what the queue was made for.
    longest_list: u32,
    /// One past the highest WQEBB that may hold a buffer or a UMR; the producer index unless a
    /// batch was forgotten.
    pub(crate) marked: u32,
    /// Whether the polling side knows that there are buffers.
    owns: bool,
    /// Whether a row's segments may be [`wide`](crate::send::wide).
    wide: bool,
    /// The WQEBB behind the last UMR, while the WQE there has no fence yet (`rekey.rs`).
    pub(crate) umr_end: Option<u32>,
    record: *mut u32,
    doorbell: Doorbell,
    // Fields of the slow path.
    /// Keeps the slots alive.
    shared: Arc<QpShared>,
    /// WQEBBs of the ring; 0 for no queue.
    units: u32,
    /// WQEBBs that may be in use: all, or none while posting isn't allowed.
    limit: u32,
    /// The consumer index, as last looked up.
    retired: u32,
    /// Where `count` must stop, by what was looked up: small work requests must not be more than
    /// the queue was made for, since completion queues are sized by that.
    count_limit: u32,
    max_wr: u32,
    /// WQEBBs of what `post` or, of datagrams, `post_to` makes of one piece.
    usual: u32,
    /// Which segments its WQEs have.
    service: Service,
    /// Whether it was made for work requests that change keys.
    rekeys: bool,
    /// How it sends whole packets, if it does nothing else.
    packets: Option<Packets>,
    /// `umr_end` of what is published.
    pub(crate) rung_umr_end: Option<u32>,
    /// Keeps ring, record and register mapped.
    _memory: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the pointers go to memory that `_memory` keeps, and this is the only poster that uses
// them.
unsafe impl Send for Sq {}

const _: () = assert!(std::mem::offset_of!(Sq, shared) <= 128);

impl Sq {
    /// A queue that refuses posts until it is enabled.
    ///
    /// # Safety
    ///
    /// `start` is aligned to 64 bytes. Ring, record and register are valid while `memory` lives.
    /// This is the only poster. The table of sends has as many slots as the ring has units, or one
    /// for none.
    pub(crate) unsafe fn new(parts: SqParts) -> Self {
        let per_request = parts
            .units
            .checked_div(parts.max_wr)
            .and_then(NonZeroU32::new)
            .unwrap_or(NonZeroU32::MIN);
        let head = if parts.service == Service::Ud { wqe::DATAGRAM_HEAD } else { wqe::LISTED_HEAD };
        let behind = per_request.get().saturating_mul(wqe::DS_PER_UNIT).saturating_sub(head);
        Self {
            start: parts.start,
            slots: parts.shared.send.slots(),
            pi: 0,
            stop: 0,
            count: 0,
            qpn_shifted: parts.qpn << 8,
            room: parts.room,
            per_request,
            longest_list: behind.min(parts.room.max_sge),
            marked: 0,
            owns: false,
            wide: wide::is_here(),
            umr_end: None,
            record: parts.record,
            doorbell: parts.doorbell,
            shared: parts.shared,
            units: parts.units,
            // Without a ring the limit stays 0, and nothing is written.
            limit: 0,
            retired: 0,
            count_limit: parts.max_wr,
            max_wr: parts.max_wr,
            usual: if parts.service == Service::Ud { 2 } else { 1 },
            service: parts.service,
            rekeys: parts.rekeys,
            packets: parts.packets,
            rung_umr_end: None,
            _memory: parts.memory,
        }
    }

    /// WQEBBs of the ring; 0 for no queue.
    pub(crate) fn units(&self) -> u32 {
        self.units
    }

    #[inline(always)]
    pub(crate) fn ring_memory(&self) -> Ring {
        Ring { start: self.start, mask: self.slots.mask() }
    }

    #[inline(always)]
    pub(crate) fn slots(&self) -> Slots {
        self.slots
    }

    #[inline(always)]
    pub(crate) fn room(&self) -> Room {
        self.room
    }

    pub(crate) fn producer(&self) -> u32 {
        self.pi
    }

    /// Work requests that may be posted without a look.
    #[cfg(test)]
    pub(crate) fn left(&self) -> u32 {
        self.stop.wrapping_sub(self.count)
    }

    /// The published position.
    #[inline(always)]
    fn published(&self) -> SendCursor {
        SendCursor {
            pi: self.pi,
            count: self.count,
            stop: self.stop,
            begin: self.pi,
            last: Posted { head: 0, at: self.start, first: self.pi, ds: 0, units: 0 },
        }
    }

    pub(crate) fn record(&self) -> *mut u32 {
        self.record
    }

    pub(crate) fn register(&self) -> *mut u64 {
        self.doorbell.register()
    }

    pub(crate) fn blue_flame(&self) -> (*mut u8, usize) {
        self.doorbell.whole()
    }

    pub(crate) fn qpn(&self) -> u32 {
        self.qpn_shifted >> 8
    }

    pub(crate) fn service(&self) -> Service {
        self.service
    }

    pub(crate) fn rekeys(&self) -> bool {
        self.rekeys
    }

    pub(crate) fn packets(&self) -> Option<Packets> {
        self.packets
    }

    pub(crate) fn shared(&self) -> &QpShared {
        &self.shared
    }

    /// The second word of a control segment.
    #[inline(always)]
    pub(crate) fn qpn_ds(&self, ds: u32) -> u32 {
        self.qpn_shifted | ds
    }

    /// As if so much had been posted and polled before.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn start_at(&mut self, index: u32) {
        (self.pi, self.stop, self.retired, self.marked) = (index, self.count, index, index);
        // SAFETY: nothing was posted.
        unsafe { self.shared.send.retire(index) };
    }

    /// Notes the work request whose WQE was just written, and moves the cursor over it. Returns the
    /// place of its slot.
    ///
    /// # Safety
    ///
    /// `slots` are this queue's. The WQEBBs of `last`, which begins at the cursor, are free, and
    /// this is the only poster.
    #[inline(always)]
    pub(crate) unsafe fn note(slots: Slots, at: &mut SendCursor, wr_id: u64, last: Posted) -> u32 {
        let (slot, count) = (at.pi, at.count.wrapping_add(1));
        let end = slot.wrapping_add(last.units);
        // SAFETY: contract of `note`.
        unsafe { slots.put_counted(slot, wr_id, Reach::new(end, count)) };
        *at = SendCursor { pi: end, count, last, ..*at };
        slots.place(slot)
    }

    /// Writes a WQE of `ds` units of 16 bytes at the cursor, with DC's `stream` in its control
    /// segment or 0, and moves it. Returns the slot.
    ///
    /// It can't fail: with a result in two layers the compiler tests it once more, and a post takes
    /// a fifth longer.
    ///
    /// # Safety
    ///
    /// The cursor is this queue's, `measure` said `ds` of the operation and its data, or
    /// [`wqe::VECTOR_UNITS`] less, and `reserve` found room for its `units`.
    #[inline(always)]
    pub(crate) unsafe fn write(
        &self,
        at: &mut SendCursor,
        wr: Wr,
        (ds, units, stream): (u32, u32, u64),
        to_peer: Option<Vector<'_>>,
        op: SendOp,
        data: Data<'_>,
    ) -> u32 {
        // Loaded once: after a store to the ring the compiler would load them again.
        let (ring, slots) = (self.ring_memory(), self.slots);
        let mut ctrl = wqe::ctrl(&op, at.pi, self.qpn_ds(ds), wr.flags);
        ctrl[1] |= stream;
        let to = ring.unit(at.pi);
        if ring.wraps(at.pi, units) {
            match to_peer {
                // SAFETY: `reserve` found room, by the contract, so no WQEBB is the device's; what
                // was measured is at most what the room allows.
                None => unsafe { wqe::write_wrapped(ring, at.pi, ds, ctrl, op, data) },
                Some(Vector { template, first }) => {
                    let at = (at.pi, ds);
                    // SAFETY: as above.
                    unsafe { wqe::write_wrapped_to(ring, at, ctrl, template, first, op, data) };
                }
            }
        } else {
            // SAFETY: as above, and they are in one piece.
            unsafe { wqe::write(to, ctrl, to_peer, &op, &data) };
        }
        let last = Posted { head: ctrl[0], at: to, first: at.pi, ds, units };
        // SAFETY: `reserve` found the WQEBBs free; this is the only poster.
        unsafe { Self::note(slots, at, wr.id, last) }
    }

    /// The WQE of so many WQEBBs at `first`, as the ring has it.
    #[inline(always)]
    pub(crate) fn written_at(&self, first: u32, units: u32) -> Posted {
        let at = self.ring_memory().unit(first);
        // SAFETY: aligned, in the ring, where only this queue writes.
        let head: u64 = unsafe { device_memory::read(at.cast()) };
        // In its second word.
        let ds = u32::from(QpnDs(head.to_be() as u32).ds());
        Posted { head, at, first, ds, units }
    }

    /// Tells the device of all that was written up to the cursor.
    ///
    /// # Safety
    ///
    /// See [`SendOps::ring`]; and it is not where it began.
    #[inline(always)]
    pub(crate) unsafe fn publish(&mut self, at: SendCursor) {
        // SAFETY: contract of `publish`.
        unsafe { self.count_in_record(at.pi) };
        let (only, ring) = (at.last.first == at.begin, self.ring_memory());
        // SAFETY: the register is valid while `_memory` lives; the last WQE is one that this queue
        // wrote, by the contract.
        unsafe { self.doorbell.ring(at.last, only, ring) };
        self.stop = at.stop;
        self.keep(at.pi, at.count);
    }

    /// The device's part of [`publish`](Self::publish), with a case for one WQEBB and one for two:
    /// where the compiler knows how many there are, it copies them to the register without a loop.
    /// `ring` is this queue's; `WHOLE` is `Doorbell::ring_short`'s.
    ///
    /// # Safety
    ///
    /// As there.
    #[inline(always)]
    pub(crate) unsafe fn announce<const WHOLE: bool>(
        &mut self,
        ring: Ring,
        pi: u32,
        begin: u32,
        last: Posted,
    ) {
        // SAFETY: contract of `announce`.
        unsafe { self.count_in_record(pi) };
        let only = last.first == begin;
        match last.units {
            // SAFETY: as in `publish`.
            1 => unsafe { self.doorbell.ring_short::<WHOLE>(last.of::<1>(), only, ring) },
            // SAFETY: as above.
            2 => unsafe { self.doorbell.ring_short::<WHOLE>(last.of::<2>(), only, ring) },
            // SAFETY: as above.
            _ => unsafe { self.doorbell.ring_short::<WHOLE>(last, only, ring) },
        }
    }

    /// Stores the producer index in the record.
    ///
    /// # Safety
    ///
    /// What is before it is written.
    #[inline(always)]
    unsafe fn count_in_record(&mut self, pi: u32) {
        // SAFETY: the record is valid while `_memory` lives, and this queue is the only one to
        // store to it.
        unsafe { store_record(self.record, MLX5_SND_DBR, pi) };
    }

    /// The queue's part, but for where it must stop, which few work requests change.
    #[inline(always)]
    pub(crate) fn keep(&mut self, pi: u32, count: u32) {
        self.pi = pi;
        self.count = count;
        self.marked = pi;
    }

    /// Takes back the buffers of a batch that was not rung, and forgets its UMRs.
    #[cold]
    #[inline(never)]
    fn disown(&mut self) {
        // SAFETY: behind the published index, and what is written there passed the check for room:
        // the slots are ours.
        unsafe { self.shared.send.disown(self.pi, self.marked) };
        self.marked = self.pi;
        self.umr_end = self.rung_umr_end;
    }
}

impl fmt::Debug for Sq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sq")
            .field("qpn", &format_args!("{:#x}", self.qpn()))
            .field("units", &self.units())
            .field("producer", &self.pi)
            .field("retired", &self.retired)
            .field("enabled", &(self.limit != 0))
            .field("doorbell", &self.doorbell)
            .finish_non_exhaustive()
    }
}
