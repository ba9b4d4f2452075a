//! RoCE without a network interface: the GIDs of a port, from its addresses (Linux
//! `core/lib/gid.c`, `mlx5_core_roce_gid_set`; `core/vport.c`, `mlx5_nic_vport_enable_roce`).

use std::collections::BTreeSet;
use std::iter;
use std::net::Ipv6Addr;

use uverbs_front::backend::config::{Gid, GidType};
use uverbs_front::backend::network::sixteen;
use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::caps::cmd_hca_cap::{DISABLE_LOCAL_LB_MC, DISABLE_LOCAL_LB_UC};
use uverbs_mlx5_prm::cmd::nic::{
    modify_nic_vport_field_select, nic_vport_context, roce_addr_layout, set_roce_address_in,
};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;

use super::SHORT;
use crate::error::Error;
use crate::function::Function;
use crate::interface::{Interface, Mac, halves};
use crate::services::neighbours::link_local;

/// Values of `roce_version` and `roce_l3_type` (`MLX5_ROCE_VERSION_2`, `MLX5_ROCE_L3_TYPE_IPV6`).
const ROCE_V1: u64 = 0;
const ROCE_V2: u64 = 2;
const IPV4: u64 = 0;
const IPV6: u64 = 1;

impl Function {
    /// Turns RoCE on, and fills the port's GID table: the link-local GID, then each address, in
    /// both versions (Linux `core/roce_gid_mgmt.c`).
    pub(super) fn enable_roce(&self, mac: Mac, interface: &Interface) -> Result<Vec<Gid>, Error> {
        if mac == [0; 6] {
            let what = "an Ethernet port without a MAC address: its owner must set one".to_owned();
            return Err(Error::Unsupported { what });
        }
        use modify_nic_vport_field_select as select;
        let uc = (select::DISABLE_UC_LOCAL_LB, nic_vport_context::DISABLE_UC_LOCAL_LB, 0);
        let mc = (select::DISABLE_MC_LOCAL_LB, nic_vport_context::DISABLE_MC_LOCAL_LB, 0);
        // Local loopback of raw frames stays on: programs' raw queues may reach each other.
        // mlx5_core turns it off, and mlx5_ib on again for two programs
        // (`mlx5_nic_vport_update_local_lb`).
        let able = |field: Field| self.caps().get(field) == 1;
        let mut changes = vec![(select::ROCE_EN, nic_vport_context::ROCE_EN, 1)];
        changes.extend(able(DISABLE_LOCAL_LB_UC).then_some(uc));
        changes.extend(able(DISABLE_LOCAL_LB_MC).then_some(mc));
        self.modify_nic_vport(&changes, &[])?;
        let vlans: BTreeSet<_> = interface.addresses.iter().filter_map(|at| at.vlan).collect();
        // Linux has the list before an address is in the VLAN (`mlx5e_add_vlan_rule`).
        if !vlans.is_empty() {
            let _ = self.set_vlans(&vlans);
        }
        let addresses = interface.addresses.iter().map(|at| (sixteen(at.ip), at.vlan));
        let gids: Vec<_> = iter::once((link_local(mac), None)).chain(addresses).collect();
        let (value, limit) = (2 * gids.len() as u64, self.caps().gid_table_len().into());
        if value > limit {
            return Err(Error::Limit {
                what: "number of GIDs (2 for each address, and 2 link-local)",
                value,
                limit,
            });
        }
        let kinds = [(GidType::RoceV1, ROCE_V1), (GidType::RoceV2, ROCE_V2)];
        let entries = gids.into_iter().flat_map(|gid| kinds.map(|kind| (gid, kind)));
        (0u16..)
            .zip(entries)
            .map(|(index, ((gid, vlan), (kind, version)))| {
                self.set_gid(index, (gid, vlan), version, mac)?;
                Ok(Gid { gid, kind, ifindex: 0 })
            })
            .collect()
    }

    /// Sets an entry of the GID table. The device tags packets from it with the VLAN.
    fn set_gid(
        &self,
        index: u16,
        (gid, vlan): ([u8; 16], Option<u16>),
        version: u64,
        mac: Mac,
    ) -> Result<(), Error> {
        let mut input = [0; set_roce_address_in::SIZE];
        set_roce_address_in::ROCE_ADDRESS_INDEX.set(&mut input, index.into());
        let entry = set_roce_address_in::ROCE_ADDRESS.of_mut(&mut input);
        roce_addr_layout::SOURCE_L3_ADDRESS.of_mut(entry).copy_from_slice(&gid);
        if let Some(vlan) = vlan {
            roce_addr_layout::VLAN_VALID.set(entry, 1);
            roce_addr_layout::VLAN_ID.set(entry, vlan.into());
        }
        let (high, low) = halves(mac);
        roce_addr_layout::SOURCE_MAC_47_32.set(entry, high);
        roce_addr_layout::SOURCE_MAC_31_0.set(entry, low);
        roce_addr_layout::ROCE_VERSION.set(entry, version);
        let is_v4 = Ipv6Addr::from(gid).to_canonical().is_ipv4();
        let kind = if version == ROCE_V2 && !is_v4 { IPV6 } else { IPV4 };
        roce_addr_layout::ROCE_L3_TYPE.set(entry, kind);
        self.command(CmdOpcode::SET_ROCE_ADDRESS, 0, &input, SHORT).map(drop)
    }
}
