//! Raw packets, and the rules that steer them.

use std::net::{Ipv4Addr, Ipv6Addr};

use common::{LIMIT, device, not_on_rxe, only_on_softhca, skip, soft};
use uverbs::flow::{EthMatch, Flow, FlowRule, Ipv4Match, Ipv6Match, MacAddr, Masked, PortMatch};
use uverbs::packet::{Checksums, RawPacketChange, RawPacketQueuePair};
use uverbs::softhca::SoftHca;
use uverbs::{
    Completed, CompletionQueue, Context, Device, Errno, Error, LinkLayer, PostError,
    ProtectionDomain, Slab,
};

const HERE: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const THERE: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const IP_HERE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const IP_THERE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
/// Bytes of a receive.
const ROOM: usize = 2048;

/// One program. It opens the device separately, since it does not receive its own packets.
pub(crate) struct End {
    pub(crate) qp: RawPacketQueuePair,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    slab: Slab,
    context: Context,
}

impl End {
    pub(crate) fn new(device: &Device) -> Self {
        let context = device.open().expect("open");
        let pd = context.alloc_pd().expect("alloc_pd");
        let cq = context.create_cq(512).expect("create_cq");
        let qp = context.queue_pair(&pd, &cq).max_send_sge(4).max_inline_data(200).raw_packet();
        let mut qp = qp.build().expect("create_qp");
        qp.bring_up(1).expect("bring_up");
        let slab = pd.slab(ROOM, 64).expect("slab");
        Self { qp, cq, pd, slab, context }
    }

    /// Posts receives.
    pub(crate) fn expect(&mut self, count: u64) {
        for id in 0..count {
            let frame = self.slab.take().expect("a frame");
            self.qp.post_recv(id, frame).expect("post_recv");
        }
    }

    fn steer(&mut self, rule: &FlowRule) -> Flow {
        self.qp.steer(rule).expect("create_flow")
    }

    /// Sends a packet, and waits until it has left.
    fn send(&mut self, packet: &[u8]) {
        let mut frame = self.slab.take().expect("a frame");
        frame.set_len(packet.len());
        frame.copy_from_slice(packet);
        let mut batch = self.qp.batch();
        batch.send_packet(7, frame, Checksums::Filled).expect("send_packet");
        batch.ring();
        let done = self.cq.wait(LIMIT).expect("a completion");
        assert_eq!((done.id, done.result), (7, Ok(Completed::Send)));
    }

    /// The next packet received, and its rule's tag.
    pub(crate) fn next(&mut self) -> (Vec<u8>, u32) {
        let done = self.cq.wait(LIMIT).expect("a completion");
        assert_eq!(done.result, Ok(Completed::Recv));
        (done.frame.expect("a receive has one").to_vec(), done.qpn)
    }

    /// Checks that no packet arrived.
    pub(crate) fn has_none(&mut self) {
        assert!(self.cq.poll(1).next().is_none(), "a packet that nobody steered here");
    }
}

/// True if the device has an Ethernet port.
fn is_ethernet() -> bool {
    let port = device().open().expect("open").query_port(1).expect("query_port");
    port.link_layer == LinkLayer::Ethernet
}

/// True if the device supports raw packets. Otherwise skips the test.
pub(crate) fn has_raw_packets() -> bool {
    if not_on_rxe("soft-RoCE has no raw packets") {
        return false;
    }
    let ethernet = is_ethernet();
    if !ethernet {
        skip("raw packets need an Ethernet port");
    }
    ethernet
}

fn ends() -> (End, End) {
    let device = device();
    (End::new(&device), End::new(&device))
}

/// The Ethernet header.
fn eth(dst: MacAddr, kind: u16) -> Vec<u8> {
    [&dst.0[..], &HERE.0, &kind.to_be_bytes()].concat()
}

