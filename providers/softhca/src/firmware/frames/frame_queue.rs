//! Send queues and receive queues of raw packets (Linux `core/transobj.c`, `core/en_main.c`).
//!
//! The HCA side represents a send queue by a queue pair without receive ring, and a receive queue
//! by one without send ring.

use uverbs_mlx5_prm::cmd::rq::{WQ_TYPE_CYCLIC, wq};
use uverbs_mlx5_prm::cmd::sq::{
    create_rq_in, create_rq_out, create_sq_in, create_sq_out, destroy_rq_in, destroy_sq_in,
    modify_rq_in, modify_sq_in, query_rq_in, query_rq_out, query_sq_in, query_sq_out, rqc, sqc,
};

use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};
use crate::firmware::base::rings::Pages;
use uverbs_front::backend::context::{QpContext, QpTransition, RqContext, Service, SqContext};
use uverbs_front::backend::number::{Cqn, Pdn, Qpn, Srqn, UarNumber};
use uverbs_front::backend::steering::QueueOptions;

/// Bytes of a WQEBB.
const WQEBB: u64 = 64;
const LOG_WQEBB: u64 = 6;
/// Log2 of more entries than any device has. Keeps sizes from overflow.
const LOG_ABSURD: u64 = 20;
/// `mem_rq_type`: a ring inside the receive queue, or a receive memory pool
/// (`MLX5_RQC_MEM_RQ_TYPE_*`).
const INLINE: u64 = 0;
const RMP: u64 = 1;
/// `modify_bitmask` of MODIFY_RQ (`MLX5_MODIFY_RQ_IN_MODIFY_BITMASK_*`).
const MODIFY_VSD: u64 = 1 << 1;
const MODIFY_COUNTER: u64 = 1 << 3;

/// States of both kinds of queue (`MLX5_SQC_STATE_*`, `MLX5_RQC_STATE_*`).
mod state {
    use super::Refusal;
    use crate::hca::Hca;
    use uverbs_front::backend::context::{QpAttrs, QpState, QpTransition};
    use uverbs_front::backend::number::Qpn;

    pub(super) const RST: u64 = 0;
    pub(super) const RDY: u64 = 1;
    pub(super) const ERR: u64 = 3;

    /// Current state of a queue, which may have gone to error after an error.
    pub(super) fn now(hca: &Hca, number: u32) -> Result<u64, Refusal> {
        Ok(match hca.query_qp(Qpn(number))?.0 {
            QpState::Reset | QpState::Init => RST,
            QpState::Rtr | QpState::Rts | QpState::Sqd => RDY,
            QpState::Sqe | QpState::Err => ERR,
        })
    }

    /// Moves a queue from the state that the driver claims to another; `up` are the transitions
    /// from reset to ready.
    pub(super) fn change(
        hca: &mut Hca,
        number: u32,
        (said, to): (u64, u64),
        up: &[QpTransition],
    ) -> Result<(), Refusal> {
        let from = now(hca, number)?;
        if said != from {
            return Err(Refusal::param("not from this state"));
        }
        let steps = match (from, to) {
            (RST, RDY) => up,
            (RDY, ERR) => &[QpTransition::ToErr],
            (_, RST) => &[QpTransition::ToRst],
            (from, to) if from == to => &[],
            _ => return Err(Refusal::param("no such change of state")),
        };
        for &step in steps {
            hca.modify_qp(Qpn(number), step, &QpAttrs::default())?;
        }
        Ok(())
    }
}

