//! The Ethernet port (MAC, MTU), and RoCE's GID table (Linux `core/vport.c`, `core/lib/gid.c`).

use uverbs_mlx5_prm::cmd::nic::{
    LIST_MULTICAST, LIST_UNICAST, LIST_VLAN, mac_address_layout, modify_nic_vport_context_in,
    modify_nic_vport_field_select, nic_vport_context, query_nic_vport_context_in,
    query_nic_vport_context_out, roce_addr_layout, set_roce_address_in,
};

use crate::board::profile::{Gid, GidType};
use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};
use crate::hca::ethernet::Loopback;

/// `roce_version` of a GID entry: 2 is RoCE over UDP (`MLX5_ROCE_VERSION_*`).
const ROCE_V2: u64 = 2;

/// Log2 of the longest lists of addresses and of VLANs.
pub(crate) const LOG_MAX_ADDRESSES: u64 = 7;
pub(crate) const LOG_MAX_VLANS: u64 = 12;

/// Settings of the driver.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nic {
    roce: bool,
    loopback: Loopback,
    /// Unicast addresses, multicast addresses, and VLANs, as the driver gave them.
    lists: [Vec<u8>; 3],
    /// VLANs of the GIDs; 0: without one.
    vlans: Vec<u16>,
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
        let kind = query_nic_vport_context_in::ALLOWED_LIST_TYPE.get(call.input);
        let list = self.nic.lists.get(kind as usize);
        let list = list.ok_or_else(|| Refusal::param("no such list of the port"))?;
        ALLOWED_LIST_TYPE.set(out, kind);
        ALLOWED_LIST_SIZE.set(out, (list.len() / mac_address_layout::SIZE) as u64);
        // As far as the output has room.
        let room = call.output.get_mut(query_nic_vport_context_out::SIZE..).unwrap_or_default();
        room.iter_mut().zip(list).for_each(|(to, from)| *to = *from);
        Ok(())
    }

    /// Keeps a list of addresses or VLANs.
    fn set_list(&mut self, context: &[u8], entries: &[u8]) -> Result<(), Refusal> {
        use nic_vport_context::{ALLOWED_LIST_SIZE, ALLOWED_LIST_TYPE};
        let (kind, count) = (ALLOWED_LIST_TYPE.get(context), ALLOWED_LIST_SIZE.get(context));
        let log_most = match kind {
            LIST_UNICAST | LIST_MULTICAST => LOG_MAX_ADDRESSES,
            LIST_VLAN => LOG_MAX_VLANS,
            _ => return Err(Refusal::param("no such list of the port")),
        };
        if count > 1 << log_most {
            return Err(Refusal::param("a longer list than the port has room for"));
        }
        let list = entries.get(..count as usize * mac_address_layout::SIZE);
        let list = list.ok_or_else(|| Refusal::param("a list without its entries"))?;
        self.nic.lists[kind as usize] = list.to_vec();
        Ok(())
    }

    pub(crate) fn modify_nic_vport(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let select = modify_nic_vport_context_in::FIELD_SELECT.get32(call.input).to_be_bytes();
        let context = modify_nic_vport_context_in::NIC_VPORT_CONTEXT.of(call.input);
        if modify_nic_vport_field_select::ADDRESSES_LIST.is_set(&select) {
            let entries = call.input.get(modify_nic_vport_context_in::SIZE..).unwrap_or_default();
            self.set_list(context, entries)?;
        }
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
        let vlans = &mut self.nic.vlans;
        vlans.resize(gids.len(), 0);
        vlans[index] = match roce_addr_layout::VLAN_VALID.is_set(entry) {
            true => roce_addr_layout::VLAN_ID.get(entry) as u16,
            false => 0,
        };
        self.publish_addresses();
        Ok(())
    }

    /// Tells the HCA side, and the wire behind it, the port's addresses.
    pub(crate) fn publish_addresses(&mut self) {
        let gids = self.profile.gids.iter().map(|gid| gid.gid).collect::<Vec<_>>();
        self.hca.set_addresses(&gids, self.profile.lid);
        self.hca.set_vlans(self.nic.vlans.clone());
    }
}
