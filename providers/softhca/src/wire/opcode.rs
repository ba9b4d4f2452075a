//! BTH opcodes and the headers of each (IBTA vol 1, 9.2.1 "OpCode and extension headers"; also
//! `rxe_opcode[]` in the kernel's `drivers/infiniband/sw/rxe/rxe_opcode.c`).

use std::fmt;

use bitflags::bitflags;

use super::PacketError;

/// An opcode byte, known or unknown. Bits 7:5 are the transport, 4:0 the operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opcode(pub u8);

/// Transport service, bits 7:5 of the opcode. Reliable datagram is omitted: no device supports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Congestion notification (RoCEv2): belongs to no transport.
    Cnp,
    /// Extended reliable connection.
    Xrc,
    /// Dynamic connection: softhca's opcodes, from the range that IBTA reserves for manufacturers
    /// (vol 1, 9.2.1).
    Dc,
}

/// The operation that a packet is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    /// SEND, with immediate or invalidate where the headers say so.
    Send,
    /// RDMA WRITE, with immediate where the headers say so.
    Write,
    /// RDMA READ request.
    ReadRequest,
    /// RDMA READ response.
    ReadResponse,
    /// Acknowledgement, positive or negative.
    Acknowledge,
    /// Acknowledgement with the result of an atomic.
    AtomicAcknowledge,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
    /// FLUSH (annex A19).
    Flush,
    /// ATOMIC WRITE (annex A19).
    AtomicWrite,
    /// Congestion notification.
    Congestion,
}

/// Position of a packet in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Position {
    /// The first of several packets.
    First,
    /// Between first and last.
    Middle,
    /// The last of several packets.
    Last,
    /// The whole message.
    Only,
}

impl Transport {
    /// Bits 7:5 of its opcodes, unshifted.
    pub(crate) const fn bits(self) -> u8 {
        match self {
            Transport::Rc => 0x00,
            Transport::Uc => 0x20,
            Transport::Ud => 0x60,
            Transport::Cnp => 0x80,
            Transport::Xrc => 0xa0,
            Transport::Dc => 0xc0,
        }
    }
}

impl Opcode {
    /// The opcode of this operation on another transport; it may have no layout.
    pub(crate) const fn of(self, transport: Transport) -> Opcode {
        Opcode(self.0 & 0x1f | transport.bits())
    }
}

impl Position {
    /// First or only: a message starts here.
    pub(crate) const fn starts(self) -> bool {
        matches!(self, Position::First | Position::Only)
    }
    /// Last or only: a message ends here.
    pub(crate) const fn ends(self) -> bool {
        matches!(self, Position::Last | Position::Only)
    }
}

bitflags! {
    /// Extension headers, lowest bit first on the wire.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub(crate) struct Extensions: u16 {
        /// XRC shared receive queue.
        const XRCETH = 1 << 0;
        /// Datagram.
        const DETH = 1 << 1;
        /// FLUSH; the RDMA header follows it.
        const FETH = 1 << 2;
        /// RDMA.
        const RETH = 1 << 3;
        /// Atomic request.
        const ATOMIC_ETH = 1 << 4;
        /// Acknowledge.
        const AETH = 1 << 5;
        /// Atomic result.
        const ATOMIC_ACK = 1 << 6;
        /// Immediate data.
        const IMMDT = 1 << 7;
        /// Invalidate.
        const IETH = 1 << 8;
        /// Dynamic connection.
        const DCETH = 1 << 9;
    }
}

/// Bytes of each extension header, by bit number of [`Extensions`].
const EXTENSION_LEN: [u8; 10] = [4, 8, 4, 16, 28, 4, 8, 4, 4, 16];

/// Bytes of each set of extension headers. A table, since it is used several times per packet.
static SET_LEN: [u8; 1 << EXTENSION_LEN.len()] = {
    let mut sums = [0; 1 << EXTENSION_LEN.len()];
    let mut set = 1_usize;
    while set < sums.len() {
        // The set without its lowest header, plus that header.
        sums[set] = sums[set & (set - 1)] + EXTENSION_LEN[set.trailing_zeros() as usize];
        set += 1;
    }
    sums
};

