//! Completion queues.
//!
//! # Safety
//!
//! A [`Cq`] is the only consumer of its ring, and `core` keeps the mapping. A completion takes a
//! slot only as `uverbs_core::queues::known` allows: its token must name a work request that is in
//! flight.
#![allow(unsafe_code, reason = "takes buffers by the entries that the kernel writes")]

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use uverbs_core::error::Error;
use uverbs_core::memory::pages::Pages;
use uverbs_core::objects::cq::{CqCore, CqRoom, Message};
use uverbs_core::provider::{Armer, CqOps, Notify, Polled};
use uverbs_core::queues::known::{Ended, Known};
use uverbs_core::queues::slots::Taken;
use uverbs_core::queues::token::{Queue, Token};

use crate::driver::Driver;
use crate::rings::{Arm, CqRing};
use crate::sq::QUIET;

const RESIZE_CQ: &str = "resize_cq";

/// Polling side of a completion queue.
pub struct Cq<D: Driver> {
    ring: D::CqRing,
    known: Known,
    strays: u64,
    core: Arc<CqCore>,
    /// Mapping of the ring, which `core` keeps: another one with each size.
    memory: Arc<Mutex<Pages>>,
    /// Maximum size of the device's queues.
    most: u32,
}

type Entry<D> = <<D as Driver>::CqRing as CqRing>::Entry;
type View<'a, D> = <<D as Driver>::CqRing as CqRing>::View<'a>;

impl<D: Driver> Cq<D> {
    /// An empty queue.
    ///
    /// # Safety
    ///
    /// The ring is valid while `core` keeps `memory`, and has no other consumer.
    pub(crate) unsafe fn new(
        ring: D::CqRing,
        core: Arc<CqCore>,
        memory: Arc<Mutex<Pages>>,
        most: u32,
    ) -> Self {
        Self { ring, known: Known::default(), strays: 0, core, memory, most }
    }

    /// The ring.
    #[must_use]
    pub fn ring_ref(&self) -> &D::CqRing {
        &self.ring
    }

    /// The ring.
    #[cfg(any(test, feature = "testing"))]
    pub fn ring_mut(&mut self) -> &mut D::CqRing {
        &mut self.ring
    }

    /// Applies the pending messages about created and destroyed queue pairs, and leaves the ring's
    /// entries alone: for a queue whose entries a program takes without this polling side.
    pub fn settle_beside(&mut self) {
        self.apply(false);
    }

    /// Applies the pending messages, and drops the entries of destroyed queue pairs.
    #[cold]
    #[inline(never)]
    fn learn(&mut self) {
        self.apply(true);
    }

    fn apply(&mut self, sweeps: bool) {
        if !self.core.has_messages() {
            return;
        }
        // SAFETY: this is the polling side.
        for message in unsafe { self.core.messages() } {
            match message {
                Message::Attach(shared, roles) => {
                    self.ring.attach(&shared);
                    self.known.attach(shared, roles);
                }
                Message::Detach(shared) => {
                    if sweeps {
                        self.sweep(shared.user_index.value());
                    }
                    self.ring.detach(&shared);
                    self.known.detach(&shared);
                }
            }
        }
    }

    /// Takes and retires the work request of an entry, if it is in flight.
    #[inline(always)]
    fn take(&mut self, token: Token, entry: Entry<D>) -> Option<Taken> {
        let ended = || D::CqRing::ended(entry);
        let in_order = match token.queue {
            Queue::Send => D::SENDS_COMPLETE_IN_ORDER,
            Queue::Recv => D::RECVS_COMPLETE_IN_ORDER,
        };
        if in_order {
            // SAFETY: this is the polling side, and the kernel completed the work request.
            unsafe { self.known.take(token, ended) }
        } else {
            // SAFETY: this is the polling side, and the kernel completed the work request.
            unsafe { self.known.take_out_of_order(token, ended()) }
        }
    }

    /// Fast path of [`next`](CqOps::next): takes the work request of an entry that names one.
    /// `None` changes nothing.
    #[inline(always)]
    fn take_fast(&mut self, entry: Entry<D>) -> Option<(Token, Taken)> {
        if D::CqRing::is_unsolicited(entry) {
            return None;
        }
        let token = self.ring.token(entry)?;
        Some((token, self.take(token, entry)?))
    }

    /// True for the completion of a work request whose program asked for none.
    #[inline(always)]
    fn is_quiet(token: Token, entry: Entry<D>, taken: &Taken) -> bool {
        let in_slot =
            D::SIGNALS_ALL && token.queue == Queue::Send && taken.position.posted() == QUIET;
        D::CqRing::is_quiet(entry)
            || in_slot && matches!(D::CqRing::ended(entry), Ended::Done { .. })
    }

    /// Completion of an entry whose work request was taken.
    ///
    /// # Safety
    ///
    /// The entry is given back after the view's lifetime.
    #[inline(always)]
    unsafe fn polled<'a>(token: Token, entry: Entry<D>, taken: Taken) -> Polled<View<'a, D>> {
        // SAFETY: guaranteed by the contract of `polled`.
        let view = unsafe { D::CqRing::view(entry, token.queue == Queue::Recv) };
        Polled { view, wr_id: taken.wr_id, frame: taken.frame }
    }

