//! Completion queues.
//!
//! # Safety
//!
//! A [`Cq`] is the only consumer of its ring, and `core` keeps the mapping. A completion takes a
//! slot only if its token names a queue of a queue pair that completes here, and a work request
//! that is published and not retired; so whatever stands in the ring, no slot is taken that the
//! posting side may write. Which of those in flight a completion names is the kernel's word.
#![allow(
    unsafe_code,
    reason = "reads a ring that the kernel writes, and takes buffers by what it says"
)]

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use uverbs_core::error::Error;
use uverbs_core::memory::pages::Pages;
use uverbs_core::objects::cq::{CqCore, CqRoom, Message};
use uverbs_core::provider::{Armer, CqOps, Notify, Polled};
use uverbs_core::queues::known::{Ended, Known};
use uverbs_core::queues::slots::Taken;
use uverbs_core::queues::token::{Queue, Token};
use uverbs_kernel_abi::rxe::rxe_resize_cq_resp;
use uverbs_kernel_abi::wc::{IB_WC_SUCCESS, ib_uverbs_wc};
use zerocopy::IntoBytes;

use crate::create::{Mapped, map};
use crate::ring::Ring;
use crate::wc::{Entry, Wc, took_send};

const RESIZE_CQ: &str = "resize_cq";

/// The polling side of a completion queue.
pub struct Cq {
    ring: Ring,
    /// The next element to take, in the ring.
    ci: u32,
    /// The kernel's producer index, as last looked up.
    seen: u32,
    known: Known,
    strays: u64,
    core: Arc<CqCore>,
    /// The mapping of the ring, which `core` keeps: another one with each size.
    memory: Arc<Mutex<Pages>>,
    /// Entries at most.
    limit: u32,
}

// SAFETY: the ring is memory that `core` keeps, and this is the only one to consume from it.
unsafe impl Send for Cq {}

impl Cq {
    /// # Safety
    ///
    /// The ring is valid while `core` lives, its elements have room for an `ib_uverbs_wc`, and
    /// nobody else consumes from it.
    pub(crate) unsafe fn new(
        ring: Ring,
        core: Arc<CqCore>,
        memory: Arc<Mutex<Pages>>,
        limit: u32,
    ) -> Self {
        Self { ring, ci: 0, seen: 0, known: Known::default(), strays: 0, core, memory, limit }
    }

    /// Completions that were skipped, since they are of no work request in flight on a queue pair
    /// known here. Not 0 means that the kernel, or whatever else writes to the ring, did something
    /// unexpected.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// Where the ring is mapped.
    #[cfg(test)]
    pub(crate) fn address(&self) -> usize {
        self.ring.element(0).addr()
    }

    /// As if so many completions had been polled before.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn start_at(&mut self, index: u32) {
        (self.ci, self.seen) = (index & self.ring.mask(), index & self.ring.mask());
    }

    fn next_index(&self, index: u32) -> u32 {
        index.wrapping_add(1) & self.ring.mask()
    }

    fn entry(&self, index: u32) -> Entry {
        // SAFETY: an element of the ring, which `core` keeps, aligned, with room for a completion.
        unsafe { Entry::new(self.ring.element(index)) }
    }

    /// Whether there is an element to take.
    #[inline]
    fn is_ready(&mut self) -> bool {
        if self.ci == self.seen {
            self.seen = self.ring.produced();
        }
        self.ci != self.seen
    }

    /// Reads the messages that came.
    #[cold]
    #[inline(never)]
    fn learn(&mut self) {
        if !self.core.has_messages() {
            return;
        }
        // SAFETY: this is the polling side.
        for message in unsafe { self.core.messages() } {
            match message {
                Message::Attach(shared, roles) => self.known.attach(shared, roles),
                Message::Detach(shared) => {
                    self.sweep(shared.user_index.value());
                    self.known.detach(&shared);
                }
            }
        }
    }

    /// Takes and retires the work request that an entry is of, if it is one in flight.
    #[inline]
    fn take(&self, token: Token, entry: Entry) -> Option<Taken> {
        // SAFETY: this is the polling side, and the kernel completed what the entry is of.
        unsafe { self.known.take(token, || ended(entry)) }
    }

    /// Drops the entries for which `gone` holds, and closes the gaps: older entries move towards
    /// the newest, so that the consumer index jumps over the gap.
    fn sweep_where(&mut self, gone: impl Fn(Entry) -> bool) {
        self.seen = self.ring.produced();
        let mask = self.ring.mask();
        let count = self.seen.wrapping_sub(self.ci) & mask;
        let mut freed = 0;
        for back in 1..=count {
            let index = self.seen.wrapping_sub(back);
            if gone(self.entry(index)) {
                freed += 1;
            } else if freed != 0 {
                let (from, to) = (index, index.wrapping_add(freed));
                // SAFETY: whole elements of the ring, not the same, both between consumer and
                // producer index: the program's.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        self.ring.element(from),
                        self.ring.element(to),
                        self.ring.element_bytes(),
                    );
                }
            }
        }
        if freed != 0 {
            self.ci = self.ci.wrapping_add(freed) & mask;
            self.publish();
        }
    }
}

