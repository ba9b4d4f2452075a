//! Rings as a provider lays them out.
//!
//! Indexes are free running: 32 bits that wrap around. A ring reduces them to its elements.
//!
//! # Safety
//!
//! The file declares unsafe traits and calls nothing: safe posts and polls lean on what a ring
//! answers.
#![allow(unsafe_code, reason = "declares unsafe traits, and calls none")]

use std::fmt::Debug;

use uverbs_core::Errno;
use uverbs_core::error::Error;
use uverbs_core::memory::pages::Pages;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::provider::{AhOps, Notify, View};
use uverbs_core::queues::known::{Ended, Known};
use uverbs_core::queues::placement::PlaceOp;
use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::slots::SlotTable;
use uverbs_core::queues::token::Token;
use uverbs_core::queues::work::{Data, Destination, PostError, Rekey, SendFlags, SendOp, Sge, Wr};

use crate::doorbell::Doorbell;
use crate::elements::Size;

/// A send work request.
#[derive(Debug)]
pub struct Post<'a, A> {
    /// Index of its element, free running.
    pub index: u32,
    /// The program's number, and the flags.
    pub wr: Wr,
    /// Operation.
    pub op: SendOp,
    /// UD destination; `None` on a connected queue pair.
    pub to: Option<Destination<'a, A>>,
    /// SGEs or inline data.
    pub data: Data<'a>,
}

/// A work request without SGEs and inline data.
#[derive(Clone, Copy, Debug)]
pub enum Special {
    /// Binds a memory window, or invalidates a key.
    Rekey(Rekey),
    /// FLUSH or ATOMIC WRITE.
    Place(PlaceOp),
}

/// Ring of a send queue.
///
/// # Safety
///
/// - [`free`](Self::free) counts no element that the kernel may still read.
/// - [`write`](Self::write) and [`write_special`](Self::write_special) write the element of their
///   index alone, and name no memory to the device except what the work request names.
/// - The kernel reads no element before [`publish`](Self::publish), and none from the index on that
///   [`kick`](Self::kick) returns.
pub unsafe trait SendRing: Debug + Send {
    /// Address handle of a UD destination.
    type Ah: AhOps;
    /// Part of the element that [`check`](Self::check) computes.
    type Checked: Copy;

    /// Number of slots in the queue's table: a power of two, at least the number of elements.
    fn slots(&self) -> u32;

    /// Number of free elements from the published producer index `pi` on;
    /// [`slots`](Self::slots) if an element is free once its completion is polled.
    fn free(&self, pi: u32) -> u32;

