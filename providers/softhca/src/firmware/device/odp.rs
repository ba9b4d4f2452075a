//! On-demand paging: capabilities of QUERY_HCA_CAP, and PAGE_FAULT_RESUME (Linux `core/main.c`,
//! `handle_hca_cap_odp`; `hw/mlx5/odp.c`). Page faults are reported by queue; the scheme that
//! reports them by memory is not offered.

use uverbs_mlx5_prm::cmd::Block;
use uverbs_mlx5_prm::cmd::caps::{
    odp_cap, odp_per_transport_service_cap as service, odp_scheme_cap,
};
use uverbs_mlx5_prm::cmd::mkey::{page_fault_resume_in, trans_page_fault_info};
use uverbs_mlx5_prm::eqe::EventType;

use crate::firmware::Firmware;
use crate::firmware::base::call::Call;
use crate::firmware::base::call::Refusal;
use crate::firmware::base::owner::User;

/// Capabilities: every operation of connections. A datagram's receive needs an SRQ, since the verbs
/// know no other receive for UD. A driver may enable the capabilities; they are always on.
pub(crate) fn capabilities(cap: &mut [u8]) {
    let scheme = odp_cap::TRANSPORT_PAGE_FAULT_SCHEME_CAP.of_mut(cap);
    let connected: [Block; 3] =
        [odp_scheme_cap::RC_ODP_CAPS, odp_scheme_cap::XRC_ODP_CAPS, odp_scheme_cap::DC_ODP_CAPS];
    for block in connected {
        let cap = block.of_mut(scheme);
        for able in [
            service::SEND,
            service::RECEIVE,
            service::WRITE,
            service::READ,
            service::ATOMIC,
            service::SRQ_RECEIVE,
        ] {
            able.set(cap, 1);
        }
    }
    let datagrams = odp_scheme_cap::UD_ODP_CAPS.of_mut(scheme);
    service::SEND.set(datagrams, 1);
    service::SRQ_RECEIVE.set(datagrams, 1);
}

impl Firmware {
    /// PAGE_FAULT_RESUME. The token alone identifies the page fault, so a user could end other
    /// users' waits: only the driver may send it.
    pub(crate) fn page_fault_resume(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        if User::of(call) != User::DRIVER {
            return Err(Refusal::resource("page faults are the driver's"));
        }
        let info = page_fault_resume_in::PAGE_FAULT_INFO.of(call.input);
        let token = trans_page_fault_info::FAULT_TOKEN.get32(info);
        self.hca.resume(token, trans_page_fault_info::ERROR.is_set(info)).map_err(Refusal::from)
    }

    /// Enables page faults while an event queue takes them.
    pub(crate) fn note_page_fault_queue(&mut self) {
        let takes = self.eqs.of(EventType::PAGE_FAULT).is_some();
        self.hca.tell_page_faults(takes);
    }
}
