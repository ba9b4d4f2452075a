//! Rings of completions.
//!
//! # Safety
//!
//! Entries from `tail` up to `head` are the program's; the owner of the ring keeps its mapping.
#![allow(unsafe_code, reason = "reads and marks entries that the kernel wrote")]

use uverbs_core::error::Error;
use uverbs_core::memory::pages::Pages;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::queues::known::{Ended, Known};
use uverbs_core::queues::token::Token;
use uverbs_kernel_abi::wc::ib_uverbs_wc;
use uverbs_kernel_rings::wc::{UverbsWc, Wc};
use uverbs_kernel_rings::{ArmByCommand, Mapped};
use zerocopy::IntoBytes;

use crate::driver::map;
use crate::ring::{Index, Ring};

const _: () = assert!(std::mem::offset_of!(ib_uverbs_wc, wr_id) == 0);

/// Bytes of an entry.
pub(crate) const ENTRY: usize = size_of::<ib_uverbs_wc>();
/// Number of an entry that was swept. No token has it.
const SWEPT: u64 = u64::MAX;

/// Ring of a completion queue.
#[derive(Debug)]
pub struct CqRing {
    ring: Ring,
    /// Entry to take next.
    at: u32,
    /// The kernel's `head` when it was last read.
    seen: u32,
}

impl CqRing {
    /// A ring of completions that the kernel just made.
    pub(crate) fn new(ring: Ring) -> Self {
        Self { ring, at: 0, seen: 0 }
    }

    #[inline(always)]
    fn entry(&self, at: u32) -> UverbsWc {
        // SAFETY: an element of the ring, aligned, with room for a completion.
        unsafe { UverbsWc::new(self.ring.element(at)) }
    }
}

// SAFETY: the kernel's `head` tells the entries that it filled, and `tail` those that it may fill
// again.
unsafe impl uverbs_kernel_rings::CqRing for CqRing {
    type Entry = UverbsWc;
    type View<'a> = Wc<'a>;
    type Arm = ArmByCommand;

    #[inline(always)]
    fn capacity(&self) -> u32 {
        self.ring.elements() - 1
    }

    fn consumer(&self) -> u32 {
        self.at
    }

    #[inline(always)]
    fn front(&mut self) -> Option<UverbsWc> {
        if self.at == self.seen {
            self.seen = self.ring.load(Index::Head);
        }
        (self.at != self.seen).then(|| self.entry(self.at))
    }

    #[inline(always)]
    fn advance(&mut self) {
        self.at = self.ring.after(self.at, 1);
    }

    #[inline(always)]
    fn token(&self, entry: UverbsWc) -> Option<Token> {
        let id = entry.wr_id();
        (id != SWEPT).then(|| Token::unpack(id))
    }

    #[inline(always)]
    fn ended(entry: UverbsWc) -> Ended {
        entry.ended()
    }

    #[inline(always)]
    unsafe fn view<'a>(entry: UverbsWc, is_recv: bool) -> Wc<'a> {
        // SAFETY: guaranteed by the contract of `view`.
        unsafe { Wc::new(entry, is_recv) }
    }

    #[inline(always)]
    fn publish(&mut self, _: &CqCore) {
        self.ring.store(Index::Tail, self.at);
    }

    /// Marks the queue pair's entries. Receives of a shared queue are recognized by their queue
    /// pair's number. The kernel reuses a number only after it has given out all others (kernel
    /// `rdmavt/qp.c:alloc_qpn`).
    fn sweep(&mut self, known: &Known, user_index: u32) {
        let of_shared = known.shared_receives(user_index);
        let (mut at, end) = (self.at, self.ring.load(Index::Head));
        while at != end {
            let entry = self.entry(at);
            let token = self.token(entry);
            let is_shared = token.zip(of_shared).is_some_and(|(token, (index, qpn))| {
                token.user_index == index && entry.qpn() == qpn
            });
            if is_shared && let Some(token) = token {
                // SAFETY: this is the polling side, and the kernel completed it.
                drop(unsafe { known.take(token, || Ended::Failed) });
            }
            if is_shared || token.is_some_and(|token| token.user_index == user_index) {
                // SAFETY: the first field of an entry that is the program's.
                unsafe { self.ring.element(at).cast::<u64>().write_volatile(SWEPT) };
            }
            at = self.ring.after(at, 1);
        }
    }

    fn arms(&self) -> ArmByCommand {
        ArmByCommand
    }

    /// The kernel moves the entries to the start of another ring (kernel
    /// `rdmavt/cq.c:rvt_resize_cq`; rdma-core `verbs.c:hfi1_resize_cq`).
    fn resize(&mut self, core: &CqCore, entries: u32) -> Result<Pages, Error> {
        let (mut offset, uverbs) = (0u64, core.context().uverbs());
        let out = offset.as_mut_bytes();
        // SAFETY: the request names no memory, and the handle is the queue's.
        let entries = unsafe { uverbs.resize_cq(core.handle(), entries, &[], out) }?;
        let Mapped { ring, memory } = map(uverbs, "resize_cq", offset, entries, ENTRY)?;
        *self = Self::new(ring);
        Ok(memory)
    }
}
