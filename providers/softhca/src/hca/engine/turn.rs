//! The result of a turn of a queue pair, and the P_Key check of each packet.

use crate::hca::config::HcaConfig;
use crate::wire::Packet;

/// Packets that a QP sends, of either kind, when its turn comes.
pub(crate) const PACKETS_PER_TURN: u32 = 32;

/// Result of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    /// Something was done.
    pub(crate) done: bool,
    /// The budget ran out, not the work.
    pub(crate) more: bool,
}

/// IBTA 9.6.1.1.1: the low 15 bits match, and not both are limited members.
pub(crate) fn has_pkey(index: u16, packet: &Packet<'_>, config: &HcaConfig) -> bool {
    let ours = config.pkeys.get(usize::from(index)).copied().unwrap_or(0);
    let theirs = packet.bth().pkey.get();
    ours & 0x7fff == theirs & 0x7fff && (ours | theirs) & 0x8000 != 0
}
