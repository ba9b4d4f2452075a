//! Send queues.
//!
//! # Safety
//!
//! A [`Sq`] is the only producer of its ring, and holds on to the mapping. It writes behind the
//! published index only, and neither where the kernel's consumer index says that it still reads,
//! nor where a slot is not retired.
#![allow(unsafe_code, reason = "writes work requests into a ring that the kernel reads")]

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use uverbs_core::Errno;
use uverbs_core::attr::DeviceCaps;
use uverbs_core::commands::kick::is_gone;
use uverbs_core::memory::registered::Held;
use uverbs_core::provider::{PostsWhole, SendOps};
use uverbs_core::queues::placement::PlaceOp;
use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::slots::SlotTable;
use uverbs_core::queues::token::{Queue, Token, is_before};
use uverbs_core::queues::work::{Data, Destination, PostError, Rekey, SendOp, WINDOW_MAX, Wr};

use uverbs_kernel_abi::rxe::{rxe_send_wqe, rxe_send_wr_ud};

use crate::Ah;
use crate::kick::Kick;
use crate::ring::Ring;
use crate::wqe::{self, Room};

/// A tentative position in a send queue.
#[derive(Clone, Copy, Debug)]
pub struct SendCursor {
    /// The next free element, free running.
    pi: u32,
}

/// What is posted, and where.
struct Post<'a> {
    slot: u32,
    wr: Wr,
    op: SendOp,
    to: Option<Destination<'a, Ah>>,
    data: Data<'a>,
}

/// The posting side of a send queue.
pub struct Sq {
    ring: Ring,
    /// Published producer index, free running.
    pi: u32,
    /// Where writing must stop, by what was looked up: free running. The published index while
    /// posting isn't allowed.
    limit: u32,
    enabled: bool,
    room: Room,
    max_wr: u32,
    /// Whether it was made for work requests that change keys.
    rekeys: bool,
    /// What it may post of FLUSH and ATOMIC WRITE; `None` of a transport without.
    places: Option<DeviceCaps>,
    /// One past the highest element that may hold a buffer; the producer index unless a batch was
    /// forgotten.
    marked: u32,
    shared: Arc<QpShared>,
    kick: Kick,
    /// The errno of the last doorbell, if the kernel rejected it.
    refused: Option<Errno>,
    qpn: u32,
    /// The address handle that each element names: the kernel looks it up when it sends. Kept until
    /// the element is written anew. Empty where the transport has no datagrams.
    handles: Handles,
    /// Where they go when the queue is dropped before its queue pair.
    attic: Attic,
    /// Keeps the ring mapped.
    _memory: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the ring is memory that `_memory` keeps, and this is the only one to produce into it.
unsafe impl Send for Sq {}

/// The address handles that elements name.
type Handles = Box<[Option<Ah>]>;

/// Keeps handles until the kernel has destroyed the queue pair: work requests may still name them.
pub(crate) type Attic = Arc<Mutex<Handles>>;

/// What a send queue is made from.
pub(crate) struct SqParts {
    pub(crate) ring: Ring,
    /// Work requests outstanding at most; fewer than slots.
    pub(crate) max_wr: u32,
    pub(crate) room: Room,
    /// Whether it is made for work requests that change keys.
    pub(crate) rekeys: bool,
    /// What the device can, if the transport has FLUSH and ATOMIC WRITE.
    pub(crate) places: Option<DeviceCaps>,
    pub(crate) shared: Arc<QpShared>,
    pub(crate) kick: Kick,
    pub(crate) qpn: u32,
    /// Whether each work request has a destination of its own.
    pub(crate) datagrams: bool,
    pub(crate) attic: Attic,
    pub(crate) memory: Arc<dyn Any + Send + Sync>,
}

/// Where writing must stop: neither over what is not retired, nor over what the kernel has not
/// left, which may be less: it posts a flushed completion before it moves its index (kernel
/// `rxe_comp.c:flush_send_queue`). `pi` is the published index.
pub(crate) fn limit(ring: &Ring, table: &SlotTable, pi: u32, max_wr: u32) -> u32 {
    let used = pi.wrapping_sub(ring.consumed()) & ring.mask();
    let by_ring = ring.mask() - used;
    let by_table = max_wr.saturating_sub(pi.wrapping_sub(table.retired()));
    pi.wrapping_add(by_ring.min(by_table))
}

impl Sq {
    /// A queue that refuses posts until it is enabled.
    ///
    /// # Safety
    ///
    /// The ring is valid while `memory` lives, its elements have `room`, and nobody else produces
    /// into it. The table of sends has as many slots.
    pub(crate) unsafe fn new(parts: SqParts) -> Self {
        let handles = if parts.datagrams { parts.ring.mask() as usize + 1 } else { 0 };
        Self {
            handles: (0..handles).map(|_| None).collect(),
            attic: parts.attic,
            ring: parts.ring,
            pi: 0,
            limit: 0,
            enabled: false,
            room: parts.room,
            max_wr: parts.max_wr,
            rekeys: parts.rekeys,
            places: parts.places,
            marked: 0,
            shared: parts.shared,
            kick: parts.kick,
            refused: None,
            qpn: parts.qpn,
            _memory: parts.memory,
        }
    }

