//! Each match field: a frame that has the value, and one that differs in this field only.

use uverbs_mlx5_prm::cmd::flow::{
    fte_match_param, fte_match_set_lyr_2_4 as outer, fte_match_set_misc as misc,
};
use uverbs_mlx5_prm::cmd::{Block, Field};

use super::*;

const OUTER: Block = fte_match_param::OUTER_HEADERS;
const MISC: Block = fte_match_param::MISC_PARAMETERS;

/// True if an entry that compares one field with `value` matches.
fn matches(part: Block, field: Field, value: u64, packet: &Packet) -> bool {
    let (mut criteria, mut wanted) = ([0; MATCH_LEN], [0; MATCH_LEN]);
    field.set(part.of_mut(&mut criteria), u64::MAX);
    field.set(part.of_mut(&mut wanted), value);
    compares(&criteria, &wanted, packet)
}

fn compares(criteria: &[u8; MATCH_LEN], wanted: &[u8; MATCH_LEN], packet: &Packet) -> bool {
    let mut steering = scene();
    let group = GroupContext { first: 0, last: 15, enable: 0b11, criteria };
    steering.add_group(1, 1, group).unwrap();
    steering.add_entry(1, (1, 3), wanted, to(&[FlowDestination::Tir(RQN)])).unwrap();
    match reached(&mut steering, packet)[..] {
        [RQN] => true,
        [] => false,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn each_field_hits_and_misses() {
    let v4 = Packet::tcp;
    let v6 = || Packet::tcp().v6([1; 16], [2; 16]);
    let tagged = || Packet::tcp().tag(0x8100, 0xb123);
    let two = |tpid: u16, tci: u16| Packet::tcp().tag(0x88a8, 7).tag(tpid, tci);
    let cases = [
        (OUTER, outer::DMAC_47_16, 0x0a0b_0c0d, v4().to([10, 11, 12, 13, 14, 15]), v4()),
        (OUTER, outer::DMAC_15_0, 0x0e0f, v4().to([10, 11, 12, 13, 14, 15]), v4()),
        (OUTER, outer::SMAC_47_16, 0x0a0b_0c0d, v4().from([10, 11, 12, 13, 14, 15]), v4()),
        (OUTER, outer::SMAC_15_0, 0x0e0f, v4().from([10, 11, 12, 13, 14, 15]), v4()),
        (OUTER, outer::ETHERTYPE, 0x0800, tagged(), v6()),
        (OUTER, outer::ETHERTYPE, 0x86dd, v6().tag(0x8100, 1), v4()),
        (OUTER, outer::FIRST_PRIO, 5, tagged(), Packet::tcp().tag(0x8100, 0x9123)),
        (OUTER, outer::FIRST_CFI, 1, tagged(), Packet::tcp().tag(0x8100, 0xa123)),
        (OUTER, outer::FIRST_VID, 0x123, tagged(), Packet::tcp().tag(0x8100, 0xb124)),
        (OUTER, outer::CVLAN_TAG, 1, tagged(), v4()),
        (OUTER, outer::CVLAN_TAG, 0, two(0x8100, 1), tagged()),
        (OUTER, outer::SVLAN_TAG, 1, two(0x8100, 1), tagged()),
        (OUTER, outer::IP_VERSION, 4, v4(), v6()),
        (OUTER, outer::IP_VERSION, 6, v6(), v4()),
        (OUTER, outer::IP_PROTOCOL, 6, v4(), Packet::udp()),
        (OUTER, outer::IP_PROTOCOL, 89, v6().protocol(89), v6()),
        (OUTER, outer::IP_DSCP, 0x2a, v4().class(0xa9), v4().class(0xa5)),
        (OUTER, outer::IP_ECN, 1, v6().class(0xa9), v6().class(0xaa)),
        (OUTER, outer::FRAG, 1, v4().fragment(0x2000), v4().fragment(0x4000)),
        (OUTER, outer::FRAG, 1, v4().fragment(185), v4()),
        (OUTER, outer::TTL_HOPLIMIT, 63, v4().ttl(63), v4()),
        (OUTER, outer::TTL_HOPLIMIT, 1, v6().ttl(1), v6()),
        (OUTER, outer::TCP_FLAGS, 0x112, v4().flags(0x112), v4().flags(0x012)),
        (OUTER, outer::TCP_SPORT, 4791, v4().ports(4791, 1), Packet::udp().ports(4791, 1)),
        (OUTER, outer::TCP_DPORT, 80, v6().ports(1, 80), v6().ports(80, 1)),
        (OUTER, outer::UDP_SPORT, 4791, Packet::udp().ports(4791, 1), v4().ports(4791, 1)),
        (OUTER, outer::UDP_DPORT, 53, Packet::udp().ports(1, 53), Packet::udp().ports(53, 1)),
        // A fragment has no ports: they are in the first fragment only.
        (OUTER, outer::TCP_DPORT, 0, v4().ports(1, 80).fragment(0x2000), v4().ports(1, 80)),
        // A packet whose length exceeds its frame.
        (OUTER, outer::TCP_DPORT, 80, v6().ports(1, 80).longer(40), v6().ports(1, 81).longer(40)),
        (
            OUTER,
            outer::UDP_DPORT,
            53,
            Packet::udp().ports(1, 53).longer(9),
            Packet::udp().longer(9),
        ),
        (MISC, misc::OUTER_SECOND_PRIO, 6, two(0x8100, 0xc002), two(0x8100, 0xa002)),
        (MISC, misc::OUTER_SECOND_CFI, 1, two(0x8100, 0x1002), two(0x8100, 0x0002)),
        (MISC, misc::OUTER_SECOND_VID, 2, two(0x8100, 2), two(0x8100, 3)),
        (MISC, misc::OUTER_SECOND_CVLAN_TAG, 1, two(0x8100, 2), two(0x88a8, 2)),
        (MISC, misc::OUTER_SECOND_SVLAN_TAG, 1, two(0x88a8, 2), tagged()),
        (MISC, misc::OUTER_IPV6_FLOW_LABEL, 0xf_1234, v6().label(0xf_1234), v6().label(0x1234)),
    ];
    for (number, (part, field, value, hit, miss)) in cases.iter().enumerate() {
        assert!(matches(*part, *field, *value, hit), "case {number} misses");
        assert!(!matches(*part, *field, *value, miss), "case {number} hits");
    }
}

#[test]
fn addresses_hit_and_miss_by_prefix() {
    let compare = |block: Block, mask: &[u8], wanted: &[u8], packet: &Packet| {
        let (mut criteria, mut value) = ([0; MATCH_LEN], [0; MATCH_LEN]);
        block.of_mut(OUTER.of_mut(&mut criteria)).copy_from_slice(mask);
        block.of_mut(OUTER.of_mut(&mut value)).copy_from_slice(wanted);
        compares(&criteria, &value, packet)
    };
    let (src, dst) = (outer::SRC_IPV4_SRC_IPV6, outer::DST_IPV4_DST_IPV6);
    let v4 = |address: [u8; 4]| [[0; 12].as_slice(), &address].concat();
    let packet = Packet::udp().v4([192, 168, 7, 9], [10, 20, 30, 40]);
    assert!(compare(src, &v4([255; 4]), &v4([192, 168, 7, 9]), &packet));
    assert!(!compare(src, &v4([255; 4]), &v4([192, 168, 7, 8]), &packet));
    assert!(compare(dst, &v4([255, 255, 0, 0]), &v4([10, 20, 99, 99]), &packet));
    assert!(!compare(dst, &v4([255, 255, 0, 0]), &v4([10, 21, 30, 40]), &packet));
    let mut far = [9; 16];
    let packet = Packet::tcp().v6([9; 16], [8; 16]);
    assert!(compare(src, &[255; 16], &far, &packet) && !compare(dst, &[255; 16], &far, &packet));
    far[15] = 1;
    let mut mask = [255; 16];
    assert!(!compare(src, &mask, &far, &packet));
    mask[15] = 0;
    assert!(compare(src, &mask, &far, &packet));
}

#[test]
fn all_fields_have_to_match() {
    let (mut criteria, mut wanted) = ([0; MATCH_LEN], [0; MATCH_LEN]);
    for (field, value) in [(outer::IP_PROTOCOL, 17), (outer::UDP_DPORT, 53)] {
        field.set(OUTER.of_mut(&mut criteria), u64::MAX);
        field.set(OUTER.of_mut(&mut wanted), value);
    }
    assert!(compares(&criteria, &wanted, &Packet::udp().ports(9, 53)));
    assert!(!compares(&criteria, &wanted, &Packet::udp().ports(9, 54)));
    assert!(!compares(&criteria, &wanted, &Packet::tcp().ports(9, 53)));
    // Bits outside of the group's criteria are ignored in an entry.
    outer::TTL_HOPLIMIT.set(OUTER.of_mut(&mut wanted), 7);
    assert!(compares(&criteria, &wanted, &Packet::udp().ports(9, 53)));
}

#[test]
fn what_is_not_compared_is_refused() {
    let group = |part: Block, field: Field, enable: u8| {
        let mut criteria = [0; MATCH_LEN];
        field.set(part.of_mut(&mut criteria), u64::MAX);
        let context = GroupContext { first: 0, last: 0, enable, criteria: &criteria };
        scene().add_group(1, 1, context).is_ok()
    };
    assert!(group(OUTER, outer::ETHERTYPE, 1));
    assert!(!group(MISC, misc::VXLAN_VNI, 0b11));
    assert!(!group(fte_match_param::INNER_HEADERS, outer::ETHERTYPE, 0b111));
    // A disabled part of the criteria may contain anything.
    assert!(group(fte_match_param::INNER_HEADERS, outer::ETHERTYPE, 0b011));
}
