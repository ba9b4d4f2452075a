//! View of a received packet: arbitrary bytes, parsed without copying.

use std::fmt;

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::crc::icrc;
use super::{
    Aeth, AtomicAckEth, AtomicEth, Bth, DcEth, Deth, Extensions, Feth, Ieth, ImmDt, Layout, Opcode,
    Psn, Reth, XrcEth,
};

/// Bytes of the BTH.
pub(crate) const BTH_LEN: usize = size_of::<Bth>();
/// Bytes of the ICRC.
pub(crate) const ICRC_LEN: usize = 4;
/// The largest payload: the largest path MTU of IBTA.
pub(crate) const MAX_PAYLOAD: usize = 4096;
/// Reason that bytes are not a packet. A receiver drops all of these silently (IBTA vol 1, 9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PacketError {
    /// Fewer bytes than headers, pad and ICRC need.
    Truncated {
        /// Number of bytes.
        len: usize,
        /// Number of bytes that the headers need.
        needed: usize,
    },
    /// Length that is not a multiple of 4 bytes, although padding makes every packet one.
    Unpadded(usize),
    /// A transport header version other than 0.
    Version(u8),
    /// An opcode without a layout.
    UnknownOpcode(Opcode),
    /// Bytes of payload after an opcode without payload.
    UnexpectedPayload(usize),
    /// More payload than `MAX_PAYLOAD`.
    TooLong(usize),
    /// The ICRC does not match: the packet was corrupted.
    Icrc {
        /// ICRC in the packet.
        found: u32,
        /// ICRC computed from its bytes.
        computed: u32,
    },
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PacketError::Truncated { len, needed } => {
                write!(f, "packet of {len} bytes, its headers ask for {needed}")
            }
            PacketError::Unpadded(len) => write!(f, "packet of {len} bytes, not a multiple of 4"),
            PacketError::Version(v) => write!(f, "transport header version {v}, expected 0"),
            PacketError::UnknownOpcode(op) => write!(f, "unknown opcode {:#04x}", op.0),
            PacketError::UnexpectedPayload(len) => {
                write!(f, "{len} bytes of payload behind an opcode that carries none")
            }
            PacketError::TooLong(len) => {
                write!(f, "{len} bytes of payload, at most {MAX_PAYLOAD} are allowed")
            }
            PacketError::Icrc { found, computed } => {
                write!(f, "ICRC {found:#010x}, the bytes give {computed:#010x}")
            }
        }
    }
}

impl std::error::Error for PacketError {}

