//! Causes of failed work: the syndrome that the verbs report, and a vendor syndrome for the check.

use uverbs_mlx5_prm::syndrome::Syndrome;

/// Vendor syndrome of a failed CQE (`vendor_err_synd`): names the check of this device that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vendor(pub(crate) u8);

impl Vendor {
    /// The key does not exist.
    pub(crate) const NO_KEY: Vendor = Vendor(0x51);
    /// The key belongs to another protection domain.
    pub(crate) const WRONG_PD: Vendor = Vendor(0x52);
    /// The access is outside of the key's range.
    pub(crate) const RANGE: Vendor = Vendor(0x53);
    /// The key does not grant the right.
    pub(crate) const RIGHT: Vendor = Vendor(0x54);
    /// The host refused access to the memory behind a key.
    pub(crate) const DMA: Vendor = Vendor(0x55);
    /// The translations of all keys together exceed the limit.
    pub(crate) const ROOM: Vendor = Vendor(0x56);
    /// The key is bound to another queue pair.
    pub(crate) const WRONG_QP: Vendor = Vendor(0x57);
    /// A WQE can't be read.
    pub(crate) const UNREADABLE: Vendor = Vendor(0x60);
    /// A send WQE's index differs from its position in the ring.
    pub(crate) const INDEX: Vendor = Vendor(0x61);
    /// A send WQE names another queue pair.
    pub(crate) const QPN: Vendor = Vendor(0x62);
    /// A send WQE is longer than the published part of the ring, or empty.
    pub(crate) const SIZE: Vendor = Vendor(0x63);
    /// The segments of a WQE do not fit its opcode.
    pub(crate) const SEGMENTS: Vendor = Vendor(0x64);
    /// The transport service lacks the operation.
    pub(crate) const OPCODE: Vendor = Vendor(0x65);
    /// The message is too long or too short.
    pub(crate) const LENGTH: Vendor = Vendor(0x66);
    /// An address vector is missing.
    pub(crate) const ADDRESS: Vendor = Vendor(0x67);
    /// A raw packet's header is not inline in its WQE.
    pub(crate) const NO_HEADER: Vendor = Vendor(0x68);
    /// A tag list is full, or has no such entry.
    pub(crate) const TAGS: Vendor = Vendor(0x69);
    /// The peer refused the request.
    pub(crate) const PEER: Vendor = Vendor(0x70);
    /// A READ or an atomic on a queue pair that may have none outstanding.
    pub(crate) const NO_RD_ATOMIC: Vendor = Vendor(0x71);
    /// The peer's response is malformed.
    pub(crate) const RESPONSE: Vendor = Vendor(0x72);
    /// The packet could not be built.
    pub(crate) const EMIT: Vendor = Vendor(0x73);
    /// No acknowledgement came, retries exceeded.
    pub(crate) const TIMEOUT: Vendor = Vendor(0x81);
    /// Sequence NAKs, retries exceeded.
    pub(crate) const SEQUENCE: Vendor = Vendor(0x82);
    /// The peer had no receive posted, RNR retries exceeded.
    pub(crate) const RNR: Vendor = Vendor(0x83);
    /// A message or frame is longer than its receive.
    pub(crate) const TOO_LONG: Vendor = Vendor(0x91);
    /// The driver could not bring a page (mlx5dv.h, `MLX5_CQE_VENDOR_SYNDROME_ODP_PFAULT`).
    pub(crate) const PAGE_FAULT: Vendor = Vendor(0x93);
    /// A large send can't be split into frames.
    pub(crate) const LARGE_SEND: Vendor = Vendor(0x94);
    /// The WQE was flushed.
    pub(crate) const FLUSHED: Vendor = Vendor(0xf9);
}

/// Cause of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) syndrome: Syndrome,
    pub(crate) vendor: Vendor,
}

impl Failure {
    pub(crate) const fn new(syndrome: Syndrome, vendor: Vendor) -> Failure {
        Failure { syndrome, vendor }
    }

    /// The WQE was outstanding when the QP went to error, or was posted after that.
    pub(crate) const FLUSHED: Failure = Failure::new(Syndrome::WR_FLUSH_ERR, Vendor::FLUSHED);
}
