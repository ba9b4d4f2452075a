//! Frames and tables, mostly without queues; `tests/pci/frames.rs` tests them with queues.

mod edits;
pub(super) mod frame;
mod graphs;
mod matches;
mod ways;
mod wire;

use frame::Packet;

use super::headers::Headers;
use super::steering::Steering;
use uverbs_front::backend::steering::{
    Direction, EntryContext, FlowDestination, GroupContext, HashContext, HashFunction, MATCH_LEN,
    Miss, QueueOptions, Selector, Spread, TableContext, TirContext,
};

/// Transport domain of the sender, and of all other queues.
const OWN: u32 = 1;
const OTHER: u32 = 2;
const SQN: u32 = 0x40;
/// The first receive queue; its TIR has the same number.
const RQN: u32 = 0x100;

fn no_hash() -> HashContext {
    let (function, selector) = (HashFunction::None, Selector::default());
    HashContext { function, symmetric: false, key: [0; 40], selector }
}

fn tir(spread: Spread) -> TirContext {
    let (hears_own_unicast, hears_own_multicast) = (false, false);
    TirContext { spread, hash: no_hash(), domain: OTHER, hears_own_unicast, hears_own_multicast }
}

fn table(level: u8, miss: Miss) -> TableContext {
    TableContext { direction: Direction::Receive, level, log_size: 4, miss }
}

fn to(destinations: &[FlowDestination]) -> EntryContext {
    EntryContext { destinations: destinations.to_vec(), ..EntryContext::default() }
}

/// A sender, eight queues with a TIR each, and an empty table 1 as the root.
fn scene() -> Steering {
    let mut steering = Steering::default();
    steering.add_sender(SQN, OWN);
    for rqn in RQN..RQN + 8 {
        steering.set_queue(rqn, QueueOptions::default());
        steering.set_tir(rqn, tir(Spread::Queue(rqn))).unwrap();
    }
    steering.add_table(1, table(1, Miss::Usual)).unwrap();
    steering.set_root(Direction::Receive, Some(1)).unwrap();
    steering
}

/// Adds a group of the whole table without criteria, and its first entry.
fn catch_all(steering: &mut Steering, table: u32, destinations: &[FlowDestination]) {
    let criteria = &[0; MATCH_LEN];
    let group = GroupContext { first: 0, last: 15, enable: 0, criteria };
    steering.add_group(table, 100 + table, group).unwrap();
    steering.add_entry(table, (100 + table, 0), criteria, to(destinations)).unwrap();
}

/// Queues that receive a packet.
fn reached(steering: &mut Steering, packet: &Packet) -> Vec<u32> {
    let bytes = packet.bytes();
    let copies = steering.route(&bytes, &Headers::parse(&bytes), Some(SQN));
    copies.iter().map(|copy| copy.rqn).collect()
}
