//! Rules that copy all packets of a port.

use common::{device, local, only_on_softhca, pair_on, pattern};
use uverbs::Errno;
use uverbs::flow::FlowRule;

use crate::raw_packets::{End, has_raw_packets};

/// RDMA's packets are copied, too, and still arrive.
#[test]
fn a_sniffer_gets_copies_of_what_the_port_sends_and_receives() {
    if !has_raw_packets() {
        return;
    }
    let device = device();
    let mut ear = End::new(&device);
    let rule = match ear.qp.steer(&FlowRule::sniffer()) {
        Err(error) if error.to_errno() == Errno::EOPNOTSUPP => {
            only_on_softhca("its firmware has no rules that sniff");
            return;
        }
        rule => rule.expect("create_flow"),
    };
    ear.expect(16);
    let (mut client, mut server) = pair_on(&device, &device, &local(), |builder| builder);
    server.expect(1, 64);
    let frame = client.filled(64, 9);
    let mut batch = client.qp.batch();
    batch.send(2, frame).expect("send");
    batch.ring();
    assert_eq!(*server.done().frame.expect("a receive has one"), pattern(64, 9)[..]);
    client.done();
    // The request and its acknowledgement, each sent and received: Ethernet, IPv4 or IPv6, UDP.
    let mut requests = 0;
    for _ in 0..4 {
        let (packet, _) = ear.next();
        let udp = if packet[12..14] == [8, 0] { 34 } else { 54 };
        assert_eq!(packet[udp + 2..udp + 4], 4791_u16.to_be_bytes());
        let (bth, payload) = (udp + 8, udp + 20);
        // RC SEND only, RC ACKNOWLEDGE (IBTA table 38).
        match packet[bth] {
            0x04 => {
                assert_eq!(packet[bth + 5..bth + 8], server.qp.qpn().to_be_bytes()[1..]);
                assert_eq!(packet[payload..payload + 64], pattern(64, 9));
                requests += 1;
            }
            opcode => assert_eq!(opcode, 0x11),
        }
    }
    assert_eq!(requests, 2);
    drop(rule);
    server.expect(3, 64);
    let frame = client.filled(64, 9);
    let mut batch = client.qp.batch();
    batch.send(4, frame).expect("send");
    batch.ring();
    server.done();
    client.done();
    ear.has_none();
}
