//! Paths through tables: the deciding entry, misses, and self-loopback.

use uverbs_mlx5_prm::cmd::flow::{fte_match_param, fte_match_set_lyr_2_4 as outer};

use super::super::rss::FIELDS;
use super::super::steering::MAX_SPREAD;
use super::*;
use uverbs_front::backend::steering::{Change, Wrong};

fn criteria(field: uverbs_mlx5_prm::cmd::Field, value: u64) -> [u8; MATCH_LEN] {
    let mut criteria = [0; MATCH_LEN];
    field.set(fte_match_param::OUTER_HEADERS.of_mut(&mut criteria), value);
    criteria
}

fn tirs<const N: usize>(numbers: [u32; N]) -> EntryContext {
    to(&numbers.map(|number| FlowDestination::Tir(RQN + number)))
}

#[test]
fn without_tables_and_without_entries_frames_are_gone() {
    let mut steering = scene();
    assert_eq!(reached(&mut steering, &Packet::tcp()), []);
    catch_all(&mut steering, 1, &[FlowDestination::Tir(RQN)]);
    assert_eq!(reached(&mut steering, &Packet::tcp()), [RQN]);
    steering.set_root(Direction::Receive, None).unwrap();
    assert_eq!(reached(&mut steering, &Packet::tcp()), []);
}

#[test]
fn the_first_entry_that_matches_decides() {
    let mut steering = scene();
    // The group of ports decides first, whatever was created first; of two equal entries, the lower
    // one.
    let all = [0; MATCH_LEN];
    let last = GroupContext { first: 8, last: 8, enable: 0, criteria: &all };
    steering.add_group(1, 1, last).unwrap();
    steering.add_entry(1, (1, 8), &all, tirs([7])).unwrap();
    let mask = criteria(outer::UDP_DPORT, 0xffff);
    let ports = GroupContext { first: 0, last: 7, enable: 1, criteria: &mask };
    steering.add_group(1, 2, ports).unwrap();
    steering.add_entry(1, (2, 5), &criteria(outer::UDP_DPORT, 53), tirs([5])).unwrap();
    steering.add_entry(1, (2, 3), &criteria(outer::UDP_DPORT, 53), tirs([3])).unwrap();
    let dns = Packet::udp().ports(1, 53);
    assert_eq!(reached(&mut steering, &dns), [RQN + 3]);
    assert_eq!(reached(&mut steering, &Packet::udp().ports(1, 54)), [RQN + 7]);
    steering.remove_entry(1, 3).unwrap();
    assert_eq!(reached(&mut steering, &dns), [RQN + 5]);
    steering.remove_entry(1, 5).unwrap();
    assert_eq!(reached(&mut steering, &dns), [RQN + 7]);
    assert_eq!(steering.remove_entry(1, 5), Err(Wrong::Missing("no such flow entry")));
}

#[test]
fn a_miss_goes_on_where_the_table_says() {
    let mut steering = scene();
    steering.add_table(2, table(2, Miss::Usual)).unwrap();
    catch_all(&mut steering, 2, &[FlowDestination::Tir(RQN + 1)]);
    let mask = criteria(outer::IP_PROTOCOL, 0xff);
    let group = GroupContext { first: 0, last: 0, enable: 1, criteria: &mask };
    steering.add_group(1, 1, group).unwrap();
    steering.add_entry(1, (1, 0), &criteria(outer::IP_PROTOCOL, 17), tirs([0])).unwrap();
    assert_eq!(reached(&mut steering, &Packet::tcp()), []);
    steering.set_miss(1, Miss::Table(2)).unwrap();
    assert_eq!(reached(&mut steering, &Packet::tcp()), [RQN + 1]);
    assert_eq!(reached(&mut steering, &Packet::udp()), [RQN]);
    // A table of the same or a lower level could make a loop.
    let up = Err(Wrong::Param("the next flow table is of no higher level"));
    assert_eq!(steering.set_miss(2, Miss::Table(1)), up);
    assert_eq!(steering.set_miss(2, Miss::Table(2)), up);
    assert_eq!(steering.set_miss(2, Miss::Table(9)), Err(Wrong::Missing("no such flow table")));
    let back = to(&[FlowDestination::Table(1)]);
    assert_eq!(steering.add_entry(2, (102, 1), &[0; MATCH_LEN], back), up);
}

