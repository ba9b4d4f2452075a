//! Flow tables and flow counters (Linux `core/fs_cmd.c`). The front's tables end with the function.

use std::collections::BTreeMap;

use uverbs_mlx5_prm::cmd::flow::{
    ACTION_ALLOW, ACTION_COUNT, ACTION_DECAP, ACTION_DROP, ACTION_FORWARD, ACTION_MOD_HDR,
    ACTION_REFORMAT, CHANGE_ACTION, CHANGE_COUNTERS, CHANGE_DESTINATIONS, CHANGE_ENTRY, CHANGE_TAG,
    DESTINATION_TABLE, DESTINATION_TIR, MISS_FORWARD, NIC_RX, NIC_TX, NO_ROOT,
    alloc_flow_counter_out, create_flow_group_in, create_flow_group_out, create_flow_table_in,
    create_flow_table_out, dealloc_flow_counter_in, delete_fte_in, dest_format_struct,
    destroy_flow_group_in, flow_context, flow_counter_list, flow_table_context,
    query_flow_counter_in, query_flow_counter_out, set_flow_table_root_in, set_fte_in,
    traffic_counter,
};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;

use super::{Firmware, SHORT};
use uverbs_front::backend::error::Noun;
use uverbs_front::backend::steering::{
    Change, Direction, EntryContext, FlowCount, FlowDestination, GroupContext, Miss, Param,
    TableContext, Wrong,
};

