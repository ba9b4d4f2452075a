//! Completion queues.
//!
//! # Safety
//!
//! A [`Cq`] is the only consumer of its ring, and `core` keeps the mapping. Which slots it may take
//! is argued in `uverbs_core::queues::known`.
#![allow(
    unsafe_code,
    reason = "reads a ring that the kernel writes, and takes buffers by what it says"
)]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use uverbs_core::error::Error;
use uverbs_core::objects::cq::{CqCore, Message};
use uverbs_core::provider::{Armer, CqOps, Notify, Polled};
use uverbs_core::queues::known::{Ended, Known};
use uverbs_core::queues::slots::Taken;
use uverbs_core::queues::token::{Queue, Token};
use uverbs_kernel_abi::siw::{
    SIW_NOTIFY_NEXT_COMPLETION, SIW_NOTIFY_SOLICITED, SIW_WC_SUCCESS, siw_cqe,
};

use crate::ring::Ring;
use crate::sq::QUIET;
use crate::wc::{Entry, Wc};

const _: () = assert!(std::mem::offset_of!(siw_cqe, id) == 0);

/// The number of an entry whose work request is nobody's any more. No token is this.
const NOBODY: u64 = u64::MAX;

/// The polling side of a completion queue.
pub struct Cq {
    ring: Ring<siw_cqe>,
    /// The next entry to take, free running.
    ci: u32,
    /// The entry before it isn't given back.
    holds: bool,
    known: Known,
    strays: u64,
    core: Arc<CqCore>,
}

// SAFETY: the ring is memory that `core` keeps, and this is the only one to consume from it.
unsafe impl Send for Cq {}

impl Cq {
    /// # Safety
    ///
    /// The ring is valid while `core` lives, with a `siw_cq_ctrl` behind it, and nobody else
    /// consumes from it.
    pub(crate) unsafe fn new(ring: Ring<siw_cqe>, core: Arc<CqCore>) -> Self {
        Self { ring, ci: 0, holds: false, known: Known::default(), strays: 0, core }
    }

    /// Completions that were skipped, since they are of no work request in flight on a queue pair
    /// known here. Not 0 means that the kernel, or whatever else writes to the ring, did something
    /// unexpected.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.strays
    }

    fn entry(&self, index: u32) -> Entry {
        // SAFETY: an entry of the ring, which `core` keeps.
        unsafe { Entry::new(self.ring.element(index)) }
    }

    /// Gives back what was handed out last. The kernel fills entries in turn, so nothing is won by
    /// keeping them.
    #[inline]
    fn give_back(&mut self) {
        if std::mem::take(&mut self.holds) {
            self.ring.give_back(self.ci.wrapping_sub(1));
        }
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
    fn take(&mut self, token: Token, entry: Entry) -> Option<Taken> {
        let failed = entry.status() != SIW_WC_SUCCESS;
        match token.queue {
            // SAFETY: this is the polling side, and the kernel completed what the entry is of.
            Queue::Send => unsafe { self.known.take_send(token, failed) },
            Queue::Recv => {
                let done = Ended::Done { bytes: entry.bytes() };
                let ended = if failed { Ended::Failed } else { done };
                // SAFETY: as above.
                unsafe { self.known.take(token, || ended) }
            }
        }
    }
}

// SAFETY: a slot is taken when an entry of the ring says that its work request is over, and retired
// behind that; see the file's head.
unsafe impl CqOps for Cq {
    type View<'a> = Wc<'a>;

