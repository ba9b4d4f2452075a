//! Flow rules of all files, in the device's flow tables (`hw/mlx5/fs.c`, over mlx5_core's
//! `fs_core.c`).
//!
//! Each priority has a table, whose misses go to the next table. In a table, rules with the same
//! criteria share a group, and rules with the same value share an entry.

use std::collections::BTreeMap;

use nix::errno::Errno;

use crate::backend::error;
use crate::backend::steering::{
    Change, Direction, Edits, EntryContext, FlowDestination, GroupContext, MATCH_LEN, Miss,
    Steering, TableContext, Wrong,
};

/// Rule priorities (`MLX5_BY_PASS_NUM_REGULAR_PRIOS`). Each has a second table for rules that do
/// not trap packets (`ib_prio_to_core_prio`).
pub(crate) const PRIORITIES: u8 = 16;
/// Table of rules for multicast groups only (`MLX5_IB_FLOW_MCAST_PRIO`).
pub(crate) const MULTICAST: u8 = 2 * PRIORITIES;
/// Table of packets without rule (`MLX5_FLOW_NAMESPACE_LEFTOVERS`).
pub(crate) const REST: u8 = MULTICAST + 1;
const TABLES: u8 = REST + 1;
/// Stands for the tables of copies of all packets (`MLX5_FLOW_NAMESPACE_SNIFFER_RX`, `_TX`).
pub(crate) const SNIFFERS: u8 = TABLES;
/// Log2 of a table's entries (`MLX5_FS_MAX_ENTRIES`), and number of large groups, which get a part
/// of them each (`MLX5_FS_MAX_TYPES`).
const LOG_ENTRIES: u8 = 16;
const LARGE_GROUPS: usize = 6;

/// Match value, or match criteria.
pub(crate) type Param = [u8; MATCH_LEN];

/// A rule in the device's format.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// Number of its table.
    pub(crate) table: u8,
    /// Enabled parts of `criteria` (`match_criteria_enable`).
    pub(crate) enable: u8,
    pub(crate) criteria: Param,
    pub(crate) value: Param,
    pub(crate) tag: Option<u32>,
    /// Drop packets instead of sending them to a TIR.
    pub(crate) drops: bool,
    /// Table to which packets also go (don't trap), or go without a TIR (default miss).
    pub(crate) next: Option<u8>,
    pub(crate) tir: Option<u32>,
    pub(crate) counter: Option<u32>,
}

/// Position of a rule.
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
    entries: BTreeMap<u32, MergedRules>,
}

/// Rules with equal criteria, value and action, and any destinations.
#[derive(Debug)]
struct MergedRules {
    value: Param,
    tag: u32,
    drops: bool,
    next: Option<u8>,
    /// Number of rules for each destination and counter.
    tirs: BTreeMap<u32, u32>,
    counters: BTreeMap<u32, u32>,
    rules: u32,
}

/// The flow tables, and the numbers of steering objects.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    last_number: u32,
    /// Empty until the first rule.
    tables: Vec<Vec<Group>>,
}

/// Converts a failed firmware command into an errno, as [`device::errno`](super::device::errno).
pub(crate) fn errno(wrong: Wrong) -> Errno {
    match wrong {
        Wrong::Missing(_) | Wrong::Param(_) => Errno::EINVAL,
        Wrong::Busy(_) => Errno::EBUSY,
        Wrong::Limit(_) => Errno::ENOMEM,
        Wrong::Device(error) => error::errno(error),
    }
}

/// Device number of a table.
fn number_of(table: u8) -> u32 {
    u32::from(table) + 1
}

impl Flows {
    /// Allocates a number for a TIR, an RQ table, a group or a counter; none is used twice.
    pub(crate) fn number(&mut self) -> u32 {
        self.last_number += 1;
        self.last_number
    }

