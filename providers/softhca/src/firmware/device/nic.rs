//! The Ethernet port (MAC, MTU), and RoCE's GID table (Linux `core/vport.c`, `core/lib/gid.c`).

use uverbs_mlx5_prm::cmd::nic::{
    mac_address_layout, modify_nic_vport_context_in, modify_nic_vport_field_select,
    nic_vport_context, query_nic_vport_context_out, roce_addr_layout, set_roce_address_in,
};

use crate::board::profile::{Gid, GidType};
use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};
use crate::hca::ethernet::Loopback;

/// `roce_version` of a GID entry: 2 is RoCE over UDP (`MLX5_ROCE_VERSION_*`).
const ROCE_V2: u64 = 2;

/// Settings of the driver.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Nic {
    roce: bool,
    loopback: Loopback,
    /// Maximum bytes of a frame, as in PMTU and in the port's context; 0 before the driver sets it.
    pub(crate) mtu: u64,
}

impl Firmware {
    pub(crate) fn query_nic_vport(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        use nic_vport_context::*;
        let out = query_nic_vport_context_out::NIC_VPORT_CONTEXT.of_mut(call.output);
        ROCE_EN.set(out, self.nic.roce.into());
        DISABLE_UC_LOCAL_LB.set(out, self.nic.loopback.blocks_unicast.into());
        DISABLE_MC_LOCAL_LB.set(out, self.nic.loopback.blocks_multicast.into());
        MTU.set(out, self.nic.mtu);
        for guid in [SYSTEM_IMAGE_GUID, PORT_GUID, NODE_GUID] {
            guid.set(out, self.profile.guid);
        }
        // Converts EUI-64 back to EUI-48 (RFC 4291 appendix A).
        let [a, b, c, _, _, d, e, f] = self.profile.guid.to_be_bytes();
        let high = u16::from_be_bytes([a ^ 2, b]);
        let low = u32::from_be_bytes([c, d, e, f]);
        let mut mac = [0; mac_address_layout::SIZE];
        mac_address_layout::MAC_ADDR_47_32.set(&mut mac, high.into());
        mac_address_layout::MAC_ADDR_31_0.set(&mut mac, low.into());
        PERMANENT_ADDRESS.set(out, u64::from_be_bytes(mac));
        Ok(())
    }

    pub(crate) fn modify_nic_vport(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let select = modify_nic_vport_context_in::FIELD_SELECT.get32(call.input).to_be_bytes();
        let context = modify_nic_vport_context_in::NIC_VPORT_CONTEXT.of(call.input);
        if modify_nic_vport_field_select::ROCE_EN.is_set(&select) {
            self.nic.roce = nic_vport_context::ROCE_EN.is_set(context);
        }
        if modify_nic_vport_field_select::MTU.is_set(&select) {
            self.set_frame_size(nic_vport_context::MTU.get(context));
        }
        // Raw frames alone: RDMA packets of a function always reach the function itself.
        let blocks = &mut self.nic.loopback;
        if modify_nic_vport_field_select::DISABLE_UC_LOCAL_LB.is_set(&select) {
            blocks.blocks_unicast = nic_vport_context::DISABLE_UC_LOCAL_LB.is_set(context);
        }
        if modify_nic_vport_field_select::DISABLE_MC_LOCAL_LB.is_set(&select) {
            blocks.blocks_multicast = nic_vport_context::DISABLE_MC_LOCAL_LB.is_set(context);
        }
        self.hca.steering().set_loopback(self.nic.loopback);
        // Address and promiscuity filters have no effect: the switch floods, and the flow tables
        // select.
        Ok(())
    }

    /// Sets the longest frame in bytes, FCS included.
    pub(crate) fn set_frame_size(&mut self, bytes: u64) {
        self.nic.mtu = bytes;
        self.hca.steering().set_frame_limit(bytes as usize);
    }

    /// SET_ROCE_ADDRESS: sets an entry of the GID table; all zeros remove it.
    pub(crate) fn set_roce_address(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let index = set_roce_address_in::ROCE_ADDRESS_INDEX.get(call.input) as usize;
        if index >= self.profile.hca.gid_table_len() as usize {
            return Err(Refusal::param("beyond the end of the table"));
        }
        let entry = set_roce_address_in::ROCE_ADDRESS.of(call.input);
        let gid = roce_addr_layout::SOURCE_L3_ADDRESS.of(entry).try_into().unwrap_or_default();
        let kind = match roce_addr_layout::ROCE_VERSION.get(entry) {
            ROCE_V2 => GidType::RoceV2,
            _ => GidType::RoceV1,
        };
        let gids = &mut self.profile.gids;
        if gids.len() <= index {
            gids.resize(index + 1, Gid { gid: [0; 16], kind: GidType::RoceV1, ifindex: 0 });
        }
        gids[index] = Gid { gid, kind, ifindex: 0 };
        self.publish_addresses();
        Ok(())
    }

    /// Tells the HCA side, and the wire behind it, the port's addresses.
    pub(crate) fn publish_addresses(&mut self) {
        let gids = self.profile.gids.iter().map(|gid| gid.gid).collect::<Vec<_>>();
        self.hca.set_addresses(&gids, self.profile.lid);
    }
}
