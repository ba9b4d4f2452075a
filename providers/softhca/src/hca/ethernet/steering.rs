//! Steering: flow tables, changes of frames, TIRs, queues. `route` leads frames through them.

use std::collections::BTreeMap;

use super::flow::Table;
use super::headers::Headers;
use super::reformat::Reformat;
use super::rewrite::{MAX_REWRITES, Rewrite};
use super::tir;
use uverbs_front::backend::steering::{
    Change, Direction, Edits, EntryContext, FlowCount, FlowDestination, GroupContext, Miss, Param,
    QueueOptions, Spread, TableContext, TirContext, Wrong,
};

/// Maximum entries of all tables together.
pub(crate) const MAX_ENTRIES: usize = 1 << 16;
/// Maximum total of all entries' destinations and counters and all RQ tables' queues.
const MAX_LISTED: usize = 1 << 20;
/// Maximum queues in an RQ table.
pub(crate) const MAX_SPREAD: usize = 1 << 11;
/// Longest frame in bytes, before a driver sets a size.
const FRAME_LIMIT: usize = 10 << 10;
const NO_TABLE: &str = "no such flow table";
const NO_REFORMAT: &str = "no such packet reformat";
const NO_REWRITES: &str = "no such change of headers";

/// Steering state. The caller assigns the numbers.
#[derive(Debug, Default)]
pub(crate) struct Steering {
    pub(super) tables: BTreeMap<u32, Table>,
    /// The first table that a frame is looked up in, for each direction.
    roots: BTreeMap<Direction, u32>,
    entries: usize,
    /// Number of all entries' destinations and counters, and of all RQ tables' queues.
    listed: usize,
    pub(super) counters: BTreeMap<u32, FlowCount>,
    pub(super) reformats: BTreeMap<u32, Reformat>,
    pub(super) rewrites: BTreeMap<u32, (Direction, Vec<Rewrite>)>,
    pub(super) tirs: BTreeMap<u32, TirContext>,
    /// RQ tables: the queues among which RSS selects.
    pub(super) spreads: BTreeMap<u32, Vec<u32>>,
    pub(super) queues: BTreeMap<u32, QueueOptions>,
    /// TIRs that get a copy of each packet of the port, with the number of their rules.
    sniffers: BTreeMap<u32, u32>,
    /// Transport domain of each send queue.
    domains: BTreeMap<u32, u32>,
    frame_limit: Option<usize>,
    loopback: Loopback,
}

/// Frames of this device that its own receive queues do not get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Loopback {
    pub(crate) blocks_unicast: bool,
    pub(crate) blocks_multicast: bool,
}

impl Steering {
    pub(crate) fn set_loopback(&mut self, loopback: Loopback) {
        self.loopback = loopback;
    }

    /// True if local loopback of this frame is off.
    pub(super) fn blocks(&self, headers: &Headers) -> bool {
        match headers.is_unicast() {
            true => self.loopback.blocks_unicast,
            false => self.loopback.blocks_multicast,
        }
    }

    /// Sets the longest frame that passes the port.
    pub(crate) fn set_frame_limit(&mut self, bytes: usize) {
        self.frame_limit = Some(bytes);
    }

    pub(crate) fn frame_limit(&self) -> usize {
        self.frame_limit.unwrap_or(FRAME_LIMIT)
    }

    /// Registers a send queue and its transport domain.
    pub(crate) fn add_sender(&mut self, sqn: u32, domain: u32) {
        self.domains.insert(sqn, domain);
    }

    pub(crate) fn remove_sender(&mut self, sqn: u32) {
        self.domains.remove(&sqn);
    }

    pub(super) fn domain(&self, sqn: u32) -> Option<u32> {
        self.domains.get(&sqn).copied()
    }

    /// Adds or changes a receive queue.
    pub(crate) fn set_queue(&mut self, rqn: u32, options: QueueOptions) {
        self.queues.insert(rqn, options);
    }

    pub(crate) fn remove_queue(&mut self, rqn: u32) {
        self.queues.remove(&rqn);
    }

    pub(crate) fn strips_vlan(&self, rqn: u32) -> bool {
        self.queues.get(&rqn).is_some_and(|options| options.strips_vlan)
    }

    /// Adds or changes an RQ table.
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