    /// Checks a work request against the device and the element's room.
    ///
    /// # Errors
    ///
    /// As for [`SendOps::post`](uverbs_core::provider::SendOps::post).
    fn check(&self, post: &Post<'_, Self::Ah>) -> Result<Self::Checked, PostError>;

    /// Writes the element of a work request, with `token` as its number.
    ///
    /// # Safety
    ///
    /// The element is free, and `checked` is what [`check`](Self::check) answered for this work
    /// request.
    unsafe fn write(&mut self, post: &Post<'_, Self::Ah>, token: u64, checked: Self::Checked);

    /// Checks a work request without SGEs and inline data. The default refuses all of them.
    ///
    /// # Errors
    ///
    /// As for [`SendOps::rekey`](uverbs_core::provider::SendOps::rekey) and
    /// [`SendOps::place`](uverbs_core::provider::SendOps::place).
    fn check_special(&self, op: &Special) -> Result<(), PostError> {
        match op {
            Special::Rekey(_) => Err(PostError::BadOperation),
            Special::Place(_) => Err(PostError::NotOnDevice),
        }
    }

    /// Writes the element of a work request without data.
    ///
    /// # Safety
    ///
    /// The element is free, and [`check_special`](Self::check_special) allowed the work request.
    unsafe fn write_special(&mut self, index: u32, token: u64, flags: SendFlags, op: &Special) {
        let _ = (index, token, flags, op);
    }

    /// Hands the elements from `from` up to `to` to the kernel. Returns true if a doorbell must
    /// follow, false if the kernel is at work on the ring and finds them.
    ///
    /// Stores with release: elements are written before.
    fn publish(&mut self, from: u32, to: u32) -> bool;

    /// Makes the kernel take the elements from `from` up to `to`, which were
    /// [published](Self::publish). Returns the index of the first one that it did not take and that
    /// it never will: `to` where the kernel reads the ring.
    ///
    /// # Errors
    ///
    /// The kernel's errno, beside the index.
    fn kick(&mut self, doorbell: &Doorbell, from: u32, to: u32) -> (u32, Result<(), Errno>) {
        let _ = from;
        (to, doorbell.ring())
    }

    /// Refuses READs from now on.
    fn forbid_reads(&mut self) {}

    /// Lets go of what slots without a work request keep. `end` is the index of the next post.
    /// Called by the poster after each doorbell.
    #[inline(always)]
    fn tidy(&mut self, slots: &SlotTable, end: u32) {
        let _ = (slots, end);
    }

    /// Forgets what elements keep, after a reset. The next element has the index `pi`.
    fn reset(&mut self, pi: u32) {
        let _ = pi;
    }
}

/// Ring of a receive queue, or of a shared one.
///
/// # Safety
///
/// As for [`SendRing`].
pub unsafe trait RecvRing: Debug + Send {
    /// The kernel reports how many elements it took. If false, an element is free once its
    /// completion is polled, and the slot table alone limits posts.
    const TELLS_CONSUMER: bool;

    /// The ring of a queue pair without receives; no element of it is accessed.
    fn none() -> Self;

    /// Number of slots in the queue's table: a power of two, at least the number of elements.
    fn slots(&self) -> u32;

    /// Number of free elements from the published producer index `pi` on;
    /// [`slots`](Self::slots) without [`TELLS_CONSUMER`](Self::TELLS_CONSUMER).
    fn free(&self, pi: u32) -> u32;

    /// Writes the element at `index`, with `token` as the work request's number.
    ///
    /// # Safety
    ///
    /// The element is free, and `size` is the size of `list`, which is no longer than the ring was
    /// made for.
    unsafe fn write(&mut self, index: u32, token: u64, list: &[Sge], size: Size);

    /// Hands the elements from `from` up to `to` to the kernel. Stores with release.
    fn publish(&mut self, from: u32, to: u32);

    /// Restarts after a reset of the queue pair: takes back what the kernel left in the ring. The
    /// next element has the index `pi`.
    fn reset(&mut self, pi: u32) {
        let _ = pi;
    }
}

/// Ring of a completion queue.
///
/// # Safety
///
/// - [`front`](Self::front) gives an entry that the kernel has filled, and which it leaves alone
///   until [`publish`](Self::publish).
/// - [`ended`](Self::ended) reports success only for a completed work request.
pub unsafe trait CqRing: Debug + Send {
    /// Address of an entry.
    type Entry: Copy;
    /// Decoded entry.
    type View<'a>: View;
    /// Arms the queue.
    type Arm: Arm;

    /// Completions that the ring holds.
    fn capacity(&self) -> u32;

    /// Consumer index, for printing.
    fn consumer(&self) -> u32;

    /// The oldest entry, if one is filled. Loads with acquire: the entry is whole.
    fn front(&mut self) -> Option<Self::Entry>;

    /// Consumes the entry that [`front`](Self::front) returned.
    fn advance(&mut self);

    /// Token of an entry; `None` for an entry that was swept.
    fn token(&self, entry: Self::Entry) -> Option<Token>;

    /// Learns of a queue pair whose completions arrive here from now on.
    fn attach(&mut self, shared: &QpShared) {
        let _ = shared;
    }

    /// Forgets a queue pair that is gone.
    fn detach(&mut self, shared: &QpShared) {
        let _ = shared;
    }

    /// True for a completion that belongs to no work request; it is handed out with the number 0.
    /// Its token names a queue pair that is known.
    #[inline(always)]
    fn is_unsolicited(entry: Self::Entry) -> bool {
        let _ = entry;
        false
    }

    /// Result of an entry's work request, as far as its slot is concerned.
    fn ended(entry: Self::Entry) -> Ended;

    /// Returns true if the program asked for no completion of the work request.
    #[inline(always)]
    fn is_quiet(entry: Self::Entry) -> bool {
        let _ = entry;
        false
    }

    /// View of an entry, of a receive if `is_recv`.
    ///
    /// # Safety
    ///
    /// The entry stays the program's for the view's lifetime.
    unsafe fn view<'a>(entry: Self::Entry, is_recv: bool) -> Self::View<'a>;

    /// Returns the consumed entries of the queue `core` to the kernel. Stores with release.
    fn publish(&mut self, core: &CqCore);

    /// Drops the entries of a queue pair that was reset or is gone.
    fn sweep(&mut self, known: &Known, user_index: u32);

    /// The address, or nothing, by which the queue is armed.
    fn arms(&self) -> Self::Arm;

    /// Makes the kernel move the CQEs into a new ring of `entries`. Returns its mapping. Called
    /// only if the driver has [`RESIZES`](crate::Driver::RESIZES).
    ///
    /// # Errors
    ///
    /// The kernel's refusal, or a ring that does not fit its mapping.
    fn resize(&mut self, core: &CqCore, entries: u32) -> Result<Pages, Error> {
        let _ = (core, entries);
        Err(Error::Unsupported { verb: "resize_cq", what: "another size".to_owned() })
    }
}

/// Arms a completion queue.
pub trait Arm: Send + Sync + 'static {
    /// Asks for an event of the next completion. The caller polls once more before it sleeps.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    fn arm(&self, core: &CqCore, notify: Notify) -> Result<(), Error>;
}

/// Arms by REQ_NOTIFY_CQ. The kernel does not look for entries that are in the ring already.
#[derive(Clone, Copy, Debug)]
pub struct ArmByCommand;

impl Arm for ArmByCommand {
    fn arm(&self, core: &CqCore, notify: Notify) -> Result<(), Error> {
        core.context().uverbs().req_notify_cq(core.handle(), notify == Notify::Solicited)
    }
}
