//! Stores into UAR pages, and the doorbell records with the producer indexes of the rings.

use uverbs_mlx5_prm::ctrl::{OpmodIdxOpcode, QpnDs};
use uverbs_mlx5_prm::doorbell::{
    BFREGS_PER_UAR, MLX5_ADAPTER_PAGE_SIZE, MLX5_BF_OFFSET, MLX5_CQ_DOORBELL, NUMBER_MASK,
};

use crate::hca::config::Strictness;
use crate::hca::context::QpState;
use crate::hca::device::Hca;
use crate::hca::engine::wqe::doorbell_records::take_record;
use crate::hca::number::{Cqn, Qpn, UarNumber};
use crate::hca::state::common::Common;

/// Bytes between BlueFlame registers (mlx5_ib reports `bf_reg_size` of 512; the doorbells of a
/// 4 KiB UAR are at 0x800, 0x900, ... as both halves of a register ring).
const BF_SPACING: usize = 0x100;

impl Hca {
    /// The front saw a store into UAR page `uar` at byte `offset`; `value` is the 8 bytes as a
    /// big-endian number (BlueFlame: the first 8 bytes of the WQE).
    ///
    /// Stores to the same register may have coalesced into one.
    pub(crate) fn doorbell(&mut self, uar: UarNumber, offset: u32, value: u64) {
        self.common.stats.doorbells += 1;
        self.common.tap.doorbell(self.common.now, uar, offset, value);
        let (high, low) = ((value >> 32) as u32, value as u32);
        let at = offset as usize;
        if at == MLX5_CQ_DOORBELL {
            let Common { dma, cqs, events, stats, .. } = &mut self.common;
            if !cqs.arm(&**dma, uar, Cqn(low & NUMBER_MASK), high, events, stats) {
                stats.complaints.unknown_number += 1;
            }
        } else if is_send_doorbell(at) {
            self.ring_send(uar, OpmodIdxOpcode(high), QpnDs(low));
        } else {
            self.common.stats.complaints.unknown_offset += 1;
        }
    }

    /// Reads the doorbell records of all QPs of the page: stores into one register coalesce, so a
    /// store may stand for the doorbells of several QPs.
    fn ring_send(&mut self, uar: UarNumber, word0: OpmodIdxOpcode, word1: QpnDs) {
        let named = Qpn(word1.qpn());
        let Some(of_page) = self.by_uar.get_mut(&uar).map(std::mem::take) else {
            self.common.stats.complaints.unknown_number += 1;
            return;
        };
        if !of_page.contains(&named) {
            self.common.stats.complaints.unknown_number += 1;
        }
        for &qpn in &of_page {
            let Some(qp) = self.qps.get_mut(&qpn) else {
                continue;
            };
            let before = qp.sq_published;
            let known = take_record(qp, &mut self.common);
            let changed = qp.sq_published != before;
            if qpn == named {
                let complaints = &mut self.common.stats.complaints;
                if word1.ds() == 0 {
                    complaints.bad_ds += 1;
                }
                // The WQE named must lie before the counter in the record: the record is written
                // first (PRM, "Posting a work request": WQE, record, doorbell).
                let behind = qp.sq_published.wrapping_sub(word0.wqe_index());
                let ring = qp.ctx.sq.as_ref().map_or(0, |sq| 1u32 << sq.log_wqebbs);
                if behind == 0 || u32::from(behind) > ring {
                    complaints.doorbell_ahead += 1;
                    if self.common.config.strict == Strictness::Pedantic && known {
                        self.fatal(qpn, true);
                        continue;
                    }
                }
                if matches!(qp.state, QpState::Reset | QpState::Init | QpState::Rtr) {
                    self.common.stats.complaints.wrong_state += 1;
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
}

fn is_send_doorbell(at: usize) -> bool {
    let registers = MLX5_BF_OFFSET..MLX5_BF_OFFSET + BFREGS_PER_UAR * 2 * BF_SPACING;
    registers.contains(&at) && at < MLX5_ADAPTER_PAGE_SIZE && at.is_multiple_of(BF_SPACING)
}
