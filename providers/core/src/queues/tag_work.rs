//! Changes of the tag list of a tag-matching shared receive queue, and their completions.

use std::fmt;

use crate::queues::work::Sge;

/// Messages that match a buffer: those whose tag has the bits of `value` where `mask` has ones.
///
/// ```
/// # mod uverbs { pub mod tags { pub use uverbs_core::queues::tag_work::Tag; } }
/// use uverbs::tags::Tag;
///
/// assert_eq!(Tag::from(7), Tag { value: 7, mask: u64::MAX });
/// // Ignores the upper half.
/// let low = Tag::masked(7, 0xffff_ffff);
/// assert!(low.matches(0xabcd_0000_0007) && !low.matches(8));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// Required bits. A one outside `mask` makes the tag match no message.
    pub value: u64,
    /// Bits to compare.
    pub mask: u64,
}

impl Tag {
    /// Matches messages with exactly this tag.
    #[must_use]
    pub const fn exact(value: u64) -> Self {
        Self { value, mask: u64::MAX }
    }

    /// Matches messages whose tag is `value` in the bits of `mask`.
    #[must_use]
    pub const fn masked(value: u64, mask: u64) -> Self {
        Self { value, mask }
    }

    /// True if a message with this tag may take the buffer (`ibv_post_srq_ops(3)`).
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

/// Handle of a tag in the list, to remove the tag.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TagHandle {
    place: u32,
    turn: u32,
}

impl TagHandle {
    /// Handle of the `turn`th tag at `place` of the list. For providers.
    #[must_use]
    pub const fn new(place: u32, turn: u32) -> Self {
        Self { place, turn }
    }

    /// Place in the list. For providers.
    #[must_use]
    pub const fn place(self) -> u32 {
        self.place
    }

    /// Number of earlier tags at that place. For providers.
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

/// Identity and flags of a change of the list. A plain number converts into a signaled change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_ops_wr")]
pub struct TagWr {
    /// Number that the completion returns.
    pub id: u64,
    /// The change makes a completion. An unsignaled [`TagOp::Remove`] does not return the buffer: a
    /// frame goes back to its slab.
    #[doc(alias = "IBV_OPS_SIGNALED")]
    pub signaled: bool,
    /// Count of unexpected messages that the program has handled, modulo 2^16. `None`: the device
    /// keeps its count.
    #[doc(alias = "IBV_OPS_TM_SYNC")]
    pub unexpected: Option<u16>,
}

impl TagWr {
    /// A signaled change without a count.
    #[must_use]
    pub const fn new(id: u64) -> Self {
        Self { id, signaled: true, unexpected: None }
    }

    /// Makes no completion. The next signaled change also frees the entry of this one.
    #[must_use]
    pub const fn unsignaled(self) -> Self {
        Self { signaled: false, ..self }
    }

    /// Also tells the device how many unexpected messages the program has handled, modulo 2^16.
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

/// A change of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_ops_wr_opcode")]
pub enum TagOp {
    /// Adds a tag at the end of the list.
    #[doc(alias = "IBV_WR_TAG_ADD")]
    Add {
        /// Messages to match.
        tag: Tag,
        /// Number that the completion of the message returns.
        recv_id: u64,
        /// Destination of the message.
        into: Sge,
    },
    /// Removes a tag.
    #[doc(alias = "IBV_WR_TAG_DEL")]
    Remove(TagHandle),
    /// Tells the device the count of [`TagWr::unexpected`] without a change.
    #[doc(alias = "IBV_WR_TAG_SYNC")]
    Sync,
}

/// Fields of a matched message's header, which the device strips.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_wc_tm_info")]
pub struct TagHeader {
    /// The message's tag.
    pub tag: u64,
    /// Value chosen by the sender.
    #[doc(alias = "priv")]
    pub app_ctx: u32,
}

/// Tag information of a completion on a tag-matching queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TagInfo {
    /// Header of a matched message, in its first completion. Unmatched messages keep their header
    /// in the buffer.
    pub header: Option<TagHeader>,
    /// The device waits for the count of handled unexpected messages. Until then it matches no
    /// newly added tags.
    #[doc(alias = "IBV_WC_TM_SYNC_REQ")]
    pub wants_sync: bool,
}
