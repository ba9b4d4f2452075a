//! Membership in multicast groups.

use crate::hca::control::qp::no_qp;
use crate::hca::device::Hca;
use crate::wire::Address;
use uverbs_front::backend::context::Service;
use uverbs_front::backend::error::HcaError;
use uverbs_front::backend::number::Qpn;

impl Hca {
    /// Joins a datagram QP to a multicast group (ATTACH_TO_MCG). No effect if the QP is a member.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`]; [`HcaError::BadParam`] for a GID that is not multicast, or a QP of
    /// another service; [`HcaError::Limit`] over `max_mcast_qp`.
    pub(crate) fn attach_mcast(&mut self, qpn: Qpn, gid: [u8; 16]) -> Result<(), HcaError> {
        let qp = self.qps.get(&qpn).ok_or(no_qp(qpn))?;
        if qp.ctx.service != Service::Ud {
            return Err(HcaError::BadParam { what: "mcast.service", value: qpn.0.into() });
        }
        if !(Address { gid, lid: 0 }).is_group() {
            return Err(HcaError::BadParam { what: "mcast.gid", value: gid[0].into() });
        }
        let limit = self.common.config.max_mcast_qp;
        if self.groups.join(qpn, gid, limit)? {
            self.common.port.set_groups(self.groups.gids());
        }
        Ok(())
    }

    /// Removes a QP from a multicast group (DETACH_FROM_MCG).
    ///
    /// # Errors
    /// [`HcaError::BadHandle`]; [`HcaError::BadParam`] if the QP is not a member.
    pub(crate) fn detach_mcast(&mut self, qpn: Qpn, gid: [u8; 16]) -> Result<(), HcaError> {
        self.qps.get(&qpn).ok_or(no_qp(qpn))?;
        if !self.groups.leave(qpn, gid) {
            return Err(HcaError::BadParam { what: "mcast.gid", value: gid[0].into() });
        }
        self.common.port.set_groups(self.groups.gids());
        Ok(())
    }
}
