//! Completion queues.

use crate::hca::device::Hca;
use crate::hca::engine::completion::cqe;
use crate::hca::state::common::Common;
use uverbs_front::backend::context::{CqContext, Moderation};
use uverbs_front::backend::error::{HcaError, HcaEvent};
use uverbs_front::backend::number::Cqn;
use uverbs_front::backend::region::Region;

impl Hca {
    /// Creates a CQ. Returns the CQN, from 1.
    ///
    /// # Errors
    /// [`HcaError::Limit`] over `max_cq` or `log_max_cqes`; [`HcaError::BadParam`] for a ring
    /// that does not fit its region, or a misaligned doorbell record.
    pub(crate) fn create_cq(&mut self, ctx: CqContext) -> Result<Cqn, HcaError> {
        let Common { config, cqs, dma, .. } = &mut self.common;
        cqs.create(&**dma, ctx, config.max_cq, config.log_max_cqes)
    }

    /// Moves a CQ to another ring. The last CQE in the old ring is a RESIZE_CQ; the counters
    /// continue in the new ring (rdma-core cq.c, `mlx5_cq_resize_copy_cqes`).
    ///
    /// # Errors
    /// As [`Hca::create_cq`], and [`HcaError::BadHandle`]; [`HcaError::Limit`] if the unconsumed
    /// CQEs and the RESIZE_CQ do not fit the old ring or the new one.
    pub(crate) fn resize_cq(
        &mut self,
        cqn: Cqn,
        region: Region,
        log_entries: u8,
        cqe_size: u32,
    ) -> Result<(), HcaError> {
        self.complete_rung(cqn);
        let log_max = self.common.config.log_max_cqes;
        let old = self.common.cqs.get(cqn)?.ctx.clone();
        let ctx = CqContext { region, log_entries, cqe_size, ..old };
        self.common.cqs.check_resize(&*self.common.dma, cqn, &ctx, log_max)?;
        cqe::resized(&mut self.common, cqn);
        self.common.cqs.get_mut(cqn)?.ctx = ctx;
        Ok(())
    }

    /// Completes the sends into a CQ that were rung before a command and need no answer of a peer:
    /// a device with the doorbells is done with them before the command arrives.
    fn complete_rung(&mut self, cqn: Cqn) {
        let unreliable = self.qps.values().filter(|qp| !qp.ctx.service.is_reliable());
        let users = unreliable.filter(|qp| qp.ctx.send_cq == cqn).map(|qp| qp.qpn);
        for qpn in users.collect::<Vec<_>>() {
            self.look_at_own(qpn);
            self.send_rung(qpn);
            // For the flush after a failed send, and for what the wire had no room for.
            self.enqueue(qpn);
            self.settle(qpn);
        }
    }

    /// Bytes of a CQE slot: 64 or 128.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`].
    pub(crate) fn cqe_size(&self, cqn: Cqn) -> Result<u32, HcaError> {
        Ok(self.common.cqs.get(cqn)?.ctx.cqe_size)
    }

    /// CQEs written to a CQ, modulo 2^32; 0 of an unknown one.
    pub(crate) fn produced(&self, cqn: Cqn) -> u32 {
        self.common.cqs.get(cqn).map_or(0, |cq| cq.produced())
    }

    /// Sets the event moderation of a CQ.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`].
    pub(crate) fn moderate_cq(&mut self, cqn: Cqn, moderation: Moderation) -> Result<(), HcaError> {
        self.common.cqs.moderate(cqn, moderation)
    }

    /// Destroys a CQ.
    ///
    /// # Errors
    /// [`HcaError::Busy`] while a QP uses it; [`HcaError::BadHandle`].
    pub(crate) fn destroy_cq(&mut self, cqn: Cqn) -> Result<(), HcaError> {
        self.common.cqs.destroy(cqn)?;
        self.common.events.forget(|event| {
            matches!(*event, HcaEvent::CqCompletion { cqn: n } | HcaEvent::CqError { cqn: n }
                if n == cqn)
        });
        Ok(())
    }
}
