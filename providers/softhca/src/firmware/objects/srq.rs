//! Shared receive queues: receive memory pools for plain SRQs, XRC SRQs, and XRQs, which do tag
//! matching (Linux `hw/mlx5/srq_cmd.c`).

use uverbs_mlx5_prm::cmd::rq::{
    arm_rq_in, arm_xrc_srq_in, create_rmp_in, create_rmp_out, create_xrc_srq_in,
    create_xrc_srq_out, create_xrq_in, create_xrq_out, destroy_rmp_in, destroy_xrc_srq_in,
    destroy_xrq_in, modify_rmp_in, query_rmp_in, query_rmp_out, query_xrc_srq_in,
    query_xrc_srq_out, query_xrq_in, query_xrq_out, rmp_bitmask, rmpc,
    tag_matching_topology_context as tags_context, wq, xrc_srqc, xrqc,
};

use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};
use crate::firmware::base::rings::Pages;
use uverbs_front::backend::context::{SrqContext, TagSrq, XrcSrq};
use uverbs_front::backend::number::{Cqn, Pdn, Srqn};

/// Log2 of the unit of `log_rq_stride`, 16 bytes.
const STRIDE_SHIFT: u64 = 4;
/// Values of `topology` and `offload` in an XRQ (Linux `mlx5_ifc.h`, `MLX5_XRQC_*`).
const TAG_MATCHING: u64 = 1;
const RENDEZVOUS: u64 = 1;
/// `op_mod` of ARM_RQ (`MLX5_ARM_RQ_IN_OP_MOD_XRQ`).
const ARM_XRQ: u16 = 2;
/// Log2 of more entries than any device has. Keeps sizes from overflow.
const LOG_ABSURD: u64 = 20;

/// The driver's context.
#[derive(Debug)]
pub(crate) enum Srq {
    Rmp(Box<[u8; rmpc::SIZE]>),
    Xrc(Box<[u8; xrc_srqc::SIZE]>),
    Tags(Box<[u8; xrqc::SIZE]>),
}

/// Log2 of the entries, log2 of an entry's bytes, and total bytes.
fn size(log_entries: u64, stride_shift: u64) -> Result<(u8, u8, u64), Refusal> {
    if log_entries > LOG_ABSURD {
        return Err(Refusal::param("log of the size of a receive queue"));
    }
    Ok((log_entries as u8, stride_shift as u8, 1 << (log_entries + stride_shift)))
}

/// SRQ of a ring, without XRC and tag matching.
fn of_ring(ring: &[u8], pages: &Pages<'_>) -> Result<SrqContext, Refusal> {
    let (log_entries, stride_shift, bytes) =
        size(wq::LOG_WQ_SZ.get(ring), wq::LOG_WQ_STRIDE.get(ring))?;
    Ok(SrqContext {
        pd: Pdn(wq::PD.get32(ring)),
        region: pages.region(0, bytes)?,
        log_entries,
        stride_shift,
        doorbell_record: wq::DBR_ADDR.get(ring),
        limit: wq::LWM.get(ring) as u16,
        xrc: None,
        tags: None,
    })
}

impl Firmware {
    pub(crate) fn create_rmp(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let context = create_rmp_in::CTX.of(call.input);
        let ring = rmpc::WQ.of(context);
        let pages = Pages::of_wq(ring, call.input, create_rmp_in::SIZE);
        let srqn = self.create_srq(call, of_ring(ring, &pages)?)?;
        let mut kept = Box::new([0; rmpc::SIZE]);
        kept.copy_from_slice(context);
        self.srqs.insert(call, srqn, Srq::Rmp(kept));
        create_rmp_out::RMPN.set(call.output, srqn.into());
        Ok(())
    }

