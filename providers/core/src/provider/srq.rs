//! Trait of posting receives to a shared receive queue.
//!
//! # Safety
//!
//! The file declares an unsafe trait and calls no unsafe function: each method states its contract.
#![allow(unsafe_code, reason = "what is posted is taken as the caller promised")]

use super::RecvOps;
use crate::error::Error;
use crate::memory::registered::Held;
use crate::objects::srq::SrqCore;
use crate::queues::tag_work::{TagHandle, TagOp, TagWr};
use crate::queues::work::PostError;

/// Posts receives that any of several queue pairs takes. A slot that [`RecvOps::post`] returned is
/// free again once its completion was polled, on any completion queue.
///
/// # Safety
///
/// The contract of [`SendOps`](super::SendOps).
pub unsafe trait SrqOps: RecvOps {
    /// Sets the limit of the limit event, at most the queue's size; 0 disables the event.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for the core of another queue ([`SrqCore::check_side`]); the kernel's
    /// refusal.
    fn set_limit(&mut self, core: &SrqCore, limit: u32) -> Result<(), Error>;

    /// Changes the capacity in receives. Returns the new capacity.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for the core of another queue ([`SrqCore::check_side`]), because the
    /// kernel would replace that queue's ring; [`Error::Unsupported`] if the device can't resize;
    /// [`Error::Limit`]; the kernel's refusal, also below the number of outstanding receives.
    fn resize(&mut self, core: &SrqCore, max_wr: u32) -> Result<u32, Error>;

    /// Posts a receive again that a page fault of the device ended, which is in flight no more for
    /// the device and still has its slot. No batch is under way. Returns false if it is not in
    /// flight, or if the device ends no receive so.
    ///
    /// # Safety
    ///
    /// The device is done with the receive of the slot. The contract of [`RecvOps::ring`], again
    /// for the memory of that receive.
    unsafe fn repost(&mut self, index: u32) -> bool {
        let _ = index;
        false
    }

    /// Drops changes of the tag list that were written and never rung. For tag-matching queues.
    fn begin_tags(&mut self) {}

    /// Writes a change of the tag list. Returns the handle of the added or removed tag.
    ///
    /// # Safety
    ///
    /// The queue is not destroyed. If the change is rung, the memory that a tag names by key stays
    /// registered, and the program neither reads nor writes it, until a completion says that the
    /// message arrived, that none will arrive, or that the tag was removed, or until the kernel
    /// confirmed the queue's destruction. A tag may be removed without a completion
    /// ([`TagWr::signaled`]) only if no message matched it or can match it.
    ///
    /// # Errors
    ///
    /// On an error the list is unchanged. [`PostError::Full`] if too many changes are outstanding;
    /// [`PostError::TagsFull`], [`PostError::UnknownTag`]; [`PostError::State`] once
    /// [closed](Self::close_tags), or once a completion reported a failed change;
    /// [`PostError::BadOperation`] from a queue without a tag list.
    unsafe fn change_tags(&mut self, wr: TagWr, op: &TagOp) -> Result<TagHandle, PostError> {
        let _ = (wr, op);
        Err(PostError::BadOperation)
    }

    /// Gives a buffer to the tag that was just added. The tag keeps it until the completion that
    /// [`change_tags`](Self::change_tags) describes, [`begin_tags`](Self::begin_tags) if the change
    /// was never rung, or the end of the queue.
    ///
    /// # Safety
    ///
    /// `tag` was returned by the last change, which added it.
    unsafe fn own_tag(&mut self, tag: TagHandle, held: Held) {
        let _ = (tag, held);
    }

    /// Publishes the written changes to the device.
    ///
    /// # Safety
    ///
    /// The queue is not destroyed.
    unsafe fn ring_tags(&mut self) {}

    /// Closes the queue that changes the list; the kernel requires it before it destroys a
    /// tag-matching queue. Tags stay in the list.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    fn close_tags(&mut self) -> Result<(), Error> {
        Ok(())
    }
}
