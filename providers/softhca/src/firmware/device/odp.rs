//! On-demand paging: PAGE_FAULT_RESUME (Linux `hw/mlx5/odp.c`).

use uverbs_mlx5_prm::cmd::mkey::{page_fault_resume_in, trans_page_fault_info};
use uverbs_mlx5_prm::eqe::EventType;

use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};
use crate::firmware::base::owner::User;

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
