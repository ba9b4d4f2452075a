//! Multicast groups (Linux `hw/mlx5/main.c`, `mlx5_ib_mcg_attach`).

use uverbs_mlx5_prm::cmd::mcast::{attach_to_mcg_in, detach_from_mcg_in};

use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};
use uverbs_front::backend::number::Qpn;

impl Firmware {
    pub(crate) fn attach(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let gid = gid(attach_to_mcg_in::MULTICAST_GID.of(call.input));
        let qpn = attach_to_mcg_in::QPN.get32(call.input);
        self.qps.check(call, qpn)?;
        Ok(self.hca.attach_mcast(Qpn(qpn), gid)?)
    }

    pub(crate) fn detach(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let gid = gid(detach_from_mcg_in::MULTICAST_GID.of(call.input));
        let qpn = detach_from_mcg_in::QPN.get32(call.input);
        self.qps.check(call, qpn)?;
        Ok(self.hca.detach_mcast(Qpn(qpn), gid)?)
    }
}

fn gid(bytes: &[u8]) -> [u8; 16] {
    bytes.try_into().unwrap_or_default()
}
