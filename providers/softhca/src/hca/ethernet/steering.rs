//! Receive steering: flow tables, TIRs, queues, and the route of a frame through them.

use std::collections::BTreeMap;

use super::flow::{Change, EntryContext, FlowDestination, GroupContext, Miss, Table, TableContext};
use super::headers::Headers;
use super::matching::{self, Param};
use super::rss::Hash;
use super::tir::{Spread, TirContext};
use super::wrong::Wrong;

/// Entries of all tables together.
pub(crate) const MAX_ENTRIES: usize = 1 << 16;
/// Destinations and counters of all entries, and places of all tables of queues.
const MAX_LISTED: usize = 1 << 20;
/// Places in a table of queues.
pub(crate) const MAX_SPREAD: usize = 1 << 11;
/// Tables that a frame is looked up in, copies counted, and copies of it that arrive. An entry may
/// send a frame to several tables, and these to more, so without a bound there would be none.
const MAX_LOOKUPS: usize = 1 << 10;
/// Groups of those tables: as many as all tables together may have, so that only what is looked up
/// repeatedly has less.
const MAX_GROUPS: usize = 1 << 16;
const MAX_COPIES: usize = 1 << 10;
/// Bytes of the longest frame before a driver sets a size.
const FRAME_LIMIT: usize = 10 << 10;

/// Options of a receive queue beyond its ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueOptions {
    /// The outer VLAN tag goes into the completion in place of the buffer.
    pub(crate) strips_vlan: bool,
}

/// Count of a flow counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowCount {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// A frame for a receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) rqn: u32,
    pub(crate) tag: u32,
    pub(crate) hash: Hash,
}

/// Receive steering state. The caller assigns the numbers.
#[derive(Debug, Default)]
pub(crate) struct Steering {
    tables: BTreeMap<u32, Table>,
    /// The table in which an arriving frame is looked up first.
    root: Option<u32>,
    entries: usize,
    /// Destinations and counters of entries, and places in tables of queues.
    listed: usize,
    counters: BTreeMap<u32, FlowCount>,
    tirs: BTreeMap<u32, TirContext>,
    /// Tables of queues.
    spreads: BTreeMap<u32, Vec<u32>>,
    queues: BTreeMap<u32, QueueOptions>,
    /// Transport domains of send queues.
    domains: BTreeMap<u32, u32>,
    frame_limit: Option<usize>,
}

impl Steering {
    /// Bytes of the longest frame that passes the port.
    pub(crate) fn set_frame_limit(&mut self, bytes: usize) {
        self.frame_limit = Some(bytes);
    }

    pub(crate) fn frame_limit(&self) -> usize {
        self.frame_limit.unwrap_or(FRAME_LIMIT)
    }

    /// A send queue and its transport domain.
    pub(crate) fn add_sender(&mut self, sqn: u32, domain: u32) {
        self.domains.insert(sqn, domain);
    }

    pub(crate) fn remove_sender(&mut self, sqn: u32) {
        self.domains.remove(&sqn);
    }

    /// A receive queue, new or changed.
    pub(crate) fn set_queue(&mut self, rqn: u32, options: QueueOptions) {
        self.queues.insert(rqn, options);
    }

    pub(crate) fn remove_queue(&mut self, rqn: u32) {
        self.queues.remove(&rqn);
    }

    pub(crate) fn strips_vlan(&self, rqn: u32) -> bool {
        self.queues.get(&rqn).is_some_and(|options| options.strips_vlan)
    }

    /// A table of queues, new or changed.
    pub(crate) fn set_spread(&mut self, number: u32, queues: Vec<u32>) -> Result<(), Wrong> {
        if queues.is_empty() || queues.len() > MAX_SPREAD {
            return Err(Wrong::Param("size of a table of receive queues"));
        }
        if !queues.iter().all(|rqn| self.queues.contains_key(rqn)) {
            return Err(Wrong::Missing("no such receive queue"));
        }
        let before = self.spreads.get(&number).map_or(0, Vec::len);
        self.list(before, queues.len())?;
        self.spreads.insert(number, queues);
        Ok(())
    }

    pub(crate) fn spread(&self, number: u32) -> Result<&[u32], Wrong> {
        let queues = self.spreads.get(&number);
        queues.map(|queues| &queues[..]).ok_or(Wrong::Missing("no such table of receive queues"))
    }

