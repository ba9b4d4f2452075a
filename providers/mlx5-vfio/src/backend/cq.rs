//! Completion queues (PRM "Completion Queue Context"; Linux `hw/mlx5/cq.c`).

use uverbs_mlx5_prm::cmd::cq::{
    RESIZE_CQ, RESIZE_FIELDS, cqc, create_cq_in, create_cq_out, destroy_cq_in, modify, modify_cq_in,
};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;

use super::memory::Ring;
use super::umem::Umems;
use super::{Firmware, SHORT};
use crate::dma::{Buffer, PAGE};
use crate::transport::Purpose;
use uverbs_front::backend::context::{CqContext, MiniCqe, Moderation};
use uverbs_front::backend::error::{HcaError, Noun};
use uverbs_front::backend::number::{Cqn, UarNumber};
use uverbs_front::backend::region::Region;

/// Bytes of a doorbell record: consumer index and arming.
const RECORD: u64 = 8;
/// Changes of MODIFY_CQ for moderation.
const MODERATION: u64 = modify::PERIOD | modify::COUNT | modify::PERIOD_MODE;

/// A completion queue.
#[derive(Debug)]
pub(super) struct Cq {
    pub(super) cqe_size: u32,
    /// Memory of a queue that the front itself has.
    _own: Option<Buffer>,
}

/// Code of a CQE's size.
fn size_code(cqe_size: u32, padded: bool) -> u64 {
    match (cqe_size, padded) {
        (128, true) => 2,
        (128, false) => 1,
        _ => 0,
    }
}

impl Firmware {
    pub(super) fn cq(&self, cqn: Cqn) -> Result<&Cq, HcaError> {
        let missing = HcaError::BadHandle { noun: Noun::Cq, number: cqn.0 };
        self.cqs.get(&cqn).ok_or(missing)
    }

    pub(super) fn make_cq(&mut self, context: &CqContext) -> Result<Cqn, HcaError> {
        let made = self.with_umems(Noun::Cq, |firmware, umems| firmware.build_cq(context, umems));
        let (number, own) = made?;
        self.cqs.insert(Cqn(number), Cq { cqe_size: context.cqe_size, _own: own });
        Ok(Cqn(number))
    }

    fn build_cq(
        &self,
        context: &CqContext,
        umems: &mut Umems,
    ) -> Result<(u32, Option<Buffer>), HcaError> {
        // The front's own queue has no doorbell page, and is never read.
        let own = match context.uar == UarNumber::default() {
            true => Some(self.function.buffer(2 * PAGE)),
            false => None,
        };
        let own = own.transpose().map_err(|error| self.refusal(&error, (Noun::Cq, 0)))?;
        let (ring, record) = match &own {
            Some(own) => {
                let pages = own.iova().to_be_bytes().to_vec();
                (Ring { pages, page_offset: 0 }, own.iova() + PAGE as u64)
            }
            None => (
                self.ring(&context.region, &mut umems.memory)?,
                self.reach(context.doorbell_record, RECORD, Purpose::Record, &mut umems.record)?,
            ),
        };
        let mut input = vec![0; create_cq_in::SIZE];
        let cqc = create_cq_in::CQ_CONTEXT.of_mut(&mut input);
        for (field, value) in [
            (cqc::CQE_SZ, size_code(context.cqe_size, context.padded)),
            (cqc::LOG_CQ_SIZE, context.log_entries.into()),
            (cqc::OI, context.overrun_ignore.into()),
            (cqc::CQE_COMP_EN, context.compressed.is_some().into()),
            (cqc::MINI_CQE_RES_FORMAT, (context.compressed == Some(MiniCqe::Checksum)).into()),
            (cqc::PAGE_OFFSET, ring.page_offset),
            (cqc::UAR_PAGE, self.uar(context.uar).into()),
            (cqc::C_EQN_OR_APU_ELEMENT, self.function.eqn().into()),
            (cqc::DBR_ADDR, record),
        ] {
            field.set(cqc, value);
        }
        input.extend(ring.pages);
        let outlen = create_cq_out::SIZE;
        let output = self.create(CmdOpcode::CREATE_CQ, &input, outlen, Noun::Cq)?;
        Ok((create_cq_out::CQN.get32(&output), own))
    }

    pub(super) fn move_cq(
        &mut self,
        cqn: Cqn,
        region: &Region,
        log_entries: u8,
        cqe_size: u32,
    ) -> Result<(), HcaError> {
        self.cq(cqn)?;
        let object = (Noun::Cq, cqn.0);
        self.moving(object, |firmware, umem| {
            let ring = firmware.ring(region, umem)?;
            let mut input = vec![0; modify_cq_in::SIZE];
            modify_cq_in::CQN.set(&mut input, cqn.0.into());
            modify_cq_in::MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT.set(&mut input, RESIZE_FIELDS);
            let cqc = modify_cq_in::CQ_CONTEXT.of_mut(&mut input);
            cqc::CQE_SZ.set(cqc, size_code(cqe_size, false));
            cqc::LOG_CQ_SIZE.set(cqc, log_entries.into());
            cqc::PAGE_OFFSET.set(cqc, ring.page_offset);
            input.extend(ring.pages);
            firmware.run(CmdOpcode::MODIFY_CQ, RESIZE_CQ, &input, SHORT, object).map(drop)
        })?;
        if let Some(cq) = self.cqs.get_mut(&cqn) {
            cq.cqe_size = cqe_size;
        }
        Ok(())
    }

    pub(super) fn set_moderation(
        &mut self,
        cqn: Cqn,
        moderation: Moderation,
    ) -> Result<(), HcaError> {
        let mut input = vec![0; modify_cq_in::SIZE];
        modify_cq_in::CQN.set(&mut input, cqn.0.into());
        modify_cq_in::MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT.set(&mut input, MODERATION);
        let cqc = modify_cq_in::CQ_CONTEXT.of_mut(&mut input);
        cqc::CQ_PERIOD.set(cqc, moderation.period.as_micros() as u64);
        cqc::CQ_MAX_COUNT.set(cqc, moderation.count.into());
        cqc::CQ_PERIOD_MODE.set(cqc, moderation.from_completion.into());
        self.run(CmdOpcode::MODIFY_CQ, 0, &input, SHORT, (Noun::Cq, cqn.0)).map(drop)
    }

    pub(super) fn end_cq(&mut self, cqn: Cqn) -> Result<(), HcaError> {
        self.cq(cqn)?;
        let object = (Noun::Cq, cqn.0);
        self.destroy(CmdOpcode::DESTROY_CQ, destroy_cq_in::CQN, object)?;
        self.release_umems(object);
        self.cqs.remove(&cqn);
        Ok(())
    }
}
