//! Work requests, and the errors of posting them.

use std::fmt;
use std::str::FromStr;

use bitflags::bitflags;

use crate::Errno;
use crate::attr::AccessFlags;
use crate::error::EndpointError;

/// Scatter/gather element: a range of registered memory.
///
/// Laid out like `struct ibv_sge`, so a C list of SGEs can be used in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_sge")]
#[repr(C)]
pub struct Sge {
    /// Address in the region's own address space (the virtual address, unless it was registered
    /// with an iova).
    pub addr: u64,
    /// Length in bytes; 0 is legal.
    pub len: u32,
    /// Local key of the region.
    pub lkey: u32,
}

/// Destination of a send on an initiator of dynamic connections or XRC.
#[derive(Debug, PartialEq, Eq)]
pub enum Target<'a, A> {
    /// Target of dynamic connections, on a DC initiator.
    Dc(DcDestination<'a, A>),
    /// Shared receive queue of the peer, on an XRC initiator: its number, 24 bits.
    Srq(u32),
}

/// An address in the peer's memory. It travels as text, as a queue pair's endpoint does.
///
/// ```
/// # mod uverbs { pub use uverbs_core::{queues::work::Remote, error::EndpointError}; }
/// let text = "addr=0x00007f0012345000 rkey=0x00001234";
/// let remote: uverbs::Remote = text.parse()?;
/// assert_eq!(remote.rkey, 0x1234);
/// assert_eq!(remote.to_string(), text);
/// # Ok::<(), uverbs::EndpointError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// Address in the peer's region.
    pub addr: u64,
    /// Remote key of the peer's region.
    pub rkey: u32,
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "addr={:#018x} rkey={:#010x}", self.addr, self.rkey)
    }
}

impl FromStr for Remote {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let addr = EndpointError::number(text, "addr", u64::MAX)?;
        let rkey = EndpointError::number(text, "rkey", u32::MAX.into())? as u32;
        Ok(Self { addr, rkey })
    }
}

/// Destination of a datagram.
#[derive(Debug, PartialEq, Eq)]
pub struct Destination<'a, A> {
    /// Address handle.
    pub ah: &'a A,
    /// The peer's queue pair and Q_Key, as the handle's provider [encodes
    /// them](crate::provider::AhOps::peer).
    pub peer: [u64; 2],
}

// Not derived: the derive would require `A: Clone`.
impl<A> Clone for Destination<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Destination<'_, A> {}

/// Destination of a work request of a DC initiator.
#[derive(Debug, PartialEq, Eq)]
pub struct DcDestination<'a, A> {
    /// Address handle.
    pub ah: &'a A,
    /// The target's number, 24 bits.
    pub dctn: u32,
    /// Access key of the target.
    pub key: u64,
    /// Stream of the initiator; ignored if it has no streams.
    pub stream: u16,
}

// Not derived: the derive would require `A: Clone`.
impl<A> Clone for DcDestination<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for DcDestination<'_, A> {}

bitflags! {
    /// Flags of a send work request, with the bits of `enum ibv_send_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[doc(alias = "ibv_send_flags")]
    pub struct SendFlags: u8 {
        /// Starts only after all earlier READs and atomics completed. IBTA vol 1, 10.8.3.3.
        const FENCE = 1;
        /// Makes a completion on success. A failure always makes one.
        const SIGNALED = 2;
        /// Raises a solicited event at the peer.
        const SOLICITED = 4;
    }
}

/// Identity and flags of a work request. A plain number converts into a signaled work request:
/// there is no `sq_sig_all`, each work request says if it is [unsignaled](Self::unsignaled).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_send_wr")]
#[doc(alias = "ibv_recv_wr")]
#[doc(alias = "IBV_SEND_SIGNALED")]
#[doc(alias = "sq_sig_all")]
pub struct Wr {
    /// Number that the completion returns.
    pub id: u64,
    /// Flags.
    pub flags: SendFlags,
}

impl Wr {
    /// A signaled work request.
    #[inline]
    #[must_use]
    pub const fn new(id: u64) -> Self {
        Self { id, flags: SendFlags::SIGNALED }
    }

    /// Makes no completion on success. A later signaled work request on the queue retires it. A
    /// frame posted with it then goes back to its slab and not to the caller, so the data of an
    /// unsignaled READ is lost.
    #[inline]
    #[must_use]
    pub const fn unsignaled(self) -> Self {
        Self { flags: self.flags.difference(SendFlags::SIGNALED), ..self }
    }

