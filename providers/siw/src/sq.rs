//! Send queues.
//!
//! # Safety
//!
//! A [`Sq`] is the only one to fill its ring, and holds on to the mapping. It writes elements whose
//! slot is retired: the kernel has copied them before it completes them. The flag that hands an
//! element over is set when the batch is rung.
#![allow(unsafe_code, reason = "writes work requests into a ring that the kernel reads")]

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::commands::Uverbs;
use uverbs_core::commands::kick::is_gone;
use uverbs_core::memory::registered::Held;
use uverbs_core::provider::{PostsWhole, SendOps};
use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::token::{Queue, Token, is_before};
use uverbs_core::queues::work::{Data, Destination, PostError, Rekey, SendFlags, SendOp, Wr};
use uverbs_kernel_abi::siw::siw_sqe;

use crate::Ah;
use crate::ring::Ring;
use crate::wqe::{self, Room};

/// In a work request's number: the program asked for no completion of it.
pub(crate) const QUIET: u64 = 1 << 63;

/// A tentative position in a send queue.
#[derive(Clone, Copy, Debug)]
pub struct SendCursor {
    /// The next free element, free running.
    pi: u32,
}

/// The posting side of a send queue.
pub struct Sq {
    ring: Ring<siw_sqe>,
    /// What each element's flags will be, when it is handed over.
    flags: Box<[u16]>,
    /// Published producer index, free running.
    pi: u32,
    /// Where writing must stop, by what was looked up: free running. The published index while
    /// posting isn't allowed.
    limit: u32,
    enabled: bool,
    /// The connection has room for READs of this side.
    reads: bool,
    room: Room,
    max_wr: u32,
    /// One past the highest element that may hold a buffer; the producer index unless a batch was
    /// forgotten.
    marked: u32,
    shared: Arc<QpShared>,
    uverbs: Uverbs,
    handle: u32,
    /// The errno of the last doorbell, if the kernel rejected it.
    refused: Option<Errno>,
    /// Keeps the ring mapped.
    _memory: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the ring is memory that `_memory` keeps, and this is the only one to fill it.
unsafe impl Send for Sq {}

/// What a send queue is made from.
pub(crate) struct SqParts {
    pub(crate) ring: Ring<siw_sqe>,
    /// Work requests outstanding at most; no more than elements.
    pub(crate) max_wr: u32,
    pub(crate) room: Room,
    pub(crate) shared: Arc<QpShared>,
    pub(crate) uverbs: Uverbs,
    /// The kernel's handle of the queue pair.
    pub(crate) handle: u32,
    pub(crate) memory: Arc<dyn Any + Send + Sync>,
}

impl Sq {
    /// A queue that refuses posts until it is enabled.
    ///
    /// # Safety
    ///
    /// The ring is valid while `memory` lives, and nobody else fills it. The table of sends has as
    /// many slots.
    pub(crate) unsafe fn new(parts: SqParts) -> Self {
        Self {
            flags: vec![0; parts.ring.mask() as usize + 1].into(),
            ring: parts.ring,
            pi: 0,
            limit: 0,
            enabled: false,
            reads: true,
            room: parts.room,
            max_wr: parts.max_wr,
            marked: 0,
            shared: parts.shared,
            uverbs: parts.uverbs,
            handle: parts.handle,
            refused: None,
            _memory: parts.memory,
        }
    }

