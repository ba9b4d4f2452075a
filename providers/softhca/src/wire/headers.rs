//! Transport headers as laid out in a packet (IBTA vol 1, 9.2 and 9.3; also the kernel's
//! `drivers/infiniband/sw/rxe/rxe_hdr.h`).
//!
//! All are big endian and byte aligned, so that a header is read in place.

use std::fmt;

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Opcode, Psn, Syndrome};

/// A 24 bit big-endian number: queue pair numbers, PSNs, MSNs.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(transparent)]
pub struct U24([u8; 3]);

impl U24 {
    /// Number from the low 24 bits of `value`.
    pub(crate) const fn new(value: u32) -> U24 {
        let [_, a, b, c] = value.to_be_bytes();
        U24([a, b, c])
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        let [a, b, c] = self.0;
        u32::from_be_bytes([0, a, b, c])
    }
}

impl fmt::Debug for U24 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.get())
    }
}

/// Base transport header, 12 bytes (IBTA 9.2). Starts every packet.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Bth {
    /// Opcode: transport, operation, and the headers that follow.
    pub opcode: u8,
    /// 7 solicited event, 6 migration request, 5:4 pad count, 3:0 transport header version.
    pub flags: u8,
    /// Partition key.
    pub pkey: U16,
    /// 7 FECN, 6 BECN (RoCEv2, annex A17), 5:0 reserved. The ICRC excludes it, since switches
    /// change it.
    pub congestion: u8,
    /// Destination queue pair.
    pub dest_qp: U24,
    /// 7 acknowledge request, 6:0 reserved.
    pub ack: u8,
    /// Packet sequence number; read it with [`Bth::psn`].
    pub psn: U24,
}

impl Bth {
    /// `flags`: solicited event.
    pub(crate) const SOLICITED: u8 = 0x80;
    /// `flags`: migration request; set in the path state "migrated", the default.
    pub const MIG_REQ: u8 = 0x40;
    /// `flags`: pad count, shifted by [`Bth::PAD_SHIFT`].
    pub(crate) const PAD_MASK: u8 = 0x30;
    /// `flags`: shift of the pad count.
    pub(crate) const PAD_SHIFT: u32 = 4;
    /// `flags`: transport header version; only 0 exists.
    pub(crate) const TVER_MASK: u8 = 0x0f;
    /// `congestion`: forward explicit congestion notification.
    pub const FECN: u8 = 0x80;
    /// `congestion`: backward explicit congestion notification.
    pub const BECN: u8 = 0x40;
    /// `congestion`, a reserved bit: the sender obeys congestion notifications. Between software
    /// HCAs only.
    pub(crate) const NOTIFIABLE: u8 = 0x20;
    /// `ack`: acknowledge request.
    pub(crate) const ACK_REQ: u8 = 0x80;

    /// The opcode.
    #[must_use]
    pub fn opcode(&self) -> Opcode {
        Opcode(self.opcode)
    }
    /// The packet sequence number.
    #[must_use]
    pub fn psn(&self) -> Psn {
        Psn::new(self.psn.get())
    }
    /// The destination queue pair number.
    #[must_use]
    pub fn dest_qp(&self) -> u32 {
        self.dest_qp.get()
    }
    /// Returns `true` if the message asks for a solicited event.
    #[must_use]
    pub fn is_solicited(&self) -> bool {
        self.flags & Bth::SOLICITED != 0
    }
    /// Returns `true` if the requester asks for an acknowledgement.
    #[must_use]
    pub fn is_ack_requested(&self) -> bool {
        self.ack & Bth::ACK_REQ != 0
    }
    /// Bytes of padding between payload and ICRC, 0 to 3.
    #[must_use]
    pub fn pad_count(&self) -> usize {
        usize::from((self.flags & Bth::PAD_MASK) >> Bth::PAD_SHIFT)
    }
    /// Transport header version.
    #[must_use]
    pub fn version(&self) -> u8 {
        self.flags & Bth::TVER_MASK
    }
}

/// XRC extended transport header, 4 bytes (IBTA annex A14).
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct XrcEth {
    /// Reserved, 0.
    pub reserved: u8,
    /// The shared receive queue that gets the message.
    pub srq: U24,
}

/// Datagram extended transport header, 8 bytes (IBTA 9.3).
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Deth {
    /// Queue key.
    pub qkey: U32,
    /// Reserved, 0.
    pub reserved: u8,
    /// Source queue pair.
    pub src_qp: U24,
}