    /// Waits for earlier READs and atomics.
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

/// Operation of a send work request. Immediate data is in host byte order here and big-endian on
/// the wire.
// Exhaustive, so that the compiler finds a provider that misses an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_wr_opcode")]
pub enum SendOp {
    /// SEND into the peer's next receive.
    Send,
    /// SEND with immediate data.
    SendImm(u32),
    /// SEND that also invalidates one of the peer's remote keys: the key of a type 2 window.
    SendInvalidate(u32),
    /// RDMA WRITE; the peer gets no completion.
    Write(Remote),
    /// RDMA WRITE with immediate data, which completes a receive of the peer.
    WriteImm(Remote, u32),
    /// RDMA READ.
    Read(Remote),
    /// Compares eight bytes of the peer's memory and swaps them if equal; returns the old value.
    CompareSwap {
        /// Address, aligned to eight bytes.
        remote: Remote,
        /// Value to compare with.
        compare: u64,
        /// Value to store if equal.
        swap: u64,
    },
    /// Adds to eight bytes of the peer's memory; returns the old value.
    FetchAdd {
        /// Address, aligned to eight bytes.
        remote: Remote,
        /// Value to add, wrapping.
        add: u64,
    },
}

impl SendOp {
    /// True if the peer responds with data (READ and atomics). Needs a reliable transport.
    #[inline]
    #[must_use]
    pub const fn is_answered(&self) -> bool {
        matches!(self, Self::Read(_) | Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// True if only reliable transports support it (IBTA vol 1, table 38).
    #[inline]
    #[must_use]
    pub const fn needs_reliable(&self) -> bool {
        self.is_answered() || matches!(self, Self::SendInvalidate(_))
    }
}

/// Checksum offload of a sent raw packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Checksums {
    /// Off: the packet is sent unchanged.
    #[default]
    AsTheyAre,
    /// The device fills in the checksums of IPv4, and of TCP or UDP.
    #[doc(alias = "IBV_SEND_IP_CSUM")]
    Filled,
}

/// Type of a memory window (IBTA vol 1, 10.6.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_mw_type")]
pub enum WindowKind {
    /// Type 1: usable through any queue pair of the protection domain. A new bind moves it; it is
    /// never invalidated.
    Type1,
    /// Type 2: usable only through the queue pair that bound it. Its owner or the peer must
    /// invalidate it before it is bound again.
    Type2,
}

/// A change of a local key by a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rekey {
    /// Binds a memory window to part of a region. An empty range unbinds a type 1 window.
    Bind {
        /// Kind of the window.
        kind: WindowKind,
        /// The window's current key.
        old: u32,
        /// The window's new key; the lowest eight bits differ.
        new: u32,
        /// Local key of the region.
        lkey: u32,
        /// First byte of the range, by the region's addresses; the peer uses the same address.
        addr: u64,
        /// Bytes, 2 GiB at most.
        len: u64,
        /// Rights of the peer: remote rights only.
        access: AccessFlags,
    },
    /// Invalidates the key of a type 2 window.
    Invalidate {
        /// The key.
        key: u32,
    },
}

/// Maximum size of a bound window: the limit of a translation entry (PRM, "KLM").
pub const WINDOW_MAX: u64 = 1 << 31;

/// Data of a send, or buffer for the response of a READ or an atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Data<'a> {
    /// Copied into the WQE; the program may reuse the bytes at once.
    Inline(&'a [u8]),
    /// Copied into the WQE, gathered from several buffers.
    InlineList(&'a [&'a [u8]]),
    /// One SGE.
    One(Sge),
    /// A gather list (scatter list for READ).
    List(&'a [Sge]),
}

/// Reason why a work request was not posted. The queue is unchanged.
// As wide as the value of a successful post, so that a `Result` of both is two registers. With one
// byte the compiler packs both into one word, with shifts.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum PostError {
    /// The queue is full. Poll completions, and signal at least one work request per queue length.
    Full,
    /// Wrong state: sends need RTS, receives INIT or later. On siw also after a failure, because
    /// its kernel does not flush later posts.
    State,
    /// The queue pair uses a shared receive queue. Post there.
    SharedReceives,
    /// More SGEs than the queue was created for.
    TooManySges,
    /// More inline bytes than the queue was created for.
    InlineTooLong,
    /// Longer than the maximum message.
    MessageTooLong,
    /// Wrong data: READs and atomics can't be inline (on mlx5 the device fails an inline READ), and
    /// atomics need a buffer of eight bytes. A window needs at least one byte, and only remote
    /// rights. A FLUSH needs a placement type, an ATOMIC WRITE an address that is a multiple of
    /// eight.
    BadData,
    /// The buffer belongs to another protection domain.
    ForeignBuffer,
    /// The address handle belongs to another protection domain.
    ForeignAddress,
    /// The queue pair's transport lacks the operation; or a datagram has no destination; or the
    /// queue was not created for the operation (window bind, invalidation); or its completions
    /// carry data, which can't be copied to an indirect key.
    BadOperation,
    /// A READ on a connection without READs by this side: the initiator depth was 0, or the peer
    /// serves none. Only on siw, whose kernel would wait forever; other devices fail the READ by a
    /// completion.
    NoReads,
    /// The device lacks the operation: FLUSH, ATOMIC WRITE.
    NotOnDevice,
    /// The tag list is full. Poll completions, which may free places.
    TagsFull,
    /// The tag is no longer in the list: a polled completion said so, or it was removed.
    UnknownTag,
    /// The packet is shorter than an Ethernet header of 14 bytes, or than the 18 bytes that some
    /// devices need in the WQE.
    ShortPacket,
    /// The device is gone: the kernel refused the last doorbell. Only where a doorbell is a system
    /// call (rxe, siw).
    DeviceGone,
    /// The kernel refused the last doorbell, and the rung work requests stay in the queue.
    /// `SendQueue::doorbell_error` returns its errno. Each post retries the doorbell. Only where a
    /// doorbell is a system call (rxe, siw).
    DoorbellRefused,
}

