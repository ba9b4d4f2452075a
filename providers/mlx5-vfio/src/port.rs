//! The port of a function: state, addresses, MTU (Linux `core/vport.c`, `core/port.c`).

use std::time::Instant;

use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::hca::{access_register_in, access_register_out};
use uverbs_mlx5_prm::cmd::nic::{
    mac_address_layout, modify_nic_vport_context_in, modify_nic_vport_field_select,
    nic_vport_context, query_nic_vport_context_out,
};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::register::pmtu_reg;
use uverbs_mlx5_prm::cmd::vport::{
    hca_vport_context, query_hca_vport_context_in, query_hca_vport_context_out,
    query_hca_vport_gid_in, query_hca_vport_gid_out, query_hca_vport_pkey_in,
    query_hca_vport_pkey_out, query_vport_state_out,
};

use crate::command::SHORT;
use crate::error::Error;
use crate::function::Function;

/// Register of frame sizes (`MLX5_REG_PMTU`).
const PMTU: u64 = 0x5003;
/// `op_mod` of ACCESS_REG.
const WRITE: u16 = 0;
const READ: u16 = 1;
/// Bytes of a frame beside its packet: Ethernet and VLAN headers, FCS (Linux `MLX5E_ETH_HARD_MTU`).
const FRAMING: u32 = 14 + 4 + 4;
/// The only port of a function.
const PORT: u64 = 1;
/// State of a virtual Ethernet port: up.
const UP: u64 = 1;

/// State of the port, as its link layer has it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkState {
    /// InfiniBand.
    InfiniBand {
        /// PortInfo's PortState (IBTA vol 1, 14.2.5.6): 1 down, 2 initialize, 3 armed, 4 active.
        state: u8,
        /// Local identifier, which the subnet manager assigns.
        lid: u16,
        /// Local identifier of the subnet manager.
        sm_lid: u16,
        /// P_Keys, without empty entries.
        pkeys: Vec<u16>,
    },
    /// Ethernet.
    Ethernet {
        /// Link is up.
        up: bool,
        /// MAC address. All zeros on a virtual function that got none.
        mac: [u8; 6],
    },
}

/// Port of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Port {
    /// State by link layer.
    pub link: LinkState,
    /// GUID of the node.
    pub node_guid: u64,
    /// GUID of the port.
    pub port_guid: u64,
    /// Maximum bytes of a packet in force; 0 if the function may not read the register.
    pub mtu: u32,
    /// GID table, without empty entries, with their indexes. Empty on Ethernet until the driver
    /// sets entries.
    pub gids: Vec<(u16, [u8; 16])>,
}

impl Function {
    /// Reads the port's state and addresses. All commands together have the time limit of one.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], [`Error::TimedOut`], or the device's failure.
    pub fn port(&self) -> Result<Port, Error> {
        let start = Instant::now();
        match self.caps().is_ethernet() {
            true => self.ethernet_port(),
            false => self.infiniband_port(start),
        }
    }

    /// Fails once the reading that began at `start` has taken as long as a command may.
    fn in_time(&self, start: Instant) -> Result<(), Error> {
        let waited = start.elapsed();
        match waited < self.limits().command {
            true => Ok(()),
            false => Err(Error::TimedOut { what: "the tables of the port".to_owned(), waited }),
        }
    }

    fn infiniband_port(&self, start: Instant) -> Result<Port, Error> {
        use hca_vport_context::{LID, NODE_GUID, PORT_GUID, PORT_STATE, SM_LID};
        let mut input = [0; query_hca_vport_context_in::SIZE];
        query_hca_vport_context_in::PORT_NUM.set(&mut input, PORT);
        let len = query_hca_vport_context_out::SIZE;
        let output = self.command(CmdOpcode::QUERY_HCA_VPORT_CONTEXT, 0, &input, len)?;
        let context = query_hca_vport_context_out::HCA_VPORT_CONTEXT.of(&output);
        let link = LinkState::InfiniBand {
            state: PORT_STATE.get(context) as u8,
            lid: LID.get(context) as u16,
            sm_lid: SM_LID.get(context) as u16,
            pkeys: self.pkeys(start)?,
        };
        let [node_guid, port_guid] = [NODE_GUID, PORT_GUID].map(|guid| guid.get(context));
        Ok(Port { link, node_guid, port_guid, mtu: self.mtu()?, gids: self.gids(start)? })
    }

    fn ethernet_port(&self) -> Result<Port, Error> {
        use nic_vport_context::{NODE_GUID, PERMANENT_ADDRESS, PORT_GUID};
        let len = query_nic_vport_context_out::SIZE;
        let output = self.command(CmdOpcode::QUERY_NIC_VPORT_CONTEXT, 0, &[0; 16], len)?;
        let context = query_nic_vport_context_out::NIC_VPORT_CONTEXT.of(&output);
        let address = PERMANENT_ADDRESS.get(context).to_be_bytes();
        let high = mac_address_layout::MAC_ADDR_47_32.get(&address).to_be_bytes();
        let low = mac_address_layout::MAC_ADDR_31_0.get(&address).to_be_bytes();
        let mac = [high[6], high[7], low[4], low[5], low[6], low[7]];
        let len = query_vport_state_out::SIZE;
        let state = self.command(CmdOpcode::QUERY_VPORT_STATE, 0, &[0; 16], len)?;
        let up = query_vport_state_out::STATE.get(&state) == UP;
        let [node_guid, port_guid] = [NODE_GUID, PORT_GUID].map(|guid| guid.get(context));
        let link = LinkState::Ethernet { up, mac };
        Ok(Port { link, node_guid, port_guid, mtu: self.mtu()?, gids: Vec::new() })
    }

