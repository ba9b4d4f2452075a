//! Rings of completions.
//!
//! # Safety
//!
//! Entries between consumer and producer index are the program's; the owner of the ring keeps its
//! mapping.
#![allow(unsafe_code, reason = "reads and moves entries that the kernel wrote")]

use uverbs_core::error::Error;
use uverbs_core::memory::pages::Pages;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::queues::known::{Ended, Known};
use uverbs_core::queues::token::Token;
use uverbs_kernel_abi::rxe::rxe_resize_cq_resp;
use uverbs_kernel_abi::wc::ib_uverbs_wc;
use uverbs_kernel_rings::wc::{UverbsWc, Wc};
use uverbs_kernel_rings::{ArmByCommand, Mapped};
use zerocopy::IntoBytes;

use crate::driver::map;
use crate::ring::Ring;

/// Ring of a completion queue.
#[derive(Debug)]
pub struct CqRing {
    ring: Ring,
    /// Index of the next entry to take, within the ring.
    ci: u32,
    /// The kernel's producer index when it was last read.
    seen: u32,
}

impl CqRing {
    /// A ring whose elements have room for an `ib_uverbs_wc`.
    pub(crate) fn new(ring: Ring) -> Self {
        Self { ring, ci: 0, seen: 0 }
    }

    /// Address of the ring.
    #[cfg(test)]
    pub(crate) fn address(&self) -> usize {
        self.ring.element(0).addr()
    }

    /// Begins at `index`, as if completions before it were polled.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn start_at(&mut self, index: u32) {
        (self.ci, self.seen) = (index & self.ring.mask(), index & self.ring.mask());
    }

    #[inline(always)]
    fn entry(&self, index: u32) -> UverbsWc {
        // SAFETY: an element of the ring, aligned, with room for a completion.
        unsafe { UverbsWc::new(self.ring.element(index)) }
    }

    /// Drops the entries for which `gone` holds, and closes the gaps: older entries move towards
    /// the newest, so that the consumer index jumps over the gap.
    fn sweep_where(&mut self, gone: impl Fn(UverbsWc) -> bool) {
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
                // SAFETY: whole elements of the ring, two different ones, both between consumer and
                // producer index.
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
            self.ring.consume(self.ci);
        }
    }
}

// SAFETY: the kernel's producer index tells the entries that it filled, and the consumer index
// those that it may fill again.
unsafe impl uverbs_kernel_rings::CqRing for CqRing {
    type Entry = UverbsWc;
    type View<'a> = Wc<'a>;
    type Arm = ArmByCommand;

    /// One entry of the kernel's ring stays empty.
    #[inline(always)]
    fn capacity(&self) -> u32 {
        self.ring.mask()
    }

    fn consumer(&self) -> u32 {
        self.ci
    }

    #[inline(always)]
    fn front(&mut self) -> Option<UverbsWc> {
        if self.ci == self.seen {
            self.seen = self.ring.produced();
        }
        (self.ci != self.seen).then(|| self.entry(self.ci))
    }

    #[inline(always)]
    fn advance(&mut self) {
        self.ci = self.ci.wrapping_add(1) & self.ring.mask();
    }

    #[inline(always)]
    fn token(&self, entry: UverbsWc) -> Option<Token> {
        Some(Token::unpack(entry.wr_id()))
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
        self.ring.consume(self.ci);
    }

    /// Receives of a shared queue are recognized by their queue pair's number. The kernel reuses a
    /// number only after it has given out all others.
    fn sweep(&mut self, known: &Known, user_index: u32) {
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
    }

    fn arms(&self) -> ArmByCommand {
        ArmByCommand
    }

    /// The kernel moves the entries to the start of another ring (kernel
    /// `rxe_queue.c:rxe_queue_resize`; rdma-core `rxe.c:rxe_resize_cq`).
    fn resize(&mut self, core: &CqCore, entries: u32) -> Result<Pages, Error> {
        let mut answer = rxe_resize_cq_resp::default();
        let uverbs = core.context().uverbs();
        // SAFETY: the request names no memory, and the handle is the queue's.
        unsafe { uverbs.resize_cq(core.handle(), entries, &[], answer.as_mut_bytes()) }?;
        let element = size_of::<ib_uverbs_wc>();
        let Mapped { ring, memory } = map(uverbs, "resize_cq", answer.mi, element)?;
        *self = Self::new(ring);
        Ok(memory)
    }
}
