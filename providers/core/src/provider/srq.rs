//! Posting receives to a shared queue.
//!
//! # Safety
//!
//! The file declares an unsafe trait and calls nothing: each method says what it asks for.
#![allow(unsafe_code, reason = "what is posted is taken as the caller promised")]

use super::RecvOps;
use crate::error::Error;
use crate::memory::registered::Held;
use crate::objects::srq::SrqCore;
use crate::queues::tag_work::{TagHandle, TagOp, TagWr};
use crate::queues::work::PostError;

/// Posting receives that any of several queue pairs takes. A slot that [`RecvOps::post`] gives is
/// free again when its completion was polled, by whichever completion queue.
///
/// # Safety
///
/// As for [`SendOps`](super::SendOps).
pub unsafe trait SrqOps: RecvOps {
    /// Sets the limit, 0 for none; it isn't over the queue's size.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for another queue's core ([`SrqCore::check_side`]); the kernel's refusal.
    fn set_limit(&mut self, core: &SrqCore, limit: u32) -> Result<(), Error>;

    /// Room for another number of receives; answers how many it is then.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for another queue's core ([`SrqCore::check_side`]), whose ring the kernel
    /// would replace; [`Error::Unsupported`] where the device can't; [`Error::Limit`]; the kernel's
    /// refusal, also for fewer than are outstanding.
    fn resize(&mut self, core: &SrqCore, max_wr: u32) -> Result<u32, Error>;

    /// Of a queue that matches tags: takes back the changes of its list that were written and never
    /// rung.
    fn begin_tags(&mut self) {}

    /// Writes a change of the list. Of a tag that is added or removed it returns the handle.
    ///
    /// # Safety
    ///
    /// The queue is not destroyed. If it is rung: the memory that a tag names by key stays
    /// registered, and is neither read nor written by the program, until the completion that says
    /// that its message came, won't come, or that the tag was removed; or the queue is destroyed
    /// with the kernel's confirmation. A tag that is removed without a completion
    /// ([`TagWr::signaled`]) is one that no message has found or finds.
    ///
    /// # Errors
    ///
    /// The list is then as before. [`PostError::Full`] of changes outstanding;
    /// [`PostError::TagsFull`], [`PostError::UnknownTag`]; [`PostError::State`] once
    /// [closed](Self::close_tags), and once a completion told that a change failed;
    /// [`PostError::BadOperation`] of a queue without a list.
    unsafe fn change_tags(&mut self, wr: TagWr, op: &TagOp) -> Result<TagHandle, PostError> {
        let _ = (wr, op);
        Err(PostError::BadOperation)
    }

    /// Puts a buffer into the place of a tag that was just added. It stays there until the
    /// completion that [`change_tags`](Self::change_tags) speaks of,
    /// [`begin_tags`](Self::begin_tags) if it was never rung, or the end of the queue.
    ///
    /// # Safety
    ///
    /// `tag` is what the last change returned, which added it.
    unsafe fn own_tag(&mut self, tag: TagHandle, held: Held) {
        let _ = (tag, held);
    }

    /// Tells the device of the changes that were written.
    ///
    /// # Safety
    ///
    /// The queue is not destroyed.
    unsafe fn ring_tags(&mut self) {}

    /// Ends what changes the list: without this the kernel destroys no queue that has one. Tags
    /// stay in the list.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    fn close_tags(&mut self) -> Result<(), Error> {
        Ok(())
    }
}
