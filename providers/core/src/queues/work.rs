//! Work requests, and the errors of posting them.

use std::fmt;

use bitflags::bitflags;

use crate::Errno;
use crate::attr::AccessFlags;

/// A piece of registered memory as a work request names it.
///
/// Laid out as `struct ibv_sge`, so that a list of C's is a list of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_sge")]
#[repr(C)]
pub struct Sge {
    /// Address in the region's own address space (the virtual address, unless it was registered
    /// with an iova).
    pub addr: u64,
    /// Bytes. 0 is legal.
    pub len: u32,
    /// Local key of the region.
    pub lkey: u32,
}

/// A place in the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// Address in the peer's region.
    pub addr: u64,
    /// Remote key of the peer's region.
    pub rkey: u32,
}

/// Where a datagram goes.
#[derive(Debug, PartialEq, Eq)]
pub struct Destination<'a, A> {
    /// The way.
    pub ah: &'a A,
    /// The queue pair at its end, and its key, as the handle's provider has
    /// [laid them out](crate::provider::AhOps::peer).
    pub peer: [u64; 2],
}

// Not derived: that would ask it of the handle, too.
impl<A> Clone for Destination<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Destination<'_, A> {}

/// Where a work request of a DC initiator goes.
#[derive(Debug, PartialEq, Eq)]
pub struct DcDestination<'a, A> {
    /// The way.
    pub ah: &'a A,
    /// The target's number, 24 bits.
    pub dctn: u32,
    /// The access key that the target was made with.
    pub key: u64,
    /// The initiator's stream that it belongs to; without streams it means nothing.
    pub stream: u16,
}

// Not derived: that would ask it of the handle, too.
impl<A> Clone for DcDestination<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for DcDestination<'_, A> {}

bitflags! {
    /// How a send work request is carried out. The bits are those of `enum ibv_send_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[doc(alias = "ibv_send_flags")]
    pub struct SendFlags: u8 {
        /// Begins only after all READs and atomics posted before it are complete. IBTA vol 1,
        /// 10.8.3.3.
        const FENCE = 1;
        /// A completion tells of success. Failure always makes one.
        const SIGNALED = 2;
        /// Raises a solicited event at the peer.
        const SOLICITED = 4;
    }
}

/// Identity and flags of a work request. A plain number converts into a signaled one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wr {
    /// Comes back in the completion.
    pub id: u64,
    /// How it is carried out.
    pub flags: SendFlags,
}

impl Wr {
    /// A signaled work request.
    #[inline]
    #[must_use]
    pub const fn new(id: u64) -> Self {
        Self { id, flags: SendFlags::SIGNALED }
    }

    /// No completion on success. A later signaled one on the same queue retires it too; a frame
    /// that was posted with it then goes back to its slab, not to the caller, so what a READ
    /// brought is lost with it.
    #[inline]
    #[must_use]
    pub const fn unsignaled(self) -> Self {
        Self { flags: self.flags.difference(SendFlags::SIGNALED), ..self }
    }

    /// Waits for the READs and atomics before it.
    #[inline]
    #[must_use]
    pub const fn fenced(self) -> Self {
        Self { flags: self.flags.union(SendFlags::FENCE), ..self }
    }

    /// Raises a solicited event at the peer.
    #[inline]
    #[must_use]
    pub const fn solicited(self) -> Self {
        Self { flags: self.flags.union(SendFlags::SOLICITED), ..self }
    }
}

impl From<u64> for Wr {
    #[inline]
    fn from(id: u64) -> Self {
        Self::new(id)
    }
}

/// What a send queue is asked to do. Immediate data is in host order; the wire carries it
/// big-endian.
// Exhaustive, so that the compiler finds the provider that misses one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_wr_opcode")]
pub enum SendOp {
    /// Into the peer's next receive.
    Send,
    /// The same, with immediate data.
    SendImm(u32),
    /// Into the peer's next receive, and takes one of the peer's keys away from itself: a window's
    /// of type 2.
    SendInvalidate(u32),
    /// Into the peer's memory, without its knowing.
    Write(Remote),
    /// The same, and consumes a receive to tell of it.
    WriteImm(Remote, u32),
    /// From the peer's memory.
    Read(Remote),
    /// Compares eight bytes of the peer's memory, swaps them if equal; the old value comes back.
    CompareSwap {
        /// Where, aligned to eight bytes.
        remote: Remote,
        /// Compared with.
        compare: u64,
        /// Stored if equal.
        swap: u64,
    },
    /// Adds to eight bytes of the peer's memory; the old value comes back.
    FetchAdd {
        /// Where, aligned to eight bytes.
        remote: Remote,
        /// Added, wrapping.
        add: u64,
    },
}

