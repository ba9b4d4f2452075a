//! Queues of raw packets: send queues, each with a TIS, and receive queues (Linux `hw/mlx5/qp.c`,
//! `create_raw_packet_qp_sq`, `create_raw_packet_qp_rq`, `create_rq`).

use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::rq::{WQ_TYPE_CYCLIC, wq};
use uverbs_mlx5_prm::cmd::sq::{
    create_rq_in, create_rq_out, create_sq_in, create_sq_out, destroy_rq_in, destroy_sq_in,
    modify_rq_in, modify_sq_in, query_rq_in, query_rq_out, query_sq_in, query_sq_out, rqc, sqc,
};
use uverbs_mlx5_prm::cmd::steering::{create_tis_in, create_tis_out, destroy_tis_in, tisc};
use uverbs_mlx5_prm::ctrl::MLX5_SEND_WQE_BB;

use super::loans::Loan;
use super::qp::{Qp, RECORD};
use super::{Firmware, SHORT, unsupported};
use uverbs_front::backend::context::{
    QpAttrs, QpContext, QpState, QpTransition, RqContext, SqContext,
};
use uverbs_front::backend::error::{HcaError, Noun};
use uverbs_front::backend::number::Qpn;
use uverbs_front::backend::region::Region;
use uverbs_front::backend::steering::QueueOptions;

/// `modify_bitmask` of MODIFY_RQ (`MLX5_MODIFY_RQ_IN_MODIFY_BITMASK_VSD`).
const MODIFY_VSD: u64 = 1 << 1;
/// States of both kinds of queue (`MLX5_SQC_STATE_*`, `MLX5_RQC_STATE_*`).
const RST: u64 = 0;
const RDY: u64 = 1;
const ERR: u64 = 3;

/// A queue of raw packets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Raw {
    /// A send queue, its TIS, and its transport domain by the front's number.
    Sends {
        tis: u32,
        domain: u32,
    },
    Receives,
}

/// State of a queue of raw packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawState(u64);

impl From<RawState> for QpState {
    fn from(RawState(state): RawState) -> Self {
        match state {
            RST => QpState::Reset,
            RDY => QpState::Rts,
            _ => QpState::Err,
        }
    }
}

impl Firmware {
    pub(super) fn make_raw(&mut self, context: &QpContext) -> Result<Qpn, HcaError> {
        let (number, raw) =
            self.lending(Noun::Qp, |firmware, loan| match (&context.sq, &context.rq) {
                (Some(sq), None) => firmware.make_sq(context, sq, loan),
                (None, Some(rq)) => Ok((firmware.make_rq(context, rq, loan)?, Raw::Receives)),
                _ => Err(unsupported("raw packets both ways in one queue")),
            })?;
        let attrs = QpAttrs::default();
        let qp = Qp { service: context.service, attrs, raw: Some(raw) };
        self.qps.insert(Qpn(number), qp);
        Ok(Qpn(number))
    }

    fn make_sq(
        &mut self,
        context: &QpContext,
        sq: &SqContext,
        loan: &mut Loan,
    ) -> Result<(u32, Raw), HcaError> {
        let domain = context.domain;
        let mut input = vec![0; create_sq_in::SIZE];
        let sqc = create_sq_in::CTX.of_mut(&mut input);
        for (field, value) in [
            (sqc::FLUSH_IN_ERROR_EN, 1),
            (sqc::USER_INDEX, context.user_index.into()),
            (sqc::CQN, context.send_cq.0.into()),
            (sqc::TIS_LST_SZ, 1),
        ] {
            field.set(sqc, value);
        }
        let ring = sqc::WQ.of_mut(sqc);
        wq::UAR_PAGE.set(ring, self.uar(context.uar).into());
        let logs = (MLX5_SEND_WQE_BB.ilog2().into(), sq.log_wqebbs);
        let pages = self.fill_cyclic(context, (&sq.region, logs), ring, loan)?;
        let tis = self.make_tis(domain)?;
        sqc::TIS_NUM_0.set(create_sq_in::CTX.of_mut(&mut input), tis.into());
        input.extend(pages);
        let outlen = create_sq_out::SIZE;
        match self.create(CmdOpcode::CREATE_SQ, &input, outlen, Noun::Qp) {
            Ok(output) => Ok((create_sq_out::SQN.get32(&output), Raw::Sends { tis, domain })),
            Err(error) => {
                self.drop_tis(tis, domain);
                Err(error)
            }
        }
    }