    pub(crate) fn remove_spread(&mut self, number: u32) -> Result<(), Wrong> {
        self.listed -= self.spread(number)?.len();
        self.spreads.remove(&number);
        Ok(())
    }

    /// A TIR, new or changed.
    pub(crate) fn set_tir(&mut self, number: u32, context: TirContext) -> Result<(), Wrong> {
        context.check()?;
        match context.spread {
            Spread::Queue(rqn) if !self.queues.contains_key(&rqn) => {
                return Err(Wrong::Missing("no such receive queue"));
            }
            Spread::Table(spread) => self.spread(spread).map(|_| ())?,
            Spread::Queue(_) => {}
        }
        self.tirs.insert(number, context);
        Ok(())
    }

    pub(crate) fn tir(&self, number: u32) -> Result<&TirContext, Wrong> {
        self.tirs.get(&number).ok_or(Wrong::Missing("no such TIR"))
    }

    pub(crate) fn remove_tir(&mut self, number: u32) -> Result<(), Wrong> {
        self.tirs.remove(&number).map(|_| ()).ok_or(Wrong::Missing("no such TIR"))
    }

    pub(crate) fn add_counter(&mut self, number: u32) {
        self.counters.insert(number, FlowCount::default());
    }

    pub(crate) fn counter(&mut self, number: u32) -> Result<&mut FlowCount, Wrong> {
        self.counters.get_mut(&number).ok_or(Wrong::Missing("no such flow counter"))
    }

    pub(crate) fn remove_counter(&mut self, number: u32) -> Result<(), Wrong> {
        self.counters.remove(&number).map(|_| ()).ok_or(Wrong::Missing("no such flow counter"))
    }

    pub(crate) fn add_table(&mut self, number: u32, context: TableContext) -> Result<(), Wrong> {
        let table = Table::new(context)?;
        self.check_miss(context.level, context.miss)?;
        self.tables.insert(number, table);
        Ok(())
    }

    pub(crate) fn set_miss(&mut self, number: u32, miss: Miss) -> Result<(), Wrong> {
        self.check_miss(self.table(number)?.context.level, miss)?;
        self.table_mut(number)?.context.miss = miss;
        Ok(())
    }

    fn check_miss(&self, level: u8, miss: Miss) -> Result<(), Wrong> {
        match miss {
            Miss::Table(next) => self.check_next(level, next),
            Miss::Drop => Ok(()),
        }
    }

    /// Frames go to tables of higher levels only, so that they come to an end.
    fn check_next(&self, level: u8, next: u32) -> Result<(), Wrong> {
        match self.table(next)?.context.level > level {
            true => Ok(()),
            false => Err(Wrong::Param("the next flow table is of no higher level")),
        }
    }

    /// The table that comes first.
    pub(crate) fn set_root(&mut self, number: Option<u32>) -> Result<(), Wrong> {
        if let Some(number) = number {
            self.table(number)?;
        }
        self.root = number;
        Ok(())
    }

    pub(crate) fn remove_table(&mut self, number: u32) -> Result<(), Wrong> {
        if !self.table(number)?.is_empty() {
            return Err(Wrong::Busy("the flow table has groups"));
        }
        self.tables.remove(&number);
        Ok(())
    }

    fn table(&self, number: u32) -> Result<&Table, Wrong> {
        self.tables.get(&number).ok_or(Wrong::Missing("no such flow table"))
    }

    fn table_mut(&mut self, number: u32) -> Result<&mut Table, Wrong> {
        self.tables.get_mut(&number).ok_or(Wrong::Missing("no such flow table"))
    }

    pub(crate) fn add_group(
        &mut self,
        table: u32,
        number: u32,
        context: GroupContext<'_>,
    ) -> Result<(), Wrong> {
        self.table_mut(table)?.add_group(number, context)
    }

    pub(crate) fn remove_group(&mut self, table: u32, number: u32) -> Result<(), Wrong> {
        self.table_mut(table)?.remove_group(number)
    }

