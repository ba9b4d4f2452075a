//! The rules of all files, in the device's flow tables (`hw/mlx5/fs.c`, over mlx5_core's
//! `fs_core.c`).
//!
//! A table for each priority, each of which sends what it doesn't match to the next. In a table
//! rules that look at the same bits share a group, and equal ones an entry.

use std::collections::BTreeMap;

use nix::errno::Errno;

use crate::hca::ethernet::steering::Steering;
use crate::hca::ethernet::{
    Change, Direction, Edits, EntryContext, FlowDestination, GroupContext, MATCH_LEN, Miss,
    TableContext, Wrong,
};

/// Priorities of rules (`MLX5_BY_PASS_NUM_REGULAR_PRIOS`); each has a table more for rules that
/// let packets go on (`ib_prio_to_core_prio`).
pub(crate) const PRIORITIES: u8 = 16;
/// The table of rules for groups alone (`MLX5_IB_FLOW_MCAST_PRIO`).
pub(crate) const MULTICAST: u8 = 2 * PRIORITIES;
/// The table of what no rule takes (`MLX5_FLOW_NAMESPACE_LEFTOVERS`).
pub(crate) const REST: u8 = MULTICAST + 1;
const TABLES: u8 = REST + 1;
/// Log2 of a table's entries (`MLX5_FS_MAX_ENTRIES`), and groups that get a part of them each
/// (`MLX5_FS_MAX_TYPES`).
const LOG_ENTRIES: u8 = 16;
const LARGE_GROUPS: usize = 6;

/// Bytes that are compared, or a mask over them.
pub(crate) type Param = [u8; MATCH_LEN];

/// A rule as the device takes it.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// Number of its table.
    pub(crate) table: u8,
    /// Which parts of `criteria` count (`match_criteria_enable`).
    pub(crate) enable: u8,
    pub(crate) criteria: Param,
    pub(crate) value: Param,
    pub(crate) tag: Option<u32>,
    /// Whether packets are dropped, and go to no TIR.
    pub(crate) drops: bool,
    /// Whether packets also go on to the next table.
    pub(crate) goes_on: bool,
    pub(crate) tir: u32,
    pub(crate) counter: Option<u32>,
}

/// Where a rule is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    table: u8,
    group: u32,
    index: u32,
    tir: Option<u32>,
    counter: Option<u32>,
}

#[derive(Debug)]
struct Group {
    number: u32,
    first: u32,
    last: u32,
    enable: u8,
    criteria: Param,
    entries: BTreeMap<u32, Entry>,
}

/// Rules that are equal but for where they lead.
#[derive(Debug)]
struct Entry {
    value: Param,
    tag: u32,
    drops: bool,
    goes_on: bool,
    /// How many rules lead to each.
    tirs: BTreeMap<u32, u32>,
    counters: BTreeMap<u32, u32>,
    rules: u32,
}

/// The tables, and the numbers of all that steers.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    last_number: u32,
    /// Empty until there is a rule.
    tables: Vec<Vec<Group>>,
}

/// The errno of a firmware command that failed, as for
/// [`device::errno`](super::device::errno).
pub(crate) fn errno(wrong: Wrong) -> Errno {
    match wrong {
        Wrong::Missing(_) | Wrong::Param(_) => Errno::EINVAL,
        Wrong::Busy(_) => Errno::EBUSY,
        Wrong::Limit(_) => Errno::ENOMEM,
    }
}

/// The device's number of a table.
fn number_of(table: u8) -> u32 {
    u32::from(table) + 1
}

impl Flows {
    /// A number for a TIR, a table of queues, a group or a counter; none is used twice.
    pub(crate) fn number(&mut self) -> u32 {
        self.last_number += 1;
        self.last_number
    }

    /// Adds a rule.
    ///
    /// # Errors
    ///
    /// `EEXIST` if there is one for the same packets with another tag or another fate
    /// (`check_conflicting_ftes`); those of [`errno`].
    pub(crate) fn add(&mut self, steering: &mut Steering, rule: &Rule) -> Result<Placed, Errno> {
        self.make_tables(steering)?;
        let (group, index) = match self.find(rule) {
            Some(place) => place,
            None => self.place(steering, rule)?,
        };
        let Group { number, entries, .. } = &mut self.tables[usize::from(rule.table)][group];
        let number = *number;
        let is_new = !entries.contains_key(&index);
        let entry = entries.entry(index).or_insert_with(|| Entry::new(rule));
        if entry.drops != rule.drops || rule.tag.is_some_and(|tag| tag != entry.tag) {
            return Err(Errno::EEXIST);
        }
        let tir = (!rule.drops).then_some(rule.tir);
        entry.count(tir, rule.counter, 1);
        entry.goes_on |= rule.goes_on;
        let (table, context) = (number_of(rule.table), entry.context(rule.table));
        let done = match is_new {
            true => steering.add_entry(table, (number, index), &rule.value, context),
            false => steering.change_entry(table, index, ALL, context),
        };
        let placed = Placed { table: rule.table, group: number, index, tir, counter: rule.counter };
        if let Err(wrong) = done {
            self.forget(placed);
            self.drop_empty(steering, rule.table);
            return Err(errno(wrong));
        }
        Ok(placed)
    }

    /// Removes a rule.
    pub(crate) fn remove(&mut self, steering: &mut Steering, placed: Placed) {
        let table = number_of(placed.table);
        // What was made is there, so that nothing is refused.
        match self.forget(placed) {
            Some(context) => drop(steering.change_entry(table, placed.index, ALL, context)),
            None => drop(steering.remove_entry(table, placed.index)),
        }
        self.drop_empty(steering, placed.table);
    }

