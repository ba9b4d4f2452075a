//! MAC addresses and VLANs whose frames the port takes (Linux `core/vport.c`,
//! `mlx5_modify_nic_vport_mac_list`, `mlx5_modify_nic_vport_vlans`).
//!
//! A list that is too long, or refused, leaves frames out; Linux's driver warns then, and goes on
//! (`core/en_fs.c`, `mlx5e_vport_context_update_addr_list`, `mlx5e_vport_context_update_vlans`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::caps::cmd_hca_cap::{
    LOG_MAX_CURRENT_MC_LIST, LOG_MAX_CURRENT_UC_LIST, LOG_MAX_VLAN_LIST,
};
use uverbs_mlx5_prm::cmd::nic::{
    LIST_MULTICAST, LIST_UNICAST, LIST_VLAN, mac_address_layout, modify_nic_vport_field_select,
    nic_vport_context, vlan_layout,
};

use super::Firmware;
use crate::error::Error;
use crate::function::Function;
use crate::interface::{Mac, halves};
use crate::services::neighbours::multicast_mac;

/// Multicast groups of programs, with the number of their queue pairs.
#[derive(Debug, Default)]
pub(super) struct Groups(BTreeMap<Mac, usize>);

impl Function {
    /// Sets the list of unicast or multicast addresses, as far as the port has room.
    pub(super) fn set_macs(&self, kind: u64, macs: &[Mac]) -> Result<(), Error> {
        let most = match kind {
            LIST_UNICAST => LOG_MAX_CURRENT_UC_LIST,
            _ => LOG_MAX_CURRENT_MC_LIST,
        };
        let entry = |(high, low)| {
            let mut entry = [0; mac_address_layout::SIZE];
            mac_address_layout::MAC_ADDR_47_32.set(&mut entry, high);
            mac_address_layout::MAC_ADDR_31_0.set(&mut entry, low);
            entry
        };
        self.set_list((kind, most), macs.iter().copied().map(halves).map(entry))
    }

    /// Sets the list of VLANs, as far as the port has room.
    pub(super) fn set_vlans(&self, vlans: &BTreeSet<u16>) -> Result<(), Error> {
        let entry = |vlan: &u16| {
            let mut entry = [0; vlan_layout::SIZE];
            vlan_layout::VLAN.set(&mut entry, (*vlan).into());
            entry
        };
        self.set_list((LIST_VLAN, LOG_MAX_VLAN_LIST), vlans.iter().map(entry))
    }

    /// Sets a list of a kind, whose length has a limit among the capabilities.
    fn set_list(
        &self,
        (kind, most): (u64, Field),
        entries: impl Iterator<Item = [u8; 8]>,
    ) -> Result<(), Error> {
        let entries: Vec<_> = entries.take(self.caps().power(most) as usize).collect();
        let select = modify_nic_vport_field_select::ADDRESSES_LIST;
        let kind = (select, nic_vport_context::ALLOWED_LIST_TYPE, kind);
        let size = (select, nic_vport_context::ALLOWED_LIST_SIZE, entries.len() as u64);
        self.modify_nic_vport(&[kind, size], entries.as_flattened())
    }
}

impl Firmware {
    /// Lets the port take frames to its own address, and the groups that neighbours ask by.
    pub(crate) fn start_lists(&self) {
        if let Some(neighbours) = &self.neighbours {
            let _ = self.function.set_macs(LIST_UNICAST, &[neighbours.own_mac()]);
        }
        self.set_groups();
    }

    fn set_groups(&self) {
        if let Some(neighbours) = &self.neighbours {
            let programs = self.groups.0.keys().copied();
            let all: Vec<_> = neighbours.groups().into_iter().chain(programs).collect();
            let _ = self.function.set_macs(LIST_MULTICAST, &all);
        }
    }

    /// Adds the group of a queue pair.
    pub(super) fn join_group(&mut self, gid: [u8; 16]) {
        if let Some(mac) = multicast_mac(Ipv6Addr::from(gid).to_canonical()) {
            let users = self.groups.0.entry(mac).or_default();
            *users += 1;
            if *users == 1 {
                self.set_groups();
            }
        }
    }