    /// Reads the GID table, an entry a command.
    fn gids(&self, start: Instant) -> Result<Vec<(u16, [u8; 16])>, Error> {
        let mut gids = Vec::new();
        for index in 0..self.caps().gid_table_len() {
            self.in_time(start)?;
            let mut input = [0; query_hca_vport_gid_in::SIZE];
            query_hca_vport_gid_in::PORT_NUM.set(&mut input, PORT);
            query_hca_vport_gid_in::GID_INDEX.set(&mut input, index.into());
            let len = query_hca_vport_gid_out::SIZE + 16;
            let output = self.command(CmdOpcode::QUERY_HCA_VPORT_GID, 0, &input, len)?;
            let gid = query_hca_vport_gid_out::GID.of(&output).try_into().unwrap_or([0; 16]);
            // An entry with a prefix alone is empty, too.
            if gid[8..] != [0; 8] {
                gids.push((index, gid));
            }
        }
        Ok(gids)
    }

    /// Reads the P_Key table, an entry a command, up to its first empty entry.
    fn pkeys(&self, start: Instant) -> Result<Vec<u16>, Error> {
        let mut pkeys = Vec::new();
        for index in 0..self.caps().pkey_table_len() {
            self.in_time(start)?;
            let mut input = [0; query_hca_vport_pkey_in::SIZE];
            query_hca_vport_pkey_in::PORT_NUM.set(&mut input, PORT);
            query_hca_vport_pkey_in::PKEY_INDEX.set(&mut input, index.into());
            let len = query_hca_vport_pkey_out::SIZE + 4;
            let output = self.command(CmdOpcode::QUERY_HCA_VPORT_PKEY, 0, &input, len)?;
            // In the low half of a word (`mlx5_ifc_pkey_bits`).
            match query_hca_vport_pkey_out::PKEY.of(&output) {
                [_, _, 0, 0] => break,
                [_, _, high, low] => pkeys.push(u16::from_be_bytes([*high, *low])),
                _ => break,
            }
        }
        Ok(pkeys)
    }

    /// Reads the frame size in force. A virtual function may be refused.
    fn mtu(&self) -> Result<u32, Error> {
        match self.frame_size(READ, 0, pmtu_reg::OPER_MTU) {
            Err(Error::Refused { .. }) => Ok(0),
            read => read,
        }
    }

    /// Reads or writes the register of frame sizes, and returns a field of the answer.
    fn frame_size(&self, op_mod: u16, bytes: u32, field: Field) -> Result<u32, Error> {
        let mut input = vec![0; access_register_in::SIZE + pmtu_reg::SIZE];
        access_register_in::REGISTER_ID.set(&mut input, PMTU);
        let register = access_register_in::REGISTER_DATA.of_mut(&mut input);
        pmtu_reg::LOCAL_PORT.set(register, PORT);
        pmtu_reg::ADMIN_MTU.set(register, bytes.into());
        let len = access_register_out::SIZE + pmtu_reg::SIZE;
        let output = self.command(CmdOpcode::ACCESS_REG, op_mod, &input, len)?;
        Ok(field.get32(access_register_out::REGISTER_DATA.of(&output)))
    }

    /// Sets the longest packet of an Ethernet port (Linux `mlx5e_set_dev_port_mtu`). Returns the
    /// frame size in force.
    pub(crate) fn set_mtu(&self, bytes: u16) -> Result<u32, Error> {
        let (value, size) = (bytes.into(), u32::from(bytes) + FRAMING);
        let most = self.frame_size(READ, 0, pmtu_reg::MAX_MTU)?;
        if size > most {
            let limit = most.saturating_sub(FRAMING).into();
            return Err(Error::Limit { what: "mtu=", value, limit });
        }
        self.frame_size(WRITE, size, pmtu_reg::ADMIN_MTU)?;
        let select = modify_nic_vport_field_select::MTU;
        self.modify_nic_vport(&[(select, nic_vport_context::MTU, size.into())], &[])?;
        let taken = self.mtu()?;
        if taken < size {
            let limit = taken.saturating_sub(FRAMING).into();
            return Err(Error::Limit { what: "mtu=", value, limit });
        }
        Ok(taken)
    }

    /// Changes fields of the port's context: for each the bit that selects it, and the value.
    /// `list` follows the context.
    pub(crate) fn modify_nic_vport(
        &self,
        changes: &[(Field, Field, u64)],
        list: &[u8],
    ) -> Result<(), Error> {
        let mut input = vec![0; modify_nic_vport_context_in::SIZE];
        let mut select = [0; modify_nic_vport_field_select::SIZE];
        let context = modify_nic_vport_context_in::NIC_VPORT_CONTEXT.of_mut(&mut input);
        for (selects, field, value) in changes {
            selects.set(&mut select, 1);
            field.set(context, *value);
        }
        let select = u32::from_be_bytes(select).into();
        modify_nic_vport_context_in::FIELD_SELECT.set(&mut input, select);
        input.extend(list);
        self.command(CmdOpcode::MODIFY_NIC_VPORT_CONTEXT, 0, &input, SHORT).map(drop)
    }
}