#[test]
fn an_entry_may_name_many_and_may_change() {
    let mut steering = scene();
    steering.add_counter(1);
    steering.add_table(2, table(2, Miss::Usual)).unwrap();
    catch_all(&mut steering, 2, &[FlowDestination::Tir(RQN + 1)]);
    let all = &[0; MATCH_LEN];
    let group = GroupContext { first: 0, last: 0, enable: 0, criteria: all };
    steering.add_group(1, 1, group).unwrap();
    let both = EntryContext {
        tag: 0xabcdef,
        destinations: vec![FlowDestination::Table(2), FlowDestination::Tir(RQN)],
        counters: vec![1],
        ..EntryContext::default()
    };
    steering.add_entry(1, (1, 0), all, both.clone()).unwrap();
    let bytes = Packet::tcp().bytes();
    let copies = steering.route(&bytes, &Headers::parse(&bytes), Some(SQN));
    let mut got: Vec<_> = copies.iter().map(|copy| (copy.rqn, copy.tag)).collect();
    got.sort_unstable();
    assert_eq!(got, [(RQN, 0xabcdef), (RQN + 1, 0xabcdef)]);
    let counted = *steering.counter(1).unwrap();
    assert_eq!((counted.packets, counted.bytes), (1, bytes.len() as u64));
    let change = Change { tag: false, destinations: true, edits: false, counters: false };
    steering.change_entry(1, 0, change, EntryContext { tag: 5, ..to(&[]) }).unwrap();
    assert_eq!(reached(&mut steering, &Packet::tcp()), []);
    // Dropped, and still counted.
    assert_eq!(steering.counter(1).unwrap().packets, 2);
    let nobody = to(&[FlowDestination::Tir(99)]);
    assert_eq!(steering.change_entry(1, 0, change, nobody), Err(Wrong::Missing("no such TIR")));
}

#[test]
fn nobody_hears_itself_unless_it_wants_to() {
    let mut steering = scene();
    catch_all(&mut steering, 1, &[FlowDestination::Tir(RQN), FlowDestination::Tir(RQN + 1)]);
    let own = TirContext { domain: OWN, ..tir(Spread::Queue(RQN + 1)) };
    let (unicast, multicast) = (Packet::tcp(), Packet::tcp().to([0xff; 6]));
    for (uc, mc) in [(false, false), (true, false), (false, true), (true, true)] {
        let own = TirContext { hears_own_unicast: uc, hears_own_multicast: mc, ..own.clone() };
        steering.set_tir(RQN + 1, own).unwrap();
        assert_eq!(reached(&mut steering, &unicast).contains(&(RQN + 1)), uc);
        assert_eq!(reached(&mut steering, &multicast).contains(&(RQN + 1)), mc);
        // The other domain receives all frames.
        assert!(reached(&mut steering, &unicast).contains(&RQN));
    }
}

#[test]
fn a_hash_spreads_flows_and_keeps_each_together() {
    let mut steering = scene();
    let queues: Vec<_> = (0..8).map(|place| RQN + place % 4).collect();
    steering.set_spread(1, queues).unwrap();
    let hash = HashContext {
        function: HashFunction::Toeplitz,
        symmetric: false,
        key: std::array::from_fn(|at| (at * 37 + 11) as u8),
        selector: Selector { ipv6: false, udp: true, fields: FIELDS },
    };
    steering.set_tir(RQN, TirContext { hash, ..tir(Spread::Table(1)) }).unwrap();
    catch_all(&mut steering, 1, &[FlowDestination::Tir(RQN)]);
    let mut counts = [0; 4];
    for port in 0..400 {
        let packet = Packet::udp().ports(port, 4791);
        let [rqn] = reached(&mut steering, &packet)[..] else { panic!("one queue") };
        assert_eq!(reached(&mut steering, &packet), [rqn]);
        counts[(rqn - RQN) as usize] += 1;
    }
    assert!(counts.iter().all(|count| (50..150).contains(count)), "{counts:?}");
    // TCP's ports are not selected: all packets between two addresses go to one queue.
    let mut of_tcp: Vec<_> =
        (0..50).map(|port| reached(&mut steering, &Packet::tcp().ports(port, 80))).collect();
    of_tcp.dedup();
    assert_eq!(of_tcp.len(), 1);
    // Other kinds of packet have hash 0, which selects the first queue.
    assert_eq!(reached(&mut steering, &Packet::udp().v6([1; 16], [2; 16])), [RQN]);
}

