//! Shared receive queues: receive memory pools, XRC SRQs, and XRQs, which match tags (Linux
//! `hw/mlx5/srq_cmd.c`).

use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::rq::{
    arm_rq_in, arm_xrc_srq_in, create_rmp_in, create_rmp_out, create_xrc_srq_in,
    create_xrc_srq_out, create_xrq_in, create_xrq_out, destroy_rmp_in, destroy_xrc_srq_in,
    destroy_xrq_in, modify_rmp_in, query_rmp_in, query_rmp_out, query_xrc_srq_in,
    query_xrc_srq_out, query_xrq_in, query_xrq_out, rmp_bitmask, rmpc,
    tag_matching_topology_context as tags_context, wq, xrc_srqc, xrqc,
};

use super::umem::Umems;
use super::{Firmware, SHORT};
use crate::objects::raw_queues::WorkQueue;
use crate::transport::Purpose;
use uverbs_front::backend::context::{SrqContext, TagSrq, XrcSrq};
use uverbs_front::backend::error::{HcaError, Noun};
use uverbs_front::backend::number::Srqn;

/// Log2 of the unit of `log_rq_stride`, 16 bytes.
const STRIDE_SHIFT: u64 = 4;
/// Bytes of a doorbell record: a counter of posted WQEs.
const RECORD: u64 = 4;
/// `rmpc.state`: ready (`MLX5_RMPC_STATE_RDY`).
const READY: u64 = 1;
/// Values of `topology` and `offload` in an XRQ (`MLX5_XRQC_*`).
const TAG_MATCHING: u64 = 1;
/// `op_mod` of ARM_RQ (`MLX5_ARM_RQ_IN_OP_MOD_XRQ`).
const ARM_XRQ: u16 = 2;

/// Kind of a shared receive queue, by which its commands differ.
#[derive(Clone, Copy, Debug)]
pub(super) enum Srq {
    Pool,
    Xrc,
    Tags,
}

impl Firmware {
    fn srq(&self, srqn: Srqn) -> Result<Srq, HcaError> {
        let missing = HcaError::BadHandle { noun: Noun::Srq, number: srqn.0 };
        self.srqs.get(&srqn).copied().ok_or(missing)
    }

    pub(super) fn make_srq(&mut self, context: &SrqContext) -> Result<Srqn, HcaError> {
        let (number, kind) = self.with_umems(Noun::Srq, |firmware, umems| {
            Ok(match (&context.xrc, &context.tags) {
                (Some(xrc), _) => (firmware.make_xrc(context, xrc, umems)?, Srq::Xrc),
                (None, Some(tags)) => (firmware.make_xrq(context, tags, umems)?, Srq::Tags),
                (None, None) => (firmware.make_pool(context, umems)?, Srq::Pool),
            })
        })?;
        self.srqs.insert(Srqn(number), kind);
        Ok(Srqn(number))
    }

    /// The ring, a linked list.
    fn list(&mut self, context: &SrqContext, umems: &mut Umems) -> Result<WorkQueue, HcaError> {
        let record = (context.doorbell_record, RECORD);
        let ring = self.work_queue(&context.region, record, context.pd, umems)?;
        Ok(WorkQueue {
            limit: context.limit,
            log_stride: context.stride_shift.into(),
            log_entries: context.log_entries.into(),
            ..ring
        })
    }

    fn make_pool(&mut self, context: &SrqContext, umems: &mut Umems) -> Result<u32, HcaError> {
        let mut input = vec![0; create_rmp_in::SIZE];
        let rmpc = create_rmp_in::CTX.of_mut(&mut input);
        rmpc::STATE.set(rmpc, READY);
        let ring = self.list(context, umems)?;
        ring.fill(rmpc::WQ.of_mut(rmpc));
        input.extend(ring.pages);
        let outlen = create_rmp_out::SIZE;
        let output = self.create(CmdOpcode::CREATE_RMP, &input, outlen, Noun::Srq)?;
        Ok(create_rmp_out::RMPN.get32(&output))
    }

    fn make_xrq(
        &mut self,
        context: &SrqContext,
        asked: &TagSrq,
        umems: &mut Umems,
    ) -> Result<u32, HcaError> {
        let mut input = vec![0; create_xrq_in::SIZE];
        let xrqc = create_xrq_in::XRQ_CONTEXT.of_mut(&mut input);
        xrqc::TOPOLOGY.set(xrqc, TAG_MATCHING);
        xrqc::OFFLOAD.set(xrqc, asked.rendezvous.into());
        xrqc::CQN.set(xrqc, asked.cq.0.into());
        xrqc::USER_INDEX.set(xrqc, asked.user_index.into());
        let tags = xrqc::TAG_MATCHING_TOPOLOGY_CONTEXT.of_mut(xrqc);
        tags_context::LOG_MATCHING_LIST_SZ.set(tags, asked.log_tags.into());
        let ring = self.list(context, umems)?;
        ring.fill(xrqc::WQ.of_mut(xrqc));
        input.extend(ring.pages);
        let outlen = create_xrq_out::SIZE;
        let output = self.create(CmdOpcode::CREATE_XRQ, &input, outlen, Noun::Srq)?;
        Ok(create_xrq_out::XRQN.get32(&output))
    }