/// How the work request of an entry ended.
#[inline]
fn ended(entry: Entry) -> Ended {
    if entry.status() != IB_WC_SUCCESS {
        return Ended::Failed;
    }
    let into = took_send(entry.opcode());
    Ended::Done { bytes: if into { entry.byte_len() } else { 0 } }
}

// SAFETY: a slot is taken when an entry of the ring says that its work request is over, and retired
// behind that; see the file's head.
unsafe impl CqOps for Cq {
    type View<'a> = Wc<'a>;

    #[inline]
    fn next(&mut self) -> Option<Polled<Wc<'_>>> {
        // A ring full of strays at most, then it is the caller's turn: whatever stands there, this
        // ends.
        let mut strays = 0;
        for _ in 0..=self.ring.mask() {
            if !self.is_ready() {
                if self.core.has_messages() {
                    self.learn();
                }
                break;
            }
            let entry = self.entry(self.ci);
            let token = Token::unpack(entry.wr_id());
            if !self.known.has(token.user_index) && self.core.has_messages() {
                // Learning may sweep, which moves entries and the consumer index: look anew.
                self.learn();
                continue;
            }
            let taken = self.take(token, entry);
            self.ci = self.next_index(self.ci);
            if let Some(Taken { wr_id, frame, .. }) = taken {
                // SAFETY: the entry is given back by `publish` at the earliest, for which the
                // caller's view is over.
                let view = unsafe { Wc::new(entry, token.queue == Queue::Recv) };
                return Some(Polled { view, wr_id, frame });
            }
            self.strays += 1;
            strays += 1;
        }
        if strays != 0 {
            self.publish();
        }
        None
    }

    #[inline]
    fn publish(&mut self) {
        self.ring.consume(self.ci);
    }

    fn settle(&mut self) {
        self.learn();
    }

    fn sweep(&mut self, user_index: u32) {
        // Receives of a shared queue are told by the queue pair's number, which the kernel gives
        // out anew when it has been through all of them.
        let known = std::mem::take(&mut self.known);
        let of_shared = known.shared_receives(user_index);
        self.sweep_where(|entry| {
            let token = Token::unpack(entry.wr_id());
            match of_shared {
                Some((index, qpn)) if token.user_index == index && entry.qpn() == qpn => {
                    // SAFETY: this is the polling side, and the kernel completed it.
                    drop(unsafe { known.take(token, || Ended::Failed) });
                    true
                }
                _ => token.user_index == user_index,
            }
        });
        self.known = known;
    }

    /// The kernel makes another ring and moves what is in this one to its start
    /// (`rxe_queue.c:rxe_queue_resize`; rdma-core `rxe.c:rxe_resize_cq`).
    #[cold]
    fn resize(&mut self, entries: u32) -> Result<(), Error> {
        if entries == 0 {
            return Err(Error::Limit { verb: RESIZE_CQ, what: "entries", value: 0, limit: 1 });
        }
        Error::limit(RESIZE_CQ, "entries", entries, self.limit.saturating_sub(1))?;
        self.core.room_of(entries, entries + 1)?;
        self.publish();
        let mut answer = rxe_resize_cq_resp::default();
        let uverbs = self.core.context().uverbs();
        // SAFETY: the request names no memory, and the queue is this one.
        unsafe { uverbs.resize_cq(self.core.handle(), entries + 1, &[], answer.as_mut_bytes()) }?;
        // If this fails, the queue is what it was, and nothing comes to it any more.
        let element = size_of::<ib_uverbs_wc>();
        let Mapped { memory, ring } = map(uverbs, RESIZE_CQ, answer.mi, element)?;
        // Not asked once more whether it is enough: the kernel's queue has this size now.
        let room = CqRoom::new(entries, ring.mask());
        (self.ring, self.ci, self.seen) = (ring, 0, 0);
        *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = memory;
        // SAFETY: this is the polling side, and the ring is that large.
        unsafe { self.core.set_room(room) };
        Ok(())
    }

    /// The kernel arms (`rxe_verbs.c:rxe_req_notify_cq`), and doesn't look for what is there
    /// already.
    #[cold]
    fn arm(&mut self, notify: Notify) -> Result<(), Error> {
        arm(&self.core, notify)
    }

    fn armer(&self) -> Armer {
        let core = Arc::clone(&self.core);
        Box::new(move |notify| arm(&core, notify))
    }
}

fn arm(core: &CqCore, notify: Notify) -> Result<(), Error> {
    core.events_to_arm()?;
    core.context().uverbs().req_notify_cq(core.handle(), notify == Notify::Solicited)
}

impl Drop for Cq {
    fn drop(&mut self) {
        // Nobody will look any more: what is told from now on is dropped, so that buffers go back
        // to their slabs. SAFETY: this is the one polling side, and it ends here.
        unsafe { self.core.close() };
    }
}

impl fmt::Debug for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cq")
            .field("handle", &self.core.handle())
            .field("slots", &(self.ring.mask() + 1))
            .field("consumer", &self.ci)
            .field("queue_pairs", &self.known.len())
            .field("strays", &self.strays)
            .finish_non_exhaustive()
    }
}
