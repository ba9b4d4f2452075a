//! A WQE of a frame queue becomes frames.

use uverbs_mlx5_prm::eth::{CsFlags, InlineHdrSz, mlx5_wqe_eth_seg_min};
use uverbs_mlx5_prm::opcode::Opcode;
use uverbs_mlx5_prm::syndrome::Syndrome;

use super::super::complete::Failure;
use super::super::qp::Qp;
use super::super::shared::Shared;
use super::super::wqe::Wqe;
use super::{HEADER, Outgoing, checksum, segment};

/// Bytes that one WQE may send: `max_lso_cap` is 2^16, and the header comes on top.
pub(crate) const MAX_PAYLOAD: u32 = 1 << 16;
/// Frames that wait to be delivered, after which no more WQEs are executed.
pub(crate) const MAX_WAITING: usize = 64;
/// Bytes of the two addresses, behind which a tag goes.
const ADDRESSES: usize = 12;
/// Type of the tag that the device inserts.
const CVLAN: u16 = 0x8100;
/// Vendor syndrome of a large send that can't be cut.
const VENDOR_SEGMENTS: u8 = 0x94;

/// What an Ethernet segment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EthernetSend {
    /// The start of the frame.
    header: Vec<u8>,
    checksums: CsFlags,
    /// Tag to insert.
    tag: Option<u16>,
    /// Bytes of payload in each frame of a large send.
    mss: Option<u16>,
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

/// Puts the frames of a WQE where [`super::super::Hca::exchange`] takes them from.
pub(crate) fn execute(qp: &Qp, wqe: &Wqe, shared: &mut Shared) -> Result<(), Failure> {
    let Some(send) = &wqe.ethernet else { return Ok(()) };
    let mut payload = vec![0; wqe.len as usize];
    let gathered = wqe.gather(shared, qp.who(), 0, &mut payload);
    gathered.map_err(|fault| Failure::new(Syndrome::LOCAL_PROT_ERR, fault.vendor()))?;
    let frames = match send.mss {
        Some(mss) => segment::segments(&send.header, &payload, mss.into())
            .ok_or(Failure::new(Syndrome::LOCAL_QP_OP_ERR, VENDOR_SEGMENTS))?,
        None => vec![[&send.header[..], &payload].concat()],
    };
    for mut bytes in frames {
        checksum::fill(&mut bytes, send.checksums.l3(), send.checksums.l4());
        if let Some(tag) = send.tag.filter(|_| bytes.len() >= HEADER) {
            let [[a, b], [c, d]] = [CVLAN.to_be_bytes(), tag.to_be_bytes()];
            bytes.splice(ADDRESSES..ADDRESSES, [a, b, c, d]);
        }
        shared.frames.push(Outgoing { sqn: qp.qpn, bytes });
    }
    Ok(())
}
