//! Send queues.
//!
//! # Safety
//!
//! A [`Sq`] is the only poster of its queue, and keeps the memory behind its pointers. The device
//! owns the WQEBBs between the consumer index and the published index. The poster writes WQEs only
//! behind the published index, and its check for room keeps it off unfinished WQEs of the last
//! turn. `shared` owns the slots.
#![allow(unsafe_code, reason = "writes WQEs into a ring that the device reads")]

use std::any::Any;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::slot::{RingPosition, Slots};
use uverbs_core::queues::work::{Data, SendOp, Wr};
use uverbs_mlx5_prm::ctrl::QpnDs;
use uverbs_mlx5_prm::doorbell::MLX5_SND_DBR;
use uverbs_mlx5_prm::wqe::Service;

use crate::send::doorbell::{Doorbell, Posted, store_record};
use crate::send::packet::Packets;
use crate::send::ring::{Ring, unit_at};
use crate::send::wide;
use crate::send::wqe::{self, Address, WqeLimits};

mod cursor;
mod list;
mod ops;
mod parts;
mod room;
mod stretch;

pub use self::cursor::SendCursor;
pub(crate) use self::parts::SqParts;

/// The poster of a send queue.
#[repr(C, align(64))]
pub struct Sq {
    // Two cache lines: fields for posting and ringing.
    /// First WQEBB of the ring, which has as many WQEBBs as slots.
    start: *mut u8,
    slots: Slots,
    /// Published producer index in WQEBBs, and the number of published work requests, both free
    /// running. The doorbell record has the index's low 16 bits.
    published: RingPosition,
    /// Count at which a post must check for room. Below it the ring has `per_request` WQEBBs for
    /// each work request, which are at least `usual`, and the producer index does not wrap. Equal
    /// to the published number while posting is disabled.
    pub(crate) stop: u32,
    /// QP number, shifted as in a control segment.
    qpn_shifted: u32,
    room: WqeLimits,
    /// WQEBBs of the ring for each work request, at least 1.
    per_request: NonZeroU32,
    /// Maximum SGEs of a list whose length needs no check: it is allowed, and a work request with
    /// it is no longer than the queue was created for.
    longest_list: u32,
    /// One past the last WQEBB that may hold a buffer or a UMR; equal to the producer index unless
    /// a batch was dropped.
    pub(crate) marked: u32,
    /// True if the slot table was told that there are buffers.
    owns: bool,
    /// True if segments of a list of alike requests may be stored by [`wide`](crate::send::wide).
    wide: bool,
    /// Index behind the last UMR, while the WQE there has no fence yet (`rekey.rs`).
    pub(crate) umr_end: Option<u32>,
    record: *mut u32,
    doorbell: Doorbell,
    // Fields of the slow path.
    /// Keeps the slots alive.
    shared: Arc<QpShared>,
    /// Number of WQEBBs of the ring; 0 for no queue.
    units: u32,
    /// Maximum outstanding WQEBBs: all, or 0 while posting is disabled.
    limit: u32,
    /// Consumer index, as last read.
    retired: u32,
    /// Upper limit of `stop`, from the last check: short work requests must not exceed the number
    /// that the queue was created for, by which completion queues are sized.
    count_limit: u32,
    max_wr: u32,
    /// WQEBBs of a work request with one SGE, posted by `post`, or by `post_to` for UD.
    usual: u32,
    /// Transport service, which determines the segments of WQEs.
    service: Service,
    /// True if the queue supports work requests that change keys.
    rekeys: bool,
    /// Properties of raw packets, for a raw packet queue.
    packets: Option<Packets>,
    /// Published value of `umr_end`.
    pub(crate) rung_umr_end: Option<u32>,
    /// Offset at which the device's file maps the register's page.
    page_offset: u64,
    /// Keeps ring, record and register mapped.
    _memory: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the pointers go to memory that `_memory` keeps, and this is the only poster that uses
// them.
unsafe impl Send for Sq {}

const _: () = assert!(std::mem::offset_of!(Sq, shared) <= 128);

impl Sq {
    /// A queue that rejects posts until it is enabled.
    ///
    /// # Safety
    ///
    /// `start` is aligned to 64 bytes. Ring, record and register are valid while `memory` lives.
    /// This is the only poster. The slot table has as many slots as the ring has WQEBBs, or one
    /// slot without a ring.
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
            published: RingPosition::new(0, 0),
            stop: 0,
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
            // Without a ring the limit stays 0, and no WQE is written.
            limit: 0,
            retired: 0,
            count_limit: parts.max_wr,
            max_wr: parts.max_wr,
            usual: if parts.service == Service::Ud { 2 } else { 1 },
            service: parts.service,
            rekeys: parts.rekeys,
            packets: parts.packets,
            rung_umr_end: None,
            page_offset: parts.page_offset,
            _memory: parts.memory,
        }
    }

    /// Offset at which the device's file maps the register's page.
    pub(crate) fn page_offset(&self) -> u64 {
        self.page_offset
    }

    /// Number of WQEBBs of the ring; 0 for no queue.
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
    pub(crate) fn room(&self) -> WqeLimits {
        self.room
    }

    #[inline(always)]
    pub(crate) fn producer(&self) -> u32 {
        self.published.end()
    }

    /// Number of work requests that fit without a check for room.
    #[cfg(test)]
    pub(crate) fn left(&self) -> u32 {
        self.stop.wrapping_sub(self.published.posted())
    }

    /// Cursor at the published position.
    #[inline(always)]
    pub(crate) fn position(&self) -> SendCursor {
        SendCursor::new(self.published, self.stop)
    }

    /// Cursor at `position`, whose last WQE has `units` WQEBBs; an empty one if no WQE was written
    /// since `begin`.
    pub(crate) fn position_behind(
        &self,
        position: RingPosition,
        stop: u32,
        units: u32,
    ) -> SendCursor {
        let begin = SendCursor { stop, ..self.position() };
        if position == begin.position {
            return begin;
        }
        let first = position.end().wrapping_sub(units);
        let Posted { ds, .. } = self.written_at(first, units);
        begin.behind(position, self.slots.offset(first), first, ds)
    }

    /// Cursor with the length of its last WQE, which was [passed](SendCursor::pass) without it.
    pub(crate) fn measured(&self, at: SendCursor) -> SendCursor {
        if at.position == self.published {
            return self.position_behind(at.position, at.stop, 0);
        }
        let last = Posted { at: self.unit_at(at.offset()), first: 0, ds: 0, units: 0 };
        // SAFETY: the ring is kept by `_memory`, and this is the only poster.
        let head = unsafe { last.head() };
        let ds = QpnDs(head.to_be() as u32).ds();
        self.position_behind(at.position, at.stop, wqe::blocks(ds.into()))
    }

    /// The last WQE before the cursor; the batch is not empty.
    #[inline(always)]
    fn last(&self, at: &SendCursor) -> Posted {
        let (ds, units) = (u32::from(at.ds), u32::from(at.units));
        Posted { at: self.unit_at(at.offset as usize), first: at.first, ds, units }
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

    /// Second word of a control segment.
    #[inline(always)]
    pub(crate) fn qpn_ds(&self, ds: u32) -> u32 {
        self.qpn_shifted | ds
    }

    /// Sets the index, as if that many WQEBBs had been posted and polled.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn start_at(&mut self, index: u32) {
        self.published = RingPosition::new(index, self.published.posted());
        (self.retired, self.marked) = (index, index);
        self.look_first();
        // SAFETY: the queue is empty.
        unsafe { self.shared.send.retire(index) };
    }

    /// Notes the work request whose WQE was just written, and advances the cursor over it. `length`
    /// is in units of 16 bytes, and in WQEBBs. Returns the place of its slot.
    ///
    /// # Safety
    ///
    /// The WQEBBs were [reserved](Self::reserve), and this is the only poster.
    #[inline(always)]
    pub(crate) unsafe fn note(&self, at: &mut SendCursor, wr_id: u64, length: (u32, u32)) -> u32 {
        let (slot, offset) = (at.pi(), self.slots.offset(at.pi()));
        at.advance(slot, offset, length);
        // SAFETY: contract of `note`.
        unsafe { self.slots.put_counted(offset, wr_id, at.position) };
        self.slots.place(slot)
    }

    /// Address of the WQEBB whose slot is at `offset`.
    #[inline(always)]
    pub(crate) fn unit_at(&self, offset: usize) -> *mut u8 {
        unit_at(self.start, offset)
    }

    /// Writes a WQE of `ds` units of 16 bytes at the cursor, with the DCI `stream` or 0 in its
    /// control segment, and advances the cursor. Returns the slot. `pi` is the cursor's index, read
    /// before `reserve`: so the compiler sees that it is the published index in a batch of one.
    ///
    /// It is infallible, because the compiler would test a nested `Result` again, and a post would
    /// take a fifth longer.
    ///
    /// # Safety
    ///
    /// The cursor belongs to this queue. `measure` returned `ds` for the operation and its data, or
    /// `ds` minus [`wqe::VECTOR_UNITS`] with an address vector. `reserve` found room for `units`.
    #[inline(always)]
    pub(crate) unsafe fn write(
        &self,
        at: &mut SendCursor,
        wr: Wr,
        (pi, ds, units, stream): (u32, u32, u32, u64),
        address: Address<'_>,
        op: SendOp,
        data: Data<'_>,
    ) -> u32 {
        // Loaded once: after a store to the ring the compiler would load them again.
        let (ring, slots) = (self.ring_memory(), self.slots);
        let mut ctrl = wqe::ctrl(&op, pi, self.qpn_ds(ds), wr.flags);
        ctrl[1] |= stream;
        let offset = slots.offset(pi);
        let (first, next) = (self.unit_at(offset), ring.unit(pi.wrapping_add(1)));
        // SAFETY: `reserve` found room, by the contract, so the device owns none of the WQEBBs; the
        // measured length includes the head.
        let behind = unsafe { wqe::write_head::<false>((first, next), ctrl, address, &op) };
        let wraps = match address {
            // The head fills the first WQEBB. One more never wraps, which the compiler sees.
            Address::Vector(_) => units > 2 && ring.wraps(pi.wrapping_add(1), units - 1),
            Address::None | Address::Srq(_) => ring.wraps(pi, units),
        };
        if wraps {
            let head = wqe::head(&op).units + address.units();
            // SAFETY: `reserve` found room; the measured length is within the limits of `room`.
            unsafe { wqe::write_wrapped(ring, pi, (head, ds), data) };
        } else {
            // SAFETY: `reserve` found room, and the WQEBBs are contiguous.
            unsafe { wqe::write_data(behind, &data) };
        }
        at.advance(pi, offset, (ds, units));
        // SAFETY: `reserve` found the WQEBBs free; this is the only poster.
        unsafe { slots.put_counted(offset, wr.id, at.position) };
        slots.place(pi)
    }

    /// Reads back the WQE of `units` WQEBBs at `first`.
    #[inline(always)]
    pub(crate) fn written_at(&self, first: u32, units: u32) -> Posted {
        let last = Posted { at: self.ring_memory().unit(first), first, ds: 0, units };
        // SAFETY: the ring is kept by `_memory`, and this is the only poster.
        let head = unsafe { last.head() };
        // The length is in the second word.
        Posted { ds: QpnDs(head.to_be() as u32).ds().into(), ..last }
    }

    /// Publishes all WQEs before the cursor.
    ///
    /// # Safety
    ///
    /// See [`SendOps::ring`]; and the batch is not empty.
    #[inline(always)]
    pub(crate) unsafe fn publish(&mut self, at: SendCursor) {
        // SAFETY: contract of `publish`.
        unsafe { self.count_in_record(at.pi()) };
        let (last, ring) = (self.last(&at), self.ring_memory());
        // SAFETY: the register is valid while `_memory` lives; the last WQE is one that this queue
        // wrote, by the contract.
        unsafe { self.doorbell.ring(last, at.is_alone(), ring) };
        self.stop = at.stop;
        self.keep(at.position);
    }

    /// The device's part of [`publish`](Self::publish) for a batch of one, with separate cases for
    /// one and two WQEBBs, which the compiler copies to the register without a loop. `ring` belongs
    /// to this queue; for `WHOLE` see `Doorbell::ring_short`.
    ///
    /// # Safety
    ///
    /// The contract of the method above.
    #[inline(always)]
    pub(crate) unsafe fn announce<const WHOLE: bool>(&mut self, ring: Ring, pi: u32, last: Posted) {
        // SAFETY: contract of `announce`.
        unsafe { self.count_in_record(pi) };
        match last.units {
            // SAFETY: as in `publish`.
            1 => unsafe { self.doorbell.ring_short::<WHOLE>(last.of::<1>(), ring) },
            // SAFETY: as in `publish`.
            2 => unsafe { self.doorbell.ring_short::<WHOLE>(last.of::<2>(), ring) },
            // SAFETY: as in `publish`.
            _ => unsafe { self.doorbell.ring_short::<WHOLE>(last, ring) },
        }
    }

    /// [`publish`](Self::publish) of a batch whose cursor has no length of its last WQE. False, and
    /// nothing is published: it is empty, or a single WQE that is not kept as one or two WQEBBs.
    ///
    /// # Safety
    ///
    /// See [`SendOps::ring`]. The index did not wrap in the batch, `stop` is the queue's, no UMR
    /// waits for its fence, and each WQE has more than a control segment.
    #[inline(always)]
    pub(crate) unsafe fn publish_at_once(&mut self, at: &SendCursor) -> bool {
        let (ring, since) = (self.ring_memory(), at.position.since(self.published));
        let (start, first) = (self.unit_at(at.offset()), self.producer());
        // The segments are not counted: all words of a WQEBB are copied alike.
        let last = Posted { at: start, first, ds: wqe::DS_PER_UNIT, units: 1 };
        // One comparison each: the two conditions together become instructions that join them.
        if since == RingPosition::new(1, 1) {
            if !self.doorbell.keeps(1) {
                return false;
            }
            // SAFETY: contract of `publish_at_once`.
            unsafe { self.count_in_record(at.pi()) };
            // SAFETY: as in `publish`; the WQE is kept.
            unsafe { self.doorbell.ring_kept::<false>(last, ring) };
        } else if since == RingPosition::new(2, 1) {
            if !self.doorbell.keeps(2) {
                return false;
            }
            // SAFETY: contract of `publish_at_once`.
            unsafe { self.count_in_record(at.pi()) };
            // SAFETY: as in `publish`; the WQE is kept.
            unsafe { self.doorbell.ring_kept::<false>(Posted { units: 2, ..last }, ring) };
        } else if since.posted() > 1 {
            // SAFETY: contract of `publish_at_once`.
            unsafe { self.count_in_record(at.pi()) };
            // SAFETY: as in `publish`.
            unsafe { self.doorbell.ring(last, false, ring) };
        } else {
            return false;
        }
        self.keep(at.position);
        true
    }

    /// Stores the producer index in the record.
    ///
    /// # Safety
    ///
    /// All WQEs before `pi` are written.
    #[inline(always)]
    unsafe fn count_in_record(&mut self, pi: u32) {
        // SAFETY: the record is valid while `_memory` lives, and this queue is the only one to
        // store to it.
        unsafe { store_record(self.record, MLX5_SND_DBR, pi) };
    }

    /// The queue's part of [`publish`](Self::publish), except `stop`, which few work requests
    /// change.
    #[inline(always)]
    pub(crate) fn keep(&mut self, position: RingPosition) {
        self.published = position;
        self.marked = position.end();
    }

    /// Takes back the buffers of a batch that was not rung, and forgets its UMRs.
    #[cold]
    #[inline(never)]
    fn disown(&mut self) {
        // SAFETY: the slots are behind the published index and passed the check for room, so the
        // poster owns them.
        unsafe { self.shared.send.disown(self.producer(), self.marked) };
        self.marked = self.producer();
        self.umr_end = self.rung_umr_end;
    }
}

impl fmt::Debug for Sq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sq")
            .field("qpn", &format_args!("{:#x}", self.qpn()))
            .field("units", &self.units())
            .field("producer", &self.producer())
            .field("retired", &self.retired)
            .field("enabled", &(self.limit != 0))
            .field("doorbell", &self.doorbell)
            .finish_non_exhaustive()
    }
}
