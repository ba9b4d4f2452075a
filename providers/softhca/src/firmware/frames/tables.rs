//! Ingress and egress flow tables (Linux `core/fs_cmd.c`).

use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::flow::{
    ACTION_ALLOW, ACTION_COUNT, ACTION_DECAP, ACTION_DROP, ACTION_FORWARD, ACTION_MOD_HDR,
    ACTION_REFORMAT, CHANGE_ACTION, CHANGE_COUNTERS, CHANGE_DESTINATIONS, CHANGE_ENTRY, CHANGE_TAG,
    DESTINATION_TABLE, DESTINATION_TIR, MISS_FORWARD, NIC_RX, NIC_TX, NO_ROOT, SELECT_MISS,
    alloc_flow_counter_in, alloc_flow_counter_out, create_flow_group_in, create_flow_group_out,
    create_flow_table_in, create_flow_table_out, dealloc_flow_counter_in, delete_fte_in,
    dest_format_struct, destroy_flow_group_in, destroy_flow_table_in, flow_context,
    flow_counter_list, flow_table_context, modify_flow_table_in, query_flow_counter_in,
    query_flow_counter_out, set_flow_table_root_in, set_fte_in, traffic_counter,
};
use uverbs_mlx5_prm::cmd::opcode::CmdStatus;

use crate::board::capabilities::LOG_MAX_COUNTER_ROW;
use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};
use crate::firmware::frames::interfaces::numbered;
use crate::hca::ethernet::MAX_DESTINATIONS;
use uverbs_front::backend::steering::{
    Change, Direction, Edits, EntryContext, FlowDestination, GroupContext, MATCH_LEN, Miss,
    TableContext,
};

/// Miss action (`MLX5_FLOW_TABLE_MISS_ACTION_DEF`).
const MISS_DEFAULT: u64 = 0;
/// Maximum counters in one query.
const MAX_BULK: usize = 1 << 10;

/// Direction of a command's flow tables.
pub(crate) fn direction(call: &Call<'_>, kind: Field) -> Result<Direction, Refusal> {
    match kind.get(call.input) {
        NIC_RX => Ok(Direction::Receive),
        NIC_TX => Ok(Direction::Transmit),
        _ => Err(Refusal::param("no flow tables of this kind")),
    }
}

fn miss(context: &[u8]) -> Result<Miss, Refusal> {
    match flow_table_context::TABLE_MISS_ACTION.get(context) {
        MISS_DEFAULT => Ok(Miss::Usual),
        MISS_FORWARD => Ok(Miss::Table(flow_table_context::TABLE_MISS_ID.get32(context))),
        _ => Err(Refusal::param("table_miss_action")),
    }
}

/// Actions of an entry. `lists` follows the context: destinations, then counters, of equal size.
fn entry(context: &[u8], lists: &[u8]) -> Result<EntryContext, Refusal> {
    let action = flow_context::ACTION.get(context);
    if action
        & !(ACTION_ALLOW
            | ACTION_DROP
            | ACTION_FORWARD
            | ACTION_COUNT
            | ACTION_REFORMAT
            | ACTION_DECAP
            | ACTION_MOD_HDR)
        != 0
    {
        return Err(Refusal::param("no such action"));
    }
    if (action & (ACTION_ALLOW | ACTION_DROP | ACTION_FORWARD)).count_ones() != 1 {
        return Err(Refusal::param("one of allow, drop and forward"));
    }
    if flow_context::EXTENDED_DESTINATION.is_set(context) {
        return Err(Refusal::param("extended destinations"));
    }
    let count = |field: Field, wanted: u64| match field.get(context) as usize {
        _ if action & wanted == 0 => Ok(0),
        0 => Err(Refusal::param("an empty list")),
        count if count > MAX_DESTINATIONS => Err(Refusal::param("too long a list")),
        count => Ok(count),
    };
    let destinations = count(flow_context::DESTINATION_LIST_SIZE, ACTION_FORWARD)?;
    let counters = count(flow_context::FLOW_COUNTER_LIST_SIZE, ACTION_COUNT)?;
    let short = Refusal::param("a list ends early");
    let (to, lists) =
        lists.split_at_checked(destinations * dest_format_struct::SIZE).ok_or(short)?;
    let counters = lists.get(..counters * flow_counter_list::SIZE).ok_or(short)?;
    let to = to.chunks_exact(dest_format_struct::SIZE).map(|to| {
        let number = dest_format_struct::DESTINATION_ID.get32(to);
        match dest_format_struct::DESTINATION_TYPE.get(to) {
            DESTINATION_TABLE => Ok(FlowDestination::Table(number)),
            DESTINATION_TIR => Ok(FlowDestination::Tir(number)),
            _ => Err(Refusal::param("no such destination")),
        }
    });
    let counters = counters.chunks_exact(flow_counter_list::SIZE);
    let mut destinations = to.collect::<Result<Vec<_>, _>>()?;
    if action & ACTION_ALLOW != 0 {
        destinations.push(FlowDestination::Wire);
    }
    let number = |bit: u64, field: Field| (action & bit != 0).then(|| field.get32(context));
    Ok(EntryContext {
        tag: flow_context::FLOW_TAG.get32(context),
        destinations,
        edits: Edits {
            unwrap: action & ACTION_DECAP != 0,
            reformat: number(ACTION_REFORMAT, flow_context::PACKET_REFORMAT_ID),
            rewrites: number(ACTION_MOD_HDR, flow_context::MODIFY_HEADER_ID),
        },
        counters: counters.map(|one| flow_counter_list::FLOW_COUNTER_ID.get32(one)).collect(),
    })
}

