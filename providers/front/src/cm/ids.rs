//! [`IdTable`]: the ids of a connection manager, found by what commands and messages name.
//!
//! A program may have ten thousand listeners or connections, so no lookup goes through all ids.
//! Each id has [`Keys`], and each key an [`Index`]. A changed id is indexed anew by
//! [`IdTable::settle`], which must come before a lookup by key. Every entry point of the manager
//! ends with it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::id::{Id, IdNumber};
use crate::backend::address::Address;

/// Names of an id in commands and messages.
#[derive(Clone, Copy, Debug, Default)]
struct Keys {
    /// Number of the door.
    file: Option<u64>,
    /// Port of the local address.
    port: Option<u16>,
    /// Communication ids of both sides.
    local_id: Option<u32>,
    remote_id: Option<u32>,
    /// The peer, and its queue pair.
    peer: Option<(Address, u32)>,
    /// Time of the next timer.
    due: Option<Duration>,
}

impl Keys {
    fn of(id: &Id) -> Self {
        let connection = &id.connection;
        let some = |number: u32| Some(number).filter(|&number| number != 0);
        let has_peer = connection.there != Address::default();
        Self {
            file: Some(id.file),
            port: id.local.map(|local| local.port()),
            local_id: some(connection.local_id),
            remote_id: some(connection.remote_id),
            peer: has_peer.then_some((connection.there, connection.remote_qpn)),
            due: id.due(),
        }
    }
}

/// Ids by one key, in order of key and number.
#[derive(Debug)]
struct Index<K>(BTreeSet<(K, IdNumber)>);

impl<K: Copy + Ord> Index<K> {
    const fn new() -> Self {
        Self(BTreeSet::new())
    }

    fn change(&mut self, number: IdNumber, from: Option<K>, to: Option<K>) {
        if from == to {
            return;
        }
        if let Some(key) = from {
            self.0.remove(&(key, number));
        }
        if let Some(key) = to {
            self.0.insert((key, number));
        }
    }

    /// Numbers of the ids whose keys are in a range.
    fn within(&self, first: K, last: K) -> impl Iterator<Item = IdNumber> {
        self.0.range((first, 0)..=(last, IdNumber::MAX)).map(|&(_, number)| number)
    }
}

/// All ids, by number and by key.
#[derive(Debug)]
pub(super) struct IdTable {
    all: BTreeMap<IdNumber, (Id, Keys)>,
    /// Ids that may have other keys than they are indexed by.
    changed: Vec<IdNumber>,
    files: Index<u64>,
    ports: Index<u16>,
    local_ids: Index<u32>,
    remote_ids: Index<u32>,
    peers: Index<(Address, u32)>,
    timers: Index<Duration>,
}

