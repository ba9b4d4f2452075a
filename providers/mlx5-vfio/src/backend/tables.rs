//! Flow tables and flow counters (Linux `core/fs_cmd.c`). The front's tables end with the function.

use std::collections::BTreeMap;

use uverbs_mlx5_prm::cmd::flow::{
    ACTION_ALLOW, ACTION_COUNT, ACTION_DECAP, ACTION_DROP, ACTION_FORWARD, ACTION_MOD_HDR,
    ACTION_REFORMAT, CHANGE_ACTION, CHANGE_COUNTERS, CHANGE_DESTINATIONS, CHANGE_TAG,
    DESTINATION_TABLE, DESTINATION_TIR, NIC_RX, NIC_TX, alloc_flow_counter_out,
    create_flow_group_out, create_flow_table_out, dealloc_flow_counter_in, query_flow_counter_in,
    query_flow_counter_out, traffic_counter,
};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;

use super::{Firmware, SHORT};
use crate::objects::flow::{self, Entry, Table};
use crate::objects::prepared::Prepared;
use uverbs_front::backend::error::Noun;
use uverbs_front::backend::steering::{
    Change, Direction, EntryContext, FlowCount, FlowDestination, GroupContext, Miss, Param,
    TableContext, Wrong,
};

/// The device's numbers by the front's.
#[derive(Debug, Default)]
pub(super) struct Tables {
    tables: BTreeMap<u32, Table>,
    /// First table of the receive side, by the front's number.
    root: Option<u32>,
    groups: BTreeMap<u32, u32>,
    /// Entries by table and index: the device's number of the group, and the value.
    entries: BTreeMap<(u32, u32), (u32, Box<Param>)>,
    counters: BTreeMap<u32, u32>,
}

/// `table_type` of a direction.
fn kind(direction: Direction) -> u64 {
    match direction {
        Direction::Receive => NIC_RX,
        Direction::Transmit => NIC_TX,
    }
}

impl Firmware {
    fn table(&self, table: u32) -> Result<Table, Wrong> {
        self.tables.tables.get(&table).copied().ok_or(Wrong::Missing("no such flow table"))
    }

    /// The device's number of a table, if there is one.
    fn next(&self, table: Option<u32>) -> Result<Option<u32>, Wrong> {
        let table = table.map(|table| self.table(table)).transpose()?;
        Ok(table.map(|table| table.number))
    }

    fn group(&self, number: u32) -> Result<u32, Wrong> {
        let group = self.tables.groups.get(&number).copied();
        group.ok_or(Wrong::Missing("no such group of a flow table"))
    }

    fn counter_id(&self, number: u32) -> Result<u32, Wrong> {
        let counter = self.tables.counters.get(&number).copied();
        counter.ok_or(Wrong::Missing("no such flow counter"))
    }

    /// Runs a command about steering.
    fn steer(&self, command: &Prepared) -> Result<Vec<u8>, Wrong> {
        self.run_prepared(command, (Noun::Qp, 0)).map_err(Wrong::Device)
    }

    /// Creates a table, unless a former try created it.
    pub(super) fn make_table(&mut self, number: u32, context: TableContext) -> Result<(), Wrong> {
        if self.tables.tables.contains_key(&number) {
            return Ok(());
        }
        let kind = kind(context.direction);
        // Level 0 has the driver's own table.
        let own = u8::from(context.direction == Direction::Receive);
        let miss = match context.miss {
            Miss::Table(next) => self.next(Some(next))?,
            _ => None,
        };
        let command = flow::create_table(kind, context.level + own, context.log_size, miss);
        let made = create_flow_table_out::TABLE_ID.get32(&self.steer(&command)?);
        self.tables.tables.insert(number, Table { number: made, kind });
        Ok(())
    }

    pub(super) fn make_root(
        &mut self,
        direction: Direction,
        table: Option<u32>,
    ) -> Result<(), Wrong> {
        self.place_root(direction, table)?;
        if direction == Direction::Receive {
            self.tables.root = table;
        }
        Ok(())
    }

    /// The device's number of the receive side's first table.
    pub(super) fn root(&self) -> Option<u32> {
        self.next(self.tables.root).ok().flatten()
    }

    /// Makes the receive side's table the first, in place of a table of the driver's that is gone.
    pub(super) fn restore_root(&self) -> Result<(), Wrong> {
        match self.tables.root {
            Some(root) => self.place_root(Direction::Receive, Some(root)),
            None => Ok(()),
        }
    }

    fn place_root(&self, direction: Direction, table: Option<u32>) -> Result<(), Wrong> {
        let table = self.next(table)?;
        if let (Direction::Receive, Some(frames)) = (direction, &self.neighbour_queues.frames) {
            let set = frames.set_next(&self.function, table);
            return set.map_err(|error| Wrong::Device(self.refusal(&error, (Noun::Qp, 0))));
        }
        self.steer(&flow::set_root(kind(direction), table)).map(drop)
    }

    pub(super) fn make_group(
        &mut self,
        table: u32,
        number: u32,
        context: GroupContext<'_>,
    ) -> Result<(), Wrong> {
        let (range, enable) = ((context.first, context.last), context.enable);
        let command = flow::create_group(self.table(table)?, range, enable, context.criteria);
        let made = create_flow_group_out::GROUP_ID.get32(&self.steer(&command)?);
        self.tables.groups.insert(number, made);
        Ok(())
    }

