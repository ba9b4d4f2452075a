//! Queues of raw packets: send queues, each with a TIS, and receive queues (Linux `hw/mlx5/qp.c`,
//! `create_raw_packet_qp_sq`, `create_raw_packet_qp_rq`, `create_rq`).

use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::rq::WQ_TYPE_CYCLIC;
use uverbs_mlx5_prm::cmd::sq::{
    create_rq_out, create_sq_out, query_rq_in, query_rq_out, query_sq_in, query_sq_out, rqc, sqc,
};
use uverbs_mlx5_prm::cmd::steering::{create_tis_out, destroy_tis_in};
use uverbs_mlx5_prm::ctrl::MLX5_SEND_WQE_BB;

use super::qp::{Qp, RECORD, object};
use super::umem::Umems;
use super::{Firmware, SHORT, unsupported};
use crate::objects::raw_queues::{
    ERR, QueueLinks, RDY, RST, WorkQueue, create_rq, create_sq, create_tis, modify_rq, modify_sq,
};
use uverbs_front::backend::context::{
    QpAttrs, QpContext, QpState, QpTransition, RqContext, SqContext,
};
use uverbs_front::backend::error::{HcaError, Noun};
use uverbs_front::backend::number::{Qpn, Queue};
use uverbs_front::backend::region::Region;
use uverbs_front::backend::steering::QueueOptions;

