//! Builder of a packet: headers by name, bytes in wire order.

use std::fmt;

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{Immutable, IntoBytes};

use super::crc::icrc;
use super::packet::{BTH_LEN, ICRC_LEN, MAX_PAYLOAD};
use super::{
    Aeth, AtomicAckEth, AtomicEth, Bth, DcEth, Deth, Extensions, Feth, Ieth, ImmDt, Opcode, Psn,
    Reth, Syndrome, U24, XrcEth,
};

/// Maximum bytes of extension headers: an atomic on a dynamic connection.
const MAX_EXTENSIONS: usize = 44;

// Every layout fits; the builder's indexing relies on it.
const _: () = {
    let mut i = 0;
    while i < Opcode::ALL.len() {
        if let Ok(layout) = Opcode::ALL[i].layout() {
            assert!(layout.headers.wire_len() <= MAX_EXTENSIONS);
        }
        i += 1;
    }
};

/// Reason that a packet was not written: an error of the caller, never of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum EmitError {
    /// An opcode without a layout.
    UnknownOpcode(Opcode),
    /// Headers the opcode asks for and the caller did not give.
    Missing(Extensions),
    /// Headers the caller gave and the opcode does not have.
    Unexpected(Extensions),
    /// Bytes of payload for an opcode without payload.
    UnexpectedPayload(usize),
    /// More payload than [`MAX_PAYLOAD`].
    TooLong(usize),
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EmitError::UnknownOpcode(op) => write!(f, "unknown opcode {:#04x}", op.0),
            EmitError::Missing(headers) => write!(f, "headers not given: {headers:?}"),
            EmitError::Unexpected(headers) => write!(f, "headers the opcode lacks: {headers:?}"),
            EmitError::UnexpectedPayload(len) => {
                write!(f, "{len} bytes of payload for an opcode that carries none")
            }
            EmitError::TooLong(len) => {
                write!(f, "{len} bytes of payload, at most {MAX_PAYLOAD} are allowed")
            }
        }
    }
}

impl std::error::Error for EmitError {}

/// The headers of a packet to be sent. `Copy`: a queue pair can keep one and change its PSN.
///
/// All headers of the opcode must be given, in any order, and no others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketBuilder {
    bth: Bth,
    headers: Extensions,
    given: Extensions,
    extensions: [u8; MAX_EXTENSIONS],
    icrc: bool,
}

impl PacketBuilder {
    /// A packet with the default partition (0xffff), "migrated" path state, no acknowledge request,
    /// and an ICRC.
    pub(crate) fn new(opcode: Opcode, dest_qp: u32, psn: Psn) -> PacketBuilder {
        PacketBuilder {
            bth: Bth {
                opcode: opcode.0,
                flags: Bth::MIG_REQ,
                pkey: U16::new(0xffff),
                congestion: 0,
                dest_qp: U24::new(dest_qp),
                ack: 0,
                psn: U24::new(psn.get()),
            },
            headers: opcode.layout().map_or(Extensions::empty(), |layout| layout.headers),
            given: Extensions::empty(),
            extensions: [0; MAX_EXTENSIONS],
            icrc: true,
        }
    }