impl SendOp {
    /// Whether the peer answers with data: READ and atomics, which need a reliable transport.
    #[inline]
    #[must_use]
    pub const fn is_answered(&self) -> bool {
        matches!(self, Self::Read(_) | Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// Whether only a reliable transport has it (IBTA vol 1, table 38).
    #[inline]
    #[must_use]
    pub const fn needs_reliable(&self) -> bool {
        self.is_answered() || matches!(self, Self::SendInvalidate(_))
    }
}

/// What the device fills into a raw packet on its way out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Checksums {
    /// Nothing: it leaves as it is.
    #[default]
    AsTheyAre,
    /// The checksums of IPv4, and of TCP or UDP.
    #[doc(alias = "IBV_SEND_IP_CSUM")]
    Filled,
}

/// Which kind a memory window is (IBTA vol 1, 10.6.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_mw_type")]
pub enum WindowKind {
    /// Any queue pair of the protection domain may be reached through it. Bound anew it follows the
    /// new memory; it isn't invalidated.
    Type1,
    /// Only the queue pair that bound it is reached through it. It must be invalidated, by its
    /// owner or by the peer, before it is bound anew.
    Type2,
}

/// What a work request does to a key of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rekey {
    /// Binds a memory window to part of a region. Without bytes it unbinds one of type 1.
    Bind {
        /// Kind of the window.
        kind: WindowKind,
        /// The window's key as it is.
        old: u32,
        /// Its new key: the lowest eight bits differ.
        new: u32,
        /// Local key of the region.
        lkey: u32,
        /// First byte, also as the peer names it.
        addr: u64,
        /// Bytes, 2 GiB at most.
        len: u64,
        /// What the peer may do: remote rights.
        access: AccessFlags,
    },
    /// Takes a key away: a window's of type 2.
    Invalidate {
        /// The key.
        key: u32,
    },
}

/// Bytes that a window is bound to at most: what a translation entry counts (PRM, "KLM").
pub const WINDOW_MAX: u64 = 1 << 31;

/// What a send carries, or where a READ or an atomic puts its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Data<'a> {
    /// Copied into the work request when it is posted; the bytes are free at once.
    Inline(&'a [u8]),
    /// The same, gathered from several places.
    InlineList(&'a [&'a [u8]]),
    /// One piece of registered memory.
    One(Sge),
    /// A gather (or for READ a scatter) list.
    List(&'a [Sge]),
}

/// Why a work request was not posted. The queue is as it was before.
// As wide as what a post gives: a result of both is then two registers. With one byte the compiler
// makes one word of both, and shifts them in and out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum PostError {
    /// No room: poll completions first, and signal now and then.
    Full,
    /// The queue pair isn't in a state for this: sends need RTS, receives INIT or later. On siw
    /// also when it failed: its kernel flushes nothing that is posted later.
    State,
    /// The queue pair receives from a shared receive queue: post there.
    SharedReceives,
    /// The list has more entries than the queue was made for.
    TooManySges,
    /// More inline bytes than the queue was made for.
    InlineTooLong,
    /// More bytes than a message may have.
    MessageTooLong,
    /// READs and atomics have an answer, so they can't be inline; atomics need eight bytes for it.
    /// A window is bound to a byte at least, with remote rights only. A FLUSH has a placement type,
    /// an ATOMIC WRITE an address that is a multiple of eight.
    BadData,
    /// The buffer was registered in another protection domain.
    ForeignBuffer,
    /// The address handle is of another protection domain.
    ForeignAddress,
    /// The queue pair's transport doesn't have this operation, or it is a datagram's and has no
    /// destination; or the queue wasn't made for it (binding windows, invalidating keys), or brings
    /// data in its completions, which can't be copied to an indirect key.
    BadOperation,
    /// A READ on a connection that was made for none of this side's: the initiator depth was 0, or
    /// the peer serves none. Only on siw, whose kernel would never get past it; other devices fail
    /// it by a completion.
    NoReads,
    /// The device doesn't have this operation: FLUSH, ATOMIC WRITE.
    NotOnDevice,
    /// The list has as many tags as the queue was made for, or completions that were not polled yet
    /// tell of the places that are free.
    TagsFull,
    /// The tag isn't in the list any more: a completion that was polled told of that, or it was
    /// removed.
    UnknownTag,
    /// A packet is shorter than an Ethernet header, 14 bytes, or than the 18 bytes that some
    /// devices want in the work request.
    ShortPacket,
    /// The device is gone: the kernel refused to hear of the last work requests. Only where a
    /// doorbell is a command (rxe, siw).
    DeviceGone,
    /// The kernel refuses to look at the work requests rung last, which stand in the queue;
    /// `SendQueue::refused` has its errno. Each post asks it once more. Only where a doorbell is a
    /// command (rxe, siw).
    Refused,
}