impl Extensions {
    /// Bytes of all headers of this set.
    #[inline]
    pub(crate) const fn wire_len(self) -> usize {
        SET_LEN[self.bits() as usize % SET_LEN.len()] as usize
    }

    /// Byte offset of `header` (one flag) after the BTH of a packet with the headers `self`; `None`
    /// if the packet lacks it.
    pub(crate) const fn offset_of(self, header: Extensions) -> Option<usize> {
        if self.bits() & header.bits() == 0 {
            return None;
        }
        let before = header.bits().wrapping_sub(1);
        Some(Extensions::from_bits_retain(self.bits() & before).wire_len())
    }
}

/// Properties of a packet by its opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The transport service.
    pub transport: Transport,
    /// The operation that the packet is part of.
    pub operation: Operation,
    /// Position of the packet in its message.
    pub position: Position,
    /// Extension headers: all of these, and no others.
    pub headers: Extensions,
    /// It may carry payload.
    pub payload: bool,
}

impl Layout {
    /// Returns `true` for packets of a requester, `false` for a responder's.
    pub(crate) const fn is_request(&self) -> bool {
        !matches!(
            self.operation,
            Operation::ReadResponse | Operation::Acknowledge | Operation::AtomicAcknowledge
        )
    }
}

macro_rules! opcodes {
    ($($transport:ident $name:ident = $value:literal, $operation:ident $position:ident
       [$($header:ident)*] $payload:literal;)*) => {
        impl Opcode {
            $(#[doc = concat!("IBTA opcode ", stringify!($value), ".")]
              pub(crate) const $name: Opcode = Opcode($value);)*

            /// All opcodes that have a layout.
            pub(crate) const ALL: &[Opcode] = &[$(Opcode::$name),*];

            /// Layout of a packet with this opcode.
            ///
            /// # Errors
            /// [`PacketError::UnknownOpcode`] if IBTA reserves it or this device does not know it.
            #[inline]
            pub(crate) const fn layout(self) -> Result<Layout, PacketError> {
                match self.0 {
                    $($value => Ok(const { Layout {
                        transport: Transport::$transport,
                        operation: Operation::$operation,
                        position: Position::$position,
                        headers: Extensions::empty()$(.union(Extensions::$header))*,
                        payload: $payload,
                    }}),)*
                    _ => Err(PacketError::UnknownOpcode(self)),
                }
            }

            const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    Rc RC_SEND_FIRST = 0x00, Send First [] true;
    Rc RC_SEND_MIDDLE = 0x01, Send Middle [] true;
    Rc RC_SEND_LAST = 0x02, Send Last [] true;
    Rc RC_SEND_LAST_IMM = 0x03, Send Last [IMMDT] true;
    Rc RC_SEND_ONLY = 0x04, Send Only [] true;
    Rc RC_SEND_ONLY_IMM = 0x05, Send Only [IMMDT] true;
    Rc RC_WRITE_FIRST = 0x06, Write First [RETH] true;
    Rc RC_WRITE_MIDDLE = 0x07, Write Middle [] true;
    Rc RC_WRITE_LAST = 0x08, Write Last [] true;
    Rc RC_WRITE_LAST_IMM = 0x09, Write Last [IMMDT] true;
    Rc RC_WRITE_ONLY = 0x0a, Write Only [RETH] true;
    Rc RC_WRITE_ONLY_IMM = 0x0b, Write Only [RETH IMMDT] true;
    Rc RC_READ_REQUEST = 0x0c, ReadRequest Only [RETH] false;
    Rc RC_READ_RESPONSE_FIRST = 0x0d, ReadResponse First [AETH] true;
    Rc RC_READ_RESPONSE_MIDDLE = 0x0e, ReadResponse Middle [] true;
    Rc RC_READ_RESPONSE_LAST = 0x0f, ReadResponse Last [AETH] true;
    Rc RC_READ_RESPONSE_ONLY = 0x10, ReadResponse Only [AETH] true;
    Rc RC_ACKNOWLEDGE = 0x11, Acknowledge Only [AETH] false;
    Rc RC_ATOMIC_ACKNOWLEDGE = 0x12, AtomicAcknowledge Only [AETH ATOMIC_ACK] false;
    Rc RC_COMPARE_SWAP = 0x13, CompareSwap Only [ATOMIC_ETH] false;
    Rc RC_FETCH_ADD = 0x14, FetchAdd Only [ATOMIC_ETH] false;
    Rc RC_SEND_LAST_INV = 0x16, Send Last [IETH] true;
    Rc RC_SEND_ONLY_INV = 0x17, Send Only [IETH] true;
    // IBTA annex A19.
    Rc RC_FLUSH = 0x1c, Flush Only [FETH RETH] false;
    Rc RC_ATOMIC_WRITE = 0x1d, AtomicWrite Only [RETH] true;

    Uc UC_SEND_FIRST = 0x20, Send First [] true;
    Uc UC_SEND_MIDDLE = 0x21, Send Middle [] true;
    Uc UC_SEND_LAST = 0x22, Send Last [] true;
    Uc UC_SEND_LAST_IMM = 0x23, Send Last [IMMDT] true;
    Uc UC_SEND_ONLY = 0x24, Send Only [] true;
    Uc UC_SEND_ONLY_IMM = 0x25, Send Only [IMMDT] true;
    Uc UC_WRITE_FIRST = 0x26, Write First [RETH] true;
    Uc UC_WRITE_MIDDLE = 0x27, Write Middle [] true;
    Uc UC_WRITE_LAST = 0x28, Write Last [] true;
    Uc UC_WRITE_LAST_IMM = 0x29, Write Last [IMMDT] true;
    Uc UC_WRITE_ONLY = 0x2a, Write Only [RETH] true;
    Uc UC_WRITE_ONLY_IMM = 0x2b, Write Only [RETH IMMDT] true;

    Ud UD_SEND_ONLY = 0x64, Send Only [DETH] true;
    Ud UD_SEND_ONLY_IMM = 0x65, Send Only [DETH IMMDT] true;

    // RoCEv2 (annex A17): BTH and 16 reserved bytes, which count as payload here.
    Cnp CNP = 0x81, Congestion Only [] true;

    // IBTA annex A14: requests name the SRQ, responses do not.
    Xrc XRC_SEND_FIRST = 0xa0, Send First [XRCETH] true;
    Xrc XRC_SEND_MIDDLE = 0xa1, Send Middle [XRCETH] true;
    Xrc XRC_SEND_LAST = 0xa2, Send Last [XRCETH] true;
    Xrc XRC_SEND_LAST_IMM = 0xa3, Send Last [XRCETH IMMDT] true;
    Xrc XRC_SEND_ONLY = 0xa4, Send Only [XRCETH] true;
    Xrc XRC_SEND_ONLY_IMM = 0xa5, Send Only [XRCETH IMMDT] true;
    Xrc XRC_WRITE_FIRST = 0xa6, Write First [XRCETH RETH] true;
    Xrc XRC_WRITE_MIDDLE = 0xa7, Write Middle [XRCETH] true;
    Xrc XRC_WRITE_LAST = 0xa8, Write Last [XRCETH] true;
    Xrc XRC_WRITE_LAST_IMM = 0xa9, Write Last [XRCETH IMMDT] true;
    Xrc XRC_WRITE_ONLY = 0xaa, Write Only [XRCETH RETH] true;
    Xrc XRC_WRITE_ONLY_IMM = 0xab, Write Only [XRCETH RETH IMMDT] true;
    Xrc XRC_READ_REQUEST = 0xac, ReadRequest Only [XRCETH RETH] false;
    Xrc XRC_READ_RESPONSE_FIRST = 0xad, ReadResponse First [AETH] true;
    Xrc XRC_READ_RESPONSE_MIDDLE = 0xae, ReadResponse Middle [] true;
    Xrc XRC_READ_RESPONSE_LAST = 0xaf, ReadResponse Last [AETH] true;
    Xrc XRC_READ_RESPONSE_ONLY = 0xb0, ReadResponse Only [AETH] true;
    Xrc XRC_ACKNOWLEDGE = 0xb1, Acknowledge Only [AETH] false;
    Xrc XRC_ATOMIC_ACKNOWLEDGE = 0xb2, AtomicAcknowledge Only [AETH ATOMIC_ACK] false;
    Xrc XRC_COMPARE_SWAP = 0xb3, CompareSwap Only [XRCETH ATOMIC_ETH] false;
    Xrc XRC_FETCH_ADD = 0xb4, FetchAdd Only [XRCETH ATOMIC_ETH] false;
    Xrc XRC_SEND_LAST_INV = 0xb6, Send Last [XRCETH IETH] true;
    Xrc XRC_SEND_ONLY_INV = 0xb7, Send Only [XRCETH IETH] true;
    Xrc XRC_FLUSH = 0xbc, Flush Only [XRCETH FETH RETH] false;
    Xrc XRC_ATOMIC_WRITE = 0xbd, AtomicWrite Only [XRCETH RETH] true;

    // softhca's, without A19's operations: requests name initiator and connection, responses do
    // not.
    Dc DC_SEND_FIRST = 0xc0, Send First [DCETH] true;
    Dc DC_SEND_MIDDLE = 0xc1, Send Middle [DCETH] true;
    Dc DC_SEND_LAST = 0xc2, Send Last [DCETH] true;
    Dc DC_SEND_LAST_IMM = 0xc3, Send Last [IMMDT DCETH] true;
    Dc DC_SEND_ONLY = 0xc4, Send Only [DCETH] true;
    Dc DC_SEND_ONLY_IMM = 0xc5, Send Only [IMMDT DCETH] true;
    Dc DC_WRITE_FIRST = 0xc6, Write First [RETH DCETH] true;
    Dc DC_WRITE_MIDDLE = 0xc7, Write Middle [DCETH] true;
    Dc DC_WRITE_LAST = 0xc8, Write Last [DCETH] true;
    Dc DC_WRITE_LAST_IMM = 0xc9, Write Last [IMMDT DCETH] true;
    Dc DC_WRITE_ONLY = 0xca, Write Only [RETH DCETH] true;
    Dc DC_WRITE_ONLY_IMM = 0xcb, Write Only [RETH IMMDT DCETH] true;
    Dc DC_READ_REQUEST = 0xcc, ReadRequest Only [RETH DCETH] false;
    Dc DC_READ_RESPONSE_FIRST = 0xcd, ReadResponse First [AETH] true;
    Dc DC_READ_RESPONSE_MIDDLE = 0xce, ReadResponse Middle [] true;
    Dc DC_READ_RESPONSE_LAST = 0xcf, ReadResponse Last [AETH] true;
    Dc DC_READ_RESPONSE_ONLY = 0xd0, ReadResponse Only [AETH] true;
    Dc DC_ACKNOWLEDGE = 0xd1, Acknowledge Only [AETH] false;
    Dc DC_ATOMIC_ACKNOWLEDGE = 0xd2, AtomicAcknowledge Only [AETH ATOMIC_ACK] false;
    Dc DC_COMPARE_SWAP = 0xd3, CompareSwap Only [ATOMIC_ETH DCETH] false;
    Dc DC_FETCH_ADD = 0xd4, FetchAdd Only [ATOMIC_ETH DCETH] false;
    Dc DC_SEND_LAST_INV = 0xd6, Send Last [IETH DCETH] true;
    Dc DC_SEND_ONLY_INV = 0xd7, Send Only [IETH DCETH] true;
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Opcode({:#04x})", self.0),
        }
    }
}
