//! Commands of flow tables (Linux `core/fs_cmd.c`).

use uverbs_mlx5_prm::cmd::flow::{
    CHANGE_ENTRY, MISS_FORWARD, NO_ROOT, SELECT_MISS, create_flow_group_in, create_flow_group_out,
    create_flow_table_in, create_flow_table_out, delete_fte_in, dest_format_struct,
    destroy_flow_group_in, destroy_flow_table_in, flow_context, flow_counter_list,
    flow_table_context, modify_flow_table_in, set_flow_table_root_in, set_fte_in,
};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;

use super::prepared::{Prepared, set};

/// A table: number, and `table_type`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub(crate) number: u32,
    pub(crate) kind: u64,
}

/// An entry of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) group: u32,
    pub(crate) tag: u32,
    /// Bits `ACTION_*`.
    pub(crate) action: u64,
    /// Value of the fields that the group compares.
    pub(crate) value: &'a [u8],
    /// Type and number of each destination.
    pub(crate) destinations: &'a [(u64, u32)],
    pub(crate) counters: &'a [u32],
    /// Numbers of packet reformat and header rewrite; 0: none.
    pub(crate) reformat: u32,
    pub(crate) rewrites: u32,
}

/// CREATE_FLOW_TABLE. Frames that match no entry go on to the table `miss`.
pub(crate) fn create_table(kind: u64, level: u8, log_size: u8, miss: Option<u32>) -> Prepared {
    use create_flow_table_in::{FLOW_TABLE_CONTEXT, SIZE, TABLE_TYPE};
    let mut command = Prepared::new(CmdOpcode::CREATE_FLOW_TABLE, SIZE, &[(TABLE_TYPE, kind)]);
    let context = FLOW_TABLE_CONTEXT.of_mut(&mut command.input);
    flow_table_context::LEVEL.set(context, level.into());
    flow_table_context::LOG_SIZE.set(context, log_size.into());
    set_miss(context, miss);
    Prepared { outlen: create_flow_table_out::SIZE, ..command }
}

fn set_miss(context: &mut [u8], miss: Option<u32>) {
    if let Some(next) = miss {
        flow_table_context::TABLE_MISS_ACTION.set(context, MISS_FORWARD);
        flow_table_context::TABLE_MISS_ID.set(context, next.into());
    }
}

/// MODIFY_FLOW_TABLE: sends frames that match no entry to the table `miss`; `None`: nowhere.
pub(crate) fn change_miss(table: Table, miss: Option<u32>) -> Prepared {
    use modify_flow_table_in::{
        FLOW_TABLE_CONTEXT, MODIFY_FIELD_SELECT, SIZE, TABLE_ID, TABLE_TYPE,
    };
    let fields = [
        (MODIFY_FIELD_SELECT, SELECT_MISS),
        (TABLE_TYPE, table.kind),
        (TABLE_ID, table.number.into()),
    ];
    let mut command = Prepared::new(CmdOpcode::MODIFY_FLOW_TABLE, SIZE, &fields);
    set_miss(FLOW_TABLE_CONTEXT.of_mut(&mut command.input), miss);
    command
}

/// DESTROY_FLOW_TABLE.
pub(crate) fn destroy_table(table: Table) -> Prepared {
    use destroy_flow_table_in::{SIZE, TABLE_ID, TABLE_TYPE};
    let fields = [(TABLE_TYPE, table.kind), (TABLE_ID, table.number.into())];
    Prepared::new(CmdOpcode::DESTROY_FLOW_TABLE, SIZE, &fields)
}

/// SET_FLOW_TABLE_ROOT: sets the root table of a type, or, with `None`, removes it.
pub(crate) fn set_root(kind: u64, table: Option<u32>) -> Prepared {
    use set_flow_table_root_in::{SIZE, TABLE_ID, TABLE_TYPE};
    let fields = [(TABLE_TYPE, kind), (TABLE_ID, table.unwrap_or(0).into())];
    let command = Prepared::new(CmdOpcode::SET_FLOW_TABLE_ROOT, SIZE, &fields);
    Prepared { op_mod: if table.is_some() { 0 } else { NO_ROOT }, ..command }
}