    /// Tells the kernel to look, and notes what it said.
    fn kick(&mut self) {
        let failed = self.shared.send.has_failed();
        let heard = if failed { self.kick.flush() } else { self.kick.send() };
        self.refused = heard.err();
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self, at: u32) -> Result<(), PostError> {
        if !self.enabled {
            return Err(PostError::State);
        }
        if self.refused.is_some_and(is_gone) {
            return Err(PostError::DeviceGone);
        }
        if self.refused.is_some() {
            self.kick();
        }
        if self.refused.is_some() {
            return Err(PostError::Refused);
        }
        self.limit = limit(&self.ring, &self.shared.send, self.pi, self.max_wr);
        if is_before(at, self.limit) { Ok(()) } else { Err(PostError::Full) }
    }

    /// Writes a work request. Out of line, and of a copy: a program that posts through the enum
    /// over all providers has cursor and work request in registers, which it couldn't if this took
    /// their addresses.
    ///
    /// # Safety
    ///
    /// See [`SendOps::post`]; the slot is the cursor's.
    #[inline(never)]
    unsafe fn write(&mut self, post: &Post<'_>) -> Result<u32, PostError> {
        let Post { slot, wr, ref op, to, ref data } = *post;
        let size = match to {
            Some(_) => wqe::check_datagram(op, data, self.room)?,
            None => wqe::check(op, data, self.room)?,
        };
        // One has a place for handles exactly if it sends datagrams.
        if to.is_some() == self.handles.is_empty() {
            return Err(PostError::BadOperation);
        }
        if !is_before(slot, self.limit) {
            self.make_room(slot)?;
        }
        let user_index = self.shared.user_index.value();
        let token = Token { user_index, queue: Queue::Send, index: slot }.pack();
        let peer = to.map(|to| {
            let place = self.handles.get_mut((slot & self.ring.mask()) as usize);
            if let Some(place) = place {
                *place = Some(to.ah.clone());
            }
            let [qpn, qkey] = to.peer;
            rxe_send_wr_ud {
                remote_qpn: qpn as u32,
                remote_qkey: qkey as u32,
                ah_num: to.ah.number(),
                ..Default::default()
            }
        });
        let to = self.ring.element(slot);
        // SAFETY: behind the published index and before the limit: the element is ours, and `check`
        // saw that it has room.
        unsafe { wqe::write_send(to, token, wr.flags, op, peer, data, size) };
        // SAFETY: the slot is of an element that is free; this is the only poster.
        unsafe { self.shared.send.slots().put(slot, wr.id, slot.wrapping_add(1)) };
        Ok(slot)
    }

