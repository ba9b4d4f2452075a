//! In-memory switch: any number of ports; frames are routed by address.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use std::task::Waker;
use std::time::Duration;

use super::{Address, Frame, Wire, WireFull};

/// Default number of frames that a port holds for its HCA.
const QUEUE_DEPTH: usize = 1024;

/// In-memory switch. Clones are the same switch.
///
/// Frames between two ports keep their order; each arrives or is counted as dropped. A frame to an
/// address of its sender also goes through the switch. A frame to a group goes to all ports with
/// the group among their addresses, including the sender's; a port without room misses its copy.
#[derive(Clone)]
pub struct Fabric {
    switch: Arc<Switch>,
}

struct Switch {
    table: RwLock<Table>,
    depth: usize,
    counters: Counters,
}

#[derive(Default)]
struct Table {
    next_id: u64,
    /// Ports by age: the oldest owner of an address keeps it.
    ports: BTreeMap<u64, PortEntry>,
    by_gid: HashMap<[u8; 16], Arc<Port>>,
    by_lid: HashMap<u16, Arc<Port>>,
    by_group: HashMap<[u8; 16], Vec<Arc<Port>>>,
}

struct PortEntry {
    addresses: Vec<Address>,
    port: Arc<Port>,
}

struct Port {
    /// Changes only under the lock of `inbox`, so that no frame enters a dead port's queue.
    plugged: AtomicBool,
    inbox: Mutex<VecDeque<Frame>>,
    waker: OnceLock<Waker>,
    /// Number of frames that arrived; that were handed out or dropped; and that were handed out
    /// before the HCA's last step, which it has answered.
    came: AtomicU64,
    taken: AtomicU64,
    answered: AtomicU64,
    /// Plain Ethernet frames, which may be lost.
    ethernet: Mutex<VecDeque<Vec<u8>>>,
}

#[derive(Default)]
struct Counters {
    sent: AtomicU64,
    delivered: AtomicU64,
    refused: AtomicU64,
    unknown_destination: AtomicU64,
    dead_link: AtomicU64,
    missed_copies: AtomicU64,
}

/// Counts of frames through a fabric. `sent` is the sum of the others except `refused`, plus the
/// frames that are queued now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FabricStats {
    /// Frames taken from senders, including dropped ones.
    pub sent: u64,
    /// Frames handed to receivers.
    pub delivered: u64,
    /// Frames returned because the receiver's queue was full.
    pub refused: u64,
    /// Dropped: no port has the address.
    pub unknown_destination: u64,
    /// Dropped: the link of sender or receiver is unplugged, or the port is gone.
    pub dead_link: u64,
    /// Copies of multicast frames lost by a member without room or without a link. A multicast
    /// frame counts as sent once, and as delivered once per copy.
    pub missed_copies: u64,
}

fn add(counter: &AtomicU64, n: usize) {
    // Relaxed: statistics order no other access.
    counter.fetch_add(n as u64, Ordering::Relaxed);
}

