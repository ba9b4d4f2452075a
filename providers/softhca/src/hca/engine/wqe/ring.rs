//! Stores into UAR pages, and the doorbell records with the producer indexes of the rings.

use uverbs_mlx5_prm::ctrl::{OpmodIdxOpcode, QpnDs};
use uverbs_mlx5_prm::doorbell::{
    BFREGS_PER_UAR, MLX5_ADAPTER_PAGE_SIZE, MLX5_BF_OFFSET, MLX5_CQ_DOORBELL, NUMBER_MASK,
};

use crate::hca::config::Strictness;
use crate::hca::device::Hca;
use crate::hca::engine::wqe::doorbell_records::take_record;
use crate::hca::state::common::Common;
use crate::hca::state::doorbells::BESIDE_WORK;
use uverbs_front::backend::context::QpState;
use uverbs_front::backend::number::{Cqn, Qpn, UarNumber};

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
            if !cqs.arm(uar, Cqn(low & NUMBER_MASK), high, events, stats) {
                stats.complaints.unknown_number += 1;
            }
            cqs.look_at(&**dma, (uar, BESIDE_WORK), events, stats);
        } else if is_send_doorbell(at) {
            self.ring_send(uar, OpmodIdxOpcode(high), QpnDs(low));
        } else {
            self.common.stats.complaints.unknown_offset += 1;
        }
    }

    /// Serves the queue pair that a store names, and looks at the records of all others of the
    /// page: stores into one register coalesce, so a store may stand for several doorbells.
    fn ring_send(&mut self, uar: UarNumber, word0: OpmodIdxOpcode, word1: QpnDs) {
        let named = Qpn(word1.qpn());
        if self.qps.get(&named).is_some_and(|qp| qp.ctx.uar == uar) {
            self.ring_named(named, word0, word1);
        } else {
            self.common.stats.complaints.unknown_number += 1;
        }
        self.doorbells.ring(uar);
        self.look_at(uar, BESIDE_WORK);
    }

    fn ring_named(&mut self, named: Qpn, word0: OpmodIdxOpcode, word1: QpnDs) {
        let Some(qp) = self.qps.get_mut(&named) else { return };
        let known = take_record(qp, &mut self.common);
        let complaints = &mut self.common.stats.complaints;
        if word1.ds() == 0 {
            complaints.bad_ds += 1;
        }
        if matches!(qp.state, QpState::Reset | QpState::Init | QpState::Rtr) {
            complaints.wrong_state += 1;
        }
        // The WQE named must lie before the counter in the record: the record is written first
        // (PRM, "Posting a work request": WQE, record, doorbell).
        let behind = qp.sq_published.wrapping_sub(word0.wqe_index());
        let ring = qp.ctx.sq.as_ref().map_or(0, |sq| 1u32 << sq.log_wqebbs);
        let ahead = behind == 0 || u32::from(behind) > ring;
        complaints.doorbell_ahead += u64::from(ahead);
        let refused = ahead && self.common.config.strict == Strictness::Pedantic;
        if !known || refused {
            return self.fatal(named, true);
        }
        self.enqueue(named);
    }

    /// Looks at the next due records of a page, up to `most`.
    fn look_at(&mut self, uar: UarNumber, most: usize) {
        let mut changed = std::mem::take(&mut self.changed);
        self.doorbells.look(uar, most, &*self.common.dma, &mut changed);
        for qpn in changed.drain(..) {
            let Some(qp) = self.qps.get_mut(&qpn) else { continue };
            let before = qp.sq_published;
            let known = take_record(qp, &mut self.common);
            if qp.state == QpState::Reset {
                self.doorbells.forget(uar, qpn);
            } else if !known {
                self.fatal(qpn, true);
            } else if qp.sq_published != before {
                self.enqueue(qpn);
            }
        }
        self.changed = changed;
    }

    /// Looks at due records of a page of sends and of one of arms, up to `most`. True if there were
    /// some.
    pub(in crate::hca) fn look_at_due(&mut self, most: usize) -> bool {
        let Common { dma, cqs, events, stats, .. } = &mut self.common;
        let arms = cqs.next_due();
        if let Some(uar) = arms {
            cqs.look_at(&**dma, (uar, most), events, stats);
        }
        let sends = self.doorbells.next_due();
        if let Some(uar) = sends {
            self.look_at(uar, most);
        }
        arms.is_some() || sends.is_some()
    }

    pub(in crate::hca) fn has_due_records(&self) -> bool {
        self.doorbells.is_due() || self.common.cqs.has_due_records()
    }

    /// Looks at the record of a queue pair if it may be due, before a command stops the queue pair.
    pub(in crate::hca) fn look_at_own(&mut self, qpn: Qpn) {
        let Some(qp) = self.qps.get_mut(&qpn) else { return };
        if self.doorbells.is_due_on(qp.ctx.uar) && !take_record(qp, &mut self.common) {
            self.fatal(qpn, true);
        }
    }
}

fn is_send_doorbell(at: usize) -> bool {
    let registers = MLX5_BF_OFFSET..MLX5_BF_OFFSET + BFREGS_PER_UAR * 2 * BF_SPACING;
    registers.contains(&at) && at < MLX5_ADAPTER_PAGE_SIZE && at.is_multiple_of(BF_SPACING)
}
