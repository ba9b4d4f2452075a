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

use uverbs_core::Errno;
use uverbs_core::memory::registered::Held;
use uverbs_core::provider::SendOps;
use uverbs_core::queues::layout::KeyLayout;
use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::slot::{Reach, Slots};
use uverbs_core::queues::work::{
    Checksums, Data, DcDestination, Destination, PostError, Rekey, SendOp, Sge, Wr,
};
use uverbs_mlx5_prm::ctrl::DS_BYTES;
use uverbs_mlx5_prm::doorbell::MLX5_SND_DBR;
use uverbs_mlx5_prm::wqe::Service;

use crate::Ah;
use crate::doorbell::{Doorbell, Posted, store_record};
use crate::packet::Packets;
use crate::pieces::write_wrapped;
use crate::ring::Ring;
use crate::sq_parts::SqParts;
use crate::wqe::{self, Room, Vector};

/// A tentative position in a send queue. Nothing of it is in the queue before it is rung.
#[derive(Clone, Copy, Debug)]
pub struct SendCursor {
    /// The next free WQEBB, free running.
    pub(crate) pi: u32,
    /// Work requests written, with all before; free running.
    pub(crate) count: u32,
    /// Work requests that may follow without a look at what is outstanding; see
    /// [`Sq::charge`].
    pub(crate) left: u32,
    /// The published position that it began at.
    pub(crate) begin: u32,
    /// The last WQE written.
    pub(crate) last: Posted,
}