impl Port {
    // After a panic elsewhere the queue still holds whole frames, so poisoning is ignored.
    fn inbox(&self) -> MutexGuard<'_, VecDeque<Frame>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ethernet(&self) -> MutexGuard<'_, VecDeque<Vec<u8>>> {
        self.ethernet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_plugged(&self) -> bool {
        self.plugged.load(Ordering::Acquire)
    }

    /// Queues a frame. Wakes an HCA that may sleep: one with an empty queue, other than the sender.
    fn put(&self, inbox: &mut VecDeque<Frame>, frame: Frame, sender: &Port) {
        let sleeps = inbox.is_empty() && !std::ptr::eq(self, sender);
        inbox.push_back(frame);
        add(&self.came, 1);
        if sleeps {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }
}

impl Switch {
    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_addresses(&self, id: u64, addresses: &[Address]) {
        let mut table = self.write();
        if let Some(entry) = table.ports.get_mut(&id) {
            entry.addresses = addresses.to_vec();
            table.rebuild();
        }
    }

    fn set_plugged(&self, port: &Port, plugged: bool) {
        let mut inbox = port.inbox();
        port.plugged.store(plugged, Ordering::Release);
        if !plugged {
            add(&self.counters.dead_link, inbox.len());
            add(&port.taken, inbox.len());
            inbox.clear();
            port.ethernet().clear();
        }
    }
}

impl Table {
    fn rebuild(&mut self) {
        self.by_gid.clear();
        self.by_lid.clear();
        self.by_group.clear();
        for entry in self.ports.values() {
            for address in &entry.addresses {
                if address.is_group() {
                    self.by_group.entry(address.gid).or_default().push(entry.port.clone());
                } else if address.gid != [0; 16] {
                    self.by_gid.entry(address.gid).or_insert_with(|| entry.port.clone());
                }
                if address.lid != 0 && !address.is_group() {
                    self.by_lid.entry(address.lid).or_insert_with(|| entry.port.clone());
                }
            }
        }
    }

    fn route(&self, to: Address) -> Option<&Arc<Port>> {
        if to.lid != 0 { self.by_lid.get(&to.lid) } else { self.by_gid.get(&to.gid) }
    }
}

impl Fabric {
    /// Creates a switch without ports.
    #[must_use]
    pub fn new() -> Fabric {
        Fabric::with_queue_depth(QUEUE_DEPTH)
    }

    /// Creates a switch whose ports hold up to `depth` frames (at least 1) for their HCA.
    #[must_use]
    pub fn with_queue_depth(depth: usize) -> Fabric {
        let switch =
            Switch { table: RwLock::default(), depth: depth.max(1), counters: Counters::default() };
        Fabric { switch: Arc::new(switch) }
    }

    /// Creates a port, plugged in, with these addresses: all GIDs that are not zero, and all LIDs
    /// that are not 0. An address of an existing port stays with that port.
    #[must_use]
    pub fn attach(&self, addresses: &[Address]) -> FabricPort {
        let port = Arc::new(Port {
            plugged: AtomicBool::new(true),
            inbox: Mutex::default(),
            waker: OnceLock::new(),
            came: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            ethernet: Mutex::default(),
        });
        let mut table = self.switch.write();
        let id = table.next_id;
        table.next_id += 1;
        table.ports.insert(id, PortEntry { addresses: addresses.to_vec(), port: port.clone() });
        table.rebuild();
        drop(table);
        FabricPort { link: LinkControl { switch: self.switch.clone(), port, id } }
    }

    /// Current counts.
    #[must_use]
    pub fn stats(&self) -> FabricStats {
        let counters = &self.switch.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FabricStats {
            sent: get(&counters.sent),
            delivered: get(&counters.delivered),
            refused: get(&counters.refused),
            unknown_destination: get(&counters.unknown_destination),
            dead_link: get(&counters.dead_link),
            missed_copies: get(&counters.missed_copies),
        }
    }
}

impl Default for Fabric {
    fn default() -> Fabric {
        Fabric::new()
    }
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = self.switch.read().ports.len();
        f.debug_struct("Fabric").field("ports", &ports).field("stats", &self.stats()).finish()
    }
}

/// A port of a [`Fabric`]. Dropping it removes the port.
pub struct FabricPort {
    link: LinkControl,
}

/// Cable of a port, for a test that plays the network. Clones are the same cable. It may outlive
/// the port, and has no effect then.
#[derive(Clone)]
pub(crate) struct LinkControl {
    switch: Arc<Switch>,
    port: Arc<Port>,
    id: u64,
}

impl FabricPort {
    /// Returns the port's cable.
    pub(crate) fn link_control(&self) -> LinkControl {
        self.link.clone()
    }

    /// Sets the waker, called when a frame from another port arrives at an empty queue. Only the
    /// first call counts. The waker is called during a transmission, and must not use the fabric.
    pub(crate) fn set_waker(&self, waker: Waker) {
        let _ = self.link.port.waker.set(waker);
    }
}

impl LinkControl {
    /// Unplugs the cable: frames queued for this port are lost, and so are frames sent by it or to
    /// it until [`replug`](LinkControl::replug). Senders get no error.
    pub(crate) fn unplug(&self) {
        self.switch.set_plugged(&self.port, false);
    }

    /// Plugs the cable in.
    pub(crate) fn replug(&self) {
        // A removed port stays dead, since its queue would never be emptied. The lock keeps it from
        // being removed in between.
        let table = self.switch.read();
        if table.ports.contains_key(&self.id) {
            self.switch.set_plugged(&self.port, true);
        }
    }

    /// Returns `true` if the cable is plugged in.
    pub(crate) fn is_plugged(&self) -> bool {
        self.port.is_plugged()
    }

