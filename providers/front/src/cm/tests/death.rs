//! A host that dies at any message: the survivor's ids all end, and its program gets one event for
//! it.

use super::*;
use crate::backend::address::Address;

/// Ids of the programs' connection.
struct Programs {
    asks: u32,
    serves: Option<u32>,
}

impl Programs {
    fn id_of(&self, host: usize) -> Option<u32> {
        if host == 0 { Some(self.asks) } else { self.serves }
    }

    /// Reaction of a host's program to an event.
    fn answer(&mut self, world: &mut World, host: usize, event: &rdma_ucm_event_resp) {
        match event.event {
            // A late duplicate is a request of a peer that waits no more.
            event::CONNECT_REQUEST if self.serves.is_some() => world.destroy(host, event.id),
            event::CONNECT_REQUEST => {
                self.serves = Some(event.id);
                world.accept(host, event.id, SERVES, Some(0x22)).unwrap();
            }
            event::CONNECT_RESPONSE => world.accept(host, self.asks, 0, None).unwrap(),
            event::DISCONNECTED => {
                let id = self.id_of(host).expect("it was connected");
                world.disconnect(host, id).unwrap();
            }
            _ => {}
        }
    }
}

/// Death of a host at a step.
#[derive(Clone, Copy)]
struct Death {
    host: usize,
    at: u64,
    /// The wire sees it.
    seen: bool,
}

/// Runs until no message or timer is left.
fn run(world: &mut World, programs: &mut Programs, death: Option<Death>) {
    let mut steps = 0;
    loop {
        if let Some(Death { host, at, seen }) = death
            && steps == at
        {
            world.dead[host] = true;
            if seen {
                leave(world, host);
            }
        }
        let mut ends = !world.step();
        steps += 1;
        assert!(steps < 5_000, "it doesn't end");
        for host in 0..2 {
            while !world.dead[host]
                && let Some(event) = world.next_event(host)
            {
                ends = false;
                programs.answer(world, host, &event);
            }
        }
        if ends {
            return;
        }
    }
}

/// Tells the survivor. Messages to it are lost.
fn leave(world: &mut World, host: usize) {
    let left = 1 - host;
    world.flying.retain(|(_, message)| message.dst.gid != GIDS[left]);
    world.hosts[left].peer_left(Address { gid: GIDS[host], lid: 0 });
    world.carry(left);
}

/// Runs a connection that a death cuts short. Returns the survivor's state.
fn cut_short(seed: u64, network: Network, seen: bool) -> Option<State> {
    let mut world = World::new(seed, network);
    world.listen(LISTENS, RDMA_PS_TCP);
    let asks = world.connect(ASKS, RDMA_PS_TCP, 0x11);
    let mut programs = Programs { asks, serves: None };
    let (host, at) = (world.random(2) as usize, world.random(12));
    run(&mut world, &mut programs, Some(Death { host, at, seen }));
    // If the conversation ended before, the host dies afterwards.
    if !std::mem::replace(&mut world.dead[host], true) && seen {
        leave(&mut world, host);
        run(&mut world, &mut programs, None);
    }
    let left = 1 - host;
    let id = programs.id_of(left)?;
    let found = world.hosts[left].ids.get(id).unwrap().state;
    if found == State::Established {
        // The survivor gets no event for a silent death. Its program finds out when it disconnects.
        world.disconnect(left, id).unwrap();
        run(&mut world, &mut programs, None);
    }
    let told = world.told.clone();
    let uid = if left == 0 { ASKS } else { SERVES };
    let ends = [event::DISCONNECTED, event::REJECTED, event::UNREACHABLE];
    let ends: usize = ends.iter().map(|end| world.count(left, uid, *end)).sum();
    assert_eq!(ends, 1, "seed {seed}, host {host} dies at {at}: {told:?}");
    for (number, id) in world.hosts[left].ids.iter() {
        let is_final = matches!(id.state, State::Over | State::Listening);
        assert!(is_final, "seed {seed}: {number} is {:?}, {told:?}", id.state);
    }
    assert_eq!(world.hosts[left].next_deadline(), None);
    Some(found)
}

#[test]
fn whoever_is_left_is_told_once() {
    let mut found = BTreeMap::new();
    for seed in 0..4_000 {
        let network = Network { lost: seed % 4 * 10, twice: seed % 3 * 20, late: seed % 5 * 10 };
        if let Some(state) = cut_short(seed, network, false) {
            *found.entry(state).or_insert(0) += 1;
        }
    }
    // Deaths of both kinds: during the conversation, and after it.
    let many = |state| found.get(&state).is_some_and(|count| *count > 400);
    assert!(many(State::Over) && many(State::Established), "{found:?}");
}

#[test]
fn whoever_is_left_is_told_at_once_if_the_wire_sees_it() {
    let mut found = BTreeMap::new();
    for seed in 0..4_000 {
        let network = Network { lost: seed % 4 * 10, twice: seed % 3 * 20, late: seed % 5 * 10 };
        if let Some(state) = cut_short(seed, network, true) {
            *found.entry(state).or_insert(0) += 1;
        }
    }
    assert_eq!(found.keys().collect::<Vec<_>>(), [&State::Over]);
}
