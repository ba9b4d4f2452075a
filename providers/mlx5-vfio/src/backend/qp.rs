//! Queue pairs: creation, queries, destruction (PRM "Queue Pair Context"; Linux `hw/mlx5/qp.c`,
//! `_create_user_qp`).

use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::qp::{
    create_qp_in, create_qp_out, destroy_qp_in, qpc, query_qp_in, query_qp_out,
};
use uverbs_mlx5_prm::cmd::sq::{destroy_rq_in, destroy_sq_in};
use uverbs_mlx5_prm::context::{PmState, QpState as PrmState, ServiceType};

use super::raw::Tis;
use super::umem::{Object, Umems};
use super::{Firmware, SHORT, unsupported};
use crate::transport::Purpose;
use uverbs_front::backend::context::{QpAttrs, QpContext, QpState, Service};
use uverbs_front::backend::error::{HcaError, Noun};
use uverbs_front::backend::number::{Qpn, Queue};
use uverbs_front::backend::psn::Psn;
use uverbs_front::backend::region::Region;

/// Bytes of a doorbell record: words RCV and SND.
pub(super) const RECORD: u64 = 8;
/// Log2 of the unit of `log_rq_stride`, 16 bytes.
const STRIDE_SHIFT: u64 = 4;
/// Values of `rq_type` (Linux `include/linux/mlx5/qp.h`, `MLX5_*_RQ`).
const REGULAR_RQ: u64 = 0;
const SHARED_RQ: u64 = 1;
const NO_RQ: u64 = 3;

/// A queue pair, or a queue of raw packets.
#[derive(Debug)]
pub(super) struct Qp {
    pub(super) service: Service,
    /// Attributes that modifies set.
    pub(super) attrs: QpAttrs,
    /// TIS of a send queue of raw packets.
    pub(super) tis: Option<Tis>,
}

/// Kind and number of a queue.
pub(super) fn object(queue: Queue) -> Object {
    (queue.into(), queue.number().0)
}

/// Code of a service.
pub(super) fn code(service: Service) -> Result<ServiceType, HcaError> {
    Ok(match service {
        Service::Rc => ServiceType::RC,
        Service::Uc => ServiceType::UC,
        Service::Ud => ServiceType::UD,
        Service::Xrc => ServiceType::XRC,
        Service::Dci => ServiceType::DCI,
        Service::Umr => ServiceType::REG_UMR,
        // Created by another command.
        Service::Dct | Service::Raw => return Err(unsupported("this service as a queue pair")),
    })
}

/// The memory of both rings: the send ring follows the receive ring (`qp->sq.offset`).
fn rings(context: &QpContext) -> Result<Option<Region>, HcaError> {
    let rq = context.rq.as_ref().map(|rq| &rq.region);
    let sq = context.sq.as_ref().map(|sq| &sq.region);
    match (rq, sq) {
        (Some(&Region::Flat { addr, len }), Some(&Region::Flat { addr: next, len: more }))
            if addr.checked_add(len) == Some(next) =>
        {
            Ok(Some(Region::Flat { addr, len: len + more }))
        }
        (Some(_), Some(_)) => Err(unsupported("rings that are apart")),
        (rq, sq) => Ok(rq.or(sq).cloned()),
    }
}

impl Firmware {
    pub(super) fn qp(&self, queue: Queue) -> Result<&Qp, HcaError> {
        let (noun, number) = object(queue);
        self.qps.get(&queue).ok_or(HcaError::BadHandle { noun, number })
    }

    pub(super) fn make_qp(&mut self, context: &QpContext) -> Result<Queue, HcaError> {
        if context.service == Service::Raw {
            return self.make_raw(context);
        }
        let (number, ece) =
            self.with_umems(Noun::Qp, |firmware, umems| firmware.build_qp(context, umems))?;
        let (queue, attrs) = (Queue::Qp(Qpn(number)), QpAttrs::default());
        self.eces.insert(queue, ece);
        self.qps.insert(queue, Qp { service: context.service, attrs, tis: None });
        Ok(queue)
    }