    /// Removes the group of a queue pair.
    pub(super) fn leave_group(&mut self, gid: [u8; 16]) {
        if let Some(mac) = multicast_mac(Ipv6Addr::from(gid).to_canonical())
            && let Some(users) = self.groups.0.get_mut(&mac)
        {
            *users -= 1;
            if *users == 0 {
                self.groups.0.remove(&mac);
                self.set_groups();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use uverbs_front::backend::config::Config;
    use uverbs_front::backend::network::sixteen;
    use uverbs_front::backend::number::Qpn;
    use uverbs_front::backend::steering::Steering;
    use uverbs_mlx5_prm::cmd::nic::modify_nic_vport_context_in;
    use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;

    use super::*;
    use crate::interface::Interface;
    use crate::services::neighbours::Neighbours;
    use crate::tests::fake::{Fake, limits};

    /// Addresses in the last command that set a list.
    fn told(fake: &Fake) -> Vec<String> {
        let input = fake.state().input.clone();
        let context = modify_nic_vport_context_in::NIC_VPORT_CONTEXT.of(&input);
        let count = nic_vport_context::ALLOWED_LIST_SIZE.get(context) as usize;
        let list = input[modify_nic_vport_context_in::SIZE..].chunks_exact(8).take(count);
        let hex = |entry: &[u8]| entry[2..].iter().map(|byte| format!("{byte:02x}")).collect();
        list.map(hex).collect()
    }

    /// Linux has a VLAN in the list before an address is in it, each once.
    #[test]
    fn the_port_has_the_vlans_of_its_addresses() {
        let fake = Fake::new();
        let function = Function::open(fake.clone(), limits()).unwrap();
        let none = Interface::of_name("vfio-user:/a,address=10.0.0.1/24").unwrap().1;
        let _ = function.enable_roce([2, 0, 0, 0, 0, 9], &none);
        assert_eq!(fake.count(CmdOpcode::MODIFY_NIC_VPORT_CONTEXT), 1, "RoCE alone");
        let name = "vfio-user:/a,address=10.0.0.1/24,vlan=300,address=10.0.1.1/24,vlan=5,\
                    address=10.0.2.1/24,vlan=300,address=10.0.3.1/24";
        let some = Interface::of_name(name).unwrap().1;
        // The fake has no table of GIDs, which come after.
        assert!(matches!(
            function.enable_roce([2, 0, 0, 0, 0, 9], &some),
            Err(Error::Limit { .. })
        ));
        assert_eq!(told(&fake), ["000500000000", "012c00000000"]);
        let context =
            modify_nic_vport_context_in::NIC_VPORT_CONTEXT.of(&fake.state().input).to_vec();
        assert_eq!(nic_vport_context::ALLOWED_LIST_TYPE.get(&context), LIST_VLAN);
        // Beyond the port's room.
        function.set_vlans(&(1..=9).collect()).unwrap();
        assert_eq!(told(&fake).len(), 8);
    }

    #[test]
    fn the_lists_have_own_addresses_and_groups_of_programs() {
        let fake = Fake::new();
        let function = Function::open(fake.clone(), limits()).unwrap();
        let name = "vfio-user:/a,address=10.0.0.1/24,address=2001:db8::12:3456/64";
        let interface = Interface::of_name(name).unwrap().1;
        let neighbours = Neighbours::new([2, 0, 0, 0, 0, 9], &interface);
        let mut firmware = Firmware::new(function, &Config::default(), Some(neighbours));
        firmware.start_lists();
        let own = ["ffffffffffff", "333300000001", "3333ff123456", "3333ff000009"];
        assert_eq!(told(&fake), own);
        let group = sixteen("239.1.2.3".parse().unwrap());
        firmware.attach_mcast(Qpn(7), group).unwrap();
        firmware.attach_mcast(Qpn(8), group).unwrap();
        firmware.detach_mcast(Qpn(7), group).unwrap();
        let count = fake.count(CmdOpcode::MODIFY_NIC_VPORT_CONTEXT);
        assert_eq!(count, 3, "once for both queue pairs");
        firmware.detach_mcast(Qpn(8), group).unwrap();
        assert_eq!(told(&fake), own);
        // Beyond the port's room.
        for last in 1..=5 {
            let group = sixteen(IpAddr::from([239, 0, 0, last]));
            firmware.attach_mcast(Qpn(7), group).unwrap();
        }
        assert_eq!(told(&fake)[4..], [1, 2, 3, 4].map(|last| format!("01005e00000{last}")));
    }
}
