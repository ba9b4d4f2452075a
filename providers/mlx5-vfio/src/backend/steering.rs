//! Steering of Ethernet frames, and multicast groups (Linux `hw/mlx5/main.c`,
//! `mlx5_ib_mcg_attach`).

use uverbs_mlx5_prm::cmd::mcast::{attach_to_mcg_in, detach_from_mcg_in};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;

use super::{Firmware, SHORT, unsupported};
use uverbs_front::backend::error::{HcaError, Noun};
use uverbs_front::backend::number::Qpn;
use uverbs_front::backend::steering::{
    Change, Direction, EntryContext, FlowCount, GroupContext, Param, QueueOptions, Steering,
    TableContext, TirContext, Wrong,
};

impl Firmware {
    fn membership(&self, opcode: CmdOpcode, input: &[u8], qpn: Qpn) -> Result<(), HcaError> {
        self.run(opcode, 0, input, SHORT, (Noun::Qp, qpn.0)).map(drop)
    }
}

impl Steering for Firmware {
    fn change_queue(&mut self, rqn: u32, options: QueueOptions) -> Result<(), Wrong> {
        self.change_options(Qpn(rqn), options).map_err(Wrong::Device)
    }

    fn add_spread(&mut self, number: u32, queues: Vec<u32>) -> Result<(), Wrong> {
        self.make_spread(number, &queues)
    }

    fn remove_spread(&mut self, number: u32) -> Result<(), Wrong> {
        self.end_spread(number)
    }

    fn add_tir(&mut self, number: u32, context: TirContext) -> Result<(), Wrong> {
        self.make_tir(number, &context)
    }

    fn remove_tir(&mut self, number: u32) -> Result<(), Wrong> {
        self.end_tir(number)
    }

    fn add_sniffer(&mut self, _: u32) -> Result<(), Wrong> {
        Err(Wrong::Device(unsupported("copies of all packets")))
    }

    fn remove_sniffer(&mut self, _: u32) {}

    fn add_counter(&mut self, number: u32) -> Result<(), Wrong> {
        self.make_counter(number)
    }

    fn counter(&mut self, number: u32) -> Result<FlowCount, Wrong> {
        self.ask_counter(number)
    }

    fn remove_counter(&mut self, number: u32) -> Result<(), Wrong> {
        self.end_counter(number)
    }

    fn add_table(&mut self, number: u32, context: TableContext) -> Result<(), Wrong> {
        self.make_table(number, context)
    }

    fn set_root(&mut self, direction: Direction, table: Option<u32>) -> Result<(), Wrong> {
        self.make_root(direction, table)
    }

    fn add_group(
        &mut self,
        table: u32,
        number: u32,
        context: GroupContext<'_>,
    ) -> Result<(), Wrong> {
        self.make_group(table, number, context)
    }

    fn remove_group(&mut self, table: u32, number: u32) -> Result<(), Wrong> {
        self.end_group(table, number)
    }

    fn add_entry(
        &mut self,
        table: u32,
        place: (u32, u32),
        value: &Param,
        context: EntryContext,
    ) -> Result<(), Wrong> {
        self.make_entry(table, place, value, &context)
    }

    fn change_entry(
        &mut self,
        table: u32,
        index: u32,
        change: Change,
        to: EntryContext,
    ) -> Result<(), Wrong> {
        self.modify_entry(table, index, change, &to)
    }

    fn remove_entry(&mut self, table: u32, index: u32) -> Result<(), Wrong> {
        self.end_entry(table, index)
    }

    fn attach_mcast(&mut self, qpn: Qpn, gid: [u8; 16]) -> Result<(), HcaError> {
        let mut input = [0; attach_to_mcg_in::SIZE];
        attach_to_mcg_in::QPN.set(&mut input, qpn.0.into());
        attach_to_mcg_in::MULTICAST_GID.of_mut(&mut input).copy_from_slice(&gid);
        self.membership(CmdOpcode::ATTACH_TO_MCG, &input, qpn)?;
        self.join_group(gid);
        Ok(())
    }

    fn detach_mcast(&mut self, qpn: Qpn, gid: [u8; 16]) -> Result<(), HcaError> {
        let mut input = [0; detach_from_mcg_in::SIZE];
        detach_from_mcg_in::QPN.set(&mut input, qpn.0.into());
        detach_from_mcg_in::MULTICAST_GID.of_mut(&mut input).copy_from_slice(&gid);
        self.membership(CmdOpcode::DETACH_FROM_MCG, &input, qpn)?;
        self.leave_group(gid);
        Ok(())
    }
}