    /// Returns the number, and ECE options.
    fn build_qp(&mut self, context: &QpContext, umems: &mut Umems) -> Result<(u32, u32), HcaError> {
        let service = code(context.service)?;
        let pd = self.pd(context.pd)?;
        let ring = rings(context)?.map(|rings| self.ring(&rings, &mut umems.memory)).transpose()?;
        let record = match ring {
            Some(_) => {
                self.reach(context.doorbell_record, RECORD, Purpose::Record, &mut umems.record)?
            }
            None => 0,
        };
        let rq_type = match (&context.rq, context.srq) {
            (Some(_), _) => REGULAR_RQ,
            (None, Some(_)) => SHARED_RQ,
            (None, None) => NO_RQ,
        };
        let mut input = vec![0; create_qp_in::SIZE];
        create_qp_in::ECE.set(&mut input, self.supported(context.ece).into());
        let qpc = create_qp_in::QPC.of_mut(&mut input);
        for (field, value) in [
            (qpc::ST, service.0.into()),
            (qpc::PM_STATE, PmState::MIGRATED.0.into()),
            (qpc::PD, pd.into()),
            (qpc::RQ_TYPE, rq_type),
            (qpc::SRQN_RMPN_XRQN, context.srq.map_or(0, |srq| srq.0).into()),
            (qpc::NO_SQ, context.sq.is_none().into()),
            (qpc::UAR_PAGE, self.uar(context.uar).into()),
            (qpc::USER_INDEX, context.user_index.into()),
            (qpc::CQN_SND, context.send_cq.0.into()),
            (qpc::CQN_RCV, context.recv_cq.0.into()),
            (qpc::DBR_ADDR, record),
            (qpc::COUNTER_SET_ID, context.counter_set.into()),
            (qpc::CS_REQ, [0, 0x11, 0x22][usize::from(context.scatter.requester / 32).min(2)]),
            (qpc::CS_RES, u64::from(context.scatter.responder / 32).min(2)),
        ] {
            field.set(qpc, value);
        }
        if context.xrcd != 0 || context.service == Service::Xrc && context.sq.is_none() {
            let xrcd = self.xrcd(context.xrcd)?;
            qpc::XRCD.set(qpc, xrcd.into());
        }
        if let Some(rq) = &context.rq {
            qpc::LOG_RQ_SIZE.set(qpc, rq.log_entries.into());
            qpc::LOG_RQ_STRIDE.set(qpc, u64::from(rq.stride_shift) - STRIDE_SHIFT);
        }
        if let Some(sq) = &context.sq {
            qpc::LOG_SQ_SIZE.set(qpc, sq.log_wqebbs.into());
        }
        if let Some(streams) = context.streams {
            qpc::LOG_NUM_DCI_STREAM_CHANNELS.set(qpc, streams.log_channels.into());
            qpc::LOG_NUM_DCI_ERRORED_STREAMS.set(qpc, streams.log_errored.into());
        }
        if let Some(qpn) = context.deth_sqpn {
            qpc::DETH_SQPN.set(qpc, qpn.0.into());
        }
        if let Some(ring) = ring {
            qpc::PAGE_OFFSET.set(qpc, ring.page_offset);
            input.extend(ring.pages);
        }
        let outlen = create_qp_out::SIZE;
        let output = self.create(CmdOpcode::CREATE_QP, &input, outlen, Noun::Qp)?;
        Ok((create_qp_out::QPN.get32(&output), create_qp_out::ECE.get32(&output)))
    }

    /// State and next PSNs by the firmware; the rest is as modifies set it.
    pub(super) fn ask_qp(&self, queue: Queue) -> Result<(QpState, QpAttrs), HcaError> {
        let mut attrs = self.qp(queue)?.attrs;
        let Queue::Qp(qpn) = queue else { return Ok((self.ask_raw(queue)?.into(), attrs)) };
        let mut input = [0; SHORT];
        query_qp_in::QPN.set(&mut input, qpn.0.into());
        let outlen = query_qp_out::SIZE;
        let output = self.run(CmdOpcode::QUERY_QP, 0, &input, outlen, object(queue))?;
        let qpc = query_qp_out::QPC.of(&output);
        attrs.sq_psn = Psn::new(qpc::NEXT_SEND_PSN.get32(qpc));
        attrs.rq_psn = Psn::new(qpc::NEXT_RCV_PSN.get32(qpc));
        let told = PrmState(qpc::STATE.get(qpc) as u8);
        attrs.sq_draining = told == PrmState::SQ_DRAINING;
        let state = match told {
            PrmState::RST => QpState::Reset,
            PrmState::INIT => QpState::Init,
            PrmState::RTR => QpState::Rtr,
            PrmState::RTS => QpState::Rts,
            PrmState::SQER => QpState::Sqe,
            PrmState::SQD | PrmState::SQ_DRAINING => QpState::Sqd,
            PrmState::ERR => QpState::Err,
            other => {
                return Err(HcaError::BadParam { what: "state", value: other.0.into() });
            }
        };
        Ok((state, attrs))
    }

    pub(super) fn end_qp(&mut self, queue: Queue) -> Result<(), HcaError> {
        let tis = self.qp(queue)?.tis;
        let (opcode, field) = match queue {
            Queue::Sq(_) => (CmdOpcode::DESTROY_SQ, destroy_sq_in::SQN),
            Queue::Rq(_) => (CmdOpcode::DESTROY_RQ, destroy_rq_in::RQN),
            Queue::Qp(_) | Queue::Dct(_) => (CmdOpcode::DESTROY_QP, destroy_qp_in::QPN),
        };
        self.destroy(opcode, field, object(queue))?;
        if let Some(tis) = tis {
            self.drop_tis(tis);
        }
        self.release_umems(object(queue));
        self.qps.remove(&queue);
        self.eces.remove(&queue);
        Ok(())
    }
}
