//! Trait of polling.
//!
//! # Safety
//!
//! The file declares an unsafe trait, which states its contract.
#![allow(unsafe_code, reason = "safe polls lean on what an implementation answers")]

use std::fmt::Debug;

use super::{Armer, Notify, Polled, Sink, Usual, View};
use crate::error::Error;

/// Polls a completion queue.
///
/// # Safety
///
/// - [`next`](Self::next) returns a buffer at most once, and only after the device is done with its
///   work request: a buffer of the slot that the completion names, or, in a queue that completes in
///   order, of an earlier slot.
/// - A slot is retired after its content was taken, never before its work request is complete.
/// - The CQE of a view goes back to the device no sooner than the view's lifetime ends.
/// - Slots of a queue pair, and of the shared receive queue that it uses, are accessed only between
///   the messages that attach and detach the queue pair ([`CqCore::messages`]).
///
/// [`CqCore::messages`]: crate::objects::cq::CqCore::messages
pub unsafe trait CqOps: Debug + Send {
    /// A CQE in the ring, borrowed until the next call.
    type View<'a>: View
    where
        Self: 'a;

    /// Takes the next completion and retires its work request. The CQE goes back to the device at
    /// [`publish`](Self::publish); a call that finds only skipped CQEs publishes them itself.
    fn next(&mut self) -> Option<Polled<Self::View<'_>>>;

    /// Fast path of [`next`](Self::next), for callers that take no buffers. `sink` is compiled into
    /// each kind of completion.
    ///
    /// A completion that it takes is retired, and its CQE goes back to the device at
    /// [`publish`](Self::publish). At a completion of the slow path nothing changes. Providers
    /// without a fast path leave all completions to `next`.
    ///
    /// Call it where `next` may be called: after [`settle`](Self::settle), if there are messages.
    #[inline(always)]
    fn next_usual<'a, S: Sink<Self::View<'a>>>(&'a mut self, sink: S) -> Usual<S::Output> {
        let _ = sink;
        Usual::Unusual
    }

    /// True if [`next`](Self::next) would return `None` without a look at messages.
    fn is_empty(&mut self) -> bool;

    /// Number of completions dropped because they named no outstanding work request. Above 0 the
    /// device or the kernel did something unexpected.
    fn strays(&self) -> u64;

    /// Publishes the consumer index in the doorbell record.
    fn publish(&mut self);

    /// Reads the messages: adds new queue pairs, and drops destroyed ones together with their
    /// completions. Call it when a poll begins and there are
    /// [messages](crate::objects::cq::CqCore::pace); [`next`](Self::next) then need not check.
    fn settle(&mut self);

    /// Drops the completions of the queue pair with this user index, which was just reset and stays
    /// attached. Receives of a shared receive queue among them become free again, and their buffers
    /// go back to their slabs.
    fn sweep(&mut self, user_index: u32);

    /// Arms the completion queue for an event. A completion since the last poll may raise the event
    /// or not, so the caller polls once more before it sleeps.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] without a channel ([`CqCore::events_to_arm`]); the kernel's refusal where
    /// arming is a system call.
    ///
    /// [`CqCore::events_to_arm`]: crate::objects::cq::CqCore::events_to_arm
    fn arm(&mut self, notify: Notify) -> Result<(), Error>;

    /// Returns a function that arms the completion queue from any thread.
    fn armer(&self) -> Armer;

    /// Changes the capacity to `entries` completions. Completions in the queue stay, in order.
    /// Slow: it calls the kernel and copies CQEs.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for 0 entries, more than the device's limit, or fewer than queue pairs
    /// reserved ([`CqCore::room_of`]); the kernel's refusal: `EINVAL` if the unpolled completions
    /// don't fit. The queue is then unchanged. [`Error::System`] if the kernel's new ring can't be
    /// mapped: the queue then gets no completions until another resize succeeds.
    ///
    /// [`CqCore::room_of`]: crate::objects::cq::CqCore::room_of
    fn resize(&mut self, entries: u32) -> Result<(), Error>;
}
