//! Shared receive queues that match tags: changes of their list.
//!
//! # Safety
//!
//! As in `recv_batch.rs`: safe changes move a frame in, raw ones passes on the caller's contract.
#![allow(unsafe_code, reason = "calls the provider's unsafe posts, and has a raw post of its own")]

use uverbs_core::memory::post::{MOST_PIECES, Room};
use uverbs_core::provider::{Provider as Contract, SrqOps};
use uverbs_core::queues::tag_work::TagOp;
use uverbs_core::queues::work::{PostError, Sge};

use crate::provider::Provider;
use crate::recv::batch::Receives;
use crate::{Any, Unposted};

pub use crate::recv::shared::ForTags;
#[doc(inline)]
pub use uverbs_core::attr::TmCaps;
#[doc(inline)]
pub use uverbs_core::queues::tag_message::{Rendezvous, TagMessage, TagMessageKind};
#[doc(inline)]
pub use uverbs_core::queues::tag_work::{Tag, TagHandle, TagHeader, TagInfo, TagWr};

/// Changes of the list of a [queue that matches tags](crate::tags::ForTags): written, but not
/// published. Dropped or forgotten, they are as if never written; their frames go back to their
/// slabs when the next batch begins.
///
/// ```no_run
/// use uverbs::{Frame, SharedReceiveQueue};
/// use uverbs::tags::{ForTags, Tag, TagWr};
/// # fn f(srq: &mut SharedReceiveQueue<uverbs::Any, ForTags>, one: Frame, two: Frame)
/// # -> Result<(), uverbs::Error> {
/// let mut batch = srq.tag_batch();
/// batch.add(TagWr::new(1).unsignaled(), 7, 10, one)?;
/// let low = batch.add(2, Tag::masked(8, 0xff), 11, two)?; // its completion tells of both
/// batch.ring();
/// srq.remove_tag(3, low)?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "nothing is changed until `ring`"]
pub struct TagBatch<'q, P: Provider = Any> {
    receives: &'q mut Receives<<P as Contract>::Srq>,
}

impl<'q, P: Provider> TagBatch<'q, P> {
    pub(crate) fn new(receives: &'q mut Receives<<P as Contract>::Srq>) -> Self {
        receives.queue.begin_tags();
        Self { receives }
    }

    /// Adds a tag at the end of the list: the first message that matches it, and no tag before it,
    /// goes to `into`, without its header. The message's completion has the number `recv_id`, and
    /// gives back a [`Frame`](crate::Frame).
    ///
    /// A change that the device refuses completes as a failed send, which returns the frame. Tags
    /// already in the list stay, and the list takes no more changes.
    ///
    /// While the device doesn't know that the program has dealt with all messages that found no tag
    /// ([`TagWr::dealt_with`]), new tags match nothing: such a message may be for one of them.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the data: [`PostError::TagsFull`] of as many tags as the
    /// queue was made for; [`PostError::Full`] of as many changes; [`PostError::State`] after a
    /// [`destroy`](crate::SharedReceiveQueue::destroy) that was refused, and once a completion told
    /// that a change failed; [`PostError::TooManySges`] for a chain of frames.
    #[doc(alias = "IBV_WR_TAG_ADD")]
    pub fn add<D: Room>(
        &mut self,
        wr: impl Into<TagWr>,
        tag: impl Into<Tag>,
        recv_id: u64,
        into: D,
    ) -> Result<TagHandle, Unposted<D>> {
        if into.domain() != self.receives.domain() {
            return Err(Unposted { error: PostError::ForeignBuffer, data: into });
        }
        if D::LIST {
            let mut list = [Sge { addr: 0, len: 0, lkey: 0 }; MOST_PIECES];
            match into.pieces(&mut list).map(<[Sge]>::len) {
                Ok(1) => {}
                Ok(_) => return Err(Unposted { error: PostError::TooManySges, data: into }),
                Err(error) => return Err(Unposted { error, data: into }),
            }
        }
        // SAFETY: `into` keeps the memory registered, and lets the device write it, as `Room`
        // promises. `into` moves into the entry of the tag, and stays until its completion or the
        // end of the queue.
        match unsafe { self.add_raw(wr, tag, recv_id, into.room()) } {
            Ok(handle) => {
                // SAFETY: the tag was just added.
                unsafe { self.receives.queue.own_tag(handle, into.hold()) };
                Ok(handle)
            }
            Err(error) => Err(Unposted { error, data: into }),
        }
    }

    /// Adds a tag for a buffer by address and key. Raw.
    ///
    /// # Safety
    ///
    /// If the batch is rung: the memory that `into` names stays registered, and is neither read nor
    /// written by the program, until the completion was polled that says that the message came or
    /// won't come, or that the tag was removed; or the queue was destroyed, or the region
    /// deregistered.
    ///
    /// # Errors
    ///
    /// [`PostError`]; the batch is as before.
    pub unsafe fn add_raw(
        &mut self,
        wr: impl Into<TagWr>,
        tag: impl Into<Tag>,
        recv_id: u64,
        into: Sge,
    ) -> Result<TagHandle, PostError> {
        let op = TagOp::Add { tag: tag.into(), recv_id, into };
        // SAFETY: the caller upholds this function's contract.
        unsafe { self.receives.queue.change_tags(wr.into(), &op) }
    }

    /// Removes a tag, if no message has found it meanwhile: then the completion is
    /// [`TagRemoved`](crate::Completed::TagRemoved), and gives the tag's frame back; else
    /// [`TagNotFound`](crate::Status::TagNotFound). It is always signaled.
    ///
    /// # Errors
    ///
    /// [`PostError::UnknownTag`] if the completion of the tag's message or of its removal was
    /// polled; [`PostError::Full`] of changes outstanding; [`PostError::State`] as for
    /// [`add`](Self::add). The batch is unchanged.
    #[doc(alias = "IBV_WR_TAG_DEL")]
    pub fn remove(&mut self, wr: impl Into<TagWr>, tag: TagHandle) -> Result<(), PostError> {
        let wr = TagWr { signaled: true, ..wr.into() };
        // SAFETY: no memory is named.
        unsafe { self.receives.queue.change_tags(wr, &TagOp::Remove(tag)) }.map(drop)
    }

    /// Leaves the list unchanged, and reports the number in [`TagWr::dealt_with`] to the device.
    ///
    /// # Errors
    ///
    /// [`PostError::Full`] if too many changes are outstanding; [`PostError::State`] as for
    /// [`add`](Self::add). The batch is unchanged.
    #[doc(alias = "IBV_WR_TAG_SYNC")]
    pub fn sync(&mut self, wr: impl Into<TagWr>) -> Result<(), PostError> {
        // SAFETY: no memory is named.
        unsafe { self.receives.queue.change_tags(wr.into(), &TagOp::Sync) }.map(drop)
    }

    /// Publishes the batch: one doorbell.
    pub fn ring(self) {
        // SAFETY: the queue lives as long as its posting side.
        unsafe { self.receives.queue.ring_tags() };
    }
}