#[test]
fn lists_have_a_bound_together_and_are_given_back() {
    let mut steering = scene();
    let places = || vec![RQN; MAX_SPREAD];
    let full = (1 << 20) / MAX_SPREAD as u32;
    for round in 0..2 {
        for number in 0..full {
            steering.set_spread(number, places()).unwrap();
        }
        // A table of equal length may replace one, and nothing longer.
        steering.set_spread(0, places()).unwrap();
        assert_eq!(steering.set_spread(full, vec![RQN]), Err(Wrong::Limit("destinations")));
        let group =
            GroupContext { first: round, last: round, enable: 0, criteria: &[0; MATCH_LEN] };
        steering.add_group(1, round, group).unwrap();
        let entry = |steering: &mut Steering, count| {
            let context = to(&vec![FlowDestination::Tir(RQN); count]);
            steering.add_entry(1, (round, round), &[0; MATCH_LEN], context)
        };
        assert_eq!(entry(&mut steering, 1), Err(Wrong::Limit("destinations")));
        steering.set_spread(0, vec![RQN; MAX_SPREAD - 3]).unwrap();
        assert_eq!(entry(&mut steering, 4), Err(Wrong::Limit("destinations")));
        entry(&mut steering, 2).unwrap();
        let change = Change { tag: false, destinations: true, edits: false, counters: false };
        steering.change_entry(1, round, change, tirs([0])).unwrap();
        steering.set_spread(full, vec![RQN; 2]).unwrap();
        assert_eq!(steering.set_spread(full, vec![RQN; 3]), Err(Wrong::Limit("destinations")));
        steering.remove_entry(1, round).unwrap();
        for number in 0..=full {
            steering.remove_spread(number).unwrap();
        }
    }
}

/// Another object may get its number later.
#[test]
fn a_queue_that_is_gone_gets_nothing() {
    let mut steering = scene();
    steering.set_spread(1, vec![RQN]).unwrap();
    steering.set_tir(2, tir(Spread::Table(1))).unwrap();
    catch_all(&mut steering, 1, &[FlowDestination::Tir(RQN), FlowDestination::Tir(2)]);
    assert_eq!(reached(&mut steering, &Packet::udp()), [RQN, RQN]);
    steering.remove_queue(RQN);
    assert_eq!(reached(&mut steering, &Packet::udp()), []);
}

#[test]
fn nonsense_is_refused() {
    let mut steering = scene();
    let all = &[0; MATCH_LEN];
    let group = |first, last| GroupContext { first, last, enable: 0, criteria: all };
    let beyond = Err(Wrong::Param("a flow group beyond its table"));
    assert_eq!(steering.add_group(1, 1, group(0, 16)), beyond);
    assert_eq!(steering.add_group(1, 1, group(u32::MAX, u32::MAX)), beyond);
    assert_eq!(steering.add_group(1, 1, group(3, 2)), beyond);
    assert_eq!(steering.add_group(9, 1, group(0, 1)), Err(Wrong::Missing("no such flow table")));
    steering.add_group(1, 1, group(4, 7)).unwrap();
    for (first, last) in [(4, 7), (0, 4), (7, 9), (5, 6), (0, 15)] {
        let overlap = Err(Wrong::Param("flow groups overlap"));
        assert_eq!(steering.add_group(1, 2, group(first, last)), overlap);
    }
    steering.add_group(1, 2, group(0, 3)).unwrap();
    let missing = Err(Wrong::Missing("no such flow group"));
    assert_eq!(steering.add_entry(1, (1, 8), all, to(&[])), missing);
    let other = Err(Wrong::Param("the entry is of another flow group"));
    assert_eq!(steering.add_entry(1, (1, 3), all, to(&[])), other);
    steering.add_entry(1, (1, 4), all, to(&[])).unwrap();
    let twice = Err(Wrong::Param("there is an entry already"));
    assert_eq!(steering.add_entry(1, (1, 4), all, to(&[])), twice);
    let counted = EntryContext { counters: vec![3], ..to(&[]) };
    let no_counter = Err(Wrong::Missing("no such flow counter"));
    assert_eq!(steering.add_entry(1, (1, 5), all, counted), no_counter);
    assert_eq!(steering.remove_group(1, 1), Err(Wrong::Busy("the flow group has entries")));
    assert_eq!(steering.remove_table(1), Err(Wrong::Busy("the flow table has groups")));
    assert_eq!(
        steering.add_table(2, TableContext { log_size: 21, ..table(1, Miss::Usual) }),
        Err(Wrong::Param("size of a flow table"))
    );
    assert!(steering.set_root(Direction::Receive, Some(2)).is_err());
    assert!(steering.set_spread(1, vec![RQN; MAX_SPREAD + 1]).is_err());
    assert!(steering.set_spread(1, Vec::new()).is_err());
    assert!(steering.set_spread(1, vec![1]).is_err());
    assert!(steering.set_tir(1, tir(Spread::Table(1))).is_err());
    let unknown = Selector { fields: 1 << 5, ..Selector::default() };
    let of_none = HashContext { selector: unknown, ..no_hash() };
    assert!(steering.set_tir(1, TirContext { hash: of_none, ..tir(Spread::Queue(RQN)) }).is_err());
}