    fn make_rq(
        &mut self,
        context: &QpContext,
        rq: &RqContext,
        loan: &mut Loan,
    ) -> Result<u32, HcaError> {
        let mut input = vec![0; create_rq_in::SIZE];
        let rqc = create_rq_in::CTX.of_mut(&mut input);
        for (field, value) in [
            (rqc::VSD, (!context.options.strips_vlan).into()),
            (rqc::FLUSH_IN_ERROR_EN, 1),
            (rqc::USER_INDEX, context.user_index.into()),
            (rqc::CQN, context.recv_cq.0.into()),
            (rqc::COUNTER_SET_ID, context.counter_set.into()),
        ] {
            field.set(rqc, value);
        }
        let logs = (rq.stride_shift.into(), rq.log_entries);
        let ring = rqc::WQ.of_mut(rqc);
        let pages = self.fill_cyclic(context, (&rq.region, logs), ring, loan)?;
        input.extend(pages);
        let outlen = create_rq_out::SIZE;
        let output = self.create(CmdOpcode::CREATE_RQ, &input, outlen, Noun::Qp)?;
        Ok(create_rq_out::RQN.get32(&output))
    }

    /// Fills in a ring; returns its pages. `logs`: log2 of an entry's bytes, and of the entries.
    fn fill_cyclic(
        &mut self,
        context: &QpContext,
        (region, (log_stride, log_entries)): (&Region, (u64, u8)),
        ring: &mut [u8],
        loan: &mut Loan,
    ) -> Result<Vec<u8>, HcaError> {
        let record = (context.doorbell_record, RECORD);
        let pages = self.fill_wq(ring, region, record, context.pd, loan)?;
        wq::WQ_TYPE.set(ring, WQ_TYPE_CYCLIC);
        wq::LOG_WQ_STRIDE.set(ring, log_stride);
        wq::LOG_WQ_SZ.set(ring, log_entries.into());
        Ok(pages)
    }

    fn make_tis(&mut self, domain: u32) -> Result<u32, HcaError> {
        let number = self.join_domain(domain)?;
        let mut input = vec![0; create_tis_in::SIZE];
        tisc::TRANSPORT_DOMAIN.set(create_tis_in::CTX.of_mut(&mut input), number.into());
        let outlen = create_tis_out::SIZE;
        match self.create(CmdOpcode::CREATE_TIS, &input, outlen, Noun::Qp) {
            Ok(output) => Ok(create_tis_out::TISN.get32(&output)),
            Err(error) => {
                self.leave_domain(domain);
                Err(error)
            }
        }
    }

    /// Destroys the TIS of a send queue that is gone. A TIS uses no memory, so that a refused one
    /// may stay until the function is reset, in its domain.
    fn drop_tis(&mut self, tis: u32, domain: u32) {
        let mut input = [0; SHORT];
        destroy_tis_in::TISN.set(&mut input, tis.into());
        if self.function.command(CmdOpcode::DESTROY_TIS, 0, &input, SHORT).is_ok() {
            self.leave_domain(domain);
        }
    }