impl IdTable {
    pub(super) const fn new() -> Self {
        Self {
            all: BTreeMap::new(),
            changed: Vec::new(),
            files: Index::new(),
            ports: Index::new(),
            local_ids: Index::new(),
            remote_ids: Index::new(),
            peers: Index::new(),
            timers: Index::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&self, number: IdNumber) -> Option<&Id> {
        self.all.get(&number).map(|(id, _)| id)
    }

    pub(super) fn get_mut(&mut self, number: IdNumber) -> Option<&mut Id> {
        let (id, _) = self.all.get_mut(&number)?;
        self.changed.push(number);
        Some(id)
    }

    pub(super) fn insert(&mut self, number: IdNumber, id: Id) {
        self.all.insert(number, (id, Keys::default()));
        self.changed.push(number);
    }

    pub(super) fn remove(&mut self, number: IdNumber) -> Option<Id> {
        let (id, keys) = self.all.remove(&number)?;
        self.index(number, keys, Keys::default());
        Some(id)
    }

    /// All ids, for commands that are about all.
    pub(super) fn iter(&self) -> impl Iterator<Item = (IdNumber, &Id)> {
        self.all.iter().map(|(&number, (id, _))| (number, id))
    }

    /// Indexes the changed ids.
    pub(super) fn settle(&mut self) {
        while let Some(number) = self.changed.pop() {
            let Some((id, keys)) = self.all.get_mut(&number) else { continue };
            let now = Keys::of(id);
            let before = std::mem::replace(keys, now);
            self.index(number, before, now);
        }
    }

    fn index(&mut self, number: IdNumber, from: Keys, to: Keys) {
        self.files.change(number, from.file, to.file);
        self.ports.change(number, from.port, to.port);
        self.local_ids.change(number, from.local_id, to.local_id);
        self.remote_ids.change(number, from.remote_id, to.remote_id);
        self.peers.change(number, from.peer, to.peer);
        self.timers.change(number, from.due, to.due);
    }

    /// Ids of a door.
    pub(super) fn of_file(&self, file: u64) -> impl Iterator<Item = (IdNumber, &Id)> {
        self.found(self.files.within(file, file))
    }

    /// Ids whose local address has a port.
    pub(super) fn at_port(&self, port: u16) -> impl Iterator<Item = (IdNumber, &Id)> {
        self.found(self.ports.within(port, port))
    }

    /// Ids with a local communication id.
    pub(super) fn by_local_id(&self, local_id: u32) -> impl Iterator<Item = (IdNumber, &Id)> {
        self.found(self.local_ids.within(local_id, local_id))
    }

    /// Ids with a peer's communication id, which other peers may have, too.
    pub(super) fn by_remote_id(&self, remote_id: u32) -> impl Iterator<Item = (IdNumber, &Id)> {
        self.found(self.remote_ids.within(remote_id, remote_id))
    }

    /// Ids of a peer.
    pub(super) fn of_peer(&self, peer: Address) -> impl Iterator<Item = (IdNumber, &Id)> {
        self.found(self.peers.within((peer, 0), (peer, u32::MAX)))
    }

    /// Ids of a peer's queue pair.
    pub(super) fn of_peers_queue_pair(
        &self,
        peer: Address,
        qpn: u32,
    ) -> impl Iterator<Item = (IdNumber, &Id)> {
        self.found(self.peers.within((peer, qpn), (peer, qpn)))
    }

    /// Time of the first timer.
    pub(super) fn first_due(&self) -> Option<Duration> {
        debug_assert!(self.changed.is_empty(), "a lookup before settle");
        self.timers.0.first().map(|&(due, _)| due)
    }

    /// Ids whose timers are due.
    pub(super) fn due(&self, now: Duration) -> impl Iterator<Item = (IdNumber, &Id)> {
        self.found(self.timers.within(Duration::ZERO, now))
    }

    fn found(
        &self,
        numbers: impl Iterator<Item = IdNumber>,
    ) -> impl Iterator<Item = (IdNumber, &Id)> {
        debug_assert!(self.changed.is_empty(), "a lookup before settle");
        numbers.filter_map(|number| Some((number, self.get(number)?)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::super::id::Service;
    use super::*;

    const PORT: u16 = 1;

    fn listener(port: u16) -> Id {
        let mut id = Id::new(7, 1, 0x106, Service::Connections);
        id.local = Some(SocketAddr::from(([0, 0, 0, 0], port)));
        id
    }

    fn at_port(ids: &mut IdTable, port: u16) -> Vec<IdNumber> {
        ids.settle();
        ids.at_port(port).map(|(number, _)| number).collect()
    }

    #[test]
    fn an_id_is_found_by_what_it_has_now() {
        let mut ids = IdTable::new();
        ids.insert(4, listener(PORT));
        ids.insert(3, listener(PORT));
        assert_eq!(at_port(&mut ids, PORT), [3, 4], "by number");
        ids.get_mut(3).unwrap().local = None;
        assert_eq!(at_port(&mut ids, PORT), [4]);
        let connection = &mut ids.get_mut(4).unwrap().connection;
        (connection.remote_qpn, connection.there.lid) = (17, 5);
        ids.settle();
        let peer = Address { lid: 5, ..Address::default() };
        assert_eq!(ids.of_peers_queue_pair(peer, 17).count(), 1);
        assert_eq!(ids.of_peers_queue_pair(peer, 18).count(), 0);
        assert_eq!(ids.of_peer(peer).count(), 1);
    }

    #[test]
    fn a_removed_id_is_not_found() {
        let mut ids = IdTable::new();
        ids.insert(4, listener(PORT));
        ids.get_mut(4).unwrap().connection.ends = Some(Duration::from_secs(1));
        ids.settle();
        assert_eq!(ids.first_due(), Some(Duration::from_secs(1)));
        assert_eq!(ids.due(Duration::from_secs(1)).count(), 1);
        ids.get_mut(4).unwrap().connection.ends = Some(Duration::from_secs(2));
        assert!(ids.remove(4).is_some());
        assert_eq!(at_port(&mut ids, PORT), []);
        assert_eq!(ids.first_due(), None);
        assert_eq!(ids.of_file(7).count(), 0);
        assert!(ids.timers.0.is_empty() && ids.files.0.is_empty());
    }
}