    /// Adds or changes a TIR.
    pub(crate) fn set_tir(&mut self, number: u32, context: TirContext) -> Result<(), Wrong> {
        tir::check(&context)?;
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

    /// Adds a rule that sends copies of all packets of the port to a TIR.
    pub(crate) fn add_sniffer(&mut self, tir: u32) -> Result<(), Wrong> {
        self.tir(tir)?;
        *self.sniffers.entry(tir).or_default() += 1;
        Ok(())
    }

    pub(crate) fn remove_sniffer(&mut self, tir: u32) {
        if let Some(rules) = self.sniffers.get_mut(&tir) {
            *rules -= 1;
            if *rules == 0 {
                self.sniffers.remove(&tir);
            }
        }
    }

    /// TIRs that get copies.
    pub(crate) fn sniffers(&self) -> impl Iterator<Item = u32> {
        self.sniffers.keys().copied()
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

    pub(crate) fn add_reformat(&mut self, number: u32, reformat: Reformat) -> Result<(), Wrong> {
        self.reformats.insert(number, reformat);
        Ok(())
    }

    /// Removes a packet reformat. Entries that use it drop their frames from now on.
    pub(crate) fn remove_reformat(&mut self, number: u32) -> Result<(), Wrong> {
        self.reformats.remove(&number).map(|_| ()).ok_or(Wrong::Missing(NO_REFORMAT))
    }

    pub(crate) fn add_rewrites(
        &mut self,
        number: u32,
        direction: Direction,
        rewrites: Vec<Rewrite>,
    ) -> Result<(), Wrong> {
        if rewrites.len() > MAX_REWRITES {
            return Err(Wrong::Param("too many changes of headers"));
        }
        self.rewrites.insert(number, (direction, rewrites));
        Ok(())
    }

    /// Removes a modify header context. Entries that use it drop their frames from now on.
    pub(crate) fn remove_rewrites(&mut self, number: u32) -> Result<(), Wrong> {
        self.rewrites.remove(&number).map(|_| ()).ok_or(Wrong::Missing(NO_REWRITES))
    }

    pub(crate) fn add_table(&mut self, number: u32, context: TableContext) -> Result<(), Wrong> {
        let table = Table::new(context)?;
        self.check_miss(context, context.miss)?;
        self.tables.insert(number, table);
        Ok(())
    }

    pub(crate) fn set_miss(&mut self, number: u32, miss: Miss) -> Result<(), Wrong> {
        self.check_miss(self.table(number)?.context, miss)?;
        self.table_mut(number)?.context.miss = miss;
        Ok(())
    }

    fn check_miss(&self, from: TableContext, miss: Miss) -> Result<(), Wrong> {
        match miss {
            Miss::Table(next) => self.check_next(from, next),
            Miss::Usual => Ok(()),
        }
    }

    /// Checks the next table: frames go to tables of higher levels only, so that their way ends.
    fn check_next(&self, from: TableContext, next: u32) -> Result<(), Wrong> {
        self.check_direction(next, from.direction)?;
        match self.table(next)?.context.level > from.level {
            true => Ok(()),
            false => Err(Wrong::Param("the next flow table is of no higher level")),
        }
    }

    /// Refuses a table of another direction.
    pub(crate) fn check_direction(&self, number: u32, direction: Direction) -> Result<(), Wrong> {
        match self.table(number)?.context.direction == direction {
            true => Ok(()),
            false => Err(Wrong::Missing(NO_TABLE)),
        }
    }

    /// Sets the first table for frames of its direction.
    pub(crate) fn set_root(
        &mut self,
        direction: Direction,
        number: Option<u32>,
    ) -> Result<(), Wrong> {
        match number {
            Some(number) => {
                self.check_direction(number, direction)?;
                self.roots.insert(direction, number);
            }
            None => {
                self.roots.remove(&direction);
            }
        }
        Ok(())
    }

    pub(super) fn root(&self, direction: Direction) -> Option<u32> {
        self.roots.get(&direction).copied()
    }

    pub(crate) fn remove_table(&mut self, number: u32) -> Result<(), Wrong> {
        if !self.table(number)?.is_empty() {
            return Err(Wrong::Busy("the flow table has groups"));
        }
        self.tables.remove(&number);
        // Linux destroys the last table without naming another root (`core/fs_core.c`,
        // `update_root_ft_destroy`); afterwards there is no root.
        self.roots.retain(|_, root| *root != number);
        Ok(())
    }

    fn table(&self, number: u32) -> Result<&Table, Wrong> {
        self.tables.get(&number).ok_or(Wrong::Missing(NO_TABLE))
    }

    fn table_mut(&mut self, number: u32) -> Result<&mut Table, Wrong> {
        self.tables.get_mut(&number).ok_or(Wrong::Missing(NO_TABLE))
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

    /// Replaces `before` by `after` in the total of listed destinations, counters and queues.
    fn list(&mut self, before: usize, after: usize) -> Result<(), Wrong> {
        let listed = self.listed - before + after;
        if listed > MAX_LISTED {
            return Err(Wrong::Limit("destinations"));
        }
        self.listed = listed;
        Ok(())
    }

    fn check_entry(&self, table: u32, context: &EntryContext) -> Result<(), Wrong> {
        let of = self.table(table)?.context;
        for destination in &context.destinations {
            match (*destination, of.direction) {
                (FlowDestination::Table(next), _) => self.check_next(of, next)?,
                (FlowDestination::Tir(number), Direction::Receive) => {
                    self.tir(number).map(|_| ())?;
                }
                (FlowDestination::Wire, Direction::Transmit) => {}
                _ => return Err(Wrong::Param("no such destination for this flow table")),
            }
        }
        self.check_edits(of.direction, context.edits)?;
        match context.counters.iter().all(|number| self.counters.contains_key(number)) {
            true => Ok(()),
            false => Err(Wrong::Missing("no such flow counter")),
        }
    }

    /// Checks the changes of an entry: only received frames are decapsulated, only sent frames are
    /// encapsulated.
    fn check_edits(&self, direction: Direction, edits: Edits) -> Result<(), Wrong> {
        let leaves = direction == Direction::Transmit;
        let wraps = match edits.reformat {
            Some(number) => {
                Some(self.reformats.get(&number).ok_or(Wrong::Missing(NO_REFORMAT))?.wraps())
            }
            None => None,
        };
        if wraps.is_some_and(|wraps| wraps != leaves) || edits.unwrap && leaves {
            return Err(Wrong::Param("no such packet reformat for this flow table"));
        }
        let Some(number) = edits.rewrites else { return Ok(()) };
        match self.rewrites.get(&number) {
            Some(&(of, _)) if of == direction => Ok(()),
            Some(_) => Err(Wrong::Param("the change of headers is for other flow tables")),
            None => Err(Wrong::Missing(NO_REWRITES)),
        }
    }

    pub(crate) fn remove_entry(&mut self, table: u32, index: u32) -> Result<(), Wrong> {
        let gone = self.table_mut(table)?.remove_entry(index)?;
        self.entries -= 1;
        self.listed -= gone.listed();
        Ok(())
    }
}
