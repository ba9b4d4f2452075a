//! Why work failed: the syndrome that the verbs know, and a vendor syndrome that names the check.

use uverbs_mlx5_prm::syndrome::Syndrome;

/// The vendor syndrome of a failed CQE (`vendor_err_synd`): which check of this device it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vendor(pub(crate) u8);

impl Vendor {
    /// No such key.
    pub(crate) const NO_KEY: Vendor = Vendor(0x51);
    /// The key is of another protection domain.
    pub(crate) const WRONG_PD: Vendor = Vendor(0x52);
    /// Outside of the key's range.
    pub(crate) const RANGE: Vendor = Vendor(0x53);
    /// The key does not grant the right.
    pub(crate) const RIGHT: Vendor = Vendor(0x54);
    /// The memory behind a key does not answer.
    pub(crate) const DMA: Vendor = Vendor(0x55);
    /// The translations of all keys together are too many.
    pub(crate) const ROOM: Vendor = Vendor(0x56);
    /// The key is bound to another queue pair.
    pub(crate) const WRONG_QP: Vendor = Vendor(0x57);
    /// A WQE can't be read.
    pub(crate) const UNREADABLE: Vendor = Vendor(0x60);
    /// A send WQE has another index than its place in the ring.
    pub(crate) const INDEX: Vendor = Vendor(0x61);
    /// A send WQE names another queue pair.
    pub(crate) const QPN: Vendor = Vendor(0x62);
    /// A send WQE is longer than what the doorbell published, or empty.
    pub(crate) const SIZE: Vendor = Vendor(0x63);
    /// The segments of a WQE are not those of its opcode.
    pub(crate) const SEGMENTS: Vendor = Vendor(0x64);
    /// The transport has no such operation.
    pub(crate) const OPCODE: Vendor = Vendor(0x65);
    /// Too many bytes, or too few.
    pub(crate) const LENGTH: Vendor = Vendor(0x66);
    /// An address vector is missing.
    pub(crate) const ADDRESS: Vendor = Vendor(0x67);
    /// A raw packet's header doesn't stand in its WQE.
    pub(crate) const NO_HEADER: Vendor = Vendor(0x68);
    /// A list of tags is full, or lacks the place.
    pub(crate) const TAGS: Vendor = Vendor(0x69);
    /// The peer refused the request.
    pub(crate) const PEER: Vendor = Vendor(0x70);
    /// A READ or an atomic on a queue pair that may have none outstanding.
    pub(crate) const NO_RD_ATOMIC: Vendor = Vendor(0x71);
    /// The peer's response is malformed.
    pub(crate) const RESPONSE: Vendor = Vendor(0x72);
    /// The packet could not be built.
    pub(crate) const EMIT: Vendor = Vendor(0x73);
    /// No acknowledgement came.
    pub(crate) const TIMEOUT: Vendor = Vendor(0x81);
    /// Packets were lost again and again.
    pub(crate) const SEQUENCE: Vendor = Vendor(0x82);
    /// The peer had no receive, again and again.
    pub(crate) const RNR: Vendor = Vendor(0x83);
    /// A message or frame is longer than its receive.
    pub(crate) const TOO_LONG: Vendor = Vendor(0x91);
    /// The driver could not bring a page (mlx5dv.h, `MLX5_CQE_VENDOR_SYNDROME_ODP_PFAULT`).
    pub(crate) const PAGE_FAULT: Vendor = Vendor(0x93);
    /// A large send can't be cut into frames.
    pub(crate) const LARGE_SEND: Vendor = Vendor(0x94);
    /// The WQE was flushed.
    pub(crate) const FLUSHED: Vendor = Vendor(0xf9);
}

/// Why something failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) syndrome: Syndrome,
    pub(crate) vendor: Vendor,
}

impl Failure {
    pub(crate) const fn new(syndrome: Syndrome, vendor: Vendor) -> Failure {
        Failure { syndrome, vendor }
    }

    /// The WQE was outstanding, or came, when the QP was in error.
    pub(crate) const FLUSHED: Failure = Failure::new(Syndrome::WR_FLUSH_ERR, Vendor::FLUSHED);
}
