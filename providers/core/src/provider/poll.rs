//! Polling.
//!
//! # Safety
//!
//! The file declares an unsafe trait, which says what it asks for.
#![allow(unsafe_code, reason = "safe polls lean on what an implementation answers")]

use std::fmt::Debug;

use super::{Armer, Notify, Polled, Sink, Usual, View};
use crate::error::Error;

/// Polling.
///
/// # Safety
///
/// - [`next`](Self::next) gives a buffer only if the device is done with the work request that it
///   was posted with, each at most once: of a slot that the completion names, or that is behind it
///   in a queue which completes in order.
/// - A slot is retired after what was in it was taken, never before its work request is over.
/// - The entry of a view goes back to the device no sooner than the view's lifetime ends.
/// - A queue pair's slots, and those of the shared queue that it receives from, are touched only
///   between the messages that attach and detach it ([`CqCore::messages`]).
///
/// [`CqCore::messages`]: crate::objects::cq::CqCore::messages
pub unsafe trait CqOps: Debug + Send {
    /// A queue entry that lives until the next call.
    type View<'a>: View
    where
        Self: 'a;

    /// The next completion, if there is one; its work request is retired. The entry goes back to
    /// the device at [`publish`](Self::publish), which is this call's own when it gives nothing but
    /// skipped entries.
    fn next(&mut self) -> Option<Polled<Self::View<'_>>>;

    /// [`next`](Self::next) of what programs poll most, by the least code, for callers that take no
    /// buffers: `sink` is compiled for each kind of completion.
    ///
    /// What it gives is retired, and its entry goes back to the device at
    /// [`publish`](Self::publish). Where it finds something unusual nothing is changed. All is
    /// unusual to a provider without such a way.
    ///
    /// To be called where `next` may be: after [`settle`](Self::settle), if there are messages.
    #[inline(always)]
    fn next_usual<'a, S: Sink<Self::View<'a>>>(&'a mut self, sink: S) -> Usual<S::Output> {
        let _ = sink;
        Usual::Unusual
    }

    /// Completions that were dropped because they named no work request that is outstanding. Not 0
    /// means that the device or the kernel did something unexpected.
    fn strays(&self) -> u64;

    /// Tells the device how far was polled: the consumer index in the doorbell record.
    fn publish(&mut self);

    /// Learns of queue pairs that came, and drops what is left of those that went, their
    /// completions included. To be called when a poll begins and there are
    /// [messages](crate::objects::cq::CqCore::pace): [`next`](Self::next) need not look for them.
    fn settle(&mut self);

    /// Drops the completions of the queue pair with this user index, which was just reset and stays
    /// attached. Receives of a shared queue that they are of are free again, and their buffers go
    /// back to their slabs.
    fn sweep(&mut self, user_index: u32);

    /// Asks for an event. One that completed since the last poll may raise it or not, so the caller
    /// polls once more before it sleeps.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] without a channel ([`CqCore::events_to_arm`]); the kernel's refusal where
    /// the kernel is asked.
    ///
    /// [`CqCore::events_to_arm`]: crate::objects::cq::CqCore::events_to_arm
    fn arm(&mut self, notify: Notify) -> Result<(), Error>;

    /// Arms it without the queue, from any thread.
    fn armer(&self) -> Armer;

    /// Gives the queue room for `entries` completions. What is in it stays, in turn. It is not for
    /// the data path: it asks the kernel, and copies.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for 0 entries, more than the device has, or fewer than queue pairs were
    /// promised ([`CqCore::room_of`]); the kernel's refusal: `EINVAL` for a size that what is in
    /// the queue doesn't fit. The queue is as it was.
    ///
    /// [`CqCore::room_of`]: crate::objects::cq::CqCore::room_of
    fn resize(&mut self, entries: u32) -> Result<(), Error>;
}
