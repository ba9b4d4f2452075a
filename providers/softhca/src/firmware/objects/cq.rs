//! Completion queues (PRM "Completion Queue Context"; Linux `core/cq.c`, `hw/mlx5/cq.c`).

use std::time::Duration;

use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::cq::{
    RESIZE_CQ, cqc, create_cq_in, create_cq_out, destroy_cq_in, modify, modify_cq_in, query_cq_in,
    query_cq_out,
};
use uverbs_mlx5_prm::cmd::opcode::CmdStatus;
use uverbs_mlx5_prm::cmd::umem::{CQ_UMEM_ID, CQ_UMEM_OFFSET, CQC_DBR_UMEM_ID};

use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};
use crate::firmware::base::rings::{Pages, RingMemory};
use uverbs_front::backend::context::{CqContext, MiniCqe, Moderation};
use uverbs_front::backend::error::HcaError;
use uverbs_front::backend::number::{Cqn, UarNumber};
use uverbs_front::backend::region::Region;

/// Bits of `field_select` in MODIFY_CQ, and the field of each.
const MODERATION: [(u64, Field); 3] = [
    (modify::PERIOD, cqc::CQ_PERIOD),
    (modify::COUNT, cqc::CQ_MAX_COUNT),
    (modify::PERIOD_MODE, cqc::CQ_PERIOD_MODE),
];
/// `cq_period_mode`: 1 starts the period at each completion (`MLX5_CQ_PERIOD_MODE_START_FROM_CQE`),
/// 0 at each event.
const FROM_COMPLETION: u64 = 1;
/// `cqe_sz` of CQE slots of 128 bytes that are written whole (Linux `include/linux/mlx5/cq.h`,
/// `CQE_STRIDE_128_PAD`).
const CQE_128_PADDED: u64 = 2;
/// Values of `mini_cqe_res_format` (Linux `include/linux/mlx5/device.h`, `MLX5_CQE_FORMAT_*`).
const HASH: u64 = 0;
const CHECKSUM: u64 = 1;
/// Log2 of more entries than any device has. Keeps sizes from overflow.
const LOG_ABSURD: u64 = 28;

#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) eqn: u32,
    /// Umems of the ring and of the doorbell record.
    pub(crate) umems: [Option<u32>; 2],
    context: [u8; cqc::SIZE],
}

/// Page list at the end of a command.
fn pages<'a>(context: &[u8], pas: &'a [u8]) -> RingMemory<'a> {
    RingMemory::Pages(Pages {
        pas,
        log_page_size: cqc::LOG_PAGE_SIZE.get(context),
        page_offset: cqc::PAGE_OFFSET.get(context),
    })
}

/// Log2 of the CQEs, bytes of a CQE slot, and memory of the ring.
fn ring(context: &[u8], place: RingMemory<'_>) -> Result<(u8, u32, Region), Refusal> {
    let cqe_size = match cqc::CQE_SZ.get(context) {
        0 => 64,
        1 | CQE_128_PADDED => 128,
        _ => return Err(Refusal::param("cqe_sz")),
    };
    let log_entries = cqc::LOG_CQ_SIZE.get(context);
    if log_entries > LOG_ABSURD {
        return Err(Refusal::param("log_cq_size"));
    }
    let region = place.region(0, u64::from(cqe_size) << log_entries)?;
    Ok((log_entries as u8, cqe_size, region))
}

/// Mini CQEs of the queue; `None`: CQEs are never compressed. softhca lacks striding receive
/// queues.
fn compressed(context: &[u8]) -> Result<Option<MiniCqe>, Refusal> {
    match (cqc::CQE_COMP_EN.is_set(context), cqc::MINI_CQE_RES_FORMAT.get(context)) {
        (false, _) => Ok(None),
        (true, HASH) => Ok(Some(MiniCqe::Hash)),
        (true, CHECKSUM) => Ok(Some(MiniCqe::Checksum)),
        (true, _) => Err(Refusal::param("mini_cqe_res_format")),
    }
}

fn moderation(context: &[u8]) -> Result<Moderation, Refusal> {
    let from_completion = match cqc::CQ_PERIOD_MODE.get(context) {
        0 => false,
        FROM_COMPLETION => true,
        _ => return Err(Refusal::param("cq_period_mode")),
    };
    Ok(Moderation {
        period: Duration::from_micros(cqc::CQ_PERIOD.get(context)),
        count: cqc::CQ_MAX_COUNT.get(context) as u16,
        from_completion,
        solicited_breaks: cqc::SCQE_BREAK_MODERATION_EN.is_set(context),
    })
}

