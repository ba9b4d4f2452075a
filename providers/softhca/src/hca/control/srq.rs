//! Shared receive queues.

use crate::hca::device::Hca;
use crate::hca::state::common::Common;
use crate::hca::state::receive::Source;
use uverbs_front::backend::context::{Service, SrqContext};
use uverbs_front::backend::error::{HcaError, HcaEvent};
use uverbs_front::backend::number::Srqn;

impl Hca {
    /// Creates an SRQ. Returns the SRQN, from 1.
    ///
    /// # Errors
    /// [`HcaError::Limit`] over `max_srq` or `log_max_rq_entries`; [`HcaError::BadHandle`] for an
    /// XRC SRQ's CQ that does not exist; [`HcaError::BadParam`] for a ring that does not fit its
    /// region.
    pub(crate) fn create_srq(&mut self, ctx: SrqContext) -> Result<Srqn, HcaError> {
        let Common { srqs, config, cqs, .. } = &mut self.common;
        srqs.create(ctx, config, cqs)
    }

    /// Sets the limit of an SRQ; see [`SrqContext::limit`]. 0 disarms it.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`]; [`HcaError::BadParam`] for a limit above the number of WQEs.
    pub(crate) fn modify_srq(&mut self, srqn: Srqn, limit: u16) -> Result<(), HcaError> {
        let srq = self.common.srqs.get_mut(srqn)?;
        if u32::from(limit) > 1 << srq.ctx.log_entries {
            return Err(HcaError::BadParam { what: "srq.limit", value: limit.into() });
        }
        srq.ctx.limit = limit;
        Ok(())
    }

    /// Limit of an SRQ; 0 if it is not armed.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`].
    pub(crate) fn query_srq(&self, srqn: Srqn) -> Result<u16, HcaError> {
        Ok(self.common.srqs.get(srqn)?.ctx.limit)
    }

    /// State of a tag-matching SRQ: index of the next tag, and the counts of unexpected messages by
    /// software and by the device. Zeros for another SRQ.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`].
    pub(crate) fn query_tags(&self, srqn: Srqn) -> Result<(u16, u16, u16), HcaError> {
        let tags = &self.common.srqs.get(srqn)?.tags;
        Ok(tags.as_ref().map_or((0, 0, 0), |tags| tags.counters()))
    }

    /// Destroys an SRQ. The rest of an XRC message in progress into one of its receives is refused,
    /// as a message without start.
    ///
    /// # Errors
    /// [`HcaError::Busy`] while a QP uses it; [`HcaError::BadHandle`].
    pub(crate) fn destroy_srq(&mut self, srqn: Srqn) -> Result<(), HcaError> {
        let Common { srqs, cqs, events, .. } = &mut self.common;
        srqs.destroy(srqn, cqs)?;
        for qp in self.qps.values_mut().filter(|qp| qp.ctx.service == Service::Xrc) {
            qp.responder.forget_receive(Source::Shared(srqn));
        }
        events.forget(|event| {
            matches!(*event, HcaEvent::SrqLimit { srqn: n } | HcaEvent::SrqError { srqn: n }
                if n == srqn)
        });
        Ok(())
    }
}
