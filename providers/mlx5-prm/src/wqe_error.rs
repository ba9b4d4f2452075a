//! Errors of parsing a WQE.

use core::fmt;

use crate::ctrl::DS_BYTES;
use crate::opcode::Opcode;

/// Error of parsing a WQE. Lengths are in bytes, offsets in bytes from the start of the WQE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WqeError {
    /// Fewer bytes than a control segment.
    NoControlSegment {
        /// Available bytes.
        have: usize,
    },
    /// `ds` is 0, but a WQE has at least its control segment.
    ZeroDs,
    /// `ds` exceeds the available bytes.
    DsPastEnd {
        /// Length in units of 16 bytes.
        ds: u8,
        /// Available bytes.
        have: usize,
    },
    /// A required segment does not fit before the end.
    Truncated {
        /// C name of the segment.
        segment: &'static str,
        /// Offset of the segment.
        offset: usize,
        /// Bytes of the segment.
        need: usize,
        /// Available bytes.
        have: usize,
    },
    /// Inline data exceeds the remaining bytes.
    InlinePastEnd {
        /// Offset of the inline segment.
        offset: usize,
        /// Length in the segment's header.
        length: usize,
        /// Available bytes behind the header.
        have: usize,
    },
    /// An opcode without a name.
    UnknownOpcode(Opcode),
    /// A masked atomic with operands of neither 4 nor 8 bytes.
    AtomicSize {
        /// Opcode modifier, which encodes the size.
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
