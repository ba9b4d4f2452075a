//! Address of a port.

/// Address of a packet's source or destination: a GID for RoCE, a LID (with a GID if the packet has
/// a GRH) for InfiniBand.
///
/// An InfiniBand switch routes by LID only. So a LID other than 0 decides; with LID 0 the GID does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Address {
    /// The GID in wire order; all zero for a local packet without GRH.
    pub gid: [u8; 16],
    /// The LID; 0 on Ethernet, which has no LIDs.
    pub lid: u16,
}

impl Address {
    /// Returns `true` for a multicast group: a multicast GID (IBTA 4.1.1), or a mapped IPv4
    /// multicast address (RoCEv2, annex A17.9.1).
    pub const fn is_group(&self) -> bool {
        // Compared as a number, since this runs for each packet.
        let gid = u128::from_be_bytes(self.gid);
        gid >> 120 == 0xff || gid >> 28 == 0xf_fffe
    }
}