impl Firmware {
    pub(crate) fn create_cq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let context = create_cq_in::CQ_CONTEXT.of(call.input);
        let umem = create_cq_in::CQ_UMEM_VALID.is_set(call.input);
        let umem = umem.then(|| CQ_UMEM_ID.get32(call.input));
        let place = match umem {
            Some(id) => {
                RingMemory::Umem(self.writable_umem(call, id)?, CQ_UMEM_OFFSET.get(call.input))
            }
            None => pages(context, create_cq_in::PAS.of(call.input)),
        };
        let (log_entries, cqe_size, region) = ring(context, place)?;
        let record_umem = cqc::DBR_UMEM_VALID.is_set(context);
        let record_umem = record_umem.then(|| CQC_DBR_UMEM_ID.get32(context));
        let uar = cqc::UAR_PAGE.get32(context);
        if !self.simple.has_uar(call, uar) {
            return Err(Refusal::resource("no such doorbell page"));
        }
        let eqn = cqc::C_EQN_OR_APU_ELEMENT.get32(context);
        if !self.eqs.has(call, eqn) {
            return Err(Refusal::resource("no such event queue"));
        }
        let moderation = moderation(context)?;
        let mut cq = Cq { eqn, umems: [umem, record_umem], context: [0; cqc::SIZE] };
        cq.context.copy_from_slice(context);
        let cqn = self.hca.create_cq(CqContext {
            region,
            log_entries,
            cqe_size,
            doorbell_record: self.record(call, [umem, record_umem], cqc::DBR_ADDR.get(context))?,
            uar: UarNumber(uar),
            overrun_ignore: cqc::OI.is_set(context),
            padded: cqc::CQE_SZ.get(context) == CQE_128_PADDED,
            compressed: compressed(context)?,
        })?;
        self.hca.moderate_cq(cqn, moderation)?;
        self.cqs.insert(call, cqn.0, cq);
        create_cq_out::CQN.set(call.output, cqn.0.into());
        Ok(())
    }

    pub(crate) fn destroy_cq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let cqn = destroy_cq_in::CQN.get32(call.input);
        self.cqs.get(call, cqn)?;
        self.hca.destroy_cq(Cqn(cqn))?;
        self.cqs.remove(call, cqn).map(drop)
    }

    pub(crate) fn query_cq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let cqn = query_cq_in::CQN.get32(call.input);
        let cq = self.cqs.get(call, cqn)?;
        query_cq_out::CQ_CONTEXT.of_mut(call.output).copy_from_slice(&cq.context);
        Ok(())
    }

    pub(crate) fn modify_cq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let cqn = modify_cq_in::CQN.get32(call.input);
        let cq = self.cqs.get_mut(call, cqn)?;
        let context = modify_cq_in::CQ_CONTEXT.of(call.input);
        if call.op_mod != RESIZE_CQ {
            let select = modify_cq_in::MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT.get(call.input);
            if MODERATION.iter().fold(select, |left, (bit, _)| left & !bit) != 0 {
                return Err(Refusal::param("can't be changed"));
            }
            let mut changed = cq.context;
            for (_, field) in MODERATION.iter().filter(|(bit, _)| select & bit != 0) {
                field.set(&mut changed, field.get(context));
            }
            self.hca.moderate_cq(Cqn(cqn), moderation(&changed)?)?;
            cq.context = changed;
            return Ok(());
        }
        let place = pages(context, modify_cq_in::PAS.of(call.input));
        let (log_entries, cqe_size, region) = ring(context, place)?;
        let resized = self.hca.resize_cq(Cqn(cqn), region, log_entries, cqe_size);
        resized.map_err(|error| match error {
            HcaError::Limit { what: "free CQEs", .. } => {
                Refusal::new(CmdStatus::BAD_SIZE_OUTS_CQES_ERR, "completions outstanding don't fit")
            }
            other => other.into(),
        })?;
        // The new ring is a page list.
        cq.umems[0] = None;
        for field in [cqc::CQE_SZ, cqc::LOG_CQ_SIZE, cqc::LOG_PAGE_SIZE, cqc::PAGE_OFFSET] {
            field.set(&mut cq.context, field.get(context));
        }
        Ok(())
    }
}
