//! Flow tables. A table has groups; a group is a range of entries that match on the same bits. The
//! matching entry with the lowest index applies. A frame without match goes where the table's miss
//! action says (PRM "Flow Table").

use std::collections::{BTreeMap, BTreeSet};

use super::matching::Mask;
use uverbs_front::backend::steering::{EntryContext, GroupContext, Param, TableContext, Wrong};

/// Log2 of the maximum entries of a table.
pub(crate) const LOG_MAX_SIZE: u8 = 20;
/// Highest level of a table: the field has eight bits, and Linux uses more than 64 levels.
pub(crate) const MAX_LEVEL: u8 = u8::MAX;
/// Maximum destinations and counters of an entry.
pub(crate) const MAX_DESTINATIONS: usize = 1 << 8;

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) context: TableContext,
    /// Groups by index of their first entry.
    groups: BTreeMap<u32, Group>,
}

#[derive(Debug)]
struct Group {
    number: u32,
    last: u32,
    mask: Mask,
    entries: BTreeMap<u32, FlowTableEntry>,
    /// Indexes of entries by match value.
    by_value: BTreeMap<Box<[u8]>, BTreeSet<u32>>,
}

#[derive(Debug)]
struct FlowTableEntry {
    value: Box<[u8]>,
    context: EntryContext,
}

impl Table {
    pub(crate) fn new(context: TableContext) -> Result<Table, Wrong> {
        if context.log_size > LOG_MAX_SIZE {
            return Err(Wrong::Param("size of a flow table"));
        }
        Ok(Table { context, groups: BTreeMap::new() })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    pub(crate) fn add_group(
        &mut self,
        number: u32,
        context: GroupContext<'_>,
    ) -> Result<(), Wrong> {
        let GroupContext { first, last, enable, criteria } = context;
        if first > last || last >= 1 << self.context.log_size {
            return Err(Wrong::Param("a flow group beyond its table"));
        }
        let before = self.groups.range(..=last).next_back();
        if before.is_some_and(|(_, group)| group.last >= first) {
            return Err(Wrong::Param("flow groups overlap"));
        }
        let mask = Mask::new(criteria, enable).ok_or(Wrong::Param("no such match field"))?;
        let (entries, by_value) = (BTreeMap::new(), BTreeMap::new());
        self.groups.insert(first, Group { number, last, mask, entries, by_value });
        Ok(())
    }

    pub(crate) fn remove_group(&mut self, number: u32) -> Result<(), Wrong> {
        let found = self.groups.iter().find(|(_, group)| group.number == number);
        let (&first, group) = found.ok_or(Wrong::Missing("no such flow group"))?;
        if !group.entries.is_empty() {
            return Err(Wrong::Busy("the flow group has entries"));
        }
        self.groups.remove(&first);
        Ok(())
    }

    fn group_of(&mut self, index: u32) -> Result<&mut Group, Wrong> {
        let before = self.groups.range_mut(..=index).next_back().map(|(_, group)| group);
        before.filter(|group| group.last >= index).ok_or(Wrong::Missing("no such flow group"))
    }

    pub(crate) fn add_entry(
        &mut self,
        group: u32,
        index: u32,
        value: &Param,
        context: EntryContext,
    ) -> Result<(), Wrong> {
        let of_index = self.group_of(index)?;
        if of_index.number != group {
            return Err(Wrong::Param("the entry is of another flow group"));
        }
        if of_index.entries.contains_key(&index) {
            return Err(Wrong::Param("there is an entry already"));
        }
        let value = of_index.mask.of(value);
        of_index.by_value.entry(value.clone()).or_default().insert(index);
        of_index.entries.insert(index, FlowTableEntry { value, context });
        Ok(())
    }

    /// Actions of an entry.
    pub(crate) fn entry(&mut self, index: u32) -> Result<&mut EntryContext, Wrong> {
        let entry = self.group_of(index)?.entries.get_mut(&index);
        Ok(&mut entry.ok_or(Wrong::Missing("no such flow entry"))?.context)
    }

    pub(crate) fn remove_entry(&mut self, index: u32) -> Result<EntryContext, Wrong> {
        let group = self.group_of(index)?;
        let entry = group.entries.remove(&index).ok_or(Wrong::Missing("no such flow entry"))?;
        if let Some(numbers) = group.by_value.get_mut(&entry.value) {
            numbers.remove(&index);
            if numbers.is_empty() {
                group.by_value.remove(&entry.value);
            }
        }
        Ok(entry.context)
    }

    /// Returns the matching entry with the lowest index.
    pub(crate) fn find(&self, param: &Param) -> Option<&EntryContext> {
        self.groups.values().find_map(|group| {
            let index = group.by_value.get(&group.mask.of(param))?.first()?;
            group.entries.get(index).map(|entry| &entry.context)
        })
    }
}
