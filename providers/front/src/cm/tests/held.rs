//! Requests that arrive between two listeners of one program.

use super::*;

/// Two connected hosts on a good network, without a listener any more.
fn connected() -> World {
    let mut world = World::new(5, Network { lost: 0, twice: 0, late: 0 });
    let listener = world.listen(LISTENS, RDMA_PS_TCP);
    let asks = world.connect(ASKS, RDMA_PS_TCP, 0x11);
    settle(&mut world);
    let request = world.next_event(1).unwrap();
    assert_eq!(request.event, event::CONNECT_REQUEST);
    world.accept(1, request.id, SERVES, Some(0x22)).unwrap();
    settle(&mut world);
    assert_eq!(world.next_event(0).unwrap().event, event::CONNECT_RESPONSE);
    world.accept(0, asks, 0, None).unwrap();
    settle(&mut world);
    assert_eq!(world.next_event(1).unwrap().event, event::ESTABLISHED);
    world.destroy(1, listener);
    world
}

/// Delivers all messages, without expiring a timer.
fn settle(world: &mut World) {
    while !world.flying.is_empty() {
        world.step();
    }
}

#[test]
fn a_request_waits_for_the_next_listener() {
    let mut world = connected();
    let asks = world.connect(ASKS + 1, RDMA_PS_TCP, 0x12);
    settle(&mut world);
    assert_eq!(world.count(0, ASKS + 1, event::REJECTED), 0);
    assert!(world.next_event(0).is_none(), "it was refused");
    world.listen(LISTENS + 1, RDMA_PS_TCP);
    let request = world.next_event(1).expect("the request that waited");
    assert_eq!((request.uid, request.event), (LISTENS + 1, event::CONNECT_REQUEST));
    world.accept(1, request.id, SERVES + 1, Some(0x23)).unwrap();
    settle(&mut world);
    assert_eq!(world.next_event(0).unwrap().event, event::CONNECT_RESPONSE);
    world.accept(0, asks, 0, None).unwrap();
}

/// A request that waits too long is rejected with Linux's reason (IBTA table 110, 8), a second
/// later.
#[test]
fn a_request_that_waits_in_vain_is_refused() {
    let mut world = connected();
    world.connect(ASKS + 1, RDMA_PS_TCP, 0x12);
    settle(&mut world);
    let before = world.now;
    while world.flying.is_empty() {
        assert!(world.step());
    }
    assert!((900..=1000).contains(&(world.now - before).as_millis()));
    settle(&mut world);
    let refused = world.next_event(0).unwrap();
    assert_eq!((refused.event, refused.status), (event::REJECTED, 8));
    world.listen(LISTENS + 1, RDMA_PS_TCP);
    assert!(world.next_event(1).is_none(), "what was refused came again");
}

/// A peer without connection is rejected at once, and a peer that gave up is dropped.
#[test]
fn strangers_are_refused_at_once_and_the_impatient_forgotten() {
    let mut world = World::new(5, Network { lost: 0, twice: 0, late: 0 });
    world.connect(ASKS, RDMA_PS_TCP, 0x11);
    settle(&mut world);
    assert_eq!(world.next_event(0).unwrap().event, event::REJECTED);

    let mut world = connected();
    let asks = world.connect(ASKS + 1, RDMA_PS_TCP, 0x12);
    settle(&mut world);
    world.destroy(0, asks);
    settle(&mut world);
    world.listen(LISTENS + 1, RDMA_PS_TCP);
    assert!(world.next_event(1).is_none(), "a request of somebody who gave up");
}
