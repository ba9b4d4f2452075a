//! Steering of Ethernet frames, and multicast groups (Linux `hw/mlx5/main.c`,
//! `mlx5_ib_mcg_attach`).

use uverbs_mlx5_prm::cmd::mcast::{attach_to_mcg_in, detach_from_mcg_in};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;

use super::{Firmware, SHORT};
use uverbs_front::backend::error::{HcaError, Noun};
use uverbs_front::backend::number::Qpn;
use uverbs_front::backend::steering::{
    Change, Direction, EntryContext, FlowCount, GroupContext, Param, QueueOptions, Steering,
    TableContext, TirContext, Wrong,
};

/// Refusal of raw packets and flows.
const NOT_YET: Wrong = Wrong::Param("flows and raw packets, which are not yet over VFIO");

impl Firmware {
    fn group(&self, opcode: CmdOpcode, input: &[u8], qpn: Qpn) -> Result<(), HcaError> {
        self.run(opcode, 0, input, SHORT, (Noun::Qp, qpn.0)).map(drop)
    }
}

impl Steering for Firmware {
    fn set_queue(&mut self, _: u32, _: QueueOptions) {}

    fn remove_queue(&mut self, _: u32) {}

    fn add_sender(&mut self, _: u32, _: u32) {}

    fn remove_sender(&mut self, _: u32) {}

    fn set_spread(&mut self, _: u32, _: Vec<u32>) -> Result<(), Wrong> {
        Err(NOT_YET)
    }

    fn remove_spread(&mut self, _: u32) -> Result<(), Wrong> {
        Err(NOT_YET)
    }

    fn set_tir(&mut self, _: u32, _: TirContext) -> Result<(), Wrong> {
        Err(NOT_YET)
    }

    fn remove_tir(&mut self, _: u32) -> Result<(), Wrong> {
        Err(NOT_YET)
    }

    fn add_sniffer(&mut self, _: u32) -> Result<(), Wrong> {
        Err(NOT_YET)
    }

    fn remove_sniffer(&mut self, _: u32) {}

    fn add_counter(&mut self, _: u32) {}

    fn counter(&mut self, _: u32) -> Result<FlowCount, Wrong> {
        Err(NOT_YET)
    }

    fn remove_counter(&mut self, _: u32) -> Result<(), Wrong> {
        Ok(())
    }

    fn add_table(&mut self, _: u32, _: TableContext) -> Result<(), Wrong> {
        Err(NOT_YET)
    }

    fn set_root(&mut self, _: Direction, _: Option<u32>) -> Result<(), Wrong> {
        Err(NOT_YET)
    }

    fn add_group(&mut self, _: u32, _: u32, _: GroupContext<'_>) -> Result<(), Wrong> {
        Err(NOT_YET)
    }

    fn remove_group(&mut self, _: u32, _: u32) -> Result<(), Wrong> {
        Err(NOT_YET)
    }

    fn add_entry(
        &mut self,
        _: u32,
        _: (u32, u32),
        _: &Param,
        _: EntryContext,
    ) -> Result<(), Wrong> {
        Err(NOT_YET)
    }

    fn change_entry(&mut self, _: u32, _: u32, _: Change, _: EntryContext) -> Result<(), Wrong> {
        Err(NOT_YET)
    }

    fn remove_entry(&mut self, _: u32, _: u32) -> Result<(), Wrong> {
        Err(NOT_YET)
    }

    fn attach_mcast(&mut self, qpn: Qpn, gid: [u8; 16]) -> Result<(), HcaError> {
        let mut input = [0; attach_to_mcg_in::SIZE];
        attach_to_mcg_in::QPN.set(&mut input, qpn.0.into());
        attach_to_mcg_in::MULTICAST_GID.of_mut(&mut input).copy_from_slice(&gid);
        self.group(CmdOpcode::ATTACH_TO_MCG, &input, qpn)
    }

    fn detach_mcast(&mut self, qpn: Qpn, gid: [u8; 16]) -> Result<(), HcaError> {
        let mut input = [0; detach_from_mcg_in::SIZE];
        detach_from_mcg_in::QPN.set(&mut input, qpn.0.into());
        detach_from_mcg_in::MULTICAST_GID.of_mut(&mut input).copy_from_slice(&gid);
        self.group(CmdOpcode::DETACH_FROM_MCG, &input, qpn)
    }
}
