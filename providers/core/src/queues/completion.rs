//! Completions of work requests: what completed, or how it failed.

use std::fmt;

/// Operation that a completion reports.
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
    /// A window's bind, or the invalidation of a key. A ConnectX does not tell them apart.
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
    /// A message matched a tag, and is on its way to the tag's buffer. A later completion,
    /// [`TagRecv`](Self::TagRecv), reports its arrival.
    #[doc(alias = "IBV_WC_TM_MATCH")]
    TagFound,
    /// A message that matched a tag is in the tag's buffer, without its header.
    #[doc(alias = "IBV_WC_TM_RECV")]
    #[doc(alias = "IBV_WC_TM_DATA_VALID")]
    TagRecv,
    /// A message with a tag that matched none in the list: it is in a receive, with its header.
    RecvUnexpected,
    /// A message without a tag, on a tag-matching queue: it is in a receive, with its header.
    #[doc(alias = "IBV_WC_TM_NO_TAG")]
    RecvNoTag,
    /// A tag was added to the list.
    #[doc(alias = "IBV_WC_TM_ADD")]
    TagAdded,
    /// A tag was removed from the list.
    #[doc(alias = "IBV_WC_TM_DEL")]
    TagRemoved,
    /// The device got the count of handled unexpected messages.
    #[doc(alias = "IBV_WC_TM_SYNC")]
    TagsSynced,
    /// A copy of memory within the host.
    #[doc(alias = "MLX5DV_WC_MEMCPY")]
    Copy,
    /// An operation that this library does not post, by the device's opcode.
    Other(u8),
}

/// Source of a received datagram, from its headers.
///
/// One word that is decoded on demand: copying it costs little if the program does not read it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Sender(u64);

impl Sender {
    /// Packs the fields: 24-bit queue pair number, 4-bit service level, whether the buffer begins
    /// with a GRH, and LID.
    #[must_use]
    pub const fn new(qpn: u32, service_level: u8, has_grh: bool, lid: u16) -> Self {
        let low = qpn & 0xff_ffff | (service_level as u32 & 15) << 24 | (has_grh as u32) << 28;
        Self(low as u64 | (lid as u64) << 32)
    }

    /// Reads the word of a ConnectX CQE: LID, then GRH flag, service level and queue pair (PRM
    /// "CQE", `slid` and `flags_rqpn`).
    #[inline]
    #[must_use]
    pub const fn from_mlx5(word: u64) -> Self {
        // The upper half of the word with the LID belongs to other fields.
        Self(word & 0xffff_ffff_ffff)
    }

    /// The sender's queue pair number, 24 bits.
    #[doc(alias = "src_qp")]
    #[must_use]
    pub const fn qpn(self) -> u32 {
        self.0 as u32 & 0xff_ffff
    }

    /// Service level of the datagram; on Ethernet the priority.
    #[must_use]
    pub const fn service_level(self) -> u8 {
        (self.0 >> 24) as u8 & 15
    }

    /// True if the first 40 bytes of the buffer hold the packet's GRH; otherwise their content is
    /// undefined. RoCE always has one: for IPv4, its last 20 bytes are the IPv4 header.
    #[doc(alias = "IBV_WC_GRH")]
    #[must_use]
    pub const fn has_grh(self) -> bool {
        self.0 >> 28 & 3 != 0
    }

