//! Steering and multicast groups of a software HCA.

use crate::hca::Hca;
use uverbs_front::backend::error::HcaError;
use uverbs_front::backend::number::Qpn;
use uverbs_front::backend::steering::{
    Change, Direction, EntryContext, FlowCount, GroupContext, Param, QueueOptions, Steering,
    TableContext, TirContext, Wrong,
};

impl Steering for Hca {
    fn change_queue(&mut self, rqn: u32, options: QueueOptions) -> Result<(), Wrong> {
        self.steering().set_queue(rqn, options);
        Ok(())
    }

    fn add_spread(&mut self, number: u32, queues: Vec<u32>) -> Result<(), Wrong> {
        self.steering().set_spread(number, queues)
    }

    fn remove_spread(&mut self, number: u32) -> Result<(), Wrong> {
        self.steering().remove_spread(number)
    }

    fn add_tir(&mut self, number: u32, context: TirContext) -> Result<(), Wrong> {
        self.steering().set_tir(number, context)
    }

    fn remove_tir(&mut self, number: u32) -> Result<(), Wrong> {
        self.steering().remove_tir(number)
    }

    fn add_sniffer(&mut self, tir: u32) -> Result<(), Wrong> {
        self.steering().add_sniffer(tir)
    }

    fn remove_sniffer(&mut self, tir: u32) {
        self.steering().remove_sniffer(tir);
    }

    fn add_counter(&mut self, number: u32) -> Result<(), Wrong> {
        self.steering().add_counter(number);
        Ok(())
    }

    fn counter(&mut self, number: u32) -> Result<FlowCount, Wrong> {
        self.steering().counter(number).copied()
    }

    fn remove_counter(&mut self, number: u32) -> Result<(), Wrong> {
        self.steering().remove_counter(number)
    }

    fn add_table(&mut self, number: u32, context: TableContext) -> Result<(), Wrong> {
        self.steering().add_table(number, context)
    }

    fn set_root(&mut self, direction: Direction, table: Option<u32>) -> Result<(), Wrong> {
        self.steering().set_root(direction, table)
    }

    fn add_group(
        &mut self,
        table: u32,
        number: u32,
        context: GroupContext<'_>,
    ) -> Result<(), Wrong> {
        self.steering().add_group(table, number, context)
    }

    fn remove_group(&mut self, table: u32, number: u32) -> Result<(), Wrong> {
        self.steering().remove_group(table, number)
    }

    fn add_entry(
        &mut self,
        table: u32,
        place: (u32, u32),
        value: &Param,
        context: EntryContext,
    ) -> Result<(), Wrong> {
        self.steering().add_entry(table, place, value, context)
    }

    fn change_entry(
        &mut self,
        table: u32,
        index: u32,
        change: Change,
        to: EntryContext,
    ) -> Result<(), Wrong> {
        self.steering().change_entry(table, index, change, to)
    }

    fn remove_entry(&mut self, table: u32, index: u32) -> Result<(), Wrong> {
        self.steering().remove_entry(table, index)
    }

    fn attach_mcast(&mut self, qpn: Qpn, gid: [u8; 16]) -> Result<(), HcaError> {
        self.attach_mcast(qpn, gid)
    }

    fn detach_mcast(&mut self, qpn: Qpn, gid: [u8; 16]) -> Result<(), HcaError> {
        self.detach_mcast(qpn, gid)
    }
}