    #[inline]
    fn next(&mut self) -> Option<Polled<Wc<'_>>> {
        // A ring full of entries that say nothing at most, then it is the caller's turn: whatever
        // stands there, this ends.
        // One turn more is for an entry that is looked at again.
        for _ in 0..=self.ring.mask() + 1 {
            self.give_back();
            if !self.ring.is_filled(self.ci) {
                if self.core.has_messages() {
                    self.learn();
                }
                return None;
            }
            let entry = self.entry(self.ci);
            let id = entry.id();
            let token = Token::unpack(id & !QUIET);
            if id != NOBODY && !self.known.has(token.user_index) && self.core.has_messages() {
                // Learning may sweep: look anew.
                self.learn();
                continue;
            }
            self.ci = self.ci.wrapping_add(1);
            self.holds = true;
            if id == NOBODY {
                continue;
            }
            let taken = self.take(token, entry);
            // Nobody asked for its completion: its buffer goes back to its slab.
            let is_quiet = id & QUIET != 0 && entry.status() == SIW_WC_SUCCESS;
            match taken {
                Some(Taken { wr_id, frame, .. }) if !is_quiet => {
                    // SAFETY: the entry is given back by the next call or `publish`, for which the
                    // caller's view is over.
                    let view = unsafe { Wc::new(entry, token.queue == Queue::Recv) };
                    return Some(Polled { view, wr_id, frame });
                }
                Some(_) => {}
                None => self.strays += 1,
            }
        }
        self.give_back();
        None
    }

    #[inline]
    fn publish(&mut self) {
        self.give_back();
    }

    fn settle(&mut self) {
        self.learn();
    }

    /// What is in the ring of it becomes nobody's. Shared receives stay, as libsiw leaves them: an
    /// entry names the queue pair by its number alone, which the kernel may have given to a new one
    /// already (lowest free first, kernel `siw_qp.c:siw_qp_add`).
    fn sweep(&mut self, user_index: u32) {
        for ahead in 0..=self.ring.mask() {
            let index = self.ci.wrapping_add(ahead);
            // With all other entries filled the last one is the one handed out.
            if !self.ring.is_filled(index) || (self.holds && ahead == self.ring.mask()) {
                break;
            }
            let entry = self.entry(index);
            let token = Token::unpack(entry.id() & !QUIET);
            if entry.id() == NOBODY {
                continue;
            }
            if token.user_index == user_index {
                // The number comes first.
                let id = self.ring.element(index).cast::<u64>();
                // SAFETY: a field of an entry that is the program's.
                unsafe { id.write_volatile(NOBODY) };
            }
        }
    }

    /// The kernel can't (`siw` has no such verb).
    #[cold]
    fn resize(&mut self, _: u32) -> Result<(), Error> {
        let what = "another size of a completion queue, with the siw driver,".to_owned();
        Err(Error::Unsupported { verb: "resize_cq", what })
    }

    #[cold]
    fn arm(&mut self, notify: Notify) -> Result<(), Error> {
        arm(&self.core, Control(self.ring.behind()), notify)
    }

    fn armer(&self) -> Armer {
        let (core, control) = (Arc::clone(&self.core), Control(self.ring.behind()));
        Box::new(move |notify| arm(&core, control, notify))
    }
}

/// A queue's `siw_cq_ctrl`, whose flags come first.
#[derive(Clone, Copy)]
struct Control(*mut u8);

// SAFETY: whoever has it keeps the queue's core, and it is accessed atomically.
unsafe impl Send for Control {}
// SAFETY: as above.
unsafe impl Sync for Control {}

/// The kernel looks at the flags behind each completion, clears them and raises an event (kernel
/// `siw_qp.c:siw_cq_notify_now`). Of a solicited receive it doesn't know that it is one
/// (`siw_rqe_complete`): whoever waits for those is told of any completion.
fn arm(core: &CqCore, control: Control, _: Notify) -> Result<(), Error> {
    core.events_to_arm()?;
    let flags = SIW_NOTIFY_SOLICITED | SIW_NOTIFY_NEXT_COMPLETION;
    // SAFETY: behind the entries, in the mapping that `core` keeps; aligned, and shared by atomic
    // accesses only.
    let cell = unsafe { AtomicU32::from_ptr(control.0.cast()) };
    // Behind this the caller looks at the entries once more, and the kernel has them filled before
    // it looks at the flags.
    cell.swap(flags, Ordering::SeqCst);
    // The swap alone doesn't keep later loads behind its store.
    fence(Ordering::SeqCst);
    Ok(())
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
