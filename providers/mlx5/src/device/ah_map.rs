//! Mapping of an address to the path of a queue pair: a firmware object (rdma-core `verbs.c`,
//! `_mlx5dv_map_ah_to_qp`).
//!
//! # Safety
//!
//! The command contains numbers only.
#![allow(unsafe_code, reason = "sends a command of the device's")]

use uverbs_core::error::Error;
use uverbs_mlx5_prm::address::{GrhGidFl, StatRateSl, mlx5_wqe_av};
use uverbs_mlx5_prm::cmd::caps::cmd_hca_cap;
use uverbs_mlx5_prm::cmd::general::{
    AV_QP_MAPPING, AV_QP_MAPPING_IN, AV_QP_MAPPING_QPN, general_obj_in_cmd_hdr,
};
use uverbs_mlx5_prm::cmd::header;
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use zerocopy::{IntoBytes, transmute};

use crate::{Ah, Context, devx};

const VERB: &str = "map_ah_to_qp";
/// Size of the response in bytes.
const ANSWER: usize = 16;

impl Context {
    /// Routes messages to an address over the path of a peer's queue pair. Returns the handle of
    /// the mapping, an object of [`devx`].
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the device has no such mapping; the device's refusal.
    #[doc(alias = "mlx5dv_map_ah_to_qp")]
    pub fn map_ah_to_qp(&self, ah: &Ah, qpn: u32) -> Result<u32, Error> {
        let kinds = self.general_caps().map(|list| cmd_hca_cap::GENERAL_OBJ_TYPES.get(&list));
        if !kinds.is_ok_and(|kinds| kinds >> AV_QP_MAPPING & 1 != 0) {
            let what = "mapping an address to the path of a queue pair".to_owned();
            return Err(Error::Unsupported { verb: VERB, what });
        }
        let whole: mlx5_wqe_av = transmute!(*ah.template());
        // Not checked by the GRH bit, which is not set on Ethernet, where each address has a GID.
        if whole.rgid == [0; 16] {
            let what = "mapping an address without a GID".to_owned();
            return Err(Error::Unsupported { verb: VERB, what });
        }
        let gid = GrhGidFl(whole.grh_gid_fl.get()).src_addr_index();
        let vector = mlx5_wqe_av {
            stat_rate_sl: StatRateSl::ZERO.with_sl(StatRateSl(whole.stat_rate_sl).sl()).0,
            grh_gid_fl: GrhGidFl::ZERO.with_src_addr_index(gid).0.into(),
            rgid: whole.rgid,
            ..Default::default()
        };
        let (mut request, mut answer) = ([0; AV_QP_MAPPING_IN], [0; ANSWER]);
        header::cmd_in::OPCODE.set(&mut request, CmdOpcode::CREATE_GENERAL_OBJECT.0.into());
        general_obj_in_cmd_hdr::OBJ_TYPE.set(&mut request, AV_QP_MAPPING.into());
        AV_QP_MAPPING_QPN.set(&mut request, qpn.into());
        // The vector is at the end of the input.
        let at = AV_QP_MAPPING_IN - size_of::<mlx5_wqe_av>();
        request[at..].copy_from_slice(vector.as_bytes());
        // SAFETY: the command contains numbers only.
        let made = unsafe { devx::create(self.core.uverbs(), &request, &mut answer) };
        made.map_err(|error| Error::kernel(VERB, devx::told(error.to_errno(), &answer)))
    }
}
