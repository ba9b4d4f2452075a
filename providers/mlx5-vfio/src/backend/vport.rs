//! MAC addresses whose frames the port takes (Linux `core/vport.c`,
//! `mlx5_modify_nic_vport_mac_list`).
//!
//! A list that is too long, or refused, leaves frames out; Linux's driver warns then, and goes on
//! (`core/en_fs.c`, `mlx5e_vport_context_update_addr_list`).

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use uverbs_mlx5_prm::cmd::caps::cmd_hca_cap::{LOG_MAX_CURRENT_MC_LIST, LOG_MAX_CURRENT_UC_LIST};
use uverbs_mlx5_prm::cmd::nic::{
    LIST_MULTICAST, LIST_UNICAST, mac_address_layout, modify_nic_vport_field_select,
    nic_vport_context,
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
        let macs = &macs[..macs.len().min(self.caps().power(most) as usize)];
        let mut list = Vec::new();
        for (high, low) in macs.iter().copied().map(halves) {
            let mut entry = [0; mac_address_layout::SIZE];
            mac_address_layout::MAC_ADDR_47_32.set(&mut entry, high);
            mac_address_layout::MAC_ADDR_31_0.set(&mut entry, low);
            list.extend(entry);
        }
        let select = modify_nic_vport_field_select::ADDRESSES_LIST;
        let kind = (select, nic_vport_context::ALLOWED_LIST_TYPE, kind);
        let size = (select, nic_vport_context::ALLOWED_LIST_SIZE, macs.len() as u64);
        self.modify_nic_vport(&[kind, size], &list)
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