    pub(super) fn ask_raw(&self, qpn: Qpn, raw: Raw) -> Result<RawState, HcaError> {
        let object = (Noun::Qp, qpn.0);
        let mut input = [0; SHORT];
        let state = match raw {
            Raw::Sends { .. } => {
                query_sq_in::SQN.set(&mut input, qpn.0.into());
                let outlen = query_sq_out::SIZE;
                let output = self.run(CmdOpcode::QUERY_SQ, 0, &input, outlen, object)?;
                sqc::STATE.get(query_sq_out::SQ_CONTEXT.of(&output))
            }
            Raw::Receives => {
                query_rq_in::RQN.set(&mut input, qpn.0.into());
                let outlen = query_rq_out::SIZE;
                let output = self.run(CmdOpcode::QUERY_RQ, 0, &input, outlen, object)?;
                rqc::STATE.get(query_rq_out::RQ_CONTEXT.of(&output))
            }
        };
        match state {
            RST | RDY | ERR => Ok(RawState(state)),
            value => Err(HcaError::BadParam { what: "state", value }),
        }
    }

    /// Takes a queue along an edge of the state machine of queue pairs. A receive queue works from
    /// RTR on, a send queue in RTS.
    pub(super) fn change_raw(
        &mut self,
        qpn: Qpn,
        raw: Raw,
        to: QpTransition,
    ) -> Result<(), HcaError> {
        use QpTransition::{InitToRtr, RstToInit, RtrToRts, ToErr, ToRst};
        let to = match (to, raw) {
            (RtrToRts, Raw::Sends { .. }) | (InitToRtr, Raw::Receives) => RDY,
            (RstToInit | InitToRtr, _) => return Ok(()),
            (ToErr, _) => ERR,
            (ToRst, _) => RST,
            _ => return Err(unsupported("this transition of a queue of raw packets")),
        };
        // An error may have changed the state.
        let RawState(from) = self.ask_raw(qpn, raw)?;
        match raw {
            Raw::Sends { .. } => {
                let mut input = vec![0; modify_sq_in::SIZE];
                modify_sq_in::SQ_STATE.set(&mut input, from);
                modify_sq_in::SQN.set(&mut input, qpn.0.into());
                sqc::STATE.set(modify_sq_in::CTX.of_mut(&mut input), to);
                self.run(CmdOpcode::MODIFY_SQ, 0, &input, SHORT, (Noun::Qp, qpn.0)).map(drop)
            }
            Raw::Receives => self.change_rq(qpn, (from, to), None),
        }
    }

    /// Changes the options of a receive queue in its state.
    pub(super) fn change_options(
        &mut self,
        rqn: Qpn,
        options: QueueOptions,
    ) -> Result<(), HcaError> {
        let Some(Raw::Receives) = self.qp(rqn)?.raw else {
            return Err(HcaError::BadHandle { noun: Noun::Qp, number: rqn.0 });
        };
        let RawState(state) = self.ask_raw(rqn, Raw::Receives)?;
        self.change_rq(rqn, (state, state), Some(options))
    }

    fn change_rq(
        &self,
        rqn: Qpn,
        (from, to): (u64, u64),
        options: Option<QueueOptions>,
    ) -> Result<(), HcaError> {
        let mut input = vec![0; modify_rq_in::SIZE];
        modify_rq_in::RQ_STATE.set(&mut input, from);
        modify_rq_in::RQN.set(&mut input, rqn.0.into());
        if let Some(options) = options {
            modify_rq_in::MODIFY_BITMASK.set(&mut input, MODIFY_VSD);
            let rqc = modify_rq_in::CTX.of_mut(&mut input);
            rqc::VSD.set(rqc, (!options.strips_vlan).into());
        }
        rqc::STATE.set(modify_rq_in::CTX.of_mut(&mut input), to);
        self.run(CmdOpcode::MODIFY_RQ, 0, &input, SHORT, (Noun::Qp, rqn.0)).map(drop)
    }

    pub(super) fn end_raw(&mut self, qpn: Qpn, raw: Raw) -> Result<(), HcaError> {
        let object = (Noun::Qp, qpn.0);
        match raw {
            Raw::Receives => self.destroy(CmdOpcode::DESTROY_RQ, destroy_rq_in::RQN, object),
            Raw::Sends { tis, domain } => {
                self.destroy(CmdOpcode::DESTROY_SQ, destroy_sq_in::SQN, object)?;
                self.drop_tis(tis, domain);
                Ok(())
            }
        }
    }
}