fn param(bytes: &[u8]) -> [u8; MATCH_LEN] {
    bytes.try_into().unwrap_or([0; MATCH_LEN])
}

impl Firmware {
    /// Finds the table that a command names by type and number.
    fn flow_table(&mut self, call: &Call<'_>, kind: Field, number: Field) -> Result<u32, Refusal> {
        let number = number.get32(call.input);
        self.hca.steering().check_direction(number, direction(call, kind)?)?;
        Ok(number)
    }

    pub(crate) fn create_flow_table(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let direction = direction(call, create_flow_table_in::TABLE_TYPE)?;
        let context = create_flow_table_in::FLOW_TABLE_CONTEXT.of(call.input);
        use flow_table_context as ft;
        for feature in [ft::SW_OWNER, ft::TERMINATION_TABLE, ft::RTC_VALID] {
            if feature.is_set(context) {
                return Err(Refusal::param("no such flow table"));
            }
        }
        let context = TableContext {
            direction,
            level: ft::LEVEL.get(context) as u8,
            log_size: ft::LOG_SIZE.get(context) as u8,
            miss: miss(context)?,
        };
        let steering = self.hca.steering();
        let numbers = &mut self.interfaces.flow_tables;
        let number = numbered(numbers, |number| steering.add_table(number, context))?;
        create_flow_table_out::TABLE_ID.set(call.output, number.into());
        Ok(())
    }

    pub(crate) fn modify_flow_table(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let number = self.flow_table(
            call,
            modify_flow_table_in::TABLE_TYPE,
            modify_flow_table_in::TABLE_ID,
        )?;
        if modify_flow_table_in::MODIFY_FIELD_SELECT.get(call.input) != SELECT_MISS {
            return Err(Refusal::param("can't be changed"));
        }
        let miss = miss(modify_flow_table_in::FLOW_TABLE_CONTEXT.of(call.input))?;
        Ok(self.hca.steering().set_miss(number, miss)?)
    }

    pub(crate) fn destroy_flow_table(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        use destroy_flow_table_in::{TABLE_ID, TABLE_TYPE};
        let number = self.flow_table(call, TABLE_TYPE, TABLE_ID)?;
        self.hca.steering().remove_table(number)?;
        self.interfaces.flow_tables.give_back(number);
        Ok(())
    }

    pub(crate) fn set_flow_table_root(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let direction = direction(call, set_flow_table_root_in::TABLE_TYPE)?;
        let number = set_flow_table_root_in::TABLE_ID.get32(call.input);
        let root = (call.op_mod != NO_ROOT).then_some(number);
        Ok(self.hca.steering().set_root(direction, root)?)
    }

    pub(crate) fn create_flow_group(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        use create_flow_group_in as group;
        let table = self.flow_table(call, group::TABLE_TYPE, group::TABLE_ID)?;
        if group::GROUP_TYPE.is_set(call.input) {
            return Err(Refusal::param("group_type"));
        }
        let context = GroupContext {
            first: group::START_FLOW_INDEX.get32(call.input),
            last: group::END_FLOW_INDEX.get32(call.input),
            enable: group::MATCH_CRITERIA_ENABLE.get(call.input) as u8,
            criteria: &param(group::MATCH_CRITERIA.of(call.input)),
        };
        let steering = self.hca.steering();
        let numbers = &mut self.interfaces.flow_groups;
        let number = numbered(numbers, |number| steering.add_group(table, number, context))?;
        create_flow_group_out::GROUP_ID.set(call.output, number.into());
        Ok(())
    }

    pub(crate) fn destroy_flow_group(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        use destroy_flow_group_in::{TABLE_ID, TABLE_TYPE};
        let table = self.flow_table(call, TABLE_TYPE, TABLE_ID)?;
        let number = destroy_flow_group_in::GROUP_ID.get32(call.input);
        self.hca.steering().remove_group(table, number)?;
        self.interfaces.flow_groups.give_back(number);
        Ok(())
    }

