//! Reports on a device: counters that follow traffic, objects that follow their creation.

use common::{is_function, not_on_rxe, pair, skip};
use uverbs::AccessFlags;
use uverbs::report::{CounterSet, Holder, Resource, ResourceKind, Resources};

/// True on a function without a kernel driver.
fn has_no_reports() -> bool {
    if is_function() {
        skip("a function has no reports");
    }
    is_function()
}

fn numbers(all: &Resources, kind: ResourceKind) -> Vec<u32> {
    let of_kind = all.held.iter().filter(|resource| resource.kind == kind);
    of_kind.filter_map(|resource| resource.number).collect()
}

fn qp(all: &Resources, qpn: u32) -> Option<&Resource> {
    all.held.iter().find(|one| one.kind == ResourceKind::Qp && one.number == Some(qpn))
}

#[test]
fn objects_of_this_process_are_listed_until_they_are_destroyed() {
    if has_no_reports() {
        return;
    }
    let (client, server) = pair();
    let context = client.context.clone();
    let memory = client.pd.expose(12_288, AccessFlags::REMOTE_READ).unwrap();
    let all = context.resources();
    assert_eq!(all.gaps, [], "{all:?}");
    for side in [&client, &server] {
        let listed = qp(&side.context.resources(), side.qp.qpn()).cloned();
        let listed = listed.unwrap_or_else(|| panic!("{:#x}: {all:?}", side.qp.qpn()));
        assert_eq!(listed.attribute("type"), Some("RC"));
        assert_eq!(listed.attribute("state"), Some("RTS"));
        assert!(matches!(listed.holder, Holder::Task(_)), "{listed:?}");
    }
    let peer = server.qp.qpn().to_string();
    assert_eq!(qp(&all, client.qp.qpn()).unwrap().attribute("rqpn"), Some(peer.as_str()));
    let lengths = |all: &Resources| {
        let is = |one: &&Resource| one.attribute("mrlen") == Some("12288");
        all.held.iter().filter(is).count()
    };
    assert_eq!(lengths(&all), 1, "{all:?}");
    for kind in [ResourceKind::Pd, ResourceKind::Cq] {
        assert!(!numbers(&all, kind).is_empty(), "{kind}: {all:?}");
    }
    let qpn = client.qp.qpn();
    drop(memory);
    assert_eq!(lengths(&context.resources()), 0);
    drop(client);
    assert_eq!(qp(&context.resources(), qpn), None);
}

#[test]
fn counters_of_the_port_count_packets() {
    // rxe has no port counters (`process_mad`), and its own count packets of all queue pairs.
    if not_on_rxe("soft-RoCE has no port counters") || has_no_reports() {
        return;
    }
    let (mut client, mut server) = pair();
    let device = client.context.device().clone();
    let packets = |name: &str| {
        let counters = device.counters();
        assert_eq!(counters.gaps, []);
        counters.get(&CounterSet::Port(1), name).unwrap_or_else(|| panic!("{name}: {counters:?}"))
    };
    let before = packets("port_xmit_packets");
    for number in 0..20 {
        server.expect(number, 64);
        let frame = client.filled(64, 7);
        let mut batch = client.qp.batch();
        batch.send(number, frame).unwrap();
        batch.ring();
        server.done();
        client.done();
    }
    let sent = packets("port_xmit_packets") - before;
    assert!(sent >= 20, "{sent}");
    assert!(packets("port_xmit_data") > 0);
}
