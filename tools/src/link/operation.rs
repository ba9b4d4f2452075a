//! Operations of a ping-pong or a measurement.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Operation of a message or a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Operation {
    /// SEND into the peer's receive
    Send,
    /// SEND with immediate data, which is checked, too
    SendImm,
    /// RDMA WRITE; the peer polls its memory
    Write,
    /// RDMA WRITE with immediate data, which tells the peer
    WriteImm,
    /// RDMA READ, of each side from the other
    Read,
    /// Atomic compare-and-swap; every fourth is one that must not swap
    #[value(alias = "cas")]
    CompareSwap,
    /// Atomic fetch-and-add
    #[value(aliases = ["atomic", "faa"])]
    FetchAdd,
}

impl Operation {
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// The operation has a response, and needs no action of the peer's program.
    pub(crate) fn is_one_sided(self) -> bool {
        self.is_atomic() || self == Self::Read
    }

    /// Accesses the peer's memory by address.
    pub(crate) fn needs_memory(self) -> bool {
        !matches!(self, Self::Send | Self::SendImm)
    }

    /// Uses a receive of the peer.
    pub(crate) fn needs_receives(self) -> bool {
        self.has_immediate() || self == Self::Send
    }

    pub(crate) fn has_immediate(self) -> bool {
        matches!(self, Self::SendImm | Self::WriteImm)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "send",
            Self::SendImm => "send-imm",
            Self::Write => "write",
            Self::WriteImm => "write-imm",
            Self::Read => "read",
            Self::CompareSwap => "compare-swap",
            Self::FetchAdd => "fetch-add",
        })
    }
}