impl PostError {
    /// The errno that `ibv_post_send` and `ibv_post_recv` of mlx5 return for this error.
    ///
    /// `ENOMEM` for a full queue or tag list, an unknown tag, too many SGEs and too much inline
    /// data; `EIO` for a device that is gone; `EAGAIN` for a rejected doorbell; `EOPNOTSUPP` for an
    /// operation that the device lacks; `EINVAL` for the rest, part of which C leaves to the
    /// device.
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
            Self::DoorbellRefused => Errno::EAGAIN,
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
            Self::Full => {
                "the queue is full: poll its completions, and signal at least one work request \
                 per queue length"
            }
            Self::State => {
                "the queue pair is not ready: sends need RTS (`connect`), receives need INIT \
                 (`prepare`)"
            }
            Self::SharedReceives => {
                "the queue pair receives from a shared receive queue: post there"
            }
            Self::TooManySges => {
                "more SGEs than the queue was created for: raise max_send_sge or max_recv_sge"
            }
            Self::InlineTooLong => {
                "more inline bytes than the queue was created for: raise max_inline_data"
            }
            Self::MessageTooLong => {
                "longer than the maximum message: 2 GiB, or one packet over UD; split it"
            }
            Self::BadData => {
                "invalid data: READs and atomics can't be inline, an atomic needs a buffer of \
                 eight bytes, a window at least one byte and only remote rights, a FLUSH a \
                 placement type, an ATOMIC WRITE an address that is a multiple of eight"
            }
            Self::ForeignBuffer => {
                "the buffer belongs to another protection domain: register it in the queue pair's"
            }
            Self::ForeignAddress => {
                "the address handle belongs to another protection domain: create it in the queue \
                 pair's"
            }
            Self::BadOperation => {
                "the queue pair's transport lacks this operation, or its send queue was created \
                 without it"
            }
            Self::NoReads => {
                "the connection allows no READs by this side: its initiator depth is 0, or the \
                 peer serves none"
            }
            Self::NotOnDevice => {
                "the device lacks this operation (FLUSH and ATOMIC WRITE need soft-RoCE of Linux \
                 6.2 or later)"
            }
            Self::TagsFull => "the tag list is full: poll completions first",
            Self::UnknownTag => "the tag is no longer in the list",
            Self::ShortPacket => {
                "the packet is shorter than an Ethernet header of 14 bytes (18 on devices that \
                 need the header in the WQE)"
            }
            Self::DeviceGone => "the device is gone",
            Self::DoorbellRefused => {
                "the kernel rejected the last doorbell; the work requests stay in the queue"
            }
        })
    }
}

crate::sentence_in_debug!(
    enum PostError {
        Full,
        State,
        SharedReceives,
        TooManySges,
        InlineTooLong,
        MessageTooLong,
        BadData,
        ForeignBuffer,
        ForeignAddress,
        BadOperation,
        NoReads,
        NotOnDevice,
        TagsFull,
        UnknownTag,
        ShortPacket,
        DeviceGone,
        DoorbellRefused,
    }
);

impl std::error::Error for PostError {}