    pub(crate) fn set_flow_entry(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let table = self.flow_table(call, set_fte_in::TABLE_TYPE, set_fte_in::TABLE_ID)?;
        if set_fte_in::IGNORE_FLOW_LEVEL.is_set(call.input) {
            return Err(Refusal::param("ignore_flow_level"));
        }
        let index = set_fte_in::FLOW_INDEX.get32(call.input);
        let context = set_fte_in::FLOW_CONTEXT.of(call.input);
        let lists = call.input.get(set_fte_in::SIZE..).unwrap_or_default();
        let to = entry(context, lists)?;
        if call.op_mod == CHANGE_ENTRY {
            let bits = set_fte_in::MODIFY_ENABLE_MASK.get(call.input);
            let change = Change {
                tag: bits & CHANGE_TAG != 0,
                // Only an entry that forwards has destinations.
                destinations: bits & (CHANGE_ACTION | CHANGE_DESTINATIONS) != 0,
                edits: bits & CHANGE_ACTION != 0,
                counters: bits & (CHANGE_ACTION | CHANGE_COUNTERS) != 0,
            };
            return Ok(self.hca.steering().change_entry(table, index, change, to)?);
        }
        let group = flow_context::GROUP_ID.get32(context);
        let value = param(flow_context::MATCH_VALUE.of(context));
        Ok(self.hca.steering().add_entry(table, (group, index), &value, to)?)
    }

    pub(crate) fn delete_flow_entry(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let table = self.flow_table(call, delete_fte_in::TABLE_TYPE, delete_fte_in::TABLE_ID)?;
        let index = delete_fte_in::FLOW_INDEX.get32(call.input);
        Ok(self.hca.steering().remove_entry(table, index)?)
    }

    pub(crate) fn alloc_flow_counter(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let log = alloc_flow_counter_in::FLOW_COUNTER_BULK_LOG_SIZE.get(call.input);
        if alloc_flow_counter_in::FLOW_COUNTER_BULK.is_set(call.input) || log > LOG_MAX_COUNTER_ROW
        {
            return Err(Refusal::param("too many flow counters at once"));
        }
        let count = 1 << log;
        let numbers = &mut self.interfaces.flow_counters;
        let first = if count == 1 { numbers.take() } else { numbers.take_row(count) };
        let first = first.ok_or(Refusal::NO_NUMBER)?;
        (first..first + count).for_each(|number| self.hca.steering().add_counter(number));
        if count != 1 {
            self.interfaces.counter_rows.insert(first, count);
        }
        alloc_flow_counter_out::FLOW_COUNTER_ID.set(call.output, first.into());
        Ok(())
    }

    pub(crate) fn dealloc_flow_counter(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let number = dealloc_flow_counter_in::FLOW_COUNTER_ID.get32(call.input);
        let rows = &mut self.interfaces.counter_rows;
        if rows.range(..number).next_back().is_some_and(|(first, count)| number < first + count) {
            return Err(Refusal::param("one of a row of flow counters"));
        }
        for at in 0..rows.remove(&number).unwrap_or(1) {
            let number = number + at;
            self.hca.steering().remove_counter(number)?;
            self.interfaces.flow_counters.give_back(number);
        }
        Ok(())
    }

    /// QUERY_FLOW_COUNTER: unallocated numbers answer 0. The driver starts at a multiple of four
    /// and queries as many as it has room for (Linux `fs_counters.c`).
    pub(crate) fn query_flow_counter(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let first = query_flow_counter_in::FLOW_COUNTER_ID.get32(call.input);
        let count = query_flow_counter_in::NUM_OF_COUNTERS.get(call.input).max(1) as usize;
        let clear = query_flow_counter_in::CLEAR.is_set(call.input);
        let out = query_flow_counter_out::FLOW_STATISTICS.of_mut(call.output);
        if count > MAX_BULK || out.len() < count * traffic_counter::SIZE {
            return Err(Refusal::new(CmdStatus::BAD_OUTP_LEN_ERR, "output too short"));
        }
        // Up to the last number.
        let numbers = (first..=u32::MAX).take(count);
        for (number, out) in numbers.zip(out.chunks_exact_mut(traffic_counter::SIZE)) {
            let Ok(counter) = self.hca.steering().counter(number) else { continue };
            traffic_counter::PACKETS.set(out, counter.packets);
            traffic_counter::OCTETS.set(out, counter.bytes);
            if clear {
                *counter = Default::default();
            }
        }
        Ok(())
    }
}
