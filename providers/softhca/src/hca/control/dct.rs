//! Targets of dynamic connections.

use crate::hca::device::Hca;
use uverbs_front::backend::context::{DctContext, DctState};
use uverbs_front::backend::error::HcaError;
use uverbs_front::backend::number::Qpn;

impl Hca {
    /// Creates a target of dynamic connections, which takes messages at once. Returns the DCTN, a
    /// QPN.
    ///
    /// # Errors
    /// [`HcaError::Limit`] over `max_qp`; [`HcaError::BadHandle`] for a CQ or SRQ that does not
    /// exist; [`HcaError::BadParam`] for a P_Key index or MTU that the port lacks.
    pub(crate) fn create_dct(&mut self, ctx: DctContext) -> Result<Qpn, HcaError> {
        self.check_room()?;
        let dctn = self.free_qpn();
        self.targets.create(dctn, ctx, &mut self.common)?;
        Ok(dctn)
    }

    /// Stops a target: it takes no more messages (DRAIN_DCT).
    /// [`HcaEvent::DctDrained`](crate::hca::HcaEvent::DctDrained) reports that all answers are
    /// sent.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`]; [`HcaError::DctState`] if the target was drained before.
    pub(crate) fn drain_dct(&mut self, dctn: Qpn) -> Result<(), HcaError> {
        self.targets.drain(dctn, &mut self.common)?;
        self.enqueue(dctn);
        Ok(())
    }

    /// Destroys a target that is drained.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`]; [`HcaError::DctState`] if it is not drained.
    pub(crate) fn destroy_dct(&mut self, dctn: Qpn) -> Result<(), HcaError> {
        self.targets.destroy(dctn, &mut self.common)?;
        self.unschedule(dctn, None, true);
        Ok(())
    }

    /// Stops and destroys a target at once: its connections end, and waiting answers are dropped.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`].
    pub(crate) fn abandon_dct(&mut self, dctn: Qpn) -> Result<(), HcaError> {
        if self.targets.query(dctn)?.0 == DctState::Active {
            self.targets.drain(dctn, &mut self.common)?;
        }
        let dct = self.targets.get_mut(dctn)?;
        dct.connections.clear();
        dct.ready.clear();
        dct.state = DctState::Drained;
        self.destroy_dct(dctn)
    }

    /// State of a target, and the number of packets with a wrong DC key.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`].
    pub(crate) fn query_dct(&self, dctn: Qpn) -> Result<(DctState, u32), HcaError> {
        self.targets.query(dctn)
    }

    /// Requests one [`HcaEvent::DctKeyViolation`](crate::hca::HcaEvent::DctKeyViolation)
    /// (ARM_DCT_FOR_KEY_VIOLATION).
    ///
    /// # Errors
    /// [`HcaError::BadHandle`].
    pub(crate) fn arm_dct(&mut self, dctn: Qpn) -> Result<(), HcaError> {
        self.targets.arm(dctn)
    }
}