/// A UDP packet of IPv4, its checksums left to the device.
fn udp(dst: MacAddr, (from, to): (u16, u16), data: &[u8]) -> Vec<u8> {
    let total = |head: usize| ((head + data.len()) as u16).to_be_bytes();
    let mut packet = eth(dst, 0x0800);
    packet.extend([0x45, 0]);
    packet.extend(total(28));
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    packet.extend(IP_HERE.octets().iter().chain(&IP_THERE.octets()));
    packet.extend([from.to_be_bytes(), to.to_be_bytes(), total(8), [0, 0]].concat());
    packet.extend(data);
    packet
}

/// A UDP packet of IPv6.
fn udp6(dst: MacAddr, to: u16, data: &[u8]) -> Vec<u8> {
    let len = ((8 + data.len()) as u16).to_be_bytes();
    let mut packet = eth(dst, 0x86dd);
    packet.extend([0x60, 0, 0, 0]);
    packet.extend(len);
    packet.extend([17, 64]);
    packet.extend(Ipv6Addr::LOCALHOST.octets().iter().chain(&ip6().octets()));
    packet.extend([[0x30, 0x39], to.to_be_bytes(), len, [0, 0]].concat());
    packet.extend(data);
    packet
}

fn ip6() -> Ipv6Addr {
    "fd00::2".parse().expect("an address")
}

/// Packets to this station.
fn to_there() -> FlowRule {
    FlowRule::new().eth(EthMatch { dst: Some(THERE.into()), ..Default::default() })
}

fn port(number: u16) -> PortMatch {
    PortMatch { dst: Some(number.into()), src: None }
}

/// The ones' complement sum of 16-bit words.
fn sum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let sum = words.sum::<u32>();
    let folded = (sum & 0xffff) + (sum >> 16);
    (folded + (folded >> 16)) as u16
}

#[test]
fn a_packet_arrives_whole_with_its_checksums_and_its_rules_tag() {
    if !has_raw_packets() {
        return;
    }
    let (mut one, mut other) = ends();
    let _flow = other.steer(&to_there().ipv4(Ipv4Match::default()).udp(port(5000)).tag(77));
    other.expect(3);
    let packet = udp(THERE, (1, 5000), b"a datagram of its own making");
    one.send(&packet);
    let (got, tag) = other.next();
    assert_eq!(tag, 77);
    assert_eq!(got.len(), packet.len());
    // Only the bytes that the device fills in are new.
    for (at, (got, sent)) in got.iter().zip(&packet).enumerate() {
        assert!(
            got == sent || [24, 25, 40, 41].contains(&at),
            "byte {at}: {got:#x}, sent {sent:#x}"
        );
    }
    assert_eq!(sum(&got[14..34]), 0xffff, "the header's checksum");
    let len = (got.len() - 34) as u16;
    let pseudo = [&got[26..34], &[0, 17], &len.to_be_bytes()[..], &got[34..]].concat();
    assert_eq!(sum(&pseudo), 0xffff, "the datagram's checksum");

    one.send(&udp(THERE, (1, 5001), b"another port"));
    one.send(&udp(MacAddr([2, 0, 0, 0, 0, 3]), (1, 5000), b"another station"));
    one.send(&udp(THERE, (2, 5000), b"the end"));
    let (got, _) = other.next();
    assert_eq!(&got[42..49], b"the end");
    other.has_none();
}

#[test]
fn the_device_tells_of_checksums() {
    if !has_raw_packets() {
        return;
    }
    let (mut one, mut other) = ends();
    let _flow = other.steer(&to_there());
    other.expect(4);
    let good = udp(THERE, (1, 1), b"sums are filled in");
    one.send(&good);
    let mut batch = one.qp.batch();
    batch.send_packet_inline(8, &good, Checksums::AsTheyAre).expect("send_packet_inline");
    batch.ring();
    one.cq.wait(LIMIT).expect("a completion").result.expect("it left");
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let mut burst = other.cq.poll(4);
        while let Some(completion) = burst.next() {
            seen.push(completion.packet());
        }
    }
    assert!(seen[0].ip_checksum_ok && seen[0].transport_checksum_ok);
    assert!(!seen[1].ip_checksum_ok, "its checksum is 0");
    assert_eq!(seen[0].vlan_tag, None);
}

