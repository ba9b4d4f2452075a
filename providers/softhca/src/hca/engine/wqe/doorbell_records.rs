//! Doorbell records: producer indexes of a queue pair's rings.

use crate::hca::state::common::Common;
use crate::hca::state::qp::Qp;
use uverbs_front::backend::context::QpState;

/// Reads the SND record. False if it is unreadable, or further ahead than the ring is long.
pub(crate) fn take_record(qp: &mut Qp, common: &mut Common) -> bool {
    let Some(sq) = &qp.ctx.sq else { return true };
    if qp.state == QpState::Reset {
        return true;
    }
    let complaints = &mut common.stats.complaints;
    let Ok(word) = common.dma.load_u32(qp.ctx.doorbell_record + 4) else {
        complaints.record_fault += 1;
        return false;
    };
    let published = u32::from_be(word) as u16;
    if u32::from(published.wrapping_sub(qp.sq_fetched)) > 1 << sq.log_wqebbs {
        complaints.record_overrun += 1;
        return false;
    }
    qp.sq_published = published;
    true
}

/// Number of receive WQEs posted to a QP's own ring and not taken, by the RCV record's current
/// value. 0 if the record is further ahead than the ring is long: the valid WQEs are unknown then.
#[inline]
pub(crate) fn posted_receives(qp: &Qp, common: &mut Common) -> u16 {
    let Some(rq) = &qp.ctx.rq else { return 0 };
    // The acquire load pairs with the driver's barrier between WQEs and record (rdma-core qp.c,
    // `mlx5_post_recv`: udma_to_device_barrier).
    let Ok(word) = common.dma.load_u32(qp.ctx.doorbell_record) else {
        common.stats.complaints.record_fault += 1;
        return 0;
    };
    let posted = (u32::from_be(word) as u16).wrapping_sub(qp.rq_taken);
    let ring = 1u32 << rq.log_entries;
    if u32::from(posted) > ring {
        common.stats.complaints.record_overrun += 1;
        return 0;
    }
    posted
}
