//! Completions of work requests: what completed, or how it failed.

use std::fmt;

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
    /// A window's bind, or the invalidation of a key. A ConnectX doesn't say which.
    #[doc(alias = "IBV_WC_BIND_MW")]
    #[doc(alias = "IBV_WC_LOCAL_INV")]
    Rekey,
    /// A FLUSH.
    Flush,
    /// An ATOMIC WRITE.
    AtomicWrite,
    /// A receive that took a SEND.
    Recv,
    /// A receive that an RDMA WRITE with immediate data used up.
    RecvWriteImm,
    /// A message found a tag, and is on its way to the tag's buffer: another completion,
    /// [`TagRecv`](Self::TagRecv), tells when it is there.
    #[doc(alias = "IBV_WC_TM_MATCH")]
    TagFound,
    /// A message that found a tag is in the tag's buffer, without its header.
    #[doc(alias = "IBV_WC_TM_RECV")]
    #[doc(alias = "IBV_WC_TM_DATA_VALID")]
    TagRecv,
    /// A message has a tag, but none in the list matched: it is in a receive, whole.
    RecvUnexpected,
    /// A message without a tag, to a queue that matches tags: it is in a receive, whole.
    #[doc(alias = "IBV_WC_TM_NO_TAG")]
    RecvNoTag,
    /// A tag was added to the list.
    #[doc(alias = "IBV_WC_TM_ADD")]
    TagAdded,
    /// A tag was removed from the list.
    #[doc(alias = "IBV_WC_TM_DEL")]
    TagRemoved,
    /// The device was told how many messages that found no tag were dealt with.
    #[doc(alias = "IBV_WC_TM_SYNC")]
    TagsSynced,
    /// A copy of memory within the host.
    #[doc(alias = "MLX5DV_WC_MEMCPY")]
    Copy,
    /// Something that this library doesn't post, by the device's opcode.
    Other(u8),
}

/// Where a received datagram came from: what the device took from its headers.
///
/// One word, decoded on demand, so that a completion which nobody asks costs no more than its copy.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Sender(u64);

impl Sender {
    /// From its fields: the queue pair's number, 24 bits; the service level, 4 bits; whether a GRH
    /// came; the LID.
    #[must_use]
    pub const fn new(qpn: u32, service_level: u8, has_grh: bool, lid: u16) -> Self {
        let low = qpn & 0xff_ffff | (service_level as u32 & 15) << 24 | (has_grh as u32) << 28;
        Self(low as u64 | (lid as u64) << 32)
    }

    /// From the word that a ConnectX has in its completions: LID, then GRH, service level and queue
    /// pair (PRM "CQE", `slid` and `flags_rqpn`).
    #[inline]
    #[must_use]
    pub const fn from_mlx5(word: u64) -> Self {
        // The upper half of the LID's word is not its.
        Self(word & 0xffff_ffff_ffff)
    }

    /// The sender's queue pair number, 24 bits.
    #[doc(alias = "src_qp")]
    #[must_use]
    pub const fn qpn(self) -> u32 {
        self.0 as u32 & 0xff_ffff
    }

    /// The service level it came with; on Ethernet the priority.
    #[must_use]
    pub const fn service_level(self) -> u8 {
        (self.0 >> 24) as u8 & 15
    }

    /// Whether the first 40 bytes of the buffer hold the packet's GRH; without, they hold nothing.
    /// On RoCE there is always one: of a packet by IPv4 its last 20 bytes are the IPv4 header.
    #[doc(alias = "IBV_WC_GRH")]
    #[must_use]
    pub const fn has_grh(self) -> bool {
        self.0 >> 28 & 3 != 0
    }

    /// The sender's LID; on RoCE it has no meaning.
    #[must_use]
    pub const fn lid(self) -> u16 {
        (self.0 >> 32) as u16
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("qpn", &format_args!("{:#x}", self.qpn()))
            .field("service_level", &self.service_level())
            .field("has_grh", &self.has_grh())
            .field("lid", &self.lid())
            .finish()
    }
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
    /// A tag was not removed: it isn't in the list any more, since a message found it.
    #[doc(alias = "IBV_WC_TM_ERR")]
    TagNotFound,
    /// A message found a tag, and its data isn't there. If the completion has bytes, these are the
    /// headers of a rendezvous that the device can't serve, in the tag's buffer: the program reads
    /// the data itself. Else the connection failed before the data came.
    #[doc(alias = "IBV_WC_TM_RNDV_INCOMPLETE")]
    RendezvousIncomplete,
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
            Self::TagNotFound => "a message had taken the tag already; its own completion tells",
            Self::RendezvousIncomplete => {
                "the message took a tag, but its data is to be read by the program, or won't come"
            }
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
            Self::TagNotFound => "tag not found",
            Self::RendezvousIncomplete => "rendezvous incomplete",
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