    /// Tells the kernel to look, and notes what it said.
    fn kick(&mut self) {
        self.refused = self.uverbs.kick_sends(self.handle).err();
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self, at: u32) -> Result<(), PostError> {
        // What is posted to a queue pair that failed never completes (kernel
        // `siw_qp.c:siw_sq_flush` looks once).
        if !self.enabled || self.shared.send.has_failed() {
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
        let used = self.pi.wrapping_sub(self.shared.send.retired());
        self.limit = self.pi.wrapping_add(self.max_wr.saturating_sub(used));
        if is_before(at, self.limit) { Ok(()) } else { Err(PostError::Full) }
    }

    /// Writes a work request.
    ///
    /// # Safety
    ///
    /// See [`SendOps::post`]; the slot is the cursor's.
    #[inline(never)]
    unsafe fn write(
        &mut self,
        slot: u32,
        wr: Wr,
        op: SendOp,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        let checked = wqe::check(&op, &data, self.room)?;
        // The kernel fences no READ (`siw_qp.c:siw_activate_tx`).
        if checked.is_read && wr.flags.contains(SendFlags::FENCE) {
            return Err(PostError::BadOperation);
        }
        // The kernel refuses the doorbell of such a READ, and of all behind it: it stays the first
        // of the queue for ever (`siw_qp.c:siw_activate_tx_from_sq`).
        if checked.is_read && !self.reads {
            return Err(PostError::NoReads);
        }
        if !is_before(slot, self.limit) {
            self.make_room(slot)?;
        }
        let user_index = self.shared.user_index.value();
        let token = Token { user_index, queue: Queue::Send, index: slot }.pack();
        let quiet = if wr.flags.contains(SendFlags::SIGNALED) { 0 } else { QUIET };
        let flags = wqe::flags(&checked, wr.flags, &data);
        if let Some(place) = self.flags.get_mut((slot & self.ring.mask()) as usize) {
            *place = flags;
        }
        let to = self.ring.element(slot);
        // SAFETY: behind the published index and before the limit: the element is ours, and
        // `check` saw the data.
        unsafe { wqe::write_send(to, token | quiet, checked, flags, &data) };
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
}

// SAFETY: a post passes the check for room, so its slot is free; buffers stay in the table until
// the polling side or `disown` takes them; the kernel takes elements by their flag alone, which
// `ring` sets.
unsafe impl SendOps for Sq {
    type Cursor = SendCursor;
    type Ah = Ah;

    #[inline]
    fn begin(&mut self) -> SendCursor {
        if self.marked != self.pi {
            self.disown();
        }
        if self.shared.send.has_failed() {
            self.limit = self.pi;
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
        // SAFETY: the caller's promise.
        let slot = unsafe { self.write(at.pi, wr, op, data) }?;
        at.pi = slot.wrapping_add(1);
        Ok(slot)
    }

    /// There is no address handle.
    #[inline(always)]
    unsafe fn post_to(
        &mut self,
        _: &mut SendCursor,
        _: Wr,
        _: SendOp,
        to: Destination<'_, Ah>,
        _: Data<'_>,
    ) -> Result<u32, PostError> {
        match *to.ah {}
    }

    /// The operation that takes a key away is the kernel's own users' (`siw-abi.h`), and there are
    /// no windows.
    #[inline(always)]
    unsafe fn rekey(&mut self, _: &mut SendCursor, _: Wr, _: &Rekey) -> Result<u32, PostError> {
        Err(PostError::BadOperation)
    }

    #[inline(always)]
    unsafe fn own(&mut self, _: &SendCursor, slot: u32, held: Held) {
        self.marked = slot.wrapping_add(1);
        // SAFETY: the slot of an element just written, says the caller: ours, and `begin` left no
        // buffer in it. The table isn't told that it owns or lends, for nobody passes over its
        // slots: each is taken by its own completion (`Known::take_send`).
        unsafe { self.shared.send.slots().own(slot, held) };
    }

    /// One system call at most, whatever is in the batch; none while the kernel has yet to take
    /// what was rung before, behind which it looks by itself.
    #[inline]
    unsafe fn ring(&mut self, at: SendCursor) {
        // A ring that the kernel did not look at before may still be waiting.
        if at.pi == self.pi && self.refused.is_none() {
            return;
        }
        let first = self.pi;
        (self.pi, self.marked) = (at.pi, at.pi);
        // SAFETY: what is before the cursor was posted, and this is the only poster.
        unsafe { self.shared.send.publish(at.pi) };
        let mut index = first;
        while index != at.pi {
            let flags = self.flags.get((index & self.ring.mask()) as usize);
            self.ring.hand_over(index, flags.copied().unwrap_or_default());
            index = index.wrapping_add(1);
        }
        // With a batch that fills the ring the element before the first is its last.
        let is_whole = at.pi.wrapping_sub(first) > self.ring.mask();
        let before = first.wrapping_sub(1);
        if self.refused.is_none() && !is_whole && self.ring.is_waiting(before) {
            return;
        }
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
    }

    fn forbid_reads(&mut self) {
        self.reads = false;
    }

    /// No queue comes here: the kernel's queue pairs don't go back to RESET.
    unsafe fn reset(&mut self) {
        // SAFETY: the caller's promise: device and polling side are done with the queue.
        unsafe { self.shared.send.reset() };
        // SAFETY: all slots are empty, and the next call retires them.
        unsafe { self.shared.send.publish(self.pi) };
        // SAFETY: as above.
        unsafe { self.shared.send.retire(self.pi) };
        (self.limit, self.marked, self.enabled, self.refused) = (self.pi, self.pi, false, None);
    }
}

// SAFETY: as for `SendOps`.
unsafe impl PostsWhole for Sq {}

impl fmt::Debug for Sq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sq")
            .field("qpn", &format_args!("{:#x}", self.shared.qpn))
            .field("slots", &(self.ring.mask() + 1))
            .field("producer", &self.pi)
            .field("enabled", &self.enabled)
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}