    /// Sets or clears the acknowledge request bit.
    pub(crate) fn ack_request(mut self, on: bool) -> PacketBuilder {
        self.bth.ack = if on { Bth::ACK_REQ } else { 0 };
        self
    }
    /// Sets or clears the solicited event bit.
    pub(crate) fn solicited(mut self, on: bool) -> PacketBuilder {
        self.bth.flags = self.bth.flags & !Bth::SOLICITED | if on { Bth::SOLICITED } else { 0 };
        self
    }
    /// Sets the partition key.
    pub(crate) fn pkey(mut self, pkey: u16) -> PacketBuilder {
        self.bth.pkey = U16::new(pkey);
        self
    }
    /// Sets the congestion bits ([`Bth::FECN`], [`Bth::BECN`], [`Bth::NOTIFIABLE`]).
    pub(crate) fn congestion(mut self, bits: u8) -> PacketBuilder {
        self.bth.congestion = bits & (Bth::FECN | Bth::BECN | Bth::NOTIFIABLE);
        self
    }
    /// Turns the computation of the ICRC on or off; the field is 0 if off. See
    /// [`super::Wire::needs_icrc`].
    pub(crate) fn icrc(mut self, on: bool) -> PacketBuilder {
        self.icrc = on;
        self
    }
    /// XRC header: the shared receive queue.
    pub(crate) fn xrceth(self, srq: u32) -> PacketBuilder {
        self.put(Extensions::XRCETH, &XrcEth { reserved: 0, srq: U24::new(srq) })
    }
    /// Dynamic connection header.
    pub(crate) fn dceth(self, header: &DcEth) -> PacketBuilder {
        self.put(Extensions::DCETH, header)
    }
    /// Datagram header.
    pub(crate) fn deth(self, qkey: u32, src_qp: u32) -> PacketBuilder {
        let deth = Deth { qkey: U32::new(qkey), reserved: 0, src_qp: U24::new(src_qp) };
        self.put(Extensions::DETH, &deth)
    }
    /// FLUSH header.
    pub(crate) fn feth(self, header: Feth) -> PacketBuilder {
        self.put(Extensions::FETH, &header)
    }
    /// RDMA header; `dma_length` is the length of the message.
    pub(crate) fn reth(self, va: u64, rkey: u32, dma_length: u32) -> PacketBuilder {
        let reth =
            Reth { va: U64::new(va), rkey: U32::new(rkey), dma_length: U32::new(dma_length) };
        self.put(Extensions::RETH, &reth)
    }
    /// Atomic request header.
    pub(crate) fn atomic_eth(
        self,
        va: u64,
        rkey: u32,
        swap_or_add: u64,
        compare: u64,
    ) -> PacketBuilder {
        let atomic = AtomicEth {
            va: U64::new(va),
            rkey: U32::new(rkey),
            swap_or_add: U64::new(swap_or_add),
            compare: U64::new(compare),
        };
        self.put(Extensions::ATOMIC_ETH, &atomic)
    }
    /// Acknowledge header.
    pub(crate) fn aeth(self, syndrome: Syndrome, msn: u32) -> PacketBuilder {
        let aeth = Aeth { syndrome: syndrome.to_u8(), msn: U24::new(msn) };
        self.put(Extensions::AETH, &aeth)
    }
    /// Atomic result header.
    pub(crate) fn atomic_ack(self, original: u64) -> PacketBuilder {
        self.put(Extensions::ATOMIC_ACK, &AtomicAckEth { original: U64::new(original) })
    }
    /// Immediate data.
    pub(crate) fn immdt(self, imm: u32) -> PacketBuilder {
        self.put(Extensions::IMMDT, &ImmDt { imm: U32::new(imm) })
    }
    /// Invalidate header.
    pub(crate) fn ieth(self, rkey: u32) -> PacketBuilder {
        self.put(Extensions::IETH, &Ieth { rkey: U32::new(rkey) })
    }

    fn put<T: IntoBytes + Immutable>(mut self, header: Extensions, value: &T) -> PacketBuilder {
        self.given |= header;
        if let Some(at) = self.headers.offset_of(header) {
            let value = value.as_bytes();
            // In range: the assertion at the top of the file holds for every layout.
            self.extensions[at..at + value.len()].copy_from_slice(value);
        }
        self
    }

    /// Writes the packet into `out`, whose contents are replaced and whose capacity is kept.
    ///
    /// # Errors
    /// [`EmitError`] if opcode, headers and payload do not match; `out` is empty then.
    pub(crate) fn emit(&self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), EmitError> {
        self.emit_with(payload.len(), out, |to| {
            to.copy_from_slice(payload);
            Ok(())
        })
    }

    /// Writes the packet into `out`, with a payload of `len` bytes written by `fill`. It must write
    /// all bytes, whose contents are arbitrary before.
    ///
    /// # Errors
    /// [`EmitError`] as for [`emit`](PacketBuilder::emit), or the error of `fill`; `out` is empty
    /// then.
    #[inline]
    pub(crate) fn emit_with<E: From<EmitError>>(
        &self,
        len: usize,
        out: &mut Vec<u8>,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let done = self.write(len, out, fill);
        if done.is_err() {
            out.clear();
        }
        done
    }

    #[inline]
    fn write<E: From<EmitError>>(
        &self,
        len: usize,
        out: &mut Vec<u8>,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.check(len)?;
        let headers = BTH_LEN + self.headers.wire_len();
        let pad = len.wrapping_neg() % 4;
        let covered = headers + len + pad;
        // Not cleared first: existing bytes need no zeroing, since they are overwritten.
        out.resize(covered + ICRC_LEN, 0);

        let mut bth = self.bth;
        bth.flags |= (pad as u8) << Bth::PAD_SHIFT;
        out[..BTH_LEN].copy_from_slice(bth.as_bytes());
        if headers != BTH_LEN {
            out[BTH_LEN..headers].copy_from_slice(&self.extensions[..headers - BTH_LEN]);
        }
        fill(&mut out[headers..headers + len])?;
        if pad != 0 {
            out[headers + len..covered].fill(0);
        }
        let crc = if self.icrc { icrc(&out[..covered]) } else { 0 };
        out[covered..].copy_from_slice(&crc.to_le_bytes());
        Ok(())
    }

    #[inline]
    fn check(&self, len: usize) -> Result<(), EmitError> {
        let opcode = self.bth.opcode();
        let Ok(layout) = opcode.layout() else {
            return Err(EmitError::UnknownOpcode(opcode));
        };
        if self.given != layout.headers {
            let missing = layout.headers.difference(self.given);
            let unexpected = self.given.difference(layout.headers);
            Err(match missing.is_empty() {
                true => EmitError::Unexpected(unexpected),
                false => EmitError::Missing(missing),
            })
        } else if len != 0 && !layout.payload {
            Err(EmitError::UnexpectedPayload(len))
        } else if len > MAX_PAYLOAD {
            Err(EmitError::TooLong(len))
        } else {
            Ok(())
        }
    }
}
