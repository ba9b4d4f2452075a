//! Work requests and their completions: what is posted and what comes back.

use std::fmt;

use bitflags::bitflags;

/// A piece of registered memory as a work request names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_sge")]
pub struct Sge {
    /// Address in the region's own address space (the virtual address, unless it was registered with an iova).
    pub addr: u64,
    /// Bytes. 0 is legal.
    pub len: u32,
    /// Local key of the region.
    pub lkey: u32,
}

/// A place in the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Address in the peer's region.
    pub addr: u64,
    /// Remote key of the peer's region.
    pub rkey: u32,
}

bitflags! {
    /// How a send work request is carried out.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[doc(alias = "ibv_send_flags")]
    pub struct SendFlags: u8 {
        /// A completion tells of success. Failure always makes one.
        const SIGNALED = 1;
        /// Begins only after all READs and atomics posted before it are complete. IBTA vol 1, 10.8.3.3.
        const FENCE = 2;
        /// Raises a solicited event at the peer.
        const SOLICITED = 4;
    }
}

/// Identity and flags of a work request. A plain number converts into a signaled one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

    /// No completion on success. A later signaled one on the same queue retires it too; a frame that was posted with it then goes back
    /// to its slab, not to the caller, so what a READ brought is lost with it.
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

/// What a send queue is asked to do. Immediate data is in host order; the wire carries it big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_wr_opcode")]
#[non_exhaustive]
pub enum SendOp {
    /// Into the peer's next receive.
    Send,
    /// The same, with immediate data.
    SendImm(u32),
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

/// What a send carries, or where a READ or an atomic puts its answer.
#[derive(Clone, Copy, Debug)]
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
// As wide as what a post gives: a result of both is then two registers. With one byte the compiler makes one word of both, and
// shifts them in and out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum PostError {
    /// No room: poll completions first, and signal now and then.
    Full,
    /// The queue pair isn't in a state for this: sends need RTS, receives INIT or later.
    State,
    /// The list has more entries than the queue was made for.
    TooManySges,
    /// More inline bytes than the queue was made for.
    InlineTooLong,
    /// More bytes than a message may have.
    MessageTooLong,
    /// READs and atomics have an answer, so they can't be inline; atomics need eight bytes for it.
    BadData,
    /// The buffer was registered in another protection domain.
    ForeignBuffer,
    /// The device is gone: the kernel refused to hear of the last work requests. Only where a doorbell is a command (rxe).
    DeviceGone,
    /// The kernel refuses to look at the work requests rung last, which stand in the queue; `SendQueue::refused` has its errno. Each
    /// post asks it once more. Only where a doorbell is a command (rxe).
    Refused,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the queue is full: poll its completions, and signal at least one request per queue length",
            Self::State => "the queue pair is not ready: sends need RTS, receives need INIT",
            Self::TooManySges => "more scatter/gather entries than the queue was made for",
            Self::InlineTooLong => "more inline bytes than the queue was made for",
            Self::MessageTooLong => "more bytes than a message may have (2 GiB)",
            Self::BadData => "the answer of a READ or an atomic can't be inline, and an atomic's is eight bytes long",
            Self::ForeignBuffer => "the buffer was registered in another protection domain",
            Self::DeviceGone => "the device is gone",
            Self::Refused => "the kernel refuses to look at the work requests that were rung last",
        })
    }
}

impl std::error::Error for PostError {}

/// What a completion is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_wc_opcode")]
#[non_exhaustive]
pub enum Completed {
    /// A SEND, with or without immediate data.
    Send,
    /// An RDMA WRITE, with or without immediate data.
    Write,
    /// An RDMA READ.
    Read,
    /// A compare-and-swap.
    CompareSwap,
    /// A fetch-and-add.
    FetchAdd,
    /// A receive that took a SEND.
    Recv,
    /// A receive that an RDMA WRITE with immediate data used up.
    RecvWriteImm,
    /// Something that this library doesn't post, by the device's opcode.
    Other(u8),
}

