//! Send queues and receive queues of frames (Linux `core/transobj.c`, `core/en_main.c`).
//!
//! A send queue is a queue pair of the HCA side without receive ring. Frames never arrive, so a receive queue is what was said
//! about it.

use uverbs_mlx5_prm::cmd::rq::wq;
use uverbs_mlx5_prm::cmd::sq::{
    create_rq_in, create_rq_out, create_sq_in, create_sq_out, destroy_rq_in, destroy_sq_in,
    modify_rq_in, modify_sq_in, query_rq_in, query_rq_out, query_sq_in, query_sq_out, rqc, sqc,
};

use super::Firmware;
use super::call::{Call, Refusal};
use super::rings::Pages;
use crate::hca::{QpAttrs, QpContext, QpTransition, Service, SqContext};

/// First number of a receive queue: queue pairs have the lower ones, and a driver finds both in one table.
pub(super) const FIRST_RQ: u32 = 0x80_0000;
/// Receive queues that may exist at once.
pub(super) const MAX_RQ: u32 = 1 << 16;
/// Bytes of a send ring's unit.
const WQEBB: u64 = 64;
const LOG_WQEBB: u64 = 6;

/// States of either (`MLX5_SQC_STATE_*`, `MLX5_RQC_STATE_*`).
mod state {
    pub(super) const RST: u64 = 0;
    pub(super) const RDY: u64 = 1;
    pub(super) const ERR: u64 = 3;
}

impl Firmware {
    pub(super) fn create_sq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let context = create_sq_in::CTX.of(call.input);
        let ring = sqc::WQ.of(context);
        let uar = wq::UAR_PAGE.get32(ring);
        if !self.simple.has_uar(uar) {
            return Err(Refusal::resource("no such doorbell page"));
        }
        if wq::LOG_WQ_STRIDE.get(ring) != LOG_WQEBB {
            return Err(Refusal::param("log_wq_stride"));
        }
        let log_wqebbs = wq::LOG_WQ_SZ.get(ring);
        let pages = Pages {
            // The list ends the ring, which ends the context, which ends the fixed part.
            pas: call.input.get(create_sq_in::SIZE..).unwrap_or_default(),
            log_page_size: wq::LOG_WQ_PG_SZ.get(ring),
            page_offset: wq::PAGE_OFFSET.get(ring),
        };
        let region = pages.region(0, WQEBB << log_wqebbs)?;
        let cqn = sqc::CQN.get32(context);
        let sqn = self.hca.create_qp(QpContext {
            service: Service::Raw,
            pd: wq::PD.get32(ring),
            send_cq: cqn,
            recv_cq: cqn,
            sq: Some(SqContext { region, log_wqebbs: log_wqebbs as u8 }),
            rq: None,
            srq: None,
            xrcd: 0,
            doorbell_record: wq::DBR_ADDR.get(ring),
            uar,
            user_index: sqc::USER_INDEX.get32(context),
            cqe_version: 1,
            scatter_to_cqe: false,
            sq_sig_all: false,
            special: None,
            deth_sqpn: None,
            privileged: false,
            counter_set: 0,
        })?;
        let mut kept = Box::new([0; sqc::SIZE]);
        kept.copy_from_slice(context);
        self.sqs.insert(sqn, kept);
        create_sq_out::SQN.set(call.output, sqn.into());
        Ok(())
    }

    pub(super) fn modify_sq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let sqn = modify_sq_in::SQN.get32(call.input);
        let kept = self.sqs.get_mut(&sqn).ok_or(Refusal::resource("no such send queue"))?;
        let from = sqc::STATE.get(&kept[..]);
        let to = sqc::STATE.get(modify_sq_in::CTX.of(call.input));
        if modify_sq_in::SQ_STATE.get(call.input) != from {
            return Err(Refusal::param("not from this state"));
        }
        let steps: &[QpTransition] = match (from, to) {
            (state::RST, state::RDY) => {
                &[QpTransition::RstToInit, QpTransition::InitToRtr, QpTransition::RtrToRts]
            }
            (state::RDY, state::ERR) => &[QpTransition::ToErr],
            (_, state::RST) => &[QpTransition::ToRst],
            (from, to) if from == to => &[],
            _ => return Err(Refusal::param("no such change of state")),
        };
        for &step in steps {
            self.hca.modify_qp(sqn, step, &QpAttrs::default())?;
        }
        sqc::STATE.set(&mut kept[..], to);
        Ok(())
    }

    pub(super) fn destroy_sq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let sqn = destroy_sq_in::SQN.get32(call.input);
        self.sqs.remove(&sqn).ok_or(Refusal::resource("no such send queue"))?;
        Ok(self.hca.destroy_qp(sqn)?)
    }

    pub(super) fn query_sq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let sqn = query_sq_in::SQN.get32(call.input);
        let kept = self.sqs.get(&sqn).ok_or(Refusal::resource("no such send queue"))?;
        query_sq_out::SQ_CONTEXT.of_mut(call.output).copy_from_slice(&kept[..]);
        Ok(())
    }

    pub(super) fn create_rq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let context = create_rq_in::CTX.of(call.input);
        if !self.cqs.contains_key(&rqc::CQN.get32(context)) {
            return Err(Refusal::resource("no such completion queue"));
        }
        let rqn = self.frame_rqs.take().ok_or(Refusal::resource("no receive queue is left"))?;
        let mut kept = Box::new([0; rqc::SIZE]);
        kept.copy_from_slice(context);
        self.frame_rq_contexts.insert(rqn, kept);
        create_rq_out::RQN.set(call.output, rqn.into());
        Ok(())
    }

    pub(super) fn modify_rq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let rqn = modify_rq_in::RQN.get32(call.input);
        let kept = self.frame_rq_contexts.get_mut(&rqn);
        let kept = kept.ok_or(Refusal::resource("no such receive queue"))?;
        if modify_rq_in::RQ_STATE.get(call.input) != rqc::STATE.get(&kept[..]) {
            return Err(Refusal::param("not from this state"));
        }
        rqc::STATE.set(&mut kept[..], rqc::STATE.get(modify_rq_in::CTX.of(call.input)));
        Ok(())
    }

    pub(super) fn destroy_rq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let rqn = destroy_rq_in::RQN.get32(call.input);
        self.frame_rq_contexts.remove(&rqn).ok_or(Refusal::resource("no such receive queue"))?;
        self.frame_rqs.give_back(rqn);
        Ok(())
    }

    pub(super) fn query_rq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let rqn = query_rq_in::RQN.get32(call.input);
        let kept = self.frame_rq_contexts.get(&rqn);
        let kept = kept.ok_or(Refusal::resource("no such receive queue"))?;
        query_rq_out::RQ_CONTEXT.of_mut(call.output).copy_from_slice(&kept[..]);
        Ok(())
    }
}
