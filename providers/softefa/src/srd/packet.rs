//! Packets: data, and acknowledgements.
//!
//! A packet begins as a BTH does, with an opcode that RoCE has for manufacturers. It ends with an
//! ICRC, which the wire computes where packets may be damaged.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First byte of a packet: a manufacturer's opcode (IBTA vol 1, 9.2.1), and this layout's version.
const OPCODE: u8 = 0xe1;
/// Second byte.
const DATA: u8 = 0;
const ACK: u8 = 1;
/// Bytes of the ICRC.
const ICRC: usize = 4;
/// Lengths of packets are multiples of it.
const WORD: usize = 4;

/// Bytes of the shortest segment, except the last of a message.
const LEAST: usize = 256;

/// A segment of a message. Without a message (`total` is 0) it asks for an acknowledgement.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(super) struct Data {
    opcode: u8,
    kind: u8,
    /// Bytes of the segment.
    len: U16,
    reserved: U32,
    pub(super) stream: U64,
    /// Number of the packet in its stream, from 0.
    pub(super) number: U64,
    /// Number of the message in its stream.
    pub(super) message: U64,
    pub(super) offset: U32,
    /// Bytes of the message.
    pub(super) total: U32,
}

/// An acknowledgement.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(super) struct Ack {
    opcode: u8,
    kind: u8,
    len: U16,
    /// 1 after messages to the stream's sender were discarded: answers may be among them.
    broken: U32,
    pub(super) stream: U64,
    /// All packets below this number have arrived.
    pub(super) base: U64,
    /// Bit n: packet `base` + n has arrived.
    pub(super) beyond: U64,
    /// Life of the device that acknowledges.
    pub(super) session: U64,
}

/// A received packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Packet<'a> {
    Data(Data, &'a [u8]),
    Ack(Ack),
}

impl Data {
    /// Bytes of the packet with this segment of a message.
    pub(super) fn packet(
        (stream, number): (u64, u64),
        message: u64,
        (offset, total): (usize, usize),
        segment: &[u8],
    ) -> Vec<u8> {
        let header = Self {
            opcode: OPCODE,
            kind: DATA,
            len: (segment.len() as u16).into(),
            reserved: 0.into(),
            stream: stream.into(),
            number: number.into(),
            message: message.into(),
            offset: (offset as u32).into(),
            total: (total as u32).into(),
        };
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(segment);
        bytes.resize(bytes.len().next_multiple_of(WORD) + ICRC, 0);
        bytes
    }
}

impl Ack {
    /// Bytes of an acknowledgement.
    pub(super) fn packet(
        (stream, is_broken): (u64, bool),
        base: u64,
        beyond: u64,
        session: u64,
    ) -> Vec<u8> {
        let ack = Self {
            opcode: OPCODE,
            kind: ACK,
            len: 0.into(),
            broken: u32::from(is_broken).into(),
            stream: stream.into(),
            base: base.into(),
            beyond: beyond.into(),
            session: session.into(),
        };
        let mut bytes = ack.as_bytes().to_vec();
        bytes.resize(bytes.len() + ICRC, 0);
        bytes
    }

    /// True after messages to the stream's sender were discarded.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.get() != 0
    }
}

impl<'a> Packet<'a> {
    /// Parses a packet; `None` if it is malformed.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let bytes = bytes.get(..bytes.len().checked_sub(ICRC)?)?;
        match *bytes.get(1)? {
            DATA => {
                let (data, rest) = Data::read_from_prefix(bytes).ok()?;
                let segment = rest.get(..data.len.get().into())?;
                let is_padded = rest.len() == segment.len().next_multiple_of(WORD);
                let end = u64::from(data.offset.get()) + segment.len() as u64;
                let is_inside = end <= data.total.get().into();
                let is_last = end == data.total.get().into();
                let is_short = segment.len() < if is_last { 1 } else { LEAST };
                let is_probe = data.total.get() == 0;
                let fits = is_padded && is_inside && (is_probe || !is_short);
                (data.opcode == OPCODE && fits).then_some(Self::Data(data, segment))
            }
            ACK => {
                let ack = Ack::read_from_bytes(bytes).ok()?;
                (ack.opcode == OPCODE).then_some(Self::Ack(ack))
            }
            _ => None,
        }
    }
}
