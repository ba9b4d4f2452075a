//! Syndrome byte of an AETH: acknowledged, receiver not ready, or refused (IBTA vol 1, 9.7.5.2).

use std::fmt;

/// Syndrome of an acknowledgement. Bits 6:5 of the byte are the kind, 4:0 its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// Positive acknowledgement. `credits` is the encoded credit count, below 32;
    /// [`Syndrome::NO_CREDITS`] means that end-to-end flow control is not used.
    Ack {
        /// Encoded credit count, 5 bits.
        credits: u8,
    },
    /// Receiver not ready: retry after the time of this code (`timers::rnr_delay`).
    RnrNak {
        /// RNR timer code, 5 bits.
        timer: u8,
    },
    /// Refused.
    Nak(NakCode),
    /// A kind that IBTA reserves; the whole byte.
    Reserved(u8),
}

impl Syndrome {
    /// The credit code of a responder without end-to-end flow control (IBTA 9.7.7.2, "invalid").
    pub const NO_CREDITS: u8 = 0x1f;
    /// The acknowledgement this device sends.
    pub const ACK: Syndrome = Syndrome::Ack { credits: Syndrome::NO_CREDITS };

    /// Decodes the byte. Each byte has a meaning, and [`to_u8`](Syndrome::to_u8) returns it again.
    pub(crate) const fn from_u8(byte: u8) -> Syndrome {
        let value = byte & 0x1f;
        match byte >> 5 {
            0b000 => Syndrome::Ack { credits: value },
            0b001 => Syndrome::RnrNak { timer: value },
            0b011 => Syndrome::Nak(NakCode(value)),
            _ => Syndrome::Reserved(byte),
        }
    }

    /// Encodes the byte; values wider than 5 bits are truncated.
    pub(crate) const fn to_u8(self) -> u8 {
        match self {
            Syndrome::Ack { credits } => credits & 0x1f,
            Syndrome::RnrNak { timer } => 0x20 | timer & 0x1f,
            Syndrome::Nak(NakCode(code)) => 0x60 | code & 0x1f,
            Syndrome::Reserved(byte) => byte,
        }
    }
}

/// Reason of a refusal, 5 bits (IBTA 9.7.5.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct NakCode(pub u8);

impl NakCode {
    /// PSN beyond the expected one: the requester repeats from there.
    pub const PSN_SEQUENCE: NakCode = NakCode(0);
    /// Malformed request, too long, or unsupported by the responder.
    pub const INVALID_REQUEST: NakCode = NakCode(1);
    /// Key, range or access right does not allow the access.
    pub const REMOTE_ACCESS: NakCode = NakCode(2);
    /// The responder failed.
    pub const REMOTE_OPERATIONAL: NakCode = NakCode(3);
    /// Reliable datagram only.
    pub const INVALID_RD_REQUEST: NakCode = NakCode(4);
}

impl fmt::Debug for NakCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            NakCode::PSN_SEQUENCE => "PSN_SEQUENCE",
            NakCode::INVALID_REQUEST => "INVALID_REQUEST",
            NakCode::REMOTE_ACCESS => "REMOTE_ACCESS",
            NakCode::REMOTE_OPERATIONAL => "REMOTE_OPERATIONAL",
            NakCode::INVALID_RD_REQUEST => "INVALID_RD_REQUEST",
            NakCode(other) => return write!(f, "NakCode({other})"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_round_trips() {
        for byte in 0..=u8::MAX {
            assert_eq!(Syndrome::from_u8(byte).to_u8(), byte);
        }
    }

    /// The bytes of rxe_hdr.h: AETH_ACK_UNLIMITED, AETH_RNR_NAK, AETH_NAK_*.
    #[test]
    fn known_bytes() {
        assert_eq!(Syndrome::ACK.to_u8(), 0x1f);
        assert_eq!(Syndrome::RnrNak { timer: 12 }.to_u8(), 0x2c);
        assert_eq!(Syndrome::Nak(NakCode::PSN_SEQUENCE).to_u8(), 0x60);
        assert_eq!(Syndrome::Nak(NakCode::INVALID_REQUEST).to_u8(), 0x61);
        assert_eq!(Syndrome::Nak(NakCode::REMOTE_ACCESS).to_u8(), 0x62);
        assert_eq!(Syndrome::Nak(NakCode::REMOTE_OPERATIONAL).to_u8(), 0x63);
        assert_eq!(Syndrome::from_u8(0x40), Syndrome::Reserved(0x40));
        assert_eq!(Syndrome::from_u8(0x80), Syndrome::Reserved(0x80));
    }
}