/// A parsed packet, borrowing its bytes.
#[derive(Clone, Copy)]
pub struct Packet<'a> {
    layout: Layout,
    bth: &'a Bth,
    extensions: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads a packet. Any bytes are allowed.
    ///
    /// An ICRC of 0 means "not computed", as on a wire that never corrupts
    /// ([`super::Wire::needs_icrc`]). No single bit error can both zero another ICRC and damage the
    /// packet.
    ///
    /// # Errors
    /// [`PacketError`] with the reason.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, PacketError> {
        let len = bytes.len();
        let truncated = |needed| PacketError::Truncated { len, needed };
        let Ok((bth, _)) = Bth::ref_from_prefix(bytes) else {
            return Err(truncated(BTH_LEN + ICRC_LEN));
        };
        if bth.version() != 0 {
            return Err(PacketError::Version(bth.version()));
        }
        let layout = bth.opcode().layout()?;
        let headers = BTH_LEN + layout.headers.wire_len();
        let needed = headers + bth.pad_count() + ICRC_LEN;
        if len < needed {
            return Err(truncated(needed));
        }
        if !len.is_multiple_of(4) {
            return Err(PacketError::Unpadded(len));
        }
        let payload = &bytes[headers..len - ICRC_LEN - bth.pad_count()];
        if !layout.payload && !payload.is_empty() {
            return Err(PacketError::UnexpectedPayload(payload.len()));
        }
        if payload.len() > MAX_PAYLOAD {
            return Err(PacketError::TooLong(payload.len()));
        }
        if let Some((covered, found)) = bytes.split_last_chunk::<ICRC_LEN>() {
            let found = u32::from_le_bytes(*found);
            if found != 0 {
                let computed = icrc(covered);
                if found != computed {
                    return Err(PacketError::Icrc { found, computed });
                }
            }
        }
        Ok(Packet { layout, bth, extensions: &bytes[BTH_LEN..headers], payload })
    }

    /// The base transport header.
    #[must_use]
    pub fn bth(&self) -> &'a Bth {
        self.bth
    }
    /// The opcode.
    #[must_use]
    pub fn opcode(&self) -> Opcode {
        self.bth.opcode()
    }
    /// The packet sequence number.
    #[must_use]
    pub fn psn(&self) -> Psn {
        self.bth.psn()
    }
    /// Layout of the packet, by its opcode.
    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }
    /// Copies the headers, with another payload.
    pub(crate) fn carrying<'b>(&self, payload: &'b [u8]) -> Packet<'b>
    where
        'a: 'b,
    {
        Packet { payload, ..*self }
    }
    /// The payload without its pad.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
    /// XRC header, if the opcode has one.
    #[must_use]
    pub fn xrceth(&self) -> Option<&'a XrcEth> {
        self.extension(Extensions::XRCETH)
    }
    /// Datagram header, if the opcode has one.
    #[must_use]
    pub fn deth(&self) -> Option<&'a Deth> {
        self.extension(Extensions::DETH)
    }
    /// FLUSH header, if the opcode has one.
    #[must_use]
    pub fn feth(&self) -> Option<&'a Feth> {
        self.extension(Extensions::FETH)
    }
    /// RDMA header, if the opcode has one.
    #[must_use]
    pub fn reth(&self) -> Option<&'a Reth> {
        self.extension(Extensions::RETH)
    }
    /// Atomic request header, if the opcode has one.
    #[must_use]
    pub fn atomic_eth(&self) -> Option<&'a AtomicEth> {
        self.extension(Extensions::ATOMIC_ETH)
    }
    /// Acknowledge header, if the opcode has one.
    #[must_use]
    pub fn aeth(&self) -> Option<&'a Aeth> {
        self.extension(Extensions::AETH)
    }
    /// Atomic result header, if the opcode has one.
    #[must_use]
    pub fn atomic_ack(&self) -> Option<&'a AtomicAckEth> {
        self.extension(Extensions::ATOMIC_ACK)
    }
    /// Immediate data, if the opcode has it.
    #[must_use]
    pub fn immdt(&self) -> Option<&'a ImmDt> {
        self.extension(Extensions::IMMDT)
    }
    /// Invalidate header, if the opcode has one.
    #[must_use]
    pub fn ieth(&self) -> Option<&'a Ieth> {
        self.extension(Extensions::IETH)
    }

    /// Dynamic connection header, if the opcode has one.
    #[must_use]
    pub fn dceth(&self) -> Option<&'a DcEth> {
        self.extension(Extensions::DCETH)
    }

    fn extension<T>(&self, header: Extensions) -> Option<&'a T>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let at = self.layout.headers.offset_of(header)?;
        T::ref_from_prefix(self.extensions.get(at..)?).ok().map(|(header, _)| header)
    }
}

impl fmt::Debug for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} qp {:#x} psn {}", self.opcode(), self.bth.dest_qp(), self.psn())?;
        if self.bth.is_ack_requested() {
            f.write_str(" ackreq")?;
        }
        if self.bth.is_solicited() {
            f.write_str(" se")?;
        }
        if let Some(h) = self.feth() {
            write!(f, " placement {:#x} level {}", h.placement(), h.level())?;
        }
        if let Some(h) = self.reth() {
            write!(f, " va {:#x} rkey {:#x} len {}", h.va, h.rkey, h.dma_length)?;
        }
        if let Some(h) = self.atomic_eth() {
            write!(f, " va {:#x} rkey {:#x} swap/add {:#x}", h.va, h.rkey, h.swap_or_add)?;
            write!(f, " compare {:#x}", h.compare)?;
        }
        if let Some(h) = self.aeth() {
            write!(f, " {:?} msn {}", h.syndrome(), h.msn())?;
        }
        if let Some(h) = self.atomic_ack() {
            write!(f, " original {:#x}", h.original)?;
        }
        if let Some(h) = self.immdt() {
            write!(f, " imm {:#x}", h.imm)?;
        }
        if let Some(h) = self.ieth() {
            write!(f, " invalidate {:#x}", h.rkey)?;
        }
        if let Some(h) = self.deth() {
            write!(f, " src qp {:#x} qkey {:#x}", h.src_qp.get(), h.qkey)?;
        }
        if let Some(h) = self.xrceth() {
            write!(f, " srq {:#x}", h.srq.get())?;
        }
        if let Some(h) = self.dceth() {
            write!(f, " src qp {:#x} connection {}", h.src_qp.get(), h.connection)?;
        }
        write!(f, " payload {}", self.payload.len())
    }
}

#[cfg(test)]
#[path = "packet_tests.rs"]
mod tests;