/// TIS of a send queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tis {
    number: u32,
    /// Transport domain by the front's number.
    domain: u32,
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
    pub(super) fn make_raw(&mut self, context: &QpContext) -> Result<Queue, HcaError> {
        let (queue, tis) = match (&context.sq, &context.rq) {
            (Some(sq), None) => {
                let make =
                    |firmware: &mut Self, umems: &mut _| firmware.make_sq(context, sq, umems);
                let (number, tis) = self.with_umems(Noun::Sq, make)?;
                (Queue::Sq(Qpn(number)), Some(tis))
            }
            (None, Some(rq)) => {
                let make =
                    |firmware: &mut Self, umems: &mut _| firmware.make_rq(context, rq, umems);
                let (number, ()) = self.with_umems(Noun::Rq, make)?;
                (Queue::Rq(Qpn(number)), None)
            }
            _ => return Err(unsupported("a raw packet queue that sends and receives")),
        };
        let attrs = QpAttrs::default();
        self.qps.insert(queue, Qp { service: context.service, attrs, tis });
        Ok(queue)
    }

    fn make_sq(
        &mut self,
        context: &QpContext,
        sq: &SqContext,
        umems: &mut Umems,
    ) -> Result<(u32, Tis), HcaError> {
        let (cqn, user_index, domain) = (context.send_cq.0, context.user_index, context.domain);
        let links = QueueLinks { cqn, user_index, ..QueueLinks::default() };
        let logs = (MLX5_SEND_WQE_BB.ilog2(), sq.log_wqebbs);
        let ring = self.cyclic(context, &sq.region, logs, umems)?;
        let ring = WorkQueue { uar: self.uar(context.uar), ..ring };
        let tis = self.make_tis(domain)?;
        match self.run_prepared(&create_sq(&links, tis.number, &ring), (Noun::Sq, 0)) {
            Ok(output) => Ok((create_sq_out::SQN.get32(&output), tis)),
            Err(error) => {
                self.drop_tis(tis);
                Err(error)
            }
        }
    }

    fn make_rq(
        &mut self,
        context: &QpContext,
        rq: &RqContext,
        umems: &mut Umems,
    ) -> Result<(u32, ()), HcaError> {
        let QpContext { user_index, counter_set, .. } = *context;
        let links = QueueLinks { cqn: context.recv_cq.0, user_index, counter_set };
        let logs = (rq.stride_shift.into(), rq.log_entries);
        let ring = self.cyclic(context, &rq.region, logs, umems)?;
        let command = create_rq(&links, context.options.strips_vlan, &ring);
        let output = self.run_prepared(&command, (Noun::Rq, 0))?;
        Ok((create_rq_out::RQN.get32(&output), ()))
    }

    /// Cyclic ring of 2^`log_entries` entries of 2^`log_stride` bytes.
    fn cyclic(
        &mut self,
        context: &QpContext,
        region: &Region,
        (log_stride, log_entries): (u32, u8),
        umems: &mut Umems,
    ) -> Result<WorkQueue, HcaError> {
        let record = (context.doorbell_record, RECORD);
        let ring = self.work_queue(region, record, context.pd, umems)?;
        Ok(WorkQueue { kind: WQ_TYPE_CYCLIC, log_stride, log_entries: log_entries.into(), ..ring })
    }

    fn make_tis(&mut self, domain: u32) -> Result<Tis, HcaError> {
        let number = self.join_domain(domain)?;
        match self.run_prepared(&create_tis(number), (Noun::Sq, 0)) {
            Ok(output) => Ok(Tis { number: create_tis_out::TISN.get32(&output), domain }),
            Err(error) => {
                self.leave_domain(domain);
                Err(error)
            }
        }
    }

    /// Destroys the TIS of a send queue that is gone. If the firmware refuses, the TIS and its
    /// domain stay until the function is reset: a TIS uses no memory.
    pub(super) fn drop_tis(&mut self, Tis { number, domain }: Tis) {
        let mut input = [0; SHORT];
        destroy_tis_in::TISN.set(&mut input, number.into());
        if self.function.command(CmdOpcode::DESTROY_TIS, 0, &input, SHORT).is_ok() {
            self.leave_domain(domain);
        }
    }

    /// State of a queue of raw packets. Fails for queue pairs and DCTs.
    pub(super) fn ask_raw(&self, queue: Queue) -> Result<RawState, HcaError> {
        let mut input = [0; SHORT];
        let state = match queue {
            Queue::Sq(sqn) => {
                query_sq_in::SQN.set(&mut input, sqn.0.into());
                let outlen = query_sq_out::SIZE;
                let output = self.run(CmdOpcode::QUERY_SQ, 0, &input, outlen, object(queue))?;
                sqc::STATE.get(query_sq_out::SQ_CONTEXT.of(&output))
            }
            Queue::Rq(rqn) => {
                query_rq_in::RQN.set(&mut input, rqn.0.into());
                let outlen = query_rq_out::SIZE;
                let output = self.run(CmdOpcode::QUERY_RQ, 0, &input, outlen, object(queue))?;
                rqc::STATE.get(query_rq_out::RQ_CONTEXT.of(&output))
            }
            Queue::Qp(_) | Queue::Dct(_) => {
                return Err(unsupported("a raw packet query of a queue pair or DCT"));
            }
        };
        match state {
            RST | RDY | ERR => Ok(RawState(state)),
            value => Err(HcaError::BadParam { what: "state", value }),
        }
    }

    /// Takes a queue along an edge of the state machine of queue pairs. A receive queue works from
    /// RTR on, a send queue in RTS.
    pub(super) fn change_raw(&mut self, queue: Queue, to: QpTransition) -> Result<(), HcaError> {
        use QpTransition::{InitToRtr, RstToInit, RtrToRts, ToErr, ToRst};
        let to = match (to, queue) {
            (RtrToRts, Queue::Sq(_)) | (InitToRtr, Queue::Rq(_)) => RDY,
            (RstToInit | InitToRtr, _) => return Ok(()),
            (ToErr, _) => ERR,
            (ToRst, _) => RST,
            _ => return Err(unsupported("this transition of a queue of raw packets")),
        };
        // An error may have changed the state.
        let RawState(from) = self.ask_raw(queue)?;
        match queue {
            Queue::Rq(rqn) => self.change_rq(rqn, (from, to), None),
            _ => {
                let command = modify_sq(queue.number().0, (from, to));
                self.run_prepared(&command, object(queue)).map(drop)
            }
        }
    }

    /// Changes the options of a receive queue in its state.
    pub(super) fn change_options(
        &mut self,
        rqn: Qpn,
        options: QueueOptions,
    ) -> Result<(), HcaError> {
        let queue = Queue::Rq(rqn);
        self.qp(queue)?;
        let RawState(state) = self.ask_raw(queue)?;
        self.change_rq(rqn, (state, state), Some(options))
    }

    fn change_rq(
        &self,
        rqn: Qpn,
        (from, to): (u64, u64),
        options: Option<QueueOptions>,
    ) -> Result<(), HcaError> {
        let strips_vlan = options.map(|options| options.strips_vlan);
        let command = modify_rq(rqn.0, (from, to), strips_vlan);
        self.run_prepared(&command, (Noun::Rq, rqn.0)).map(drop)
    }
}