    /// Writes a work request that changes a key. The kernel carries it out before it looks at the
    /// next one (kernel `rxe_req.c:rxe_requester`).
    ///
    /// # Safety
    ///
    /// See [`SendOps::rekey`]; the slot is the cursor's.
    #[inline(never)]
    unsafe fn write_rekey(&mut self, slot: u32, wr: Wr, op: Rekey) -> Result<u32, PostError> {
        if !self.rekeys {
            return Err(PostError::BadOperation);
        }
        if let Rekey::Bind { len, .. } = op
            && len > WINDOW_MAX
        {
            return Err(PostError::MessageTooLong);
        }
        if !is_before(slot, self.limit) {
            self.make_room(slot)?;
        }
        let user_index = self.shared.user_index.value();
        let token = Token { user_index, queue: Queue::Send, index: slot }.pack();
        let head = wqe::rekey_head(token, wr.flags, &op);
        // SAFETY: behind the published index and before the limit: the element is ours. It has room
        // for a head, and is aligned as it needs.
        unsafe { self.ring.element(slot).cast::<rxe_send_wqe>().write(head) };
        // SAFETY: the slot is of an element that is free; this is the only poster.
        unsafe { self.shared.send.slots().put(slot, wr.id, slot.wrapping_add(1)) };
        Ok(slot)
    }

    /// Writes a FLUSH or an ATOMIC WRITE.
    ///
    /// # Safety
    ///
    /// See [`SendOps::place`]; the slot is the cursor's.
    #[inline(never)]
    unsafe fn write_place(&mut self, slot: u32, wr: Wr, op: PlaceOp) -> Result<u32, PostError> {
        let has = self.places.ok_or(PostError::BadOperation)?;
        // A kernel that doesn't know the opcode looks it up beyond its table (before Linux 6.2,
        // `rxe_req.c:wr_opcode_mask`).
        if !has.contains(op.needs()) {
            return Err(PostError::NotOnDevice);
        }
        wqe::check_place(&op, self.room)?;
        if !is_before(slot, self.limit) {
            self.make_room(slot)?;
        }
        let user_index = self.shared.user_index.value();
        let token = Token { user_index, queue: Queue::Send, index: slot }.pack();
        // SAFETY: behind the published index and before the limit: the element is ours, and
        // `check_place` saw that it has room.
        unsafe { wqe::write_place(self.ring.element(slot), token, wr.flags, &op) };
        // SAFETY: the slot is of an element that is free; this is the only poster.
        unsafe { self.shared.send.slots().put(slot, wr.id, slot.wrapping_add(1)) };
        Ok(slot)
    }

    /// Takes back the buffers of a batch that was not rung.
    #[cold]
    #[inline(never)]
    fn disown(&mut self) {
        // SAFETY: behind the published index, and what is written there passed the check for room:
        // the slots are ours.
        unsafe { self.shared.send.disown(self.pi, self.marked) };
        self.marked = self.pi;
    }

    /// Where the ring is mapped.
    #[cfg(test)]
    pub(crate) fn address(&self) -> usize {
        self.ring.element(0).addr()
    }

    /// As if so much had been posted and completed before.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn start_at(&mut self, index: u32) {
        (self.pi, self.limit, self.marked) = (index, index, index);
        // SAFETY: nothing was posted.
        unsafe { self.shared.send.publish(index) };
        // SAFETY: as above.
        unsafe { self.shared.send.retire(index) };
    }
}

// SAFETY: a post passes the check for room, so its slot is free; buffers stay in the table until
// the polling side, `disown` or a reset takes them; the kernel learns of work requests from the
// producer index alone, which `ring` stores.
unsafe impl SendOps for Sq {
    type Cursor = SendCursor;
    type Ah = Ah;

    #[inline]
    fn begin(&mut self) -> SendCursor {
        if self.marked != self.pi {
            self.disown();
        }
        SendCursor { pi: self.pi }
    }