#[test]
fn each_layer_is_compared() {
    if !has_raw_packets() {
        return;
    }
    let (mut one, mut other) = ends();
    let v4 = Ipv4Match { dst: Some(IP_THERE.into()), ..Default::default() };
    let net = Masked { value: Ipv4Addr::new(10, 1, 0, 0), mask: Ipv4Addr::new(255, 255, 0, 0) };
    let from_net = Ipv4Match { src: Some(net), tos: Some(0.into()), ..Default::default() };
    let v6 = Ipv6Match { dst: Some(ip6().into()), ..Default::default() };
    let rules = [
        (to_there().ipv4(v4).udp(port(1)).tag(1), udp(THERE, (9, 1), b"address and port")),
        (to_there().ipv4(from_net).udp(port(2)).tag(2), udp(THERE, (9, 2), b"a net")),
        (to_there().ipv6(v6).udp(port(1)).tag(3), udp6(THERE, 1, b"six")),
        (
            FlowRule::new()
                .eth(EthMatch { ether_type: Some(0x88b5.into()), ..Default::default() })
                .tag(4),
            [&eth(THERE, 0x88b5)[..], &[0x5a; 60]].concat(),
        ),
        (
            to_there()
                .udp(PortMatch { src: Some(Masked { value: 0x1200, mask: 0xff00 }), dst: None })
                .tag(5),
            udp(THERE, (0x1234, 3), b"part of a port"),
        ),
    ];
    let _flows: Vec<_> = rules.iter().map(|(rule, _)| other.steer(rule)).collect();
    other.expect(8);
    for (number, (_, packet)) in rules.iter().enumerate() {
        one.send(packet);
        assert_eq!(other.next().1, number as u32 + 1);
    }
    one.send(&udp(THERE, (9, 3), b"nobody's"));
    one.send(&rules[3].1);
    assert_eq!(other.next().1, 4, "and nothing came before it");
}

#[test]
fn lists_inline_data_and_parts_are_one_packet() {
    if !has_raw_packets() {
        return;
    }
    pieces(&device());
}

#[test]
fn a_device_that_wants_headers_gets_them() {
    if only_on_softhca("it takes a device before ConnectX-5") {
        let hca = SoftHca::builder().wants_headers().build().expect("a software HCA");
        pieces(&soft(&hca));
        let mut end = End::new(&soft(&hca));
        let mut batch = end.qp.batch();
        let short = batch.send_packet_inline(1, &[0; 17], Checksums::AsTheyAre);
        assert_eq!(short, Err(PostError::ShortPacket));
        batch.ring();
    }
}

/// Packets of several pieces, inline, and of exposed memory.
fn pieces(device: &Device) {
    let (mut one, mut other) = (End::new(device), End::new(device));
    let _flow = other.steer(&to_there());
    other.expect(8);
    let packet = udp(THERE, (3, 4), &[0xa5; 100]);
    for (id, cut) in [14, 18, 20, 5].into_iter().enumerate() {
        let mut head = one.slab.take().expect("a frame");
        let mut tail = one.slab.take().expect("a frame");
        head.set_len(cut);
        head.copy_from_slice(&packet[..cut]);
        tail.set_len(packet.len() - cut);
        tail.copy_from_slice(&packet[cut..]);
        head.append(tail);
        let mut batch = one.qp.batch();
        batch.send_packet(id as u64, head.chain(), Checksums::Filled).expect("send_packet");
        batch.ring();
        one.cq.wait(LIMIT).expect("a completion").result.expect("it left");
        let (got, _) = other.next();
        assert_eq!((got.len(), &got[42..]), (packet.len(), &packet[42..]), "cut at {cut}");
    }
    let mut batch = one.qp.batch();
    batch.send_packet_inline(9, &packet, Checksums::AsTheyAre).expect("send_packet_inline");
    batch.ring();
    one.cq.wait(LIMIT).expect("a completion").result.expect("it left");
    assert_eq!(other.next().0, packet, "as it was made");
    let exposed = one.pd.expose(256, uverbs::AccessFlags::empty()).expect("expose");
    exposed.write(3, &packet).expect("write");
    let part = exposed.part(3, packet.len()).expect("a part");
    let mut batch = one.qp.batch();
    batch.send_packet(10, part, Checksums::AsTheyAre).expect("send_packet");
    batch.ring();
    one.cq.wait(LIMIT).expect("a completion").result.expect("it left");
    assert_eq!(other.next().0, packet, "of exposed memory");
}

