//! Stores into UAR pages, and the doorbell records that say how far the rings are filled.

use super::Hca;
use super::config::Strictness;
use super::context::QpState;
use super::error::HcaEvent;
use super::qp::Qp;
use super::shared::Shared;
use uverbs_mlx5_prm::ctrl::{OpmodIdxOpcode, QpnDs};
use uverbs_mlx5_prm::doorbell::{
    BFREGS_PER_UAR, MLX5_ADAPTER_PAGE_SIZE, MLX5_BF_OFFSET, MLX5_CQ_DOORBELL, NUMBER_MASK,
};

/// Bytes between BlueFlame registers (mlx5_ib reports `bf_reg_size` of 512; the doorbells of a
/// 4 KiB UAR are at 0x800, 0x900, ... as both halves of a register ring).
const BF_SPACING: usize = 0x100;

impl Hca {
    /// See [`Hca::doorbell`].
    pub(super) fn ring(&mut self, uar: u32, offset: u32, value: u64) {
        self.shared.stats.doorbells += 1;
        let (high, low) = ((value >> 32) as u32, value as u32);
        let at = offset as usize;
        if at == MLX5_CQ_DOORBELL {
            let Shared { dma, cqs, events, stats, .. } = &mut self.shared;
            if !cqs.arm(&**dma, uar, low & NUMBER_MASK, high, events, stats) {
                stats.complaints.unknown_number += 1;
            }
        } else if is_send_doorbell(at) {
            self.ring_send(uar, OpmodIdxOpcode(high), QpnDs(low));
        } else {
            self.shared.stats.complaints.unknown_offset += 1;
        }
    }

    /// Stores into one register coalesce, so each one is a reason to look at the records of all
    /// QPs of the page, and none is needed for each WQE.
    fn ring_send(&mut self, uar: u32, word0: OpmodIdxOpcode, word1: QpnDs) {
        let named = word1.qpn();
        let Some(of_page) = self.by_uar.get_mut(&uar).map(std::mem::take) else {
            self.shared.stats.complaints.unknown_number += 1;
            return;
        };
        if !of_page.contains(&named) {
            self.shared.stats.complaints.unknown_number += 1;
        }
        for &qpn in &of_page {
            let Some(qp) = self.qps.get_mut(&qpn) else {
                continue;
            };
            let before = qp.sq_published;
            let known = take_record(qp, &mut self.shared);
            let changed = qp.sq_published != before;
            if qpn == named {
                let complaints = &mut self.shared.stats.complaints;
                if word1.ds() == 0 {
                    complaints.bad_ds += 1;
                }
                // The WQE named must lie before the counter in the record: the record is written
                // first (PRM, "Posting a work request": WQE, record, doorbell).
                let behind = qp.sq_published.wrapping_sub(word0.wqe_index());
                let ring = qp.ctx.sq.as_ref().map_or(0, |sq| 1u32 << sq.log_wqebbs);
                if behind == 0 || u32::from(behind) > ring {
                    complaints.doorbell_ahead += 1;
                    if self.shared.config.strict == Strictness::Pedantic && known {
                        self.fatal(qpn, true);
                        continue;
                    }
                }
                if matches!(qp.state, QpState::Reset | QpState::Init | QpState::Rtr) {
                    self.shared.stats.complaints.wrong_state += 1;
                }
            }
            if !known {
                self.fatal(qpn, true);
                continue;
            }
            if changed || qpn == named {
                self.enqueue(qpn);
            }
        }
        self.by_uar.insert(uar, of_page);
    }

    /// Local work queue catastrophic error (IBTA 11.6.3.2). `mute`: nothing that the rings say can
    /// be believed any more, so nothing is flushed from them either.
    pub(super) fn fatal(&mut self, qpn: u32, mute: bool) {
        if let Some(qp) = self.qps.get_mut(&qpn) {
            if matches!(qp.state, QpState::Reset | QpState::Err) {
                return;
            }
            qp.state = QpState::Err;
            qp.mute = mute;
            qp.responder.silence();
            let Shared { events, stats, .. } = &mut self.shared;
            events.push(HcaEvent::QpFatal { qpn }, stats);
        }
        self.enqueue(qpn);
        self.settle(qpn);
    }
}

fn is_send_doorbell(at: usize) -> bool {
    let registers = MLX5_BF_OFFSET..MLX5_BF_OFFSET + BFREGS_PER_UAR * 2 * BF_SPACING;
    registers.contains(&at) && at < MLX5_ADAPTER_PAGE_SIZE && at.is_multiple_of(BF_SPACING)
}

/// Reads the SND record. False if it cannot be: unreadable, or further ahead than the ring is long.
fn take_record(qp: &mut Qp, shared: &mut Shared) -> bool {
    let Some(sq) = &qp.ctx.sq else { return true };
    if qp.state == QpState::Reset {
        return true;
    }
    let complaints = &mut shared.stats.complaints;
    let Ok(word) = shared.dma.load_u32(qp.ctx.doorbell_record + 4) else {
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

/// Receive WQEs posted to a QP's own ring and not taken, as the RCV record says now; 0 if the record runs further
/// ahead than the ring is long: which of them are good cannot be known.
pub(super) fn posted_receives(qp: &Qp, shared: &mut Shared) -> u16 {
    let Some(rq) = &qp.ctx.rq else { return 0 };
    // The acquire load pairs with the driver's barrier between WQEs and record (rdma-core qp.c,
    // `mlx5_post_recv`: udma_to_device_barrier).
    let Ok(word) = shared.dma.load_u32(qp.ctx.doorbell_record) else {
        shared.stats.complaints.record_fault += 1;
        return 0;
    };
    let posted = (u32::from_be(word) as u16).wrapping_sub(qp.rq_taken);
    let ring = 1u32 << rq.log_entries;
    if u32::from(posted) > ring {
        shared.stats.complaints.record_overrun += 1;
        return 0;
    }
    posted
}