    #[inline(always)]
    unsafe fn post(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        op: SendOp,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        // The program's list then isn't handed on, and needs no address where the compiler sees it.
        let data = match data {
            Data::List(&[one]) => Data::One(one),
            other => other,
        };
        // SAFETY: the caller's promise.
        let slot = unsafe { self.write(&Post { slot: at.pi, wr, op, to: None, data }) }?;
        at.pi = slot.wrapping_add(1);
        Ok(slot)
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
        // SAFETY: the caller's promise.
        let slot = unsafe { self.write(&Post { slot: at.pi, wr, op, to: Some(to), data }) }?;
        at.pi = slot.wrapping_add(1);
        Ok(slot)
    }

    #[inline(always)]
    unsafe fn rekey(&mut self, at: &mut SendCursor, wr: Wr, op: &Rekey) -> Result<u32, PostError> {
        // SAFETY: the caller's promise.
        let slot = unsafe { self.write_rekey(at.pi, wr, *op) }?;
        at.pi = slot.wrapping_add(1);
        Ok(slot)
    }

    #[inline(always)]
    unsafe fn place(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        op: &PlaceOp,
    ) -> Result<u32, PostError> {
        // SAFETY: the caller's promise.
        let slot = unsafe { self.write_place(at.pi, wr, *op) }?;
        at.pi = slot.wrapping_add(1);
        Ok(slot)
    }

    #[inline(always)]
    unsafe fn own(&mut self, _: &SendCursor, slot: u32, held: Held) {
        self.marked = slot.wrapping_add(1);
        if held.is_lent() {
            self.shared.send.will_lend();
        }
        self.shared.send.will_own();
        // SAFETY: the slot of an element just written, says the caller: ours, and `begin` left no
        // buffer in it.
        unsafe { self.shared.send.slots().own(slot, held) };
    }

    /// One system call, whatever is in the batch.
    #[inline]
    unsafe fn ring(&mut self, at: SendCursor) {
        // A ring that the kernel did not look at before may still be waiting.
        if at.pi == self.pi && self.refused.is_none() {
            return;
        }
        (self.pi, self.marked) = (at.pi, at.pi);
        // SAFETY: what is before the cursor was posted, and this is the only poster.
        unsafe { self.shared.send.publish(at.pi) };
        self.ring.produce(at.pi);
        self.kick();
        if self.refused.is_some() {
            // The next post asks why.
            self.limit = self.pi;
        }
    }

    fn refused(&self) -> Option<Errno> {
        self.refused
    }

    fn enable(&mut self, on: bool) {
        self.enabled = on;
        self.limit = self.pi;
        // What a drained queue held back: the kernel doesn't look again by itself (kernel
        // `rxe_qp.c:rxe_qp_from_attr`, to RTS).
        if on && self.shared.send.retired() != self.pi {
            self.kick();
        }
    }

    /// The kernel drains the ring and goes on where it stands, not at index 0 (kernel
    /// `rxe_qp.c:rxe_qp_reset`, `rxe_queue.c:rxe_queue_reset`), and so does this.
    unsafe fn reset(&mut self) {
        // SAFETY: the caller's promise: device and polling side are done with the queue.
        unsafe { self.shared.send.reset() };
        // SAFETY: all slots are empty, and the next call retires them.
        unsafe { self.shared.send.publish(self.pi) };
        // SAFETY: as above.
        unsafe { self.shared.send.retire(self.pi) };
        (self.limit, self.marked, self.enabled, self.refused) = (self.pi, self.pi, false, None);
        self.handles.fill(None);
    }
}

impl Drop for Sq {
    fn drop(&mut self) {
        let handles = std::mem::take(&mut self.handles);
        *self.attic.lock().unwrap_or_else(PoisonError::into_inner) = handles;
    }
}

// SAFETY: as for `SendOps`.
unsafe impl PostsWhole for Sq {}

impl fmt::Debug for Sq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sq")
            .field("qpn", &format_args!("{:#x}", self.qpn))
            .field("slots", &(self.ring.mask() + 1))
            .field("producer", &self.pi)
            .field("kernel_consumer", &self.ring.consumed())
            .field("enabled", &self.enabled)
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}