/// How a work request failed. IBTA vol 1, 11.6.2; the names are those of `enum ibv_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_wc_status")]
#[non_exhaustive]
pub enum Status {
    /// The message doesn't fit: a receive too small, or a send over the limits.
    LocalLength,
    /// The work request is malformed.
    LocalQpOperation,
    /// A local key, range or right is wrong.
    LocalProtection,
    /// Taken back unserved, since the queue pair failed before.
    Flushed,
    /// A memory window could not be bound.
    MemoryWindowBind,
    /// The peer answered nonsense.
    BadResponse,
    /// A remote access right is lacking at this side.
    LocalAccess,
    /// The peer found the request invalid.
    RemoteInvalidRequest,
    /// The peer refused the remote key, range or right.
    RemoteAccess,
    /// The peer could not carry it out.
    RemoteOperation,
    /// No answer from the peer after all retries.
    RetryExceeded,
    /// The peer had no receive posted after all retries.
    RnrRetryExceeded,
    /// The peer aborted the operation.
    RemoteAborted,
    /// Something else.
    General,
}

impl Status {
    /// What happened and what to look at, in a sentence.
    #[must_use]
    pub fn explain(self) -> &'static str {
        match self {
            Self::LocalLength => {
                "the message was longer than the receive's scatter list, or a send was over the limit"
            }
            Self::LocalQpOperation => {
                "the device found the work request malformed, or the wrong one for this queue pair"
            }
            Self::LocalProtection => {
                "the local key doesn't cover the buffer, belongs to another protection domain, or lacks local write"
            }
            Self::Flushed => {
                "the queue pair was in error already; the first failed completion tells why"
            }
            Self::MemoryWindowBind => "the memory window could not be bound",
            Self::BadResponse => "the peer's response made no sense for the request",
            Self::LocalAccess => "the peer wanted an access that the local region doesn't grant",
            Self::RemoteInvalidRequest => {
                "the peer can't take this request: its receive is too small, or it doesn't do the operation"
            }
            Self::RemoteAccess => {
                "the peer refused the remote key: wrong, out of range, revoked, or without the right for this operation"
            }
            Self::RemoteOperation => {
                "the peer could not carry the request out, e.g. its receive buffer's key is bad"
            }
            Self::RetryExceeded => {
                "no acknowledgement came: the peer is gone, in error, unreachable, or its path attributes are wrong"
            }
            Self::RnrRetryExceeded => "the peer had no receive posted for too long",
            Self::RemoteAborted => "the peer aborted the operation",
            Self::General => "the device gave an error that has no name here; see its syndrome",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LocalLength => "local length error",
            Self::LocalQpOperation => "local QP operation error",
            Self::LocalProtection => "local protection error",
            Self::Flushed => "work request flushed",
            Self::MemoryWindowBind => "memory window bind error",
            Self::BadResponse => "bad response error",
            Self::LocalAccess => "local access error",
            Self::RemoteInvalidRequest => "remote invalid request error",
            Self::RemoteAccess => "remote access error",
            Self::RemoteOperation => "remote operation error",
            Self::RetryExceeded => "transport retry counter exceeded",
            Self::RnrRetryExceeded => "receiver-not-ready retry counter exceeded",
            Self::RemoteAborted => "remote aborted error",
            Self::General => "general error",
        })
    }
}

/// A failed work request: the status, and the device's own codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Failure {
    /// What happened.
    pub status: Status,
    /// The device's syndrome.
    pub syndrome: u8,
    /// The vendor's syndrome: what support asks for.
    pub vendor_syndrome: u8,
}

impl Failure {
    /// What happened and what to look at, in a sentence.
    #[must_use]
    #[cold]
    pub fn explain(&self) -> &'static str {
        self.status.explain()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (syndrome {:#04x}, vendor {:#04x}): {}",
            self.status,
            self.syndrome,
            self.vendor_syndrome,
            self.explain()
        )
    }
}

impl std::error::Error for Failure {}