    /// The sender's LID; without meaning on RoCE.
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

/// Reason of a failure (IBTA vol 1, 11.6.2), by the names of `enum ibv_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_wc_status")]
#[non_exhaustive]
pub enum Status {
    /// The message does not fit: it is longer than the receive's list, or than a send may be.
    #[doc(alias = "IBV_WC_LOC_LEN_ERR")]
    LocalLength,
    /// The work request is malformed.
    #[doc(alias = "IBV_WC_LOC_QP_OP_ERR")]
    LocalQpOperation,
    /// The local key does not grant the access or the range.
    #[doc(alias = "IBV_WC_LOC_PROT_ERR")]
    LocalProtection,
    /// Flushed: the queue pair was in the error state before, or its connection was ended.
    #[doc(alias = "IBV_WC_WR_FLUSH_ERR")]
    Flushed,
    /// A memory window could not be bound.
    #[doc(alias = "IBV_WC_MW_BIND_ERR")]
    MemoryWindowBind,
    /// The peer's response does not fit the request.
    #[doc(alias = "IBV_WC_BAD_RESP_ERR")]
    BadResponse,
    /// The local region does not grant the access that the peer asked for.
    #[doc(alias = "IBV_WC_LOC_ACCESS_ERR")]
    LocalAccess,
    /// The peer rejected the request: its receive is too small, or its queue pair does not grant
    /// the operation (`Local::access`).
    #[doc(alias = "IBV_WC_REM_INV_REQ_ERR")]
    RemoteInvalidRequest,
    /// The peer's region does not grant the key, range or access.
    #[doc(alias = "IBV_WC_REM_ACCESS_ERR")]
    RemoteAccess,
    /// The peer failed to execute the request.
    #[doc(alias = "IBV_WC_REM_OP_ERR")]
    RemoteOperation,
    /// No response from the peer after all retries.
    #[doc(alias = "IBV_WC_RETRY_EXC_ERR")]
    RetryExceeded,
    /// The peer had no receive posted after all retries.
    #[doc(alias = "IBV_WC_RNR_RETRY_EXC_ERR")]
    RnrRetryExceeded,
    /// The peer has no such queue pair, or it is in error (EFA).
    #[doc(alias = "IBV_WC_REM_INV_RD_REQ_ERR")]
    RemoteInvalidRdRequest,
    /// The peer did not respond (EFA).
    #[doc(alias = "IBV_WC_RESP_TIMEOUT_ERR")]
    ResponseTimeout,
    /// The peer aborted the operation.
    #[doc(alias = "IBV_WC_REM_ABORT_ERR")]
    RemoteAborted,
    /// A tag was not removed: a message matched it before.
    #[doc(alias = "IBV_WC_TM_ERR")]
    TagNotFound,
    /// A message matched a tag, but its data did not arrive. A completion with bytes reports a
    /// rendezvous that the device can't serve: its headers are in the tag's buffer, and the program
    /// must read the data itself. A completion without bytes reports a connection that failed
    /// before the data arrived.
    #[doc(alias = "IBV_WC_TM_RNDV_INCOMPLETE")]
    RendezvousIncomplete,
    /// Another error.
    #[doc(alias = "IBV_WC_GENERAL_ERR")]
    General,
}

impl Status {
    /// Explains the failure and names its likely cause.
    #[must_use]
    #[doc(alias = "ibv_wc_status_str")]
    pub fn explain(self) -> &'static str {
        match self {
            Self::LocalLength => {
                "the message is longer than the receive's scatter list, or than a send may be"
            }
            Self::LocalQpOperation => {
                "the work request is malformed, or invalid for this queue pair"
            }
            Self::LocalProtection => {
                "the local key does not cover the buffer, belongs to another protection domain, or \
                 lacks local write"
            }
            Self::Flushed => {
                "the queue pair was already in error, or its connection was ended; the first \
                 failed completion has the cause"
            }
            Self::MemoryWindowBind => "the memory window could not be bound",
            Self::BadResponse => "the peer's response does not match the request",
            Self::LocalAccess => {
                "the peer attempted an access that the local region does not grant"
            }
            Self::RemoteInvalidRequest => {
                "the peer rejected the request: its receive is too small, or its queue pair does \
                 not grant the operation (`Local::access`)"
            }
            Self::RemoteAccess => {
                "the peer rejected the remote key: it is wrong, out of range, revoked, or lacks \
                 the right for this operation"
            }
            Self::RemoteOperation => {
                "the peer failed to execute the request, for example because its receive's key \
                 is bad"
            }
            Self::RetryExceeded => {
                "no acknowledgement arrived: the peer is gone, in error or unreachable, or the \
                 path attributes are wrong"
            }
            Self::RnrRetryExceeded => "the peer posted no receive within all retries",
            Self::RemoteInvalidRdRequest => {
                "the peer has no queue pair of this number, or it is in the error state"
            }
            Self::ResponseTimeout => "the peer is unreachable, or no longer responds",
            Self::RemoteAborted => "the peer aborted the operation",
            Self::TagNotFound => "a message matched the tag before; its completion reports it",
            Self::RendezvousIncomplete => {
                "the message matched a tag, but the program must read its data, or it will not \
                 arrive"
            }
            Self::General => "the device reported an unknown error; see its syndrome",
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
            Self::RemoteInvalidRdRequest => "remote invalid RD request",
            Self::ResponseTimeout => "response timeout error",
            Self::RemoteAborted => "remote aborted error",
            Self::TagNotFound => "tag not found",
            Self::RendezvousIncomplete => "rendezvous incomplete",
            Self::General => "general error",
        })
    }
}

/// A failed work request: the status, and the device's own codes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Failure {
    /// Reason.
    pub status: Status,
    /// The device's syndrome.
    pub syndrome: u8,
    /// The vendor's syndrome, for the vendor's support.
    pub vendor_syndrome: u8,
}

impl Failure {
    /// Explains the failure and names its likely cause.
    #[must_use]
    #[cold]
    pub fn explain(&self) -> &'static str {
        if self.is_page_fault() {
            return "a page fault in on-demand memory ended this receive of a shared queue; post it \
                    again: the connection goes on, and its sender sends the message again";
        }
        self.status.explain()
    }

    /// Returns true for a receive of a shared queue that a page fault in on-demand memory ended
    /// (ConnectX). It is no failure of the connection: post the receive again, and the message
    /// comes. Frames are pinned, so they never fault.
    #[must_use]
    #[doc(alias = "MLX5_CQE_VENDOR_SYNDROME_ODP_PFAULT")]
    pub fn is_page_fault(&self) -> bool {
        // mlx5dv.h, `MLX5_CQE_VENDOR_SYNDROME_ODP_PFAULT`.
        self.status == Status::RemoteAborted && self.vendor_syndrome == 0x93
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

crate::sentence_in_debug!(struct Failure { status, syndrome, vendor_syndrome });

impl std::error::Error for Failure {}
