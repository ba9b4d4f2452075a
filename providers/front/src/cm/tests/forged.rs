//! Messages forged in a peer's name, and messages of a peer with wrong communication ids.

use super::*;
use crate::backend::address::Address;

/// Offsets of the sender's and the receiver's communication ids, behind the header of 24 bytes
/// (IBTA 12.6, 13.4.3).
const NUMBERS: [usize; 2] = [24, 28];

/// A connection on a good network: the ids of both programs.
fn connected(world: &mut World) -> [u32; 2] {
    world.listen(1, RDMA_PS_TCP);
    let asks = world.connect(2, RDMA_PS_TCP, 0x100);
    let mut serves = 0;
    while world.step() && world.count(1, 3, event::ESTABLISHED) == 0 {
        while let Some(event) = world.next_event(1) {
            if event.event == event::CONNECT_REQUEST {
                serves = event.id;
                world.accept(1, serves, 3, Some(0x200)).unwrap();
            }
        }
        while world.next_event(0).is_some() {
            world.accept(0, asks, 0, None).unwrap();
        }
    }
    [asks, serves]
}

#[test]
fn nobody_else_ends_a_connection() {
    let mut world = World::new(1, Network { lost: 0, twice: 0, late: 0 });
    let [asks, _] = connected(&mut world);
    world.disconnect(0, asks).unwrap();
    let (_, genuine) = world.flying.pop().expect("a request to disconnect");
    let told = |world: &mut World| {
        while world.next_event(1).is_some() {}
        world.count(1, 3, event::DISCONNECTED)
    };
    let stranger = Address { gid: gid_of(9), lid: 0 };
    world.hosts[1].receive(stranger, genuine.dst, &genuine.bytes);
    assert_eq!(told(&mut world), 0, "from another host");
    for at in NUMBERS {
        let mut bytes = genuine.bytes;
        bytes[at] ^= 1;
        world.hosts[1].receive(genuine.src, genuine.dst, &bytes);
        assert_eq!(told(&mut world), 0, "another number at {at}");
    }
    world.hosts[1].receive(genuine.src, genuine.dst, &genuine.bytes);
    assert_eq!(told(&mut world), 1);
}

/// If the random numbers repeat, connections still get distinct communication ids. Otherwise an
/// answer would be taken for another connection's.
#[test]
fn connections_with_the_same_random_numbers_are_told_apart() {
    let mut world = World::new(1, Network { lost: 0, twice: 0, late: 0 });
    world.listen(1, RDMA_PS_TCP);
    let asks = [2, 3].map(|uid| {
        world.hosts[0].seed(99);
        world.connect(uid, RDMA_PS_TCP, 0x100 + uid as u32)
    });
    let uids = [2, 3];
    while world.step() {
        while let Some(event) = world.next_event(1) {
            if event.event == event::CONNECT_REQUEST {
                world.hosts[1].seed(99);
                world.accept(1, event.id, 10 + u64::from(event.id), Some(0x200)).unwrap();
            }
        }
        while let Some(event) = world.next_event(0) {
            if event.event == event::CONNECT_RESPONSE {
                world.accept(0, event.id, 0, None).unwrap();
            }
        }
    }
    for (id, uid) in asks.into_iter().zip(uids) {
        assert_eq!(world.count(0, uid, event::CONNECT_RESPONSE), 1, "id {id}");
    }
}