/// FLUSH extended transport header, 4 bytes (IBTA annex A19; `struct rxe_feth` in the kernel's
/// `rxe_hdr.h`).
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Feth {
    /// 31:6 reserved, 5:4 selectivity level, 3:0 placement types.
    pub bits: U32,
}

impl Feth {
    /// Placement type: earlier writes are visible to the peer's host.
    pub const GLOBAL: u32 = 1 << 0;
    /// Placement type: earlier writes survive a loss of power.
    pub const PERSISTENT: u32 = 1 << 1;
    /// Selectivity level: the range that the RDMA header names.
    pub const RANGE: u32 = 0;
    /// Selectivity level: all memory of the key.
    pub const REGION: u32 = 1;

    /// Creates a header; the lowest four bits of `placement` and two bits of `level` count.
    #[must_use]
    pub fn new(placement: u32, level: u32) -> Feth {
        Feth { bits: U32::new((level & 3) << 4 | placement & 0xf) }
    }
    /// Placement types.
    #[must_use]
    pub fn placement(&self) -> u32 {
        self.bits.get() & 0xf
    }
    /// Selectivity level.
    #[must_use]
    pub fn level(&self) -> u32 {
        self.bits.get() >> 4 & 3
    }
}

/// RDMA extended transport header, 16 bytes (IBTA 9.3).
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Reth {
    /// Remote virtual address.
    pub va: U64,
    /// Remote key.
    pub rkey: U32,
    /// Bytes of the whole message, not of this packet.
    pub dma_length: U32,
}

/// Atomic extended transport header, 28 bytes (IBTA 9.3).
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct AtomicEth {
    /// Remote virtual address, a multiple of 8.
    pub va: U64,
    /// Remote key.
    pub rkey: U32,
    /// Value to store (compare and swap) or to add (fetch and add).
    pub swap_or_add: U64,
    /// Expected value of compare and swap; unused by fetch and add.
    pub compare: U64,
}

/// Acknowledge extended transport header, 4 bytes (IBTA 9.3).
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Aeth {
    /// Raw syndrome; read it with [`Aeth::syndrome`].
    pub syndrome: u8,
    /// Message sequence number: messages the responder has completed.
    pub msn: U24,
}

impl Aeth {
    /// Decodes the syndrome.
    #[must_use]
    pub fn syndrome(&self) -> Syndrome {
        Syndrome::from_u8(self.syndrome)
    }
    /// Message sequence number, 24 bits.
    #[must_use]
    pub fn msn(&self) -> u32 {
        self.msn.get()
    }
}

/// Atomic acknowledge extended transport header, 8 bytes (IBTA 9.3).
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct AtomicAckEth {
    /// Value of the remote memory before the atomic.
    pub original: U64,
}

/// Immediate data, 4 bytes (IBTA 9.3). The HCA does not interpret it.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct ImmDt {
    /// Immediate data in wire order, as applications pass it.
    pub imm: U32,
}

/// Invalidate extended transport header, 4 bytes (IBTA 9.3).
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Ieth {
    /// The remote key to invalidate.
    pub rkey: U32,
}

/// Dynamic connection extended transport header, 16 bytes. The format is softhca's; IBTA has no
/// such service.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct DcEth {
    /// The key of the target.
    pub key: U64,
    /// 7 connect, 6:0 reserved.
    pub flags: u8,
    /// The initiator.
    pub src_qp: U24,
    /// Number of the connection; the initiator counts up.
    pub connection: U32,
}

impl DcEth {
    /// `flags`: the first packet of its connection, which starts with this PSN.
    pub const CONNECT: u8 = 0x80;
}

// IBTA 9.2, 9.3: the sizes in the section titles.
const _: () = {
    assert!(size_of::<Bth>() == 12);
    assert!(size_of::<XrcEth>() == 4);
    assert!(size_of::<Deth>() == 8);
    assert!(size_of::<Feth>() == 4);
    assert!(size_of::<Reth>() == 16);
    assert!(size_of::<AtomicEth>() == 28);
    assert!(size_of::<Aeth>() == 4);
    assert!(size_of::<AtomicAckEth>() == 8);
    assert!(size_of::<ImmDt>() == 4);
    assert!(size_of::<Ieth>() == 4);
    assert!(size_of::<DcEth>() == 16);
};
