//! The result of a turn of a queue pair, and the P_Key check of each packet.

use crate::hca::config::HcaConfig;
use crate::wire::Packet;

/// Request or response packets that a QP sends in one turn.
pub(crate) const PACKETS_PER_TURN: u32 = 32;

/// Result of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    /// Work was done.
    pub(crate) done: bool,
    /// The budget ran out, not the work.
    pub(crate) more: bool,
}

/// P_Key match (IBTA 9.6.1.1.1): the low 15 bits are equal, and at most one is a limited member.
pub(crate) fn has_pkey(index: u16, packet: &Packet<'_>, config: &HcaConfig) -> bool {
    let ours = config.pkeys.get(usize::from(index)).copied().unwrap_or(0);
    let theirs = packet.bth().pkey.get();
    ours & 0x7fff == theirs & 0x7fff && (ours | theirs) & 0x8000 != 0
}