impl PostError {
    /// What `ibv_post_send` and `ibv_post_recv` of mlx5 return in this case.
    ///
    /// `ENOMEM` for a full queue or list of tags, a tag that isn't there, a list too long and
    /// inline data too long; `EIO` for a device that is gone; `EAGAIN` for a doorbell that the
    /// kernel refuses; `EOPNOTSUPP` for an operation that the device lacks; `EINVAL` for the rest,
    /// some of which C leaves to the device.
    #[must_use]
    #[cold]
    pub fn to_errno(self) -> Errno {
        match self {
            Self::Full
            | Self::TooManySges
            | Self::InlineTooLong
            | Self::TagsFull
            | Self::UnknownTag => Errno::ENOMEM,
            Self::DeviceGone => Errno::EIO,
            Self::Refused => Errno::EAGAIN,
            Self::NotOnDevice => Errno::EOPNOTSUPP,
            Self::State
            | Self::SharedReceives
            | Self::MessageTooLong
            | Self::BadData
            | Self::ForeignBuffer
            | Self::ForeignAddress
            | Self::ShortPacket
            | Self::NoReads
            | Self::BadOperation => Errno::EINVAL,
        }
    }
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the queue is full: poll its completions, and signal at least one request per queue length",
            Self::State => "the queue pair is not ready: sends need RTS, receives need INIT",
            Self::SharedReceives => {
                "the queue pair receives from a shared receive queue: post there"
            }
            Self::TooManySges => "more scatter/gather entries than the queue was made for",
            Self::InlineTooLong => "more inline bytes than the queue was made for",
            Self::MessageTooLong => "more bytes than a message may have (2 GiB)",
            Self::BadData => {
                "the answer of a READ or an atomic can't be inline, and an atomic's is eight bytes \
                 long; a window needs a byte at least, and grants remote rights only; a FLUSH \
                 needs a placement type, an ATOMIC WRITE an address that is a multiple of eight"
            }
            Self::ForeignBuffer => "the buffer was registered in another protection domain",
            Self::ForeignAddress => "the address handle is of another protection domain",
            Self::BadOperation => {
                "the queue pair's transport doesn't have this operation, or its send queue wasn't \
                 made for it"
            }
            Self::NoReads => {
                "the connection was made for no READs of this side: its initiator depth is 0, or \
                 the peer serves none"
            }
            Self::NotOnDevice => {
                "the device doesn't have this operation (FLUSH and ATOMIC WRITE: soft-RoCE from \
                 Linux 6.2 on)"
            }
            Self::TagsFull => {
                "the list has as many tags as the queue was made for: poll completions first"
            }
            Self::UnknownTag => "the tag isn't in the list any more",
            Self::ShortPacket => {
                "the packet is shorter than an Ethernet header (14 bytes; devices that want the \
                 header in the work request need 18)"
            }
            Self::DeviceGone => "the device is gone",
            Self::Refused => "the kernel refuses to look at the work requests that were rung last",
        })
    }
}

impl std::error::Error for PostError {}