/// The posting side of a send queue.
#[repr(C, align(64))]
pub struct Sq {
    // Two cache lines: what posting and ringing need.
    /// First WQEBB of the ring, which has as many as there are slots.
    start: *mut u8,
    slots: Slots,
    /// Published producer index in WQEBBs, free running. The device knows its low 16 bits.
    pi: u32,
    /// Work requests that may be posted without a look at what is outstanding: the ring has
    /// `per_request` WQEBBs for each, which are not fewer than `usual`. 0 while posting isn't
    /// allowed.
    left: u32,
    /// Work requests published; free running.
    count: u32,
    /// The queue's number, where a control segment has it.
    qpn_shifted: u32,
    room: Room,
    /// WQEBBs that the ring has for each work request; 1 at least.
    per_request: NonZeroU32,
    /// One past the highest WQEBB that may hold a buffer or a UMR; the producer index unless a
    /// batch was forgotten.
    pub(crate) marked: u32,
    /// Whether the polling side knows that there are buffers.
    owns: bool,
    /// The WQEBB behind the last UMR, while the WQE there has no fence yet (`rekey.rs`).
    pub(crate) umr_end: Option<u32>,
    record: *mut u32,
    doorbell: Doorbell,
    // Cold.
    /// Keeps what `slots` names.
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

// SAFETY: the pointers go to memory that `_memory` keeps, and this is the only one to post through
// them.
unsafe impl Send for Sq {}

const _: () = assert!(std::mem::offset_of!(Sq, shared) <= 128);

impl Sq {
    /// A queue that refuses posts until it is enabled.
    ///
    /// # Safety
    ///
    /// `start` is aligned to 64 bytes. Ring, record and register are valid while `memory` lives.
    /// Nobody else posts. The table of sends has as many slots as the ring has units, or one for
    /// none.
    pub(crate) unsafe fn new(parts: SqParts) -> Self {
        Self {
            start: parts.start,
            slots: parts.shared.send.slots(),
            pi: 0,
            left: 0,
            count: 0,
            qpn_shifted: parts.qpn << 8,
            room: parts.room,
            per_request: parts
                .units
                .checked_div(parts.max_wr)
                .and_then(NonZeroU32::new)
                .unwrap_or(NonZeroU32::MIN),
            marked: 0,
            owns: false,
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

    /// WQEBBs of the longest work request that the queue was made for.
    pub(crate) fn longest(&self) -> u32 {
        self.per_request.get().max(self.usual)
    }

    pub(crate) fn usual(&self) -> u32 {
        self.usual
    }

    pub(crate) fn producer(&self) -> u32 {
        self.pi
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

    /// How many of `left` a work request of so many WQEBBs uses up: one, unless it is longer than
    /// what the queue was made for.
    #[inline(always)]
    pub(crate) fn charge(&self, units: u32) -> u32 {
        #[cold]
        #[inline(never)]
        fn long(units: u32, per_request: NonZeroU32) -> u32 {
            (units - 1) / per_request + 1
        }
        if self.is_long(units) { long(units, self.per_request) } else { 1 }
    }

    /// Whether a work request of so many WQEBBs is longer than what the queue was made for.
    #[inline(always)]
    pub(crate) fn is_long(&self, units: u32) -> bool {
        units > 1 && units > self.per_request.get()
    }

    /// Takes a work request of so many WQEBBs from what may follow the cursor, if there is room.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, at: &mut SendCursor, units: u32) -> Result<(), PostError> {
        self.take(at, self.charge(units), units)
    }

    /// [`reserve`](Self::reserve) for one of no more than `usual` WQEBBs, which uses up one.
    #[inline(always)]
    fn reserve_usual(&mut self, at: &mut SendCursor, units: u32) -> Result<(), PostError> {
        debug_assert!(units <= self.usual, "{:?}", self.service);
        self.take(at, 1, units)
    }

    #[inline(always)]
    fn take(&mut self, at: &mut SendCursor, charge: u32, units: u32) -> Result<(), PostError> {
        at.left = match at.left.checked_sub(charge) {
            Some(left) => left,
            None => self.make_room(at.pi, at.count, units)?,
        };
        Ok(())
    }

    /// As if so much had been posted and polled before.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn start_at(&mut self, index: u32) {
        (self.pi, self.left, self.retired, self.marked) = (index, 0, index, index);
        // SAFETY: nothing was posted.
        unsafe { self.shared.send.retire(index) };
    }

    /// Work requests that may follow one that ends before `end`, by what was looked up; `None` if
    /// that one has no room.
    fn left(&self, count: u32, end: u32) -> Option<u32> {
        let units = self.limit.checked_sub(end.wrapping_sub(self.retired))?;
        let requests = self.count_limit.wrapping_sub(count.wrapping_add(1));
        // A ring with less than `usual` for each, which `size.rs` never makes: each request looks.
        let units = if self.per_request.get() < self.usual { 0 } else { units };
        (requests < self.max_wr).then(|| requests.min(units / self.per_request))
    }

    /// Looks up how far the polling side got, if it must. Gives what is left behind a work request
    /// of `units` at the cursor, whose parts it takes by value: it stays in registers.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_room(&mut self, pi: u32, count: u32, units: u32) -> Result<u32, PostError> {
        if self.limit == 0 {
            return Err(PostError::State);
        }
        let end = pi.wrapping_add(units);
        if let Some(left) = self.left(count, end) {
            return Ok(left);
        }
        let reached = self.shared.send.reached();
        self.retired = reached.end;
        self.count_limit = reached.posted.wrapping_add(self.max_wr);
        self.left(count, end).ok_or(PostError::Full)
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
        // SAFETY: the caller's promise.
        unsafe { slots.put_counted(slot, wr_id, Reach { end, posted: count }) };
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
        // Once: behind a store to the ring the compiler would load them anew.
        let (ring, slots) = (self.ring_memory(), self.slots);
        let mut ctrl = wqe::ctrl(&op, at.pi, self.qpn_ds(ds), wr.flags);
        ctrl[1] |= stream;
        let to = ring.unit(at.pi);
        if ring.wraps(at.pi, units) {
            match to_peer {
                // SAFETY: `reserve` found room, says the caller, so no WQEBB is the device's; what
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

    /// Tells the device of all that was written up to the cursor, the last of it `TO` a destination
    /// by [`post_to`](SendOps::post_to).
    ///
    /// # Safety
    ///
    /// See [`SendOps::ring`]; and it is not where it began.
    #[inline(always)]
    pub(crate) unsafe fn publish<const TO: bool>(&mut self, at: SendCursor) {
        // SAFETY: the record is valid while `_memory` lives, and ours to store to.
        unsafe { store_record(self.record, MLX5_SND_DBR, at.pi) };
        let only = at.last.first == at.begin;
        let ring = self.ring_memory();
        // SAFETY: so is the register; the last WQE is one that this queue wrote, says the caller.
        unsafe { self.doorbell.ring::<TO>(at.last, only, ring) };
        self.pi = at.pi;
        self.left = at.left;
        self.count = at.count;
        self.marked = at.pi;
    }

    /// [`SendOps::ring`], and of datagrams [`SendOps::ring_datagrams`].
    ///
    /// # Safety
    ///
    /// As there.
    #[inline(always)]
    unsafe fn ring_written<const TO: bool>(&mut self, at: SendCursor) {
        // Its own beginning, which is `self.pi` and which the compiler knows.
        if at.pi == at.begin {
            return;
        }
        if self.umr_end.is_some() {
            // By value, and nothing is needed behind it: so the cursor stays in registers, and none
            // is kept for this.
            let SendCursor { pi, count, left, last, .. } = at;
            // SAFETY: the caller's promise.
            return unsafe { self.publish_behind_umr(pi, count, left, last.first) };
        }
        // SAFETY: as above.
        unsafe { self.publish::<TO>(at) };
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

// SAFETY: a post passes the check for room, so its slot is free; buffers stay in the table until
// the polling side, `disown` or a reset takes them; the device learns of WQEs from the record
// alone, which `ring` stores.
unsafe impl SendOps for Sq {
    type Cursor = SendCursor;
    type Ah = Ah;

    #[inline(always)]
    fn begin(&mut self) -> SendCursor {
        if self.marked != self.pi {
            self.disown();
        }
        SendCursor {
            pi: self.pi,
            count: self.count,
            left: self.left,
            begin: self.pi,
            last: Posted { head: 0, at: self.start, first: self.pi, ds: 0, units: 0 },
        }
    }

    #[inline(always)]
    unsafe fn post(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        op: SendOp,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        let ds = wqe::measure(&op, &data, self.room)?;
        let units = wqe::units(ds, &data);
        self.reserve(at, units)?;
        // SAFETY: the caller's promise; it was just measured, and there is room.
        Ok(unsafe { self.write(at, wr, (ds, units, 0), None, op, data) })
    }

    #[inline(always)]
    unsafe fn post_list(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        op: SendOp,
        list: &[Sge],
    ) -> Result<u32, PostError> {
        // SAFETY: the caller's promise.
        unsafe { self.post_counted(at, wr, op, list) }
    }

    #[inline(always)]
    unsafe fn post_to(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        op: SendOp,
        to: Destination<'_, Ah>,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        let ds = wqe::measure_datagram(&op, &data, self.room)?;
        let units = if let Data::One(_) = data {
            // The head fills a WQEBB, and a piece begins another.
            let units = ds - (wqe::DATAGRAM_HEAD - 1);
            self.reserve_usual(at, units)?;
            units
        } else {
            let units = (ds + (wqe::DS_PER_UNIT - 1)) >> wqe::DS_PER_UNIT.ilog2();
            self.reserve(at, units)?;
            units
        };
        let (ring, slots) = (self.ring_memory(), self.slots);
        let ctrl = wqe::ctrl(&op, at.pi, self.qpn_ds(ds), wr.flags);
        let first = ring.unit(at.pi);
        // SAFETY: `reserve` found room, so no WQEBB is the device's.
        unsafe { wqe::store(first, ctrl) };
        // The device reads the vector out of the WQE: the handle isn't looked at again.
        let vector = Vector { template: to.ah.template(), first: to.peer };
        // SAFETY: as above; it fills the WQEBB.
        unsafe { vector.store(first.wrapping_add(DS_BYTES)) };
        // So data begins with the next one, wherever that is, and one never goes over the end.
        let next = at.pi.wrapping_add(1);
        if units > 2 && ring.wraps(next, units - 1) {
            // SAFETY: as above; so much was measured, which is at most what the room allows.
            unsafe { write_wrapped(ring, at.pi, (wqe::DATAGRAM_HEAD, ds), data) };
        } else {
            // SAFETY: as above, and it is in one piece.
            unsafe { wqe::write_data(ring.unit(next), &data) };
        }
        let last = Posted { head: ctrl[0], at: first, first: at.pi, ds, units };
        // SAFETY: `reserve` found the WQEBBs free; this is the only poster.
        Ok(unsafe { Self::note(slots, at, wr.id, last) })
    }

    #[inline]
    unsafe fn post_dc(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        op: SendOp,
        to: DcDestination<'_, Ah>,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        let ds = wqe::measure(&op, &data, self.room)? + wqe::VECTOR_UNITS;
        let units = ds.div_ceil(wqe::DS_PER_UNIT);
        self.reserve(at, units)?;
        let template = to.ah.template();
        let target = Vector { template, first: wqe::dynamic(template, to.dctn, to.key) };
        // SAFETY: as in `post`.
        Ok(unsafe {
            self.write(at, wr, (ds, units, wqe::stream(to.stream)), Some(target), op, data)
        })
    }

    #[inline]
    unsafe fn post_xrc(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        op: SendOp,
        srqn: u32,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        let ds = wqe::measure(&op, &data, self.room)? + wqe::XRC_UNITS;
        let units = ds.div_ceil(wqe::DS_PER_UNIT);
        self.reserve(at, units)?;
        let (ring, slots) = (self.ring_memory(), self.slots);
        let ctrl = wqe::ctrl(&op, at.pi, self.qpn_ds(ds), wr.flags);
        // SAFETY: the caller's promise; it was just measured, and there is room.
        unsafe { wqe::write_xrc(ring, (at.pi, ds), ctrl, srqn, &op, &data) };
        let last = Posted { head: ctrl[0], at: ring.unit(at.pi), first: at.pi, ds, units };
        // SAFETY: `reserve` found the WQEBBs free; this is the only poster.
        Ok(unsafe { Self::note(slots, at, wr.id, last) })
    }

    unsafe fn post_packet(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        checksums: Checksums,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        // SAFETY: the caller's promise.
        let (next, slot) = unsafe { self.packet_at(*at, wr, checksums, data) }?;
        *at = next;
        Ok(slot)
    }

    #[inline(always)]
    unsafe fn lay_out(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        op: &KeyLayout<'_>,
    ) -> Result<u32, PostError> {
        // SAFETY: the caller's promise.
        let (next, slot) = unsafe { self.lay_out_at(*at, wr, *op) }?;
        *at = next;
        Ok(slot)
    }

    unsafe fn rekey(&mut self, at: &mut SendCursor, wr: Wr, op: &Rekey) -> Result<u32, PostError> {
        // SAFETY: the caller's promise.
        let (next, slot) = unsafe { self.rekey_at(*at, wr, *op) }?;
        *at = next;
        Ok(slot)
    }

    #[inline(always)]
    unsafe fn own(&mut self, at: &SendCursor, slot: u32, held: Held) {
        self.marked = at.pi;
        if held.is_lent() {
            self.shared.send.will_lend();
        }
        if !self.owns {
            self.owns = true;
            self.shared.send.will_own();
        }
        // SAFETY: the place of a WQE just written, says the caller: ours, and `begin` left no
        // buffer in it.
        unsafe { self.slots.own_at(slot, held) };
    }

    #[inline(always)]
    unsafe fn ring(&mut self, at: SendCursor) {
        // SAFETY: the caller's promise.
        unsafe { self.ring_written::<false>(at) };
    }

    #[inline(always)]
    unsafe fn ring_datagrams(&mut self, at: SendCursor) {
        // SAFETY: the caller's promise.
        unsafe { self.ring_written::<true>(at) };
    }

    fn refused(&self) -> Option<Errno> {
        None
    }

    fn enable(&mut self, on: bool) {
        self.limit = if on { self.units() } else { 0 };
        // The next post looks.
        self.left = 0;
    }

    unsafe fn stay(&mut self) {
        self.doorbell.stay();
    }

    fn leave(&mut self) {
        self.doorbell.leave();
    }

    unsafe fn reset(&mut self) {
        // SAFETY: the caller's promise: device and polling side are done with the queue.
        unsafe { self.shared.send.reset() };
        (self.pi, self.left, self.retired, self.marked, self.limit) = (0, 0, 0, 0, 0);
        (self.count, self.count_limit) = (0, self.max_wr);
        (self.umr_end, self.rung_umr_end) = (None, None);
        // SAFETY: as in `ring`.
        unsafe { store_record(self.record, MLX5_SND_DBR, 0) };
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