#[test]
fn many_packets_go_around_the_rings() {
    if !has_raw_packets() {
        return;
    }
    let (mut one, mut other) = ends();
    let _flow = other.steer(&to_there());
    for round in 0..20u8 {
        other.expect(16);
        for number in 0..16u8 {
            one.send(&udp(THERE, (1, 1), &[round ^ number; 90]));
        }
        for number in 0..16u8 {
            assert_eq!(other.next().0[42..], [round ^ number; 90]);
        }
    }
}

#[test]
fn two_queue_pairs_with_one_rule_get_a_copy_each() {
    if !has_raw_packets() {
        return;
    }
    let device = device();
    let (mut one, mut two, mut three) = (End::new(&device), End::new(&device), End::new(&device));
    let rule = to_there().ipv4(Ipv4Match::default()).udp(port(6));
    let kept = two.steer(&rule);
    let ended = three.steer(&rule);
    two.expect(2);
    three.expect(2);
    one.send(&udp(THERE, (5, 6), b"for both"));
    assert_eq!(two.next().0[42..50], *b"for both");
    assert_eq!(three.next().0[42..50], *b"for both");
    ended.destroy().expect("destroy_flow");
    one.send(&udp(THERE, (5, 6), b"for two"));
    assert_eq!(two.next().0[42..49], *b"for two");
    three.has_none();
    drop(kept);
}

#[test]
fn an_earlier_priority_decides_and_may_let_packets_go_on() {
    if !has_raw_packets() {
        return;
    }
    let device = device();
    let (mut one, mut two, mut three) = (End::new(&device), End::new(&device), End::new(&device));
    let late = two.steer(&to_there().priority(3).tag(2));
    let early = three.steer(&to_there().ipv4(Ipv4Match::default()).udp(port(8)).priority(1).tag(1));
    two.expect(4);
    three.expect(4);
    one.send(&udp(THERE, (1, 8), b"early"));
    assert_eq!(three.next().1, 1);
    one.send(&udp(THERE, (1, 9), b"late"));
    assert_eq!(two.next().0[42..46], *b"late");
    drop(early);
    one.send(&udp(THERE, (1, 8), b"now late"));
    assert_eq!(two.next().1, 2);
    three.has_none();
    drop(late);
}

#[test]
fn rules_that_overlap_or_make_no_sense_are_refused() {
    if !has_raw_packets() {
        return;
    }
    let (mut one, mut other) = ends();
    let rule = to_there().ipv4(Ipv4Match::default()).udp(port(1)).tag(1);
    let flow = one.steer(&rule);
    let errno = |error: Error| error.to_errno();
    // Steering again by the existing rule; by the rule with another tag; by the rule as a drop.
    let again = one.qp.steer(&rule).expect_err("it has it");
    assert!(matches!(again, Error::Invalid { what: "rule", .. }), "{again}");
    let retagged = to_there().ipv4(Ipv4Match::default()).udp(port(1)).tag(2);
    let error = other.qp.steer(&retagged).expect_err("another tag");
    assert!(error.to_string().contains("overlaps"), "{error}");
    assert_eq!(errno(error), Errno::EEXIST);
    let dropped = to_there().ipv4(Ipv4Match::default()).udp(port(1)).dropped();
    assert_eq!(errno(other.qp.steer(&dropped).expect_err("dropped")), Errno::EEXIST);
    // A priority that isn't there.
    let error = one.qp.steer(&to_there().priority(16)).expect_err("16 of 16");
    assert!(error.to_string().contains("priority"), "{error}");
    assert_eq!(errno(error), Errno::ENOMEM);
    // Errors that the library finds without the device.
    let tag = one.qp.steer(&to_there().tag(1 << 24)).expect_err("25 bits");
    assert!(matches!(tag, Error::Limit { what: "tag", limit: 0xff_ffff, .. }), "{tag}");
    let wrong = EthMatch { ether_type: Some(0x86dd.into()), ..Default::default() };
    let wrong = one.qp.steer(&FlowRule::new().eth(wrong).ipv4(Ipv4Match::default()));
    assert!(matches!(wrong, Err(Error::Invalid { what: "Ethernet type", .. })), "{wrong:?}");
    drop(flow);
    let flow = other.steer(&retagged);
    drop(flow);
}

