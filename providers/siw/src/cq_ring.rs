//! Rings of completions.
//!
//! # Safety
//!
//! Entries with their flag set are the program's; the owner of the ring keeps its mapping, with a
//! `siw_cq_ctrl` behind the entries.
#![allow(unsafe_code, reason = "reads entries that the kernel wrote, and the flags behind them")]

use std::sync::atomic::{AtomicU32, Ordering, fence};

use uverbs_core::error::Error;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::provider::Notify;
use uverbs_core::queues::known::{Ended, Known};
use uverbs_core::queues::token::Token;
use uverbs_kernel_abi::siw::{
    SIW_NOTIFY_NEXT_COMPLETION, SIW_NOTIFY_SOLICITED, SIW_WC_SUCCESS, siw_cqe,
};
use uverbs_kernel_rings::Arm;

use crate::ring::Ring;
use crate::send_ring::QUIET;
use crate::wc::{SiwCqe, Wc};

const _: () = assert!(std::mem::offset_of!(siw_cqe, id) == 0);

/// Number of an entry that was swept. No token has it.
const SWEPT: u64 = u64::MAX;

/// Ring of a completion queue.
#[derive(Debug)]
pub struct CqRing {
    ring: Ring<siw_cqe>,
    /// Index of the next entry to take, free running.
    ci: u32,
    /// The entry before it is still to be given back.
    holds: bool,
}

impl CqRing {
    /// A ring with a `siw_cq_ctrl` behind it.
    pub(crate) fn new(ring: Ring<siw_cqe>) -> Self {
        Self { ring, ci: 0, holds: false }
    }

    fn entry(&self, index: u32) -> SiwCqe {
        // SAFETY: an entry of the ring.
        unsafe { SiwCqe::new(self.ring.element(index)) }
    }

    /// Gives back the entry that was handed out last.
    #[inline(always)]
    fn give_back(&mut self) {
        if std::mem::take(&mut self.holds) {
            self.ring.give_back(self.ci.wrapping_sub(1));
        }
    }
}

// SAFETY: the kernel fills entries whose flag is clear, and sets it behind the rest; `publish`
// clears it.
unsafe impl uverbs_kernel_rings::CqRing for CqRing {
    type Entry = SiwCqe;
    type View<'a> = Wc<'a>;
    type Arm = Control;

    #[inline(always)]
    fn capacity(&self) -> u32 {
        self.ring.mask() + 1
    }

    fn consumer(&self) -> u32 {
        self.ci
    }

    /// Gives back the entry that was passed over last: the kernel fills entries in turn, so keeping
    /// several gains nothing.
    #[inline(always)]
    fn front(&mut self) -> Option<SiwCqe> {
        self.give_back();
        self.ring.is_filled(self.ci).then(|| self.entry(self.ci))
    }

    #[inline(always)]
    fn advance(&mut self) {
        self.ci = self.ci.wrapping_add(1);
        self.holds = true;
    }

    #[inline(always)]
    fn token(&self, entry: SiwCqe) -> Option<Token> {
        let id = entry.id();
        (id != SWEPT).then(|| Token::unpack(id & !QUIET))
    }

    #[inline(always)]
    fn ended(entry: SiwCqe) -> Ended {
        if entry.status() != SIW_WC_SUCCESS {
            return Ended::Failed;
        }
        Ended::Done { bytes: entry.bytes() }
    }

    /// A failure is told, whatever the program asked for.
    #[inline(always)]
    fn is_quiet(entry: SiwCqe) -> bool {
        entry.id() & QUIET != 0 && entry.status() == SIW_WC_SUCCESS
    }

    #[inline(always)]
    unsafe fn view<'a>(entry: SiwCqe, is_recv: bool) -> Wc<'a> {
        // SAFETY: guaranteed by the contract of `view`.
        unsafe { Wc::new(entry, is_recv) }
    }

    #[inline(always)]
    fn publish(&mut self, _: &CqCore) {
        self.give_back();
    }

    /// Marks the queue pair's entries. Shared receives stay, as libsiw leaves them: an entry names
    /// the queue pair by its number alone, which the kernel may have given to a new one already
    /// (lowest free first, kernel `siw_qp.c:siw_qp_add`).
    fn sweep(&mut self, _: &Known, user_index: u32) {
        for ahead in 0..=self.ring.mask() {
            let index = self.ci.wrapping_add(ahead);
            // If all other entries are filled, the last one is the one handed out.
            if !self.ring.is_filled(index) || (self.holds && ahead == self.ring.mask()) {
                break;
            }
            let entry = self.entry(index);
            if self.token(entry).is_some_and(|token| token.user_index == user_index) {
                // The number is the first field.
                let id = self.ring.element(index).cast::<u64>();
                // SAFETY: a field of an entry that is the program's.
                unsafe { id.write_volatile(SWEPT) };
            }
        }
    }

    fn arms(&self) -> Control {
        Control(self.ring.behind())
    }
}

/// Address of a queue's `siw_cq_ctrl`, whose first field has the flags.
#[derive(Clone, Copy, Debug)]
pub struct Control(*mut u8);

// SAFETY: its user keeps the queue's core, and accesses it atomically.
unsafe impl Send for Control {}
// SAFETY: its user keeps the queue's core, and accesses it atomically.
unsafe impl Sync for Control {}

impl Arm for Control {
    /// Stores the flags. The kernel looks at them after each completion, clears them and raises an
    /// event (kernel `siw_qp.c:siw_cq_notify_now`). It does not know that a receive is solicited
    /// (`siw_rqe_complete`), so each completion raises an event.
    fn arm(&self, _: &CqCore, _: Notify) -> Result<(), Error> {
        let flags = SIW_NOTIFY_SOLICITED | SIW_NOTIFY_NEXT_COMPLETION;
        // SAFETY: behind the entries, in the mapping that the core keeps; aligned, and shared by
        // atomic accesses only.
        let cell = unsafe { AtomicU32::from_ptr(self.0.cast()) };
        // The caller then looks at the entries once more, and the kernel fills them before it looks
        // at the flags.
        cell.swap(flags, Ordering::SeqCst);
        // The swap alone does not keep later loads behind its store.
        fence(Ordering::SeqCst);
        Ok(())
    }
}
