//! The port as InfiniBand virtualization presents it (Linux `core/vport.c`).

use uverbs_mlx5_prm::cmd::vport::{
    hca_vport_context, modify_hca_vport_context_in, query_hca_vport_context_out,
    query_hca_vport_gid_in, query_hca_vport_gid_out, query_hca_vport_pkey_in,
    query_hca_vport_pkey_out, query_vport_state_out,
};

use crate::board::capabilities::{LINK_UP, MANAGER_LID, PORT_ACTIVE};
use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};

/// State of a virtual port: up.
const UP: u64 = 1;
/// IBTA PortInfo CapabilityMask: system image GUID, communication management, client
/// reregistration.
pub(crate) const CAPABILITIES: u64 = 1 << 11 | 1 << 16 | 1 << 25;
/// Capability bit of communication management, which the driver sets when `ib_cm` is loaded (Linux
/// `cm_add_one`, `mlx5_ib_modify_port`).
const CHANGEABLE: u64 = 1 << 16;
/// P_Key or GID index that means the whole table.
const WHOLE: u64 = 0xffff;

impl Firmware {
    pub(crate) fn query_vport(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        use hca_vport_context::*;
        let out = query_hca_vport_context_out::HCA_VPORT_CONTEXT.of_mut(call.output);
        PORT_PHYSICAL_STATE.set(out, LINK_UP.into());
        PORT_STATE.set(out, PORT_ACTIVE.into());
        VPORT_STATE.set(out, PORT_ACTIVE.into());
        for guid in [SYSTEM_IMAGE_GUID, PORT_GUID, NODE_GUID] {
            guid.set(out, self.profile.guid);
        }
        CAP_MASK1.set(out, CAPABILITIES);
        CAP_MASK1_FIELD_SELECT.set(out, CHANGEABLE);
        LID.set(out, self.profile.lid.into());
        SM_LID.set(out, MANAGER_LID.into());
        Ok(())
    }

    /// Accepts the changes that a driver may make, and ignores them: only a subnet manager would
    /// read them.
    pub(crate) fn modify_vport(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        use hca_vport_context::*;
        let context = modify_hca_vport_context_in::HCA_VPORT_CONTEXT.of(call.input);
        if FIELD_SELECT.get(context) != 0 {
            return Err(Refusal::param("state and identity are the port's own"));
        }
        if CAP_MASK1_FIELD_SELECT.get(context) & !CHANGEABLE != 0 {
            return Err(Refusal::param("a capability that can't be changed"));
        }
        Ok(())
    }

    pub(crate) fn query_vport_state(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        query_vport_state_out::ADMIN_STATE.set(call.output, UP);
        query_vport_state_out::STATE.set(call.output, UP);
        Ok(())
    }

    pub(crate) fn query_vport_gid(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let len = self.profile.hca.gid_table_len() as usize;
        let gid = |index: usize| self.profile.gids.get(index).map_or([0; 16], |gid| gid.gid);
        let range = range(query_hca_vport_gid_in::GID_INDEX.get(call.input), len)?;
        let count = range.len() as u64;
        let out = query_hca_vport_gid_out::GID.of_mut(call.output);
        if out.len() < 16 * range.len() {
            return Err(Refusal::param("no room for the table"));
        }
        for (slot, index) in out.chunks_exact_mut(16).zip(range) {
            slot.copy_from_slice(&gid(index));
        }
        query_hca_vport_gid_out::GIDS_NUM.set(call.output, count);
        Ok(())
    }

    pub(crate) fn query_vport_pkey(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let len = usize::from(self.profile.hca.pkey_table_len());
        let range = range(query_hca_vport_pkey_in::PKEY_INDEX.get(call.input), len)?;
        let out = query_hca_vport_pkey_out::PKEY.of_mut(call.output);
        if out.len() < 4 * range.len() {
            return Err(Refusal::param("no room for the table"));
        }
        // Each P_Key is in the low half of a word (`mlx5_ifc_pkey_bits`).
        for (slot, index) in out.chunks_exact_mut(4).zip(range) {
            slot.copy_from_slice(&u32::from(self.profile.pkey(index as u16)).to_be_bytes());
        }
        Ok(())
    }
}

fn range(index: u64, len: usize) -> Result<std::ops::Range<usize>, Refusal> {
    match index {
        WHOLE => Ok(0..len),
        index if (index as usize) < len => Ok(index as usize..index as usize + 1),
        _ => Err(Refusal::new(
            uverbs_mlx5_prm::cmd::opcode::CmdStatus::IX_ERR,
            "beyond the end of the table",
        )),
    }
}