    /// Adds a rule.
    ///
    /// # Errors
    ///
    /// `EEXIST` if a rule for the same packets has another tag or another action
    /// (`check_conflicting_ftes`); the errors of [`errno`].
    pub(crate) fn add(
        &mut self,
        steering: &mut dyn Steering,
        rule: &Rule,
    ) -> Result<Placed, Errno> {
        if rule.table == SNIFFERS {
            let tir = rule.tir.ok_or(Errno::EINVAL)?;
            steering.add_sniffer(tir).map_err(errno)?;
            return Ok(Placed {
                table: SNIFFERS,
                group: 0,
                index: 0,
                tir: rule.tir,
                counter: None,
            });
        }
        self.make_tables(steering)?;
        let (group, index) = match self.find(rule) {
            Some(place) => place,
            None => self.place(steering, rule)?,
        };
        let Group { number, entries, .. } = &mut self.tables[usize::from(rule.table)][group];
        let number = *number;
        let is_new = !entries.contains_key(&index);
        let entry = entries.entry(index).or_insert_with(|| MergedRules::new(rule));
        if entry.drops != rule.drops || rule.tag.is_some_and(|tag| tag != entry.tag) {
            return Err(Errno::EEXIST);
        }
        entry.count(rule.tir, rule.counter, 1);
        entry.next = entry.next.or(rule.next);
        let (table, context) = (number_of(rule.table), entry.context());
        let done = match is_new {
            true => steering.add_entry(table, (number, index), &rule.value, context),
            false => steering.change_entry(table, index, ALL, context),
        };
        let (tir, counter) = (rule.tir, rule.counter);
        let placed = Placed { table: rule.table, group: number, index, tir, counter };
        if let Err(wrong) = done {
            self.forget(placed);
            self.drop_empty(steering, rule.table);
            return Err(errno(wrong));
        }
        Ok(placed)
    }

    /// Removes a rule.
    pub(crate) fn remove(&mut self, steering: &mut dyn Steering, placed: Placed) {
        if placed.table == SNIFFERS {
            placed.tir.into_iter().for_each(|tir| steering.remove_sniffer(tir));
            return;
        }
        let table = number_of(placed.table);
        // Removal cannot fail: the entry exists.
        match self.forget(placed) {
            Some(context) => drop(steering.change_entry(table, placed.index, ALL, context)),
            None => drop(steering.remove_entry(table, placed.index)),
        }
        self.drop_empty(steering, placed.table);
    }

    /// Removes groups without entries.
    fn drop_empty(&mut self, steering: &mut dyn Steering, table: u8) {
        self.tables[usize::from(table)].retain(|group| {
            let empty = group.entries.is_empty();
            if empty {
                let _ = steering.remove_group(number_of(table), group.number);
            }
            !empty
        });
    }

    /// Removes a rule from its entry. Returns the entry's remaining context, if rules are left.
    fn forget(&mut self, placed: Placed) -> Option<EntryContext> {
        let groups = self.tables.get_mut(usize::from(placed.table))?;
        let group = groups.iter_mut().find(|group| group.number == placed.group)?;
        let entry = group.entries.get_mut(&placed.index)?;
        entry.count(placed.tir, placed.counter, -1);
        if entry.rules == 0 {
            group.entries.remove(&placed.index);
            return None;
        }
        Some(entry.context())
    }

    /// Creates the tables, starting with the last since each names the next.
    fn make_tables(&mut self, steering: &mut dyn Steering) -> Result<(), Errno> {
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

    /// Entry of an equal rule: index of its group, and of the entry.
    fn find(&self, rule: &Rule) -> Option<(usize, u32)> {
        self.tables[usize::from(rule.table)].iter().enumerate().find_map(|(at, group)| {
            let mut entries = group.entries.iter().filter(|_| group.is_for(rule));
            let (index, _) = entries.find(|(_, entry)| entry.value == rule.value)?;
            Some((at, *index))
        })
    }

    /// Finds room for a new entry: in a group with the same criteria, or in a new group
    /// (`alloc_auto_flow_group`).
    fn place(&mut self, steering: &mut dyn Steering, rule: &Rule) -> Result<(usize, u32), Errno> {
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

/// First gap of `len` entries between sorted groups: index in the list of groups, and first entry.
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

/// Replaces everything in an entry.
const ALL: Change = Change { tag: true, destinations: true, edits: true, counters: true };

impl Group {
    fn is_for(&self, rule: &Rule) -> bool {
        self.enable == rule.enable && self.criteria == rule.criteria
    }

    /// First free entry.
    fn free(&self) -> Option<u32> {
        (self.first..=self.last).find(|index| !self.entries.contains_key(index))
    }
}

impl MergedRules {
    fn new(rule: &Rule) -> Self {
        Self {
            value: rule.value,
            tag: rule.tag.unwrap_or(0),
            drops: rule.drops,
            next: rule.next,
            tirs: BTreeMap::new(),
            counters: BTreeMap::new(),
            rules: 0,
        }
    }

    /// Adds `by` rules to the entry's counts.
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

    fn context(&self) -> EntryContext {
        let next = self.next.map(number_of);
        let tirs = self.tirs.keys().map(|&tir| FlowDestination::Tir(tir));
        EntryContext {
            tag: self.tag,
            destinations: tirs.chain(next.map(FlowDestination::Table)).collect(),
            counters: self.counters.keys().copied().collect(),
            edits: Edits::NONE,
        }
    }
}