impl Firmware {
    pub(crate) fn create_sq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let context = create_sq_in::CTX.of(call.input);
        let ring = sqc::WQ.of(context);
        let uar = wq::UAR_PAGE.get32(ring);
        if !self.simple.has_uar(call, uar) {
            return Err(Refusal::resource("no such doorbell page"));
        }
        if wq::LOG_WQ_STRIDE.get(ring) != LOG_WQEBB {
            return Err(Refusal::param("log_wq_stride"));
        }
        let log_wqebbs = wq::LOG_WQ_SZ.get(ring);
        if log_wqebbs > LOG_ABSURD {
            return Err(Refusal::param("log_wq_sz"));
        }
        if sqc::HAIRPIN.is_set(context) {
            return Err(Refusal::param("no hairpin queues"));
        }
        // Transport domain of the send queue. mlx5e's internal operation queue (ICOSQ) has none.
        let domain = match sqc::TIS_LST_SZ.get(context) {
            0 => None,
            _ => {
                let domain = self.interfaces.domain(sqc::TIS_NUM_0.get32(context));
                Some(domain.ok_or(Refusal::resource("no such TIS"))?)
            }
        };
        let region =
            Pages::of_wq(ring, call.input, create_sq_in::SIZE).region(0, WQEBB << log_wqebbs)?;
        let (pd, cq) = (Pdn(wq::PD.get32(ring)), Cqn(sqc::CQN.get32(context)));
        self.simple.check_pd(call, pd.0)?;
        self.cqs.check(call, cq.0)?;
        let sqn = self.hca.create_qp(QpContext {
            sq: Some(SqContext { region, log_wqebbs: log_wqebbs as u8 }),
            doorbell_record: wq::DBR_ADDR.get(ring),
            uar: UarNumber(uar),
            user_index: sqc::USER_INDEX.get32(context),
            ..QpContext::bare(Service::Raw, pd, cq)
        })?;
        let mut kept = Box::new([0; sqc::SIZE]);
        kept.copy_from_slice(context);
        self.sqs.insert(call, sqn.0, kept);
        if let Some(domain) = domain {
            self.hca.steering().add_sender(sqn.0, domain);
        }
        create_sq_out::SQN.set(call.output, sqn.0.into());
        Ok(())
    }

    pub(crate) fn modify_sq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let sqn = modify_sq_in::SQN.get32(call.input);
        let kept = self.sqs.get_mut(call, sqn)?;
        let to = sqc::STATE.get(modify_sq_in::CTX.of(call.input));
        let said = modify_sq_in::SQ_STATE.get(call.input);
        let up = [QpTransition::RstToInit, QpTransition::InitToRtr, QpTransition::RtrToRts];
        state::change(&mut self.hca, sqn, (said, to), &up)?;
        sqc::STATE.set(&mut kept[..], to);
        Ok(())
    }

    pub(crate) fn destroy_sq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let sqn = destroy_sq_in::SQN.get32(call.input);
        self.sqs.remove(call, sqn)?;
        self.hca.steering().remove_sender(sqn);
        Ok(self.hca.destroy_qp(Qpn(sqn))?)
    }

    pub(crate) fn query_sq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let sqn = query_sq_in::SQN.get32(call.input);
        let kept = self.sqs.get(call, sqn)?;
        let out = query_sq_out::SQ_CONTEXT.of_mut(call.output);
        out.copy_from_slice(&kept[..]);
        sqc::STATE.set(out, state::now(&self.hca, sqn)?);
        Ok(())
    }

    pub(crate) fn create_rq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let context = create_rq_in::CTX.of(call.input);
        let ring = rqc::WQ.of(context);
        if rqc::HAIRPIN.is_set(context) {
            return Err(Refusal::param("no hairpin queues"));
        }
        if rqc::SCATTER_FCS.is_set(context) || wq::WQ_SIGNATURE.is_set(ring) {
            return Err(Refusal::param("no check sequences, no signatures"));
        }
        let (rq, srq) = match rqc::MEM_RQ_TYPE.get(context) {
            INLINE => (Some(receive_ring(call.input)?), None),
            RMP => (None, Some(rqc::RMPN.get32(context))),
            _ => return Err(Refusal::param("mem_rq_type")),
        };
        let (pd, cq) = (Pdn(wq::PD.get32(ring)), Cqn(rqc::CQN.get32(context)));
        self.simple.check_pd(call, pd.0)?;
        self.cqs.check(call, cq.0)?;
        srq.map_or(Ok(()), |srqn| self.srqs.check(call, srqn))?;
        // A receive queue has a doorbell record and no doorbell.
        let rqn = self.hca.create_qp(QpContext {
            rq,
            srq: srq.map(Srqn),
            doorbell_record: if srq.is_some() { 0 } else { wq::DBR_ADDR.get(ring) },
            user_index: rqc::USER_INDEX.get32(context),
            counter_set: rqc::COUNTER_SET_ID.get(context) as u8,
            ..QpContext::bare(Service::Raw, pd, cq)
        })?;
        let strips_vlan = !rqc::VSD.is_set(context);
        self.hca.steering().set_queue(rqn.0, QueueOptions { strips_vlan });
        let mut kept = Box::new([0; rqc::SIZE]);
        kept.copy_from_slice(context);
        self.frame_rqs.insert(call, rqn.0, kept);
        create_rq_out::RQN.set(call.output, rqn.0.into());
        Ok(())
    }

    pub(crate) fn modify_rq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let rqn = modify_rq_in::RQN.get32(call.input);
        let kept = self.frame_rqs.get_mut(call, rqn)?;
        let context = modify_rq_in::CTX.of(call.input);
        let to = rqc::STATE.get(context);
        let said = modify_rq_in::RQ_STATE.get(call.input);
        let up = [QpTransition::RstToInit, QpTransition::InitToRtr];
        state::change(&mut self.hca, rqn, (said, to), &up)?;
        rqc::STATE.set(&mut kept[..], to);
        let changes = modify_rq_in::MODIFY_BITMASK.get(call.input);
        for (bit, field) in [(MODIFY_VSD, rqc::VSD), (MODIFY_COUNTER, rqc::COUNTER_SET_ID)] {
            if changes & bit != 0 {
                field.set(&mut kept[..], field.get(context));
            }
        }
        self.hca.count_in(Qpn(rqn), rqc::COUNTER_SET_ID.get(&kept[..]) as u8)?;
        let strips_vlan = !rqc::VSD.is_set(&kept[..]);
        self.hca.steering().set_queue(rqn, QueueOptions { strips_vlan });
        Ok(())
    }

    pub(crate) fn destroy_rq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let rqn = destroy_rq_in::RQN.get32(call.input);
        self.frame_rqs.remove(call, rqn)?;
        self.hca.steering().remove_queue(rqn);
        Ok(self.hca.destroy_qp(Qpn(rqn))?)
    }

    pub(crate) fn query_rq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let rqn = query_rq_in::RQN.get32(call.input);
        let kept = self.frame_rqs.get(call, rqn)?;
        let out = query_rq_out::RQ_CONTEXT.of_mut(call.output);
        out.copy_from_slice(&kept[..]);
        rqc::STATE.set(out, state::now(&self.hca, rqn)?);
        Ok(())
    }
}

/// Receive ring at the end of CREATE_RQ.
fn receive_ring(input: &[u8]) -> Result<RqContext, Refusal> {
    let ring = rqc::WQ.of(create_rq_in::CTX.of(input));
    // This device lacks the capability of striding queues.
    if wq::WQ_TYPE.get(ring) != WQ_TYPE_CYCLIC {
        return Err(Refusal::param("wq_type"));
    }
    let (log_entries, stride_shift) = (wq::LOG_WQ_SZ.get(ring), wq::LOG_WQ_STRIDE.get(ring));
    if log_entries > LOG_ABSURD {
        return Err(Refusal::param("log_wq_sz"));
    }
    let region = Pages::of_wq(ring, input, create_rq_in::SIZE)
        .region(0, 1 << (log_entries + stride_shift))?;
    Ok(RqContext { region, log_entries: log_entries as u8, stride_shift: stride_shift as u8 })
}