    fn make_xrc(
        &mut self,
        context: &SrqContext,
        xrc: &XrcSrq,
        umems: &mut Umems,
    ) -> Result<u32, HcaError> {
        let ring = self.ring(&context.region, &mut umems.memory)?;
        let record =
            self.reach(context.doorbell_record, RECORD, Purpose::Record, &mut umems.record)?;
        let mut input = vec![0; create_xrc_srq_in::SIZE];
        let srqc = create_xrc_srq_in::XRC_SRQ_CONTEXT_ENTRY.of_mut(&mut input);
        for (field, value) in [
            (xrc_srqc::LOG_XRC_SRQ_SIZE, context.log_entries.into()),
            (xrc_srqc::LOG_RQ_STRIDE, u64::from(context.stride_shift) - STRIDE_SHIFT),
            (xrc_srqc::XRCD, self.xrcd(xrc.xrcd)?.into()),
            (xrc_srqc::PAGE_OFFSET, ring.page_offset),
            (xrc_srqc::CQN, xrc.cq.0.into()),
            (xrc_srqc::USER_INDEX, xrc.user_index.into()),
            (xrc_srqc::PD, self.pd(context.pd)?.into()),
            (xrc_srqc::LWM, context.limit.into()),
            (xrc_srqc::DB_RECORD_ADDR_H, record >> 32),
            // The low half lacks the two lowest bits.
            (xrc_srqc::DB_RECORD_ADDR_L, (record & 0xffff_ffff) >> 2),
        ] {
            field.set(srqc, value);
        }
        input.extend(ring.pages);
        let outlen = create_xrc_srq_out::SIZE;
        let output = self.create(CmdOpcode::CREATE_XRC_SRQ, &input, outlen, Noun::Srq)?;
        Ok(create_xrc_srq_out::XRC_SRQN.get32(&output))
    }

    pub(super) fn arm_srq(&mut self, srqn: Srqn, limit: u16) -> Result<(), HcaError> {
        let object = (Noun::Srq, srqn.0);
        let done = match self.srq(srqn)? {
            Srq::Pool => {
                let mut input = vec![0; modify_rmp_in::SIZE];
                modify_rmp_in::RMP_STATE.set(&mut input, READY);
                modify_rmp_in::RMPN.set(&mut input, srqn.0.into());
                let mut changes = [0; rmp_bitmask::SIZE];
                rmp_bitmask::LWM.set(&mut changes, 1);
                modify_rmp_in::BITMASK.set(&mut input, u64::from_be_bytes(changes));
                let rmpc = modify_rmp_in::CTX.of_mut(&mut input);
                rmpc::STATE.set(rmpc, READY);
                wq::LWM.set(rmpc::WQ.of_mut(rmpc), limit.into());
                self.run(CmdOpcode::MODIFY_RMP, 0, &input, SHORT, object)
            }
            Srq::Xrc => {
                let mut input = [0; arm_xrc_srq_in::SIZE];
                arm_xrc_srq_in::XRC_SRQN.set(&mut input, srqn.0.into());
                arm_xrc_srq_in::LWM.set(&mut input, limit.into());
                self.run(CmdOpcode::ARM_XRC_SRQ, 1, &input, SHORT, object)
            }
            Srq::Tags => {
                let mut input = [0; arm_rq_in::SIZE];
                arm_rq_in::SRQ_NUMBER.set(&mut input, srqn.0.into());
                arm_rq_in::LWM.set(&mut input, limit.into());
                self.run(CmdOpcode::ARM_RQ, ARM_XRQ, &input, SHORT, object)
            }
        };
        done.map(drop)
    }

    pub(super) fn ask_srq(&self, srqn: Srqn) -> Result<u16, HcaError> {
        let object = (Noun::Srq, srqn.0);
        let mut input = [0; SHORT];
        let limit = match self.srq(srqn)? {
            Srq::Pool => {
                query_rmp_in::RMPN.set(&mut input, srqn.0.into());
                let outlen = query_rmp_out::SIZE;
                let output = self.run(CmdOpcode::QUERY_RMP, 0, &input, outlen, object)?;
                wq::LWM.get(rmpc::WQ.of(query_rmp_out::RMP_CONTEXT.of(&output)))
            }
            Srq::Xrc => {
                query_xrc_srq_in::XRC_SRQN.set(&mut input, srqn.0.into());
                let outlen = query_xrc_srq_out::SIZE;
                let output = self.run(CmdOpcode::QUERY_XRC_SRQ, 0, &input, outlen, object)?;
                xrc_srqc::LWM.get(query_xrc_srq_out::XRC_SRQ_CONTEXT_ENTRY.of(&output))
            }
            Srq::Tags => {
                query_xrq_in::XRQN.set(&mut input, srqn.0.into());
                let outlen = query_xrq_out::SIZE;
                let output = self.run(CmdOpcode::QUERY_XRQ, 0, &input, outlen, object)?;
                wq::LWM.get(xrqc::WQ.of(query_xrq_out::XRQ_CONTEXT.of(&output)))
            }
        };
        Ok(limit as u16)
    }

    pub(super) fn end_srq(&mut self, srqn: Srqn) -> Result<(), HcaError> {
        let (opcode, number) = match self.srq(srqn)? {
            Srq::Pool => (CmdOpcode::DESTROY_RMP, destroy_rmp_in::RMPN),
            Srq::Xrc => (CmdOpcode::DESTROY_XRC_SRQ, destroy_xrc_srq_in::XRC_SRQN),
            Srq::Tags => (CmdOpcode::DESTROY_XRQ, destroy_xrq_in::XRQN),
        };
        let object = (Noun::Srq, srqn.0);
        self.destroy(opcode, number, object)?;
        self.release_umems(object);
        self.srqs.remove(&srqn);
        Ok(())
    }
}