    /// Replaces the port's addresses.
    pub(crate) fn set_addresses(&self, addresses: &[Address]) {
        self.switch.set_addresses(self.id, addresses);
    }
}

impl Wire for FabricPort {
    fn transmit(&mut self, frame: Frame) -> Result<(), WireFull> {
        let LinkControl { switch, port, .. } = &self.link;
        let counters = &switch.counters;
        if !port.is_plugged() {
            add(&counters.sent, 1);
            add(&counters.dead_link, 1);
            return Ok(());
        }
        let table = switch.read();
        if frame.dst.is_group() {
            add(&counters.sent, 1);
            let Some(members) = table.by_group.get(&frame.dst.gid) else {
                add(&counters.unknown_destination, 1);
                return Ok(());
            };
            for member in members {
                let mut inbox = member.inbox();
                if member.is_plugged() && inbox.len() < switch.depth {
                    member.put(&mut inbox, frame.clone(), port);
                } else {
                    add(&counters.missed_copies, 1);
                }
            }
            return Ok(());
        }
        let Some(target) = table.route(frame.dst) else {
            add(&counters.sent, 1);
            add(&counters.unknown_destination, 1);
            return Ok(());
        };
        let mut inbox = target.inbox();
        if !target.is_plugged() {
            add(&counters.dead_link, 1);
        } else if inbox.len() >= switch.depth {
            add(&counters.refused, 1);
            return Err(WireFull(frame));
        } else {
            target.put(&mut inbox, frame, port);
        }
        add(&counters.sent, 1);
        Ok(())
    }

    fn receive(&mut self) -> Option<Frame> {
        let frame = self.link.port.inbox().pop_front()?;
        add(&self.link.switch.counters.delivered, 1);
        add(&self.link.port.taken, 1);
        Some(frame)
    }

    fn flood(&mut self, frame: &[u8]) {
        let LinkControl { switch, port, .. } = &self.link;
        if !port.is_plugged() {
            return;
        }
        let table = switch.read();
        let others =
            table.ports.values().map(|entry| &entry.port).filter(|other| !Arc::ptr_eq(other, port));
        for other in others {
            let mut queue = other.ethernet();
            if other.is_plugged() && queue.len() < switch.depth {
                let sleeps = queue.is_empty();
                queue.push_back(frame.to_vec());
                if sleeps {
                    other.wake();
                }
            }
        }
    }

    fn hear(&mut self) -> Option<Vec<u8>> {
        self.link.port.ethernet().pop_front()
    }

    fn set_addresses(&mut self, addresses: &[Address]) {
        self.link.set_addresses(addresses);
    }

    /// Begins a step: frames handed out before it are answered.
    fn advance(&mut self, _: Duration) {
        let port = &self.link.port;
        // Release: pairs with `is_past`. The answers are in their inboxes.
        port.answered.store(port.taken.load(Ordering::Relaxed), Ordering::Release);
    }

    /// `None` for a port without a waker: it may never read.
    fn mark(&self, to: Address) -> Option<u64> {
        let table = self.link.switch.read();
        let port = table.route(to).filter(|port| port.is_plugged() && port.waker.get().is_some());
        port.map(|port| port.came.load(Ordering::Acquire))
    }

    fn is_past(&self, to: Address, mark: u64) -> bool {
        let table = self.link.switch.read();
        let port = table.route(to).filter(|port| port.is_plugged());
        port.is_none_or(|port| port.answered.load(Ordering::Acquire) >= mark)
    }

    fn set_waker(&mut self, waker: Waker) -> bool {
        FabricPort::set_waker(self, waker);
        true
    }
}

impl Drop for FabricPort {
    fn drop(&mut self) {
        let LinkControl { switch, port, id } = &self.link;
        let mut table = switch.write();
        table.ports.remove(id);
        table.rebuild();
        // Still under the table's lock, for `replug`.
        switch.set_plugged(port, false);
    }
}

impl fmt::Debug for FabricPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FabricPort").field("link", &self.link).finish()
    }
}

impl fmt::Debug for LinkControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkControl")
            .field("port", &self.id)
            .field("plugged", &self.is_plugged())
            .field("queued", &self.port.inbox().len())
            .finish()
    }
}

#[cfg(test)]
#[path = "fabric_tests.rs"]
mod tests;