#[test]
fn a_queue_pair_with_rules_is_not_destroyed() {
    if !has_raw_packets() {
        return;
    }
    let (mut one, mut other) = ends();
    let flow = other.steer(&to_there());
    other.expect(1);
    let refused = other.qp.destroy().expect_err("it has a rule");
    assert_eq!(refused.error.to_errno(), Errno::EBUSY);
    other.qp = refused.into_object();
    one.send(&udp(THERE, (1, 1), b"still there"));
    assert_eq!(other.next().0[42..53], *b"still there");
    // Dropped before its rule: both go with the rule.
    let End { qp, cq, pd, slab, context } = other;
    drop((qp, cq, pd, slab));
    drop(flow);
    drop(context);
}

#[test]
fn what_is_dropped_and_what_is_left_over() {
    if !has_raw_packets() {
        return;
    }
    let (mut one, mut other) = ends();
    let all = other.steer(&to_there().priority(4));
    let none = other.steer(&to_there().ipv4(Ipv4Match::default()).udp(port(7)).dropped());
    other.expect(4);
    one.send(&udp(THERE, (1, 7), b"dropped"));
    one.send(&udp(THERE, (1, 8), b"not dropped"));
    assert_eq!(other.next().0[42..53], *b"not dropped");
    drop((all, none));
    let stranger = MacAddr([2, 0, 0, 0, 9, 9]);
    let rest = other.qp.steer(&FlowRule::rest());
    if rest.as_ref().is_err_and(|error| error.to_errno() == Errno::EINVAL)
        && !only_on_softhca("its kernel takes no rule for the rest")
    {
        return;
    }
    let rest = rest.expect("create_flow");
    one.send(&udp(stranger, (1, 8), b"the rest"));
    assert_eq!(other.next().0[42..50], *b"the rest");
    drop(rest);
}

#[test]
fn rules_count() {
    if !has_raw_packets() {
        return;
    }
    let (mut one, mut other) = ends();
    let counters = other.context.flow_counters().expect("create_counters");
    assert!(matches!(counters.read(), Err(Error::Invalid { what: "counters", .. })));
    let rule = to_there().ipv4(Ipv4Match::default()).udp(port(3));
    let flow = other.qp.steer_counted(&rule, &counters).expect("create_flow");
    other.expect(8);
    let packet = udp(THERE, (1, 3), &[1; 80]);
    for _ in 0..3 {
        one.send(&packet);
        other.next();
    }
    let count = counters.read().expect("read_counters");
    assert_eq!((count.packets, count.bytes), (3, 3 * packet.len() as u64));
    // A second rule counts with the same ones.
    let also = to_there().ipv4(Ipv4Match::default()).udp(port(4));
    let second = other.qp.steer_counted(&also, &counters).expect("create_flow");
    one.send(&udp(THERE, (1, 4), &[1; 80]));
    other.next();
    assert_eq!(counters.read().expect("read_counters").packets, 4);
    drop((flow, second));
    assert!(counters.read().is_err(), "of no rule any more");
    let foreign = one.context.flow_counters().expect("create_counters");
    let refused = other.qp.steer_counted(&rule, &foreign).expect_err("of another context");
    assert!(matches!(refused, Error::Invalid { what: "counters", .. }), "{refused}");
}