/// The device's numbers by the front's.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// Tables, with their type.
    tables: BTreeMap<u32, (u32, u64)>,
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
    /// Number and type of a table.
    fn table(&self, table: u32) -> Result<(u32, u64), Wrong> {
        self.tables.tables.get(&table).copied().ok_or(Wrong::Missing("no such flow table"))
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
    fn steer(
        &self,
        opcode: CmdOpcode,
        op_mod: u16,
        input: &[u8],
        outlen: usize,
    ) -> Result<Vec<u8>, Wrong> {
        self.run(opcode, op_mod, input, outlen, (Noun::Qp, 0)).map_err(Wrong::Device)
    }

    /// Creates a table, unless a former try created it.
    pub(super) fn make_table(&mut self, number: u32, context: TableContext) -> Result<(), Wrong> {
        use create_flow_table_in::{FLOW_TABLE_CONTEXT, TABLE_TYPE};
        if self.tables.tables.contains_key(&number) {
            return Ok(());
        }
        let kind = kind(context.direction);
        let mut input = vec![0; create_flow_table_in::SIZE];
        TABLE_TYPE.set(&mut input, kind);
        let table = FLOW_TABLE_CONTEXT.of_mut(&mut input);
        // Level 0 has the driver's own table.
        let own = u8::from(context.direction == Direction::Receive);
        flow_table_context::LEVEL.set(table, (context.level + own).into());
        flow_table_context::LOG_SIZE.set(table, context.log_size.into());
        if let Miss::Table(next) = context.miss {
            let (next, _) = self.table(next)?;
            flow_table_context::TABLE_MISS_ACTION.set(table, MISS_FORWARD);
            flow_table_context::TABLE_MISS_ID.set(table, next.into());
        }
        let outlen = create_flow_table_out::SIZE;
        let output = self.steer(CmdOpcode::CREATE_FLOW_TABLE, 0, &input, outlen)?;
        let made = create_flow_table_out::TABLE_ID.get32(&output);
        self.tables.tables.insert(number, (made, kind));
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
        self.tables.root.and_then(|root| self.table(root).ok()).map(|(number, _)| number)
    }

    /// Makes the receive side's table the first, in place of a table of the driver's that is gone.
    pub(super) fn restore_root(&self) -> Result<(), Wrong> {
        match self.tables.root {
            Some(root) => self.place_root(Direction::Receive, Some(root)),
            None => Ok(()),
        }
    }

    fn place_root(&self, direction: Direction, table: Option<u32>) -> Result<(), Wrong> {
        if let (Direction::Receive, Some(frames)) = (direction, &self.neighbour_queues.frames) {
            let next = table.map(|table| self.table(table)).transpose()?.map(|(number, _)| number);
            let set = frames.set_next(&self.function, next);
            return set.map_err(|error| Wrong::Device(self.refusal(&error, (Noun::Qp, 0))));
        }
        let mut input = vec![0; set_flow_table_root_in::SIZE];
        set_flow_table_root_in::TABLE_TYPE.set(&mut input, kind(direction));
        let op_mod = match table {
            Some(table) => {
                let (table, _) = self.table(table)?;
                set_flow_table_root_in::TABLE_ID.set(&mut input, table.into());
                0
            }
            None => NO_ROOT,
        };
        self.steer(CmdOpcode::SET_FLOW_TABLE_ROOT, op_mod, &input, SHORT).map(drop)
    }

    pub(super) fn make_group(
        &mut self,
        table: u32,
        number: u32,
        context: GroupContext<'_>,
    ) -> Result<(), Wrong> {
        use create_flow_group_in as group;
        let (table, kind) = self.table(table)?;
        let mut input = vec![0; group::SIZE];
        for (field, value) in [
            (group::TABLE_TYPE, kind),
            (group::TABLE_ID, table.into()),
            (group::START_FLOW_INDEX, context.first.into()),
            (group::END_FLOW_INDEX, context.last.into()),
            (group::MATCH_CRITERIA_ENABLE, context.enable.into()),
        ] {
            field.set(&mut input, value);
        }
        group::MATCH_CRITERIA.of_mut(&mut input).copy_from_slice(context.criteria);
        let outlen = create_flow_group_out::SIZE;
        let output = self.steer(CmdOpcode::CREATE_FLOW_GROUP, 0, &input, outlen)?;
        self.tables.groups.insert(number, create_flow_group_out::GROUP_ID.get32(&output));
        Ok(())
    }

    pub(super) fn end_group(&mut self, table: u32, number: u32) -> Result<(), Wrong> {
        use destroy_flow_group_in::{GROUP_ID, TABLE_ID, TABLE_TYPE};
        let (table, kind) = self.table(table)?;
        let mut input = vec![0; destroy_flow_group_in::SIZE];
        TABLE_TYPE.set(&mut input, kind);
        TABLE_ID.set(&mut input, table.into());
        GROUP_ID.set(&mut input, self.group(number)?.into());
        self.steer(CmdOpcode::DESTROY_FLOW_GROUP, 0, &input, SHORT)?;
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
        let (table, kind) = self.table(table)?;
        let (lists, sizes) = self.lists(context)?;
        let mut input = vec![0; set_fte_in::SIZE];
        for (field, value) in [
            (set_fte_in::TABLE_TYPE, kind),
            (set_fte_in::TABLE_ID, table.into()),
            (set_fte_in::MODIFY_ENABLE_MASK, change.map_or(0, mask)),
            (set_fte_in::FLOW_INDEX, index.into()),
        ] {
            field.set(&mut input, value);
        }
        let entry = set_fte_in::FLOW_CONTEXT.of_mut(&mut input);
        for (field, value) in [
            (flow_context::GROUP_ID, group.into()),
            (flow_context::FLOW_TAG, context.tag.into()),
            (flow_context::ACTION, action(context)),
            (flow_context::DESTINATION_LIST_SIZE, sizes.0),
            (flow_context::FLOW_COUNTER_LIST_SIZE, sizes.1),
            (flow_context::PACKET_REFORMAT_ID, context.edits.reformat.unwrap_or(0).into()),
            (flow_context::MODIFY_HEADER_ID, context.edits.rewrites.unwrap_or(0).into()),
        ] {
            field.set(entry, value);
        }
        flow_context::MATCH_VALUE.of_mut(entry).copy_from_slice(value);
        input.extend(lists);
        let op_mod = if change.is_some() { CHANGE_ENTRY } else { 0 };
        self.steer(CmdOpcode::SET_FLOW_TABLE_ENTRY, op_mod, &input, SHORT).map(drop)
    }

    /// Lists of destinations and counters, and their lengths.
    fn lists(&self, context: &EntryContext) -> Result<(Vec<u8>, (u64, u64)), Wrong> {
        let mut lists = Vec::new();
        let mut destinations = 0;
        for destination in &context.destinations {
            let (kind, number) = match *destination {
                FlowDestination::Table(table) => (DESTINATION_TABLE, self.table(table)?.0),
                FlowDestination::Tir(tir) => (DESTINATION_TIR, self.tir(tir)?),
                // An action, not a destination.
                FlowDestination::Wire => continue,
            };
            let mut entry = [0; dest_format_struct::SIZE];
            dest_format_struct::DESTINATION_TYPE.set(&mut entry, kind);
            dest_format_struct::DESTINATION_ID.set(&mut entry, number.into());
            lists.extend(entry);
            destinations += 1;
        }
        for counter in &context.counters {
            let mut entry = [0; flow_counter_list::SIZE];
            let id = self.counter_id(*counter)?;
            flow_counter_list::FLOW_COUNTER_ID.set(&mut entry, id.into());
            lists.extend(entry);
        }
        Ok((lists, (destinations, context.counters.len() as u64)))
    }

    pub(super) fn end_entry(&mut self, table: u32, index: u32) -> Result<(), Wrong> {
        use delete_fte_in::{FLOW_INDEX, TABLE_ID, TABLE_TYPE};
        let (number, kind) = self.table(table)?;
        let mut input = vec![0; delete_fte_in::SIZE];
        TABLE_TYPE.set(&mut input, kind);
        TABLE_ID.set(&mut input, number.into());
        FLOW_INDEX.set(&mut input, index.into());
        self.steer(CmdOpcode::DELETE_FLOW_TABLE_ENTRY, 0, &input, SHORT)?;
        self.tables.entries.remove(&(table, index));
        Ok(())
    }

    pub(super) fn make_counter(&mut self, number: u32) -> Result<(), Wrong> {
        let outlen = alloc_flow_counter_out::SIZE;
        let output = self.steer(CmdOpcode::ALLOC_FLOW_COUNTER, 0, &[0; SHORT], outlen)?;
        let id = alloc_flow_counter_out::FLOW_COUNTER_ID.get32(&output);
        self.tables.counters.insert(number, id);
        Ok(())
    }

    pub(super) fn ask_counter(&self, number: u32) -> Result<FlowCount, Wrong> {
        use query_flow_counter_in::{FLOW_COUNTER_ID, NUM_OF_COUNTERS};
        let mut input = [0; query_flow_counter_in::SIZE];
        FLOW_COUNTER_ID.set(&mut input, self.counter_id(number)?.into());
        NUM_OF_COUNTERS.set(&mut input, 1);
        let outlen = query_flow_counter_out::SIZE + traffic_counter::SIZE;
        let output = self.steer(CmdOpcode::QUERY_FLOW_COUNTER, 0, &input, outlen)?;
        let count = query_flow_counter_out::FLOW_STATISTICS.of(&output);
        let (packets, bytes) =
            (traffic_counter::PACKETS.get(count), traffic_counter::OCTETS.get(count));
        Ok(FlowCount { packets, bytes })
    }

    pub(super) fn end_counter(&mut self, number: u32) -> Result<(), Wrong> {
        let mut input = [0; SHORT];
        let id = self.counter_id(number)?;
        dealloc_flow_counter_in::FLOW_COUNTER_ID.set(&mut input, id.into());
        self.steer(CmdOpcode::DEALLOC_FLOW_COUNTER, 0, &input, SHORT)?;
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