    /// Removes groups without entries.
    fn drop_empty(&mut self, steering: &mut Steering, table: u8) {
        self.tables[usize::from(table)].retain(|group| {
            let empty = group.entries.is_empty();
            if empty {
                let _ = steering.remove_group(number_of(table), group.number);
            }
            !empty
        });
    }

    /// Takes a rule out of its entry; gives what is left of that.
    fn forget(&mut self, placed: Placed) -> Option<EntryContext> {
        let groups = self.tables.get_mut(usize::from(placed.table))?;
        let group = groups.iter_mut().find(|group| group.number == placed.group)?;
        let entry = group.entries.get_mut(&placed.index)?;
        entry.count(placed.tir, placed.counter, -1);
        if entry.rules == 0 {
            group.entries.remove(&placed.index);
            return None;
        }
        Some(entry.context(placed.table))
    }

    /// Makes the tables, from the last one on, since each names the next.
    fn make_tables(&mut self, steering: &mut Steering) -> Result<(), Errno> {
        if !self.tables.is_empty() {
            return Ok(());
        }
        for table in (0..TABLES).rev() {
            let miss = match table {
                REST => Miss::Usual,
                _ => Miss::Table(number_of(table + 1)),
            };
            let direction = Direction::Receive;
            let context = TableContext { direction, level: table, log_size: LOG_ENTRIES, miss };
            steering.add_table(number_of(table), context).map_err(errno)?;
        }
        steering.set_root(Direction::Receive, Some(number_of(0))).map_err(errno)?;
        self.tables = (0..TABLES).map(|_| Vec::new()).collect();
        Ok(())
    }

    /// The entry of an equal rule: place of its group, and its number.
    fn find(&self, rule: &Rule) -> Option<(usize, u32)> {
        self.tables[usize::from(rule.table)].iter().enumerate().find_map(|(at, group)| {
            let mut entries = group.entries.iter().filter(|_| group.is_for(rule));
            let (index, _) = entries.find(|(_, entry)| entry.value == rule.value)?;
            Some((at, *index))
        })
    }

    /// Room for a new entry: in a group that looks at the same, or in a new one
    /// (`alloc_auto_flow_group`).
    fn place(&mut self, steering: &mut Steering, rule: &Rule) -> Result<(usize, u32), Errno> {
        let number = self.last_number + 1;
        let groups = &mut self.tables[usize::from(rule.table)];
        let free = groups.iter().enumerate().filter(|(_, group)| group.is_for(rule));
        if let Some(found) = free.filter_map(|(at, group)| Some((at, group.free()?))).next() {
            return Ok(found);
        }
        let whole = 1 << LOG_ENTRIES;
        let len = match groups.len() {
            ..LARGE_GROUPS => whole / (LARGE_GROUPS as u32 + 1),
            _ => 1,
        };
        let (at, first) = gap(groups, len, whole).ok_or(Errno::ENOSPC)?;
        let last = first + len - 1;
        let (enable, criteria) = (rule.enable, &rule.criteria);
        let context = GroupContext { first, last, enable, criteria };
        steering.add_group(number_of(rule.table), number, context).map_err(errno)?;
        let (criteria, entries) = (rule.criteria, BTreeMap::new());
        groups.insert(at, Group { number, first, last, enable, criteria, entries });
        self.last_number = number;
        Ok((at, first))
    }
}

/// The first gap of so many entries between groups that are sorted: whose place it would have, and
/// where it begins.
fn gap(groups: &[Group], len: u32, whole: u32) -> Option<(usize, u32)> {
    let mut first = 0;
    for (at, group) in groups.iter().enumerate() {
        if group.first - first >= len {
            return Some((at, first));
        }
        first = group.last + 1;
    }
    (whole - first >= len).then_some((groups.len(), first))
}

/// A change of all that an entry does.
const ALL: Change = Change { tag: true, destinations: true, edits: true, counters: true };

impl Group {
    fn is_for(&self, rule: &Rule) -> bool {
        self.enable == rule.enable && self.criteria == rule.criteria
    }

    /// The first free entry.
    fn free(&self) -> Option<u32> {
        (self.first..=self.last).find(|index| !self.entries.contains_key(index))
    }
}

impl Entry {
    fn new(rule: &Rule) -> Self {
        Self {
            value: rule.value,
            tag: rule.tag.unwrap_or(0),
            drops: rule.drops,
            goes_on: rule.goes_on,
            tirs: BTreeMap::new(),
            counters: BTreeMap::new(),
            rules: 0,
        }
    }

    /// One rule more or less.
    fn count(&mut self, tir: Option<u32>, counter: Option<u32>, by: i32) {
        self.rules = self.rules.saturating_add_signed(by);
        for (list, number) in [(&mut self.tirs, tir), (&mut self.counters, counter)] {
            let Some(number) = number else { continue };
            let users = list.entry(number).or_default();
            *users = users.saturating_add_signed(by);
            if *users == 0 {
                list.remove(&number);
            }
        }
    }

    fn context(&self, table: u8) -> EntryContext {
        let next = (self.goes_on && table < REST).then(|| number_of(table + 1));
        let tirs = self.tirs.keys().map(|&tir| FlowDestination::Tir(tir));
        EntryContext {
            tag: self.tag,
            destinations: tirs.chain(next.map(FlowDestination::Table)).collect(),
            counters: self.counters.keys().copied().collect(),
            edits: Edits::NONE,
        }
    }
}
