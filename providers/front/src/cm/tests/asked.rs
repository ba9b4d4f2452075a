//! Peers that are asked for their MAC addresses.

use super::*;

/// `timeout_ms` of RESOLVE_ADDR counts from the first look at the clock.
#[test]
fn a_peer_has_the_time_that_the_program_gives() {
    let mut world = World::new(5, Network { lost: 0, twice: 0, late: 0 });
    world.hosts[0].host.asks = true;
    let at = Duration::from_millis;
    world.hosts[0].advance(at(500));
    let id = world.create(0, ASKS, RDMA_PS_TCP);
    let mut request = rdma_ucm_resolve_addr { id, timeout_ms: 300, ..Default::default() };
    request.dst_size = address("10.0.0.2:7471", &mut request.dst_addr);
    world.tell(0, RDMA_USER_CM_CMD_RESOLVE_ADDR, request).unwrap();
    let number = world.hosts[0].asked()[0].0;
    for now in [900, 1000, 1199] {
        world.hosts[0].advance(at(now));
        world.hosts[0].answered(number, Err(Errno::EINPROGRESS));
        assert!(world.next_event(0).is_none(), "after {now} ms");
    }
    world.hosts[0].advance(at(1200));
    world.hosts[0].answered(number, Err(Errno::EINPROGRESS));
    let told = world.next_event(0).unwrap();
    assert_eq!((told.event, told.status), (event::ADDR_ERROR, -Errno::ETIMEDOUT.raw()));
    assert!(world.hosts[0].asked().is_empty());
}
