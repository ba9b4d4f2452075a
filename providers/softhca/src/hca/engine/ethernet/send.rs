//! Turns a WQE of a raw packet queue into frames.

use uverbs_mlx5_prm::syndrome::Syndrome;

use crate::hca::ethernet::{ADDRESSES, HEADER, checksum, segment};
use crate::hca::failure::{Failure, Vendor};
use crate::hca::state::common::Common;
use crate::hca::state::frame::Outgoing;
use crate::hca::state::qp::Qp;
use crate::hca::state::wqe::Wqe;

/// Payload bytes that one WQE may send: `max_lso_cap` is 2^16, and the header is not counted.
pub(crate) const MAX_PAYLOAD: u32 = 1 << 16;
/// Undelivered frames after which no more WQEs are executed.
pub(crate) const MAX_WAITING: usize = 64;
/// TPID of the VLAN tag that the device inserts.
const CVLAN: u16 = 0x8100;

/// Appends the frames of a WQE to `Common::frames`, which `frames` delivers.
pub(crate) fn execute(qp: &Qp, wqe: &Wqe, common: &mut Common) -> Result<(), Failure> {
    let Some(send) = &wqe.ethernet else { return Ok(()) };
    if send.header.len() < common.config.min_inline_header.into() {
        return Err(Failure::new(Syndrome::LOCAL_QP_OP_ERR, Vendor::NO_HEADER));
    }
    let mut payload = vec![0; wqe.len as usize];
    let gathered = wqe.gather(common, qp.who(), 0, &mut payload);
    gathered.map_err(|fault| Failure::new(Syndrome::LOCAL_PROT_ERR, fault.vendor()))?;
    let frames = match send.mss {
        Some(mss) => segment::segments(&send.header, &payload, mss.into())
            .ok_or(Failure::new(Syndrome::LOCAL_QP_OP_ERR, Vendor::LARGE_SEND))?,
        None => vec![[&send.header[..], &payload].concat()],
    };
    for mut bytes in frames {
        checksum::fill(&mut bytes, send.checksums.l3(), send.checksums.l4());
        if let Some(tag) = send.tag.filter(|_| bytes.len() >= HEADER) {
            let [[a, b], [c, d]] = [CVLAN.to_be_bytes(), tag.to_be_bytes()];
            bytes.splice(ADDRESSES..ADDRESSES, [a, b, c, d]);
        }
        common.frames.push(Outgoing { sqn: qp.qpn, bytes });
    }
    Ok(())
}