    /// Slow path of [`next`](CqOps::next): applies messages, and skips entries without a completion
    /// for the program.
    #[inline(never)]
    fn next_slow(&mut self) -> Option<Polled<View<'_, D>>> {
        // Bounded for any content of the ring: each entry once, and one entry a second time after
        // `learn`.
        for _ in 0..self.ring.capacity().saturating_add(2) {
            let Some(entry) = self.ring.front() else {
                if self.core.has_messages() {
                    self.learn();
                }
                break;
            };
            if D::CqRing::is_unsolicited(entry) {
                if self.core.has_messages() {
                    self.learn();
                    continue;
                }
                let token = self.ring.token(entry);
                self.ring.advance();
                if !token.is_some_and(|token| self.known.has(token.user_index)) {
                    self.strays += 1;
                    continue;
                }
                // SAFETY: given back by the next call or `publish`, when the view is over.
                let view = unsafe { D::CqRing::view(entry, true) };
                return Some(Polled { view, wr_id: 0, frame: None });
            }
            let Some(token) = self.ring.token(entry) else {
                self.ring.advance();
                continue;
            };
            if !self.known.has(token.user_index) && self.core.has_messages() {
                // `learn` may sweep, which moves entries and the consumer index: read again.
                self.learn();
                continue;
            }
            let taken = self.take(token, entry);
            self.ring.advance();
            match taken {
                // A failure is reported even if the send is unsignaled.
                Some(taken) if !Self::is_quiet(token, entry, &taken) => {
                    // SAFETY: given back by the next call or `publish`, when the view is over.
                    return Some(unsafe { Self::polled(token, entry, taken) });
                }
                // The buffer goes back to its slab.
                Some(_) => {}
                None => self.strays += 1,
            }
        }
        self.publish();
        None
    }
}

// SAFETY: a slot is taken when a CQE reports that its work request completed, and retired after
// that; see the file's head.
unsafe impl<D: Driver> CqOps for Cq<D> {
    type View<'a> = View<'a, D>;

    #[inline(always)]
    fn next(&mut self) -> Option<Polled<View<'_, D>>> {
        let Some(entry) = self.ring.front() else {
            return if self.core.has_messages() { self.next_slow() } else { None };
        };
        if let Some((token, taken)) = self.take_fast(entry) {
            self.ring.advance();
            if !Self::is_quiet(token, entry, &taken) {
                // SAFETY: given back by the next call or `publish`, when the view is over.
                return Some(unsafe { Self::polled(token, entry, taken) });
            }
        }
        // Destructured, because the call returns in memory and only that value shall be there.
        let Polled { view, wr_id, frame } = self.next_slow()?;
        Some(Polled { view, wr_id, frame })
    }

    fn is_empty(&mut self) -> bool {
        self.ring.front().is_none()
    }

    fn strays(&self) -> u64 {
        self.strays
    }

    #[inline]
    fn publish(&mut self) {
        self.ring.publish(&self.core);
    }

    fn settle(&mut self) {
        self.learn();
    }

    fn sweep(&mut self, user_index: u32) {
        self.ring.sweep(&self.known, user_index);
    }

    #[cold]
    fn resize(&mut self, entries: u32) -> Result<(), Error> {
        if !D::RESIZES {
            let what = format!("another size of a completion queue ({})", D::MODULE);
            return Err(Error::Unsupported { verb: RESIZE_CQ, what });
        }
        if entries == 0 {
            return Err(Error::Limit { verb: RESIZE_CQ, what: "entries", value: 0, limit: 1 });
        }
        Error::limit(RESIZE_CQ, "entries", entries, self.most.saturating_sub(1))?;
        self.core.room_of(entries, entries + 1)?;
        self.publish();
        // If the mapping fails, the queue keeps the old ring, and another resize mends it.
        let memory = self.ring.resize(&self.core, entries + 1)?;
        *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = memory;
        // Not checked again: the kernel's queue has this size now.
        let room = CqRoom::new(entries, self.ring.capacity());
        // SAFETY: this is the polling side, and the ring is that large.
        unsafe { self.core.set_room(room) };
        Ok(())
    }

    #[cold]
    fn arm(&mut self, notify: Notify) -> Result<(), Error> {
        arm(&self.core, &self.ring.arms(), notify)
    }

    fn armer(&self) -> Armer {
        let (core, by) = (Arc::clone(&self.core), self.ring.arms());
        Box::new(move |notify| arm(&core, &by, notify))
    }
}

fn arm(core: &CqCore, by: &impl Arm, notify: Notify) -> Result<(), Error> {
    core.events_to_arm()?;
    by.arm(core, notify)
}

impl<D: Driver> Drop for Cq<D> {
    fn drop(&mut self) {
        // Later messages are dropped, so that buffers go back to their slabs.
        // SAFETY: this is the one polling side, and it ends here.
        unsafe { self.core.close() };
    }
}

impl<D: Driver> fmt::Debug for Cq<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cq")
            .field("handle", &self.core.handle())
            .field("capacity", &self.ring.capacity())
            .field("consumer", &self.ring.consumer())
            .field("queue_pairs", &self.known.len())
            .field("strays", &self.strays)
            .finish_non_exhaustive()
    }
}
