//! Headers of tagged messages (rdma-core `infiniband/tm_types.h`).

use crate::queues::work::Remote;

/// Header of a message to a tag-matching queue. The sender writes it.
///
/// ```
/// # mod uverbs { pub mod tags { pub use uverbs_core::queues::tag_message::*; } }
/// use uverbs::tags::{TagMessage, TagMessageKind};
///
/// let header = TagMessage { kind: TagMessageKind::Eager, app_ctx: 1, tag: 0x0203 };
/// let bytes = header.to_bytes();
/// assert_eq!(bytes, [3, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, 3]);
/// assert_eq!(TagMessage::parse(&bytes), Some(header));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_tmh")]
pub struct TagMessage {
    /// Kind of the message.
    pub kind: TagMessageKind,
    /// Value chosen by the sender; the completion returns it with the tag.
    pub app_ctx: u32,
    /// The tag.
    pub tag: u64,
}

/// Content behind a [`TagMessage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TagMessageKind {
    /// Data without a tag: it goes to a receive, with its header.
    #[doc(alias = "IBV_TMH_NO_TAG")]
    NoTag = 0,
    /// A [`Rendezvous`]: the device reads the named memory into the tag's buffer.
    #[doc(alias = "IBV_TMH_RNDV")]
    Rendezvous = 1,
    /// A [`Rendezvous`] that the device returns once it has read the data. It goes to a receive.
    #[doc(alias = "IBV_TMH_FIN")]
    Fin = 2,
    /// Data for the tag's buffer.
    #[doc(alias = "IBV_TMH_EAGER")]
    Eager = 3,
}

impl TagMessage {
    /// Length of the header in bytes.
    pub const LEN: usize = 16;

    /// Encodes the header for the wire.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self.kind as u8;
        bytes[4..8].copy_from_slice(&self.app_ctx.to_be_bytes());
        bytes[8..].copy_from_slice(&self.tag.to_be_bytes());
        bytes
    }

    /// Decodes the header of a whole message; `None` if it is too short or of an unknown kind.
    #[must_use]
    pub fn parse(message: &[u8]) -> Option<Self> {
        let kind = match message.first()? {
            0 => TagMessageKind::NoTag,
            1 => TagMessageKind::Rendezvous,
            2 => TagMessageKind::Fin,
            3 => TagMessageKind::Eager,
            _ => return None,
        };
        let app_ctx = u32::from_be_bytes(*message.get(4..)?.first_chunk()?);
        let tag = u64::from_be_bytes(*message.get(8..)?.first_chunk()?);
        Some(Self { kind, app_ctx, tag })
    }
}

/// Location of a rendezvous message's data. It follows the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_rvh")]
pub struct Rendezvous {
    /// Address and key of memory that the receiver may read.
    pub from: Remote,
    /// Bytes of data.
    pub len: u32,
}

impl Rendezvous {
    /// Length in bytes.
    pub const LEN: usize = 16;

    /// Encodes it for the wire.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.from.addr.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.from.rkey.to_be_bytes());
        bytes[12..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    /// Decodes the bytes behind the header; `None` if they are too few.
    #[must_use]
    pub fn parse(behind: &[u8]) -> Option<Self> {
        let addr = u64::from_be_bytes(*behind.first_chunk()?);
        let rkey = u32::from_be_bytes(*behind.get(8..)?.first_chunk()?);
        let len = u32::from_be_bytes(*behind.get(12..)?.first_chunk()?);
        Some(Self { from: Remote { addr, rkey }, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_are_written() {
        use TagMessageKind::{Eager, Fin, NoTag, Rendezvous as Rndv};
        for (n, kind) in [NoTag, Rndv, Fin, Eager].into_iter().enumerate() {
            let header = TagMessage { kind, app_ctx: 0x0102_0304, tag: 0x0506_0708_090a_0b0c };
            let bytes = header.to_bytes();
            assert_eq!(bytes, [n as u8, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
            assert_eq!(TagMessage::parse(&bytes), Some(header));
            assert_eq!(TagMessage::parse(&bytes[..15]), None);
        }
        assert_eq!(TagMessage::parse(&[4; 16]), None);
        let from = Remote { addr: 0x0102_0304_0506_0708, rkey: 0x090a_0b0c };
        let rendezvous = Rendezvous { from, len: 0x0d0e_0f10 };
        let bytes = rendezvous.to_bytes();
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
        assert_eq!(Rendezvous::parse(&bytes), Some(rendezvous));
        assert_eq!(Rendezvous::parse(&bytes[..15]), None);
    }
}
