//! RoCE without a network interface: the GIDs of a port, from its MAC address (Linux
//! `core/lib/gid.c`, `mlx5_core_roce_gid_set`; `core/vport.c`, `mlx5_nic_vport_enable_roce`).

use uverbs_front::backend::config::{Gid, GidType};
use uverbs_mlx5_prm::cmd::nic::{
    modify_nic_vport_context_in, modify_nic_vport_field_select, nic_vport_context,
    roce_addr_layout, set_roce_address_in,
};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;

use super::SHORT;
use crate::error::Error;
use crate::function::Function;

/// First half of a link-local address.
const LINK_LOCAL: [u8; 8] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0];
/// Values of `roce_version` and `roce_l3_type` (`MLX5_ROCE_VERSION_2`, `MLX5_ROCE_L3_TYPE_IPV6`).
const ROCE_V1: u64 = 0;
const ROCE_V2: u64 = 2;
const IPV6: u64 = 1;

/// Link-local GID of an interface (RFC 4291, appendix A; Linux `addrconf_ifid_eui48`).
fn link_local(mac: [u8; 6]) -> [u8; 16] {
    let [a, b, c, d, e, f] = mac;
    let mut gid = [0; 16];
    gid[..8].copy_from_slice(&LINK_LOCAL);
    gid[8..].copy_from_slice(&[a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
    gid
}

/// MAC address of a link-local GID; `None` of other GIDs, which need a neighbour table.
pub(super) fn mac_of(gid: &[u8; 16]) -> Option<[u8; 6]> {
    let (first, [a, b, c, 0xff, 0xfe, d, e, f]) = gid.split_at_checked(8)? else { return None };
    (first == LINK_LOCAL).then_some([a ^ 2, *b, *c, *d, *e, *f])
}

/// MAC address of a multicast GID (RFC 2464, 7; Linux `rdma_get_mcast_mac`).
pub(super) fn multicast_mac(gid: &[u8; 16]) -> Option<[u8; 6]> {
    let [0xff, .., a, b, c, d] = *gid else { return None };
    Some([0x33, 0x33, a, b, c, d])
}

impl Function {
    /// Turns RoCE on, and fills the port's GID table: the link-local GID in both versions.
    pub(super) fn enable_roce(&self, mac: [u8; 6]) -> Result<Vec<Gid>, Error> {
        if mac == [0; 6] {
            let what = "an Ethernet port without a MAC address: its owner must set one".to_owned();
            return Err(Error::Unsupported { what });
        }
        let mut input = vec![0; modify_nic_vport_context_in::SIZE];
        let mut select = [0; modify_nic_vport_field_select::SIZE];
        modify_nic_vport_field_select::ROCE_EN.set(&mut select, 1);
        let select = u32::from_be_bytes(select).into();
        modify_nic_vport_context_in::FIELD_SELECT.set(&mut input, select);
        let context = modify_nic_vport_context_in::NIC_VPORT_CONTEXT.of_mut(&mut input);
        nic_vport_context::ROCE_EN.set(context, 1);
        self.command(CmdOpcode::MODIFY_NIC_VPORT_CONTEXT, 0, &input, SHORT)?;
        let gid = link_local(mac);
        let kinds = [(GidType::RoceV1, ROCE_V1), (GidType::RoceV2, ROCE_V2)];
        (0u16..)
            .zip(kinds)
            .map(|(index, (kind, version))| {
                self.set_gid(index, gid, version, mac)?;
                Ok(Gid { gid, kind, ifindex: 0 })
            })
            .collect()
    }

    fn set_gid(&self, index: u16, gid: [u8; 16], version: u64, mac: [u8; 6]) -> Result<(), Error> {
        let mut input = [0; set_roce_address_in::SIZE];
        set_roce_address_in::ROCE_ADDRESS_INDEX.set(&mut input, index.into());
        let entry = set_roce_address_in::ROCE_ADDRESS.of_mut(&mut input);
        roce_addr_layout::SOURCE_L3_ADDRESS.of_mut(entry).copy_from_slice(&gid);
        let [a, b, c, d, e, f] = mac;
        roce_addr_layout::SOURCE_MAC_47_32.set(entry, u16::from_be_bytes([a, b]).into());
        roce_addr_layout::SOURCE_MAC_31_0.set(entry, u32::from_be_bytes([c, d, e, f]).into());
        roce_addr_layout::ROCE_VERSION.set(entry, version);
        roce_addr_layout::ROCE_L3_TYPE.set(entry, if version == ROCE_V2 { IPV6 } else { 0 });
        self.command(CmdOpcode::SET_ROCE_ADDRESS, 0, &input, SHORT).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_local_gid_has_the_mac_address() {
        let mac = [0x02, 0xca, 0x05, 0x00, 3, 4];
        let gid = link_local(mac);
        assert_eq!(gid, [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x00, 0xca, 0x05, 0xff, 0xfe, 0x00, 3, 4]);
        assert_eq!(mac_of(&gid), Some(mac));
        let mut other = gid;
        other[0] = 0x20;
        assert_eq!(mac_of(&other), None);
        assert_eq!(mac_of(&[0; 16]), None);
    }

    #[test]
    fn a_multicast_gid_has_its_mac_address() {
        let mut gid = [0xff; 16];
        gid[12..].copy_from_slice(&[1, 2, 3, 4]);
        assert_eq!(multicast_mac(&gid), Some([0x33, 0x33, 1, 2, 3, 4]));
        gid[0] = 0xfe;
        assert_eq!(multicast_mac(&gid), None);
    }
}