    pub(super) fn end_group(&mut self, table: u32, number: u32) -> Result<(), Wrong> {
        self.steer(&flow::destroy_group(self.table(table)?, self.group(number)?))?;
        self.tables.groups.remove(&number);
        Ok(())
    }

    pub(super) fn make_entry(
        &mut self,
        table: u32,
        (group, index): (u32, u32),
        value: &Param,
        context: &EntryContext,
    ) -> Result<(), Wrong> {
        let group = self.group(group)?;
        self.set_entry((table, index), (group, value), context, None)?;
        self.tables.entries.insert((table, index), (group, Box::new(*value)));
        Ok(())
    }

    pub(super) fn modify_entry(
        &mut self,
        table: u32,
        index: u32,
        change: Change,
        to: &EntryContext,
    ) -> Result<(), Wrong> {
        let entry = self.tables.entries.get(&(table, index));
        let (group, value) = entry.ok_or(Wrong::Missing("no such flow entry"))?;
        self.set_entry((table, index), (*group, value), to, Some(change))
    }

    /// SET_FLOW_TABLE_ENTRY: adds an entry, or changes parts of it.
    fn set_entry(
        &self,
        (table, index): (u32, u32),
        (group, value): (u32, &Param),
        context: &EntryContext,
        change: Option<Change>,
    ) -> Result<(), Wrong> {
        let table = self.table(table)?;
        let destinations = self.destinations(context)?;
        let counters = context.counters.iter().map(|counter| self.counter_id(*counter));
        let counters = counters.collect::<Result<Vec<_>, _>>()?;
        let entry = Entry {
            group,
            tag: context.tag,
            action: action(context),
            value,
            destinations: &destinations,
            counters: &counters,
            reformat: context.edits.reformat.unwrap_or(0),
            rewrites: context.edits.rewrites.unwrap_or(0),
        };
        self.steer(&flow::set_entry(table, index, &entry, change.map(mask))).map(drop)
    }

    /// The device's destinations: types and numbers.
    fn destinations(&self, context: &EntryContext) -> Result<Vec<(u64, u32)>, Wrong> {
        let mut destinations = Vec::new();
        for destination in &context.destinations {
            destinations.push(match *destination {
                FlowDestination::Table(table) => (DESTINATION_TABLE, self.table(table)?.number),
                FlowDestination::Tir(tir) => (DESTINATION_TIR, self.tir(tir)?),
                // An action, not a destination.
                FlowDestination::Wire => continue,
            });
        }
        Ok(destinations)
    }

    pub(super) fn end_entry(&mut self, table: u32, index: u32) -> Result<(), Wrong> {
        self.steer(&flow::delete_entry(self.table(table)?, index))?;
        self.tables.entries.remove(&(table, index));
        Ok(())
    }

    pub(super) fn make_counter(&mut self, number: u32) -> Result<(), Wrong> {
        let command = Prepared::new(CmdOpcode::ALLOC_FLOW_COUNTER, SHORT, &[]);
        let id = alloc_flow_counter_out::FLOW_COUNTER_ID.get32(&self.steer(&command)?);
        self.tables.counters.insert(number, id);
        Ok(())
    }

    pub(super) fn ask_counter(&self, number: u32) -> Result<FlowCount, Wrong> {
        use query_flow_counter_in::{FLOW_COUNTER_ID, NUM_OF_COUNTERS, SIZE};
        let fields = [(FLOW_COUNTER_ID, self.counter_id(number)?.into()), (NUM_OF_COUNTERS, 1)];
        let command = Prepared::new(CmdOpcode::QUERY_FLOW_COUNTER, SIZE, &fields);
        let outlen = query_flow_counter_out::SIZE + traffic_counter::SIZE;
        let output = self.steer(&Prepared { outlen, ..command })?;
        let count = query_flow_counter_out::FLOW_STATISTICS.of(&output);
        let (packets, bytes) =
            (traffic_counter::PACKETS.get(count), traffic_counter::OCTETS.get(count));
        Ok(FlowCount { packets, bytes })
    }

    pub(super) fn end_counter(&mut self, number: u32) -> Result<(), Wrong> {
        let (field, id) = (dealloc_flow_counter_in::FLOW_COUNTER_ID, self.counter_id(number)?);
        self.steer(&Prepared::end(CmdOpcode::DEALLOC_FLOW_COUNTER, field, id))?;
        self.tables.counters.remove(&number);
        Ok(())
    }
}

/// `modify_enable_mask` of a change.
fn mask(change: Change) -> u64 {
    [
        (change.edits, CHANGE_ACTION),
        (change.tag, CHANGE_TAG),
        (change.destinations, CHANGE_ACTION | CHANGE_DESTINATIONS),
        (change.counters, CHANGE_ACTION | CHANGE_COUNTERS),
    ]
    .into_iter()
    .filter(|(has, _)| *has)
    .fold(0, |mask, (_, bits)| mask | bits)
}

fn action(context: &EntryContext) -> u64 {
    let end = match &context.destinations[..] {
        [] => ACTION_DROP,
        [FlowDestination::Wire] => ACTION_ALLOW,
        _ => ACTION_FORWARD,
    };
    [
        (!context.counters.is_empty(), ACTION_COUNT),
        (context.edits.reformat.is_some(), ACTION_REFORMAT),
        (context.edits.unwrap, ACTION_DECAP),
        (context.edits.rewrites.is_some(), ACTION_MOD_HDR),
    ]
    .into_iter()
    .filter(|(has, _)| *has)
    .fold(end, |action, (_, bit)| action | bit)
}
