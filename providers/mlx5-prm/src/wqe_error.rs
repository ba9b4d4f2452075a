//! Why bytes are not a WQE.

use core::fmt;

use crate::ctrl::DS_BYTES;
use crate::opcode::Opcode;

/// Why bytes are not a WQE. Offsets and lengths in bytes, offsets from the start of the WQE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WqeError {
    /// Fewer bytes than a control segment.
    NoControlSegment {
        /// Bytes there are.
        have: usize,
    },
    /// `ds` is 0; a WQE has its control segment at least.
    ZeroDs,
    /// `ds` says more bytes than there are.
    DsPastEnd {
        /// Length in units of 16 bytes.
        ds: u8,
        /// Bytes there are.
        have: usize,
    },
    /// A segment that must be there does not fit before the end.
    Truncated {
        /// C name of the segment.
        segment: &'static str,
        /// Where it starts.
        offset: usize,
        /// Bytes it needs.
        need: usize,
        /// Bytes there are.
        have: usize,
    },
    /// Inline data longer than what is left.
    InlinePastEnd {
        /// Where the inline segment starts.
        offset: usize,
        /// Bytes of data it says to hold.
        length: usize,
        /// Bytes there are after its header.
        have: usize,
    },
    /// An opcode without a name.
    UnknownOpcode(Opcode),
    /// A masked atomic on operands of neither 4 nor 8 bytes.
    AtomicSize {
        /// The opcode modifier, which encodes the size.
        opmod: u8,
    },
}

impl fmt::Display for WqeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoControlSegment { have } => {
                write!(f, "{have} bytes, a control segment needs {DS_BYTES}")
            }
            Self::ZeroDs => f.write_str("ds is 0"),
            Self::DsPastEnd { ds, have } => {
                write!(f, "ds {ds} says {} bytes, there are {have}", usize::from(ds) * DS_BYTES)
            }
            Self::Truncated { segment, offset, need, have } => {
                write!(f, "{segment} at {offset:#x} needs {need} bytes, there are {have}")
            }
            Self::InlinePastEnd { offset, length, have } => {
                write!(f, "inline data at {offset:#x} has {length} bytes, there are {have}")
            }
            Self::UnknownOpcode(opcode) => write!(f, "unknown opcode {opcode}"),
            Self::AtomicSize { opmod } => {
                write!(f, "masked atomic with opmod {opmod:#x} has no known operand size")
            }
        }
    }
}

impl core::error::Error for WqeError {}