    pub(crate) fn create_xrc_srq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let context = create_xrc_srq_in::XRC_SRQ_CONTEXT_ENTRY.of(call.input);
        let pages = Pages {
            pas: create_xrc_srq_in::PAS.of(call.input),
            log_page_size: xrc_srqc::LOG_PAGE_SIZE.get(context),
            page_offset: xrc_srqc::PAGE_OFFSET.get(context),
        };
        let (log_entries, stride_shift, bytes) = size(
            xrc_srqc::LOG_XRC_SRQ_SIZE.get(context),
            xrc_srqc::LOG_RQ_STRIDE.get(context) + STRIDE_SHIFT,
        )?;
        let record_high = xrc_srqc::DB_RECORD_ADDR_H.get(context) << 32;
        let srqn = self.create_srq(
            call,
            SrqContext {
                pd: Pdn(xrc_srqc::PD.get32(context)),
                region: pages.region(0, bytes)?,
                log_entries,
                stride_shift,
                // The low half lacks the two lowest bits.
                doorbell_record: record_high | xrc_srqc::DB_RECORD_ADDR_L.get(context) << 2,
                limit: xrc_srqc::LWM.get(context) as u16,
                xrc: Some(XrcSrq {
                    xrcd: xrc_srqc::XRCD.get32(context),
                    cq: Cqn(xrc_srqc::CQN.get32(context)),
                    user_index: xrc_srqc::USER_INDEX.get32(context),
                    cqe_version: 1,
                }),
                tags: None,
            },
        )?;
        let mut kept = Box::new([0; xrc_srqc::SIZE]);
        kept.copy_from_slice(context);
        self.srqs.insert(call, srqn, Srq::Xrc(kept));
        create_xrc_srq_out::XRC_SRQN.set(call.output, srqn.into());
        Ok(())
    }

    /// CREATE_XRQ: creates a tag-matching SRQ, the only kind of XRQ here.
    pub(crate) fn create_xrq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let context = create_xrq_in::XRQ_CONTEXT.of(call.input);
        if xrqc::TOPOLOGY.get(context) != TAG_MATCHING {
            return Err(Refusal::param("topology"));
        }
        let ring = xrqc::WQ.of(context);
        let pages = Pages::of_wq(ring, call.input, create_xrq_in::SIZE);
        let tags = xrqc::TAG_MATCHING_TOPOLOGY_CONTEXT.of(context);
        let tags = TagSrq {
            cq: Cqn(xrqc::CQN.get32(context)),
            user_index: xrqc::USER_INDEX.get32(context),
            cqe_version: 1,
            log_tags: tags_context::LOG_MATCHING_LIST_SZ.get(tags) as u8,
            rendezvous: xrqc::OFFLOAD.get(context) == RENDEZVOUS,
        };
        let made = SrqContext { tags: Some(tags), ..of_ring(ring, &pages)? };
        let srqn = self.create_srq(call, made)?;
        let mut kept = Box::new([0; xrqc::SIZE]);
        kept.copy_from_slice(context);
        self.srqs.insert(call, srqn, Srq::Tags(kept));
        create_xrq_out::XRQN.set(call.output, srqn.into());
        Ok(())
    }

    pub(crate) fn destroy_xrq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let number = destroy_xrq_in::XRQN.get32(call.input);
        self.xrq(call, number)?;
        self.destroy_srq(call, number)
    }

    fn xrq(&self, call: &Call<'_>, number: u32) -> Result<&[u8; xrqc::SIZE], Refusal> {
        match self.srqs.get(call, number) {
            Ok(Srq::Tags(context)) => Ok(context),
            _ => Err(Refusal::resource("no such receive queue with tags")),
        }
    }

    /// ARM_RQ: sets the limit of a tag-matching SRQ; other SRQs have separate commands
    /// (`arm_xrq_cmd`).
    pub(crate) fn arm_rq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        if call.op_mod != ARM_XRQ {
            return Err(Refusal::param("op_mod"));
        }
        let number = arm_rq_in::SRQ_NUMBER.get32(call.input);
        self.xrq(call, number)?;
        Ok(self.hca.modify_srq(Srqn(number), arm_rq_in::LWM.get(call.input) as u16)?)
    }

    pub(crate) fn query_xrq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let number = query_xrq_in::XRQN.get32(call.input);
        let kept = self.xrq(call, number)?;
        let limit = self.hca.query_srq(Srqn(number))?;
        let (next, known, came) = self.hca.query_tags(Srqn(number))?;
        let out = query_xrq_out::XRQ_CONTEXT.of_mut(call.output);
        out.copy_from_slice(kept);
        wq::LWM.set(xrqc::WQ.of_mut(out), limit.into());
        let tags = xrqc::TAG_MATCHING_TOPOLOGY_CONTEXT.of_mut(out);
        tags_context::APPEND_NEXT_INDEX.set(tags, next.into());
        tags_context::SW_PHASE_CNT.set(tags, known.into());
        tags_context::HW_PHASE_CNT.set(tags, came.into());
        Ok(())
    }

    fn create_srq(&mut self, call: &Call<'_>, context: SrqContext) -> Result<u32, Refusal> {
        if !self.simple.has_pd(call, context.pd.0) {
            return Err(Refusal::resource("no such protection domain"));
        }
        let cq = context.xrc.map(|xrc| xrc.cq).or(context.tags.map(|tags| tags.cq));
        cq.map_or(Ok(()), |cq| self.cqs.check(call, cq.0))?;
        Ok(self.hca.create_srq(context)?.0)
    }

    pub(crate) fn destroy_rmp(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let number = destroy_rmp_in::RMPN.get32(call.input);
        self.rmp(call, number)?;
        self.destroy_srq(call, number)
    }

    pub(crate) fn destroy_xrc_srq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let number = destroy_xrc_srq_in::XRC_SRQN.get32(call.input);
        self.xrc_srq(call, number)?;
        self.destroy_srq(call, number)
    }

    fn destroy_srq(&mut self, call: &Call<'_>, number: u32) -> Result<(), Refusal> {
        self.hca.destroy_srq(Srqn(number))?;
        self.srqs.remove(call, number).map(drop)
    }

    /// Context of a pool.
    fn rmp(&self, call: &Call<'_>, number: u32) -> Result<&[u8; rmpc::SIZE], Refusal> {
        match self.srqs.get(call, number) {
            Ok(Srq::Rmp(context)) => Ok(context),
            _ => Err(Refusal::resource("no such receive memory pool")),
        }
    }

    fn xrc_srq(&self, call: &Call<'_>, number: u32) -> Result<&[u8; xrc_srqc::SIZE], Refusal> {
        match self.srqs.get(call, number) {
            Ok(Srq::Xrc(context)) => Ok(context),
            _ => Err(Refusal::resource("no such XRC receive queue")),
        }
    }

    /// MODIFY_RMP: sets the limit, the only state of a pool that changes (`arm_rmp_cmd`).
    pub(crate) fn modify_rmp(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let number = modify_rmp_in::RMPN.get32(call.input);
        self.rmp(call, number)?;
        let changes = modify_rmp_in::BITMASK.get(call.input).to_be_bytes();
        if rmp_bitmask::LWM.is_set(&changes) {
            let ring = rmpc::WQ.of(modify_rmp_in::CTX.of(call.input));
            self.hca.modify_srq(Srqn(number), wq::LWM.get(ring) as u16)?;
        }
        Ok(())
    }

    pub(crate) fn arm_xrc_srq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let number = arm_xrc_srq_in::XRC_SRQN.get32(call.input);
        self.xrc_srq(call, number)?;
        Ok(self.hca.modify_srq(Srqn(number), arm_xrc_srq_in::LWM.get(call.input) as u16)?)
    }

    pub(crate) fn query_rmp(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let number = query_rmp_in::RMPN.get32(call.input);
        let kept = self.rmp(call, number)?;
        let limit = self.hca.query_srq(Srqn(number))?;
        let out = query_rmp_out::RMP_CONTEXT.of_mut(call.output);
        out.copy_from_slice(kept);
        wq::LWM.set(rmpc::WQ.of_mut(out), limit.into());
        Ok(())
    }

    pub(crate) fn query_xrc_srq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let number = query_xrc_srq_in::XRC_SRQN.get32(call.input);
        let kept = self.xrc_srq(call, number)?;
        let limit = self.hca.query_srq(Srqn(number))?;
        let out = query_xrc_srq_out::XRC_SRQ_CONTEXT_ENTRY.of_mut(call.output);
        out.copy_from_slice(kept);
        xrc_srqc::LWM.set(out, limit.into());
        Ok(())
    }
}