    pub(crate) fn add_entry(
        &mut self,
        table: u32,
        (group, index): (u32, u32),
        value: &Param,
        context: EntryContext,
    ) -> Result<(), Wrong> {
        self.check_entry(table, &context)?;
        if self.entries >= MAX_ENTRIES {
            return Err(Wrong::Limit("flow entries"));
        }
        let len = context.listed();
        self.list(0, len)?;
        let added = self.table_mut(table)?.add_entry(group, index, value, context);
        match added {
            Ok(()) => self.entries += 1,
            Err(_) => self.listed -= len,
        }
        added
    }

    pub(crate) fn change_entry(
        &mut self,
        table: u32,
        index: u32,
        change: Change,
        to: EntryContext,
    ) -> Result<(), Wrong> {
        self.check_entry(table, &to)?;
        let before = self.table_mut(table)?.entry(index)?.listed();
        self.list(0, to.listed())?;
        self.listed -= to.listed();
        let entry = self.table_mut(table)?.entry(index)?;
        entry.change(change, to);
        let after = entry.listed();
        self.listed = self.listed - before + after;
        Ok(())
    }

    /// Counts what a list has grown by.
    fn list(&mut self, before: usize, after: usize) -> Result<(), Wrong> {
        let listed = self.listed - before + after;
        if listed > MAX_LISTED {
            return Err(Wrong::Limit("destinations"));
        }
        self.listed = listed;
        Ok(())
    }

    fn check_entry(&self, table: u32, context: &EntryContext) -> Result<(), Wrong> {
        let level = self.table(table)?.context.level;
        for destination in &context.destinations {
            match *destination {
                FlowDestination::Table(next) => self.check_next(level, next)?,
                FlowDestination::Tir(number) => self.tir(number).map(|_| ())?,
            }
        }
        match context.counters.iter().all(|number| self.counters.contains_key(number)) {
            true => Ok(()),
            false => Err(Wrong::Missing("no such flow counter")),
        }
    }

    pub(crate) fn remove_entry(&mut self, table: u32, index: u32) -> Result<(), Wrong> {
        let gone = self.table_mut(table)?.remove_entry(index)?;
        self.entries -= 1;
        self.listed -= gone.listed();
        Ok(())
    }

    /// The receive queues that get a frame of `len` bytes, which came from send queue `sqn` of this
    /// device or by the wire. A destroyed table or queue takes nothing.
    pub(crate) fn route(
        &mut self,
        headers: &Headers,
        len: usize,
        sqn: Option<u32>,
    ) -> Vec<Delivery> {
        let domain = sqn.and_then(|sqn| self.domains.get(&sqn).copied());
        let param = matching::param(headers);
        let mut copies = Vec::new();
        let mut next: Vec<_> = self.root.into_iter().map(|root| (root, 0)).collect();
        let mut groups = MAX_GROUPS;
        for _ in 0..MAX_LOOKUPS {
            let Some((number, tag)) = next.pop() else { break };
            let Some(table) = self.tables.get(&number) else { continue };
            let Some(left) = groups.checked_sub(table.groups()) else { break };
            groups = left;
            let Some(entry) = table.find(&param) else {
                if let Miss::Table(miss) = table.context.miss {
                    next.push((miss, tag));
                }
                continue;
            };
            for number in &entry.counters {
                if let Some(counter) = self.counters.get_mut(number) {
                    counter.packets += 1;
                    counter.bytes += len as u64;
                }
            }
            // A tag stays until there is another.
            let tag = if entry.tag == 0 { tag } else { entry.tag };
            for destination in &entry.destinations {
                match *destination {
                    FlowDestination::Table(table) if next.len() < MAX_LOOKUPS => {
                        next.push((table, tag))
                    }
                    FlowDestination::Tir(tir) if copies.len() < MAX_COPIES => {
                        copies.extend(self.copy(headers, domain, tir, tag));
                    }
                    _ => {}
                }
            }
        }
        copies
    }

    fn copy(&self, headers: &Headers, domain: Option<u32>, tir: u32, tag: u32) -> Option<Delivery> {
        let tir = self.tirs.get(&tir).filter(|tir| tir.hears(domain, headers))?;
        let hash = tir.hash(headers);
        let rqn = match tir.spread {
            Spread::Queue(rqn) => rqn,
            Spread::Table(number) => {
                let queues = self.spreads.get(&number)?;
                // Never empty.
                *queues.get(hash.value as usize % queues.len())?
            }
        };
        self.queues.contains_key(&rqn).then_some(Delivery { rqn, tag, hash })
    }
}
