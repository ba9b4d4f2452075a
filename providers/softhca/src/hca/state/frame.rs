//! Whole Ethernet frames: the Ethernet segment of a send WQE, and frames that left their queue.

use uverbs_mlx5_prm::eth::{CsFlags, InlineHdrSz, mlx5_wqe_eth_seg_min};
use uverbs_mlx5_prm::opcode::Opcode;

use uverbs_front::backend::number::Qpn;

/// A frame that left its send queue and waits to be delivered.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) sqn: Qpn,
    pub(crate) bytes: Vec<u8>,
}

/// The Ethernet segment of a send WQE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EthernetSend {
    /// Inline start of the frame.
    pub(crate) header: Vec<u8>,
    pub(crate) checksums: CsFlags,
    /// VLAN tag to insert.
    pub(crate) tag: Option<u16>,
    /// Payload bytes in each frame of a large send.
    pub(crate) mss: Option<u16>,
}

impl EthernetSend {
    pub(crate) fn new(
        segment: &mlx5_wqe_eth_seg_min,
        header: &[u8],
        opcode: Opcode,
    ) -> EthernetSend {
        let insert = InlineHdrSz(segment.inline_hdr_sz.get()).insert_vlan();
        EthernetSend {
            header: header.to_vec(),
            checksums: CsFlags(segment.cs_flags),
            tag: insert.then_some(u16::from_be_bytes(segment.inline_hdr_start)),
            mss: (opcode == Opcode::TSO).then_some(segment.mss.get()),
        }
    }
}
