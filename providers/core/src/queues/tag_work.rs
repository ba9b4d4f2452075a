//! Changes of the list of a shared receive queue that matches tags, and what its completions tell.

use std::fmt;

use crate::queues::work::Sge;

/// Which messages a buffer is for: those whose tag has the bits of `value` where `mask` has ones.
///
/// ```
/// use uverbs_core::queues::tag_work::Tag;
///
/// assert_eq!(Tag::from(7), Tag { value: 7, mask: u64::MAX });
/// // Whatever the upper half says.
/// let low = Tag::masked(7, 0xffff_ffff);
/// assert!(low.matches(0xabcd_0000_0007) && !low.matches(8));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// The bits that a message's tag must have. A one where the mask has none matches nothing.
    pub value: u64,
    /// The bits that are compared.
    pub mask: u64,
}

impl Tag {
    /// Messages with this tag alone.
    #[must_use]
    pub const fn exact(value: u64) -> Self {
        Self { value, mask: u64::MAX }
    }

    /// Messages whose tag is `value` in the bits of `mask`.
    #[must_use]
    pub const fn masked(value: u64, mask: u64) -> Self {
        Self { value, mask }
    }

    /// Whether a message with this tag may take the buffer (`ibv_post_srq_ops(3)`).
    #[must_use]
    pub const fn matches(self, tag: u64) -> bool {
        tag & self.mask == self.value
    }
}

impl From<u64> for Tag {
    fn from(value: u64) -> Self {
        Self::exact(value)
    }
}

/// A tag in the list, to remove it by.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TagHandle {
    place: u32,
    turn: u32,
}

impl TagHandle {
    /// The tag that is the `turn`th one at `place` of the list. For providers.
    #[must_use]
    pub const fn new(place: u32, turn: u32) -> Self {
        Self { place, turn }
    }

    /// Its place in the list. For providers.
    #[must_use]
    pub const fn place(self) -> u32 {
        self.place
    }

    /// How many were at the place before it. For providers.
    #[must_use]
    pub const fn turn(self) -> u32 {
        self.turn
    }
}

impl fmt::Debug for TagHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TagHandle({}, {})", self.place, self.turn)
    }
}

/// Identity and flags of a change of the list. A plain number converts into a signaled one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_ops_wr")]
pub struct TagWr {
    /// Comes back in the completion.
    pub id: u64,
    /// It has a completion of its own. A removal by [`TagOp::Remove`] without one gives the buffer
    /// to nobody: a frame goes back to its slab.
    #[doc(alias = "IBV_OPS_SIGNALED")]
    pub signaled: bool,
    /// How many messages that found no tag the program has dealt with, modulo 2^16; `None` tells
    /// the device nothing new.
    #[doc(alias = "IBV_OPS_TM_SYNC")]
    pub unexpected: Option<u16>,
}

impl TagWr {
    /// A signaled one, which tells no count.
    #[must_use]
    pub const fn new(id: u64) -> Self {
        Self { id, signaled: true, unexpected: None }
    }

    /// No completion. A later signaled one makes its room in the queue free, too.
    #[must_use]
    pub const fn unsignaled(self) -> Self {
        Self { signaled: false, ..self }
    }

    /// Also tells the device that the program has dealt with so many messages that found no tag,
    /// modulo 2^16.
    #[must_use]
    pub const fn dealt_with(self, unexpected: u16) -> Self {
        Self { unexpected: Some(unexpected), ..self }
    }
}

impl From<u64> for TagWr {
    fn from(id: u64) -> Self {
        Self::new(id)
    }
}

/// What a change of the list does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_ops_wr_opcode")]
pub enum TagOp {
    /// Adds a tag at the end of the list.
    #[doc(alias = "IBV_WR_TAG_ADD")]
    Add {
        /// Which messages.
        tag: Tag,
        /// Comes back in the completion of the message.
        recv_id: u64,
        /// Where the message goes.
        into: Sge,
    },
    /// Removes one.
    #[doc(alias = "IBV_WR_TAG_DEL")]
    Remove(TagHandle),
    /// Tells a count, and nothing else.
    #[doc(alias = "IBV_WR_TAG_SYNC")]
    Sync,
}

/// What the device took out of a message that found a tag: part of its header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_wc_tm_info")]
pub struct TagHeader {
    /// The message's tag.
    pub tag: u64,
    /// What the sender put there.
    #[doc(alias = "priv")]
    pub app_ctx: u32,
}

/// What a completion of a queue that matches tags tells besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TagInfo {
    /// Of the first completion of a message that found a tag. All other messages come whole.
    pub header: Option<TagHeader>,
    /// The device waits to hear how many messages that found no tag the program has dealt with:
    /// until then tags that are added match nothing.
    #[doc(alias = "IBV_WC_TM_SYNC_REQ")]
    pub wants_sync: bool,
}
