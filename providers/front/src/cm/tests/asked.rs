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
    // A device that gives up earlier is asked again.
    for (now, errno) in
        [(900, Errno::EINPROGRESS), (1000, Errno::ETIMEDOUT), (1199, Errno::EINPROGRESS)]
    {
        world.hosts[0].advance(at(now));
        world.hosts[0].answered(number, Err(errno));
        assert!(world.next_event(0).is_none() && world.hosts[0].is_asking(), "after {now} ms");
    }
    world.hosts[0].advance(at(1200));
    world.hosts[0].answered(number, Err(Errno::EINPROGRESS));
    let told = world.next_event(0).unwrap();
    assert_eq!((told.event, told.status), (event::ADDR_ERROR, -Errno::ETIMEDOUT.raw()));
    assert!(!world.hosts[0].is_asking());
}

/// Longer times, and those that are negative in C, end.
#[test]
fn a_peer_is_not_asked_for_ever() {
    let mut world = World::new(5, Network { lost: 0, twice: 0, late: 0 });
    world.hosts[0].host.asks = true;
    world.hosts[0].advance(Duration::ZERO);
    let id = world.create(0, ASKS, RDMA_PS_TCP);
    let mut request = rdma_ucm_resolve_addr { id, timeout_ms: u32::MAX, ..Default::default() };
    request.dst_size = address("10.0.0.2:7471", &mut request.dst_addr);
    world.tell(0, RDMA_USER_CM_CMD_RESOLVE_ADDR, request).unwrap();
    let number = world.hosts[0].asked()[0].0;
    let end = crate::cm::manager::PATIENCE;
    for (now, ends) in
        [(Duration::ZERO, false), (end - Duration::from_millis(1), false), (end, true)]
    {
        world.hosts[0].advance(now);
        world.hosts[0].answered(number, Err(Errno::ETIMEDOUT));
        assert_eq!(world.next_event(0).is_some(), ends, "after {now:?}");
    }
}