#[test]
fn bad_packets_are_refused_and_the_queue_is_as_it_was() {
    if !has_raw_packets() {
        return;
    }
    let (mut one, mut other) = ends();
    let _flow = other.steer(&to_there());
    other.expect(1);
    let mut batch = one.qp.batch();
    let short = batch.send_packet_inline(1, &[0; 13], Checksums::AsTheyAre);
    assert_eq!(short, Err(PostError::ShortPacket));
    let long = batch.send_packet_inline(1, &[0; 5000], Checksums::AsTheyAre);
    assert_eq!(long, Err(PostError::InlineTooLong));
    let mut frame = one.slab.take().expect("a frame");
    frame.set_len(10);
    let refused = batch.send_packet(1, frame, Checksums::AsTheyAre).expect_err("10 bytes");
    assert_eq!(refused.error, PostError::ShortPacket);
    let foreign = other.slab.take().expect("a frame");
    let refused = batch.send_packet(1, foreign, Checksums::AsTheyAre).expect_err("a foreign frame");
    assert_eq!(refused.error, PostError::ForeignBuffer);
    batch.ring();
    one.send(&udp(THERE, (1, 1), b"good"));
    assert_eq!(other.next().0[42..46], *b"good");
}

#[test]
fn a_rate_that_the_device_does_not_limit_is_refused_by_name() {
    if !has_raw_packets() {
        return;
    }
    let (mut one, mut other) = ends();
    let rate = |rate| RawPacketChange { rate_limit: Some(rate) };
    one.qp.change(&RawPacketChange::default()).expect("no change");
    one.qp.change(&rate(0)).expect("no limit, as before");
    // Linux's driver limits rates where the device's firmware does, which softhca's doesn't.
    if let Err(error) = one.qp.change(&rate(1_000_000)) {
        assert!(matches!(error, Error::Unsupported { verb: "modify_qp", .. }), "{error}");
        assert!(error.to_string().contains("rate limit (1000000 kbit/s)"), "{error}");
    }
    let flow = other.steer(&to_there());
    other.expect(1);
    one.send(&udp(THERE, (1, 1), b"on"));
    assert_eq!(other.next().0[42..44], *b"on");
    drop(flow);
}

#[test]
fn a_reset_queue_pair_works_again() {
    if !has_raw_packets() {
        return;
    }
    let (mut one, mut other) = ends();
    let flow = other.steer(&to_there());
    other.expect(5);
    one.send(&udp(THERE, (1, 1), b"before"));
    other.next();
    let back = other.qp.reset(&mut [&mut other.cq]).expect("reset");
    assert_eq!(back.len(), 4, "receives come back");
    drop(back);
    other.qp.bring_up(1).expect("bring_up");
    other.expect(2);
    one.send(&udp(THERE, (1, 1), b"after"));
    assert_eq!(other.next().0[42..47], *b"after");
    other.qp.fail().expect("fail");
    let flushed = other.cq.wait(LIMIT).expect("a completion");
    assert!(flushed.result.is_err(), "{:?}", flushed.result);
    drop(flow);
}

#[test]
fn a_device_without_says_so() {
    if is_ethernet() && !common::is_rxe() {
        // A software HCA of this process always supports raw packets.
        if !only_on_softhca("the device has raw packets") {
            return;
        }
        let hca = SoftHca::builder().link(uverbs::softhca::LinkLayer::InfiniBand);
        return without(&soft(&hca.build().expect("a software HCA")));
    }
    without(&device());
}

/// Checks the errors of a device without raw packets.
fn without(device: &Device) {
    let context = device.open().expect("open");
    let pd = context.alloc_pd().expect("alloc_pd");
    let cq = context.create_cq(512).expect("create_cq");
    let error = context.queue_pair(&pd, &cq).raw_packet().build().expect_err("no raw packets");
    assert!(matches!(error, Error::Unsupported { verb: "create_qp", .. }), "{error}");
    if common::is_rxe() {
        let error = context.flow_counters().expect_err("no counters");
        assert!(matches!(error, Error::Unsupported { verb: "create_counters", .. }), "{error}");
    }
}