/// CREATE_FLOW_GROUP of the entries `first` to `last`, which match on `criteria`. `enable` is
/// `match_criteria_enable`.
pub(crate) fn create_group(
    table: Table,
    (first, last): (u32, u32),
    enable: u8,
    criteria: &[u8],
) -> Prepared {
    use create_flow_group_in as group;
    let fields = [
        (group::TABLE_TYPE, table.kind),
        (group::TABLE_ID, table.number.into()),
        (group::START_FLOW_INDEX, first.into()),
        (group::END_FLOW_INDEX, last.into()),
        (group::MATCH_CRITERIA_ENABLE, enable.into()),
    ];
    let mut command = Prepared::new(CmdOpcode::CREATE_FLOW_GROUP, group::SIZE, &fields);
    group::MATCH_CRITERIA.of_mut(&mut command.input).copy_from_slice(criteria);
    Prepared { outlen: create_flow_group_out::SIZE, ..command }
}

/// DESTROY_FLOW_GROUP.
pub(crate) fn destroy_group(table: Table, group: u32) -> Prepared {
    use destroy_flow_group_in::{GROUP_ID, SIZE, TABLE_ID, TABLE_TYPE};
    let fields =
        [(TABLE_TYPE, table.kind), (TABLE_ID, table.number.into()), (GROUP_ID, group.into())];
    Prepared::new(CmdOpcode::DESTROY_FLOW_GROUP, SIZE, &fields)
}

/// SET_FLOW_TABLE_ENTRY: adds an entry, or changes its parts `change` (`modify_enable_mask`).
pub(crate) fn set_entry(
    table: Table,
    index: u32,
    entry: &Entry<'_>,
    change: Option<u64>,
) -> Prepared {
    let fields = [
        (set_fte_in::TABLE_TYPE, table.kind),
        (set_fte_in::TABLE_ID, table.number.into()),
        (set_fte_in::MODIFY_ENABLE_MASK, change.unwrap_or(0)),
        (set_fte_in::FLOW_INDEX, index.into()),
    ];
    let mut command = Prepared::new(CmdOpcode::SET_FLOW_TABLE_ENTRY, set_fte_in::SIZE, &fields);
    let context = set_fte_in::FLOW_CONTEXT.of_mut(&mut command.input);
    set(
        context,
        &[
            (flow_context::GROUP_ID, entry.group.into()),
            (flow_context::FLOW_TAG, entry.tag.into()),
            (flow_context::ACTION, entry.action),
            (flow_context::DESTINATION_LIST_SIZE, entry.destinations.len() as u64),
            (flow_context::FLOW_COUNTER_LIST_SIZE, entry.counters.len() as u64),
            (flow_context::PACKET_REFORMAT_ID, entry.reformat.into()),
            (flow_context::MODIFY_HEADER_ID, entry.rewrites.into()),
        ],
    );
    flow_context::MATCH_VALUE.of_mut(context).copy_from_slice(entry.value);
    for (kind, number) in entry.destinations {
        let mut destination = [0; dest_format_struct::SIZE];
        dest_format_struct::DESTINATION_TYPE.set(&mut destination, *kind);
        dest_format_struct::DESTINATION_ID.set(&mut destination, (*number).into());
        command.input.extend(destination);
    }
    for counter in entry.counters {
        let mut listed = [0; flow_counter_list::SIZE];
        flow_counter_list::FLOW_COUNTER_ID.set(&mut listed, (*counter).into());
        command.input.extend(listed);
    }
    Prepared { op_mod: if change.is_some() { CHANGE_ENTRY } else { 0 }, ..command }
}

/// DELETE_FLOW_TABLE_ENTRY.
pub(crate) fn delete_entry(table: Table, index: u32) -> Prepared {
    use delete_fte_in::{FLOW_INDEX, SIZE, TABLE_ID, TABLE_TYPE};
    let fields =
        [(TABLE_TYPE, table.kind), (TABLE_ID, table.number.into()), (FLOW_INDEX, index.into())];
    Prepared::new(CmdOpcode::DELETE_FLOW_TABLE_ENTRY, SIZE, &fields)
}
