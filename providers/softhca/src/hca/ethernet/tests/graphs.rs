//! Arbitrary frames through arbitrary tables: routing always ends.

use proptest::prelude::*;

use super::super::{checksum, segment};
use super::*;

/// Commands that a driver might send for tables 1 to 12, in any order.
#[derive(Clone, Debug)]
enum Step {
    Table(u32, u8, Option<u32>),
    Miss(u32, u32),
    Root(u32),
    Group(u32, u32, u32, u8),
    Entry(u32, u32, Vec<(bool, u32)>),
    Tir(u32, u32),
    Spread(u32, Vec<u32>),
    NoTable(u32),
    NoGroup(u32, u32),
    NoEntry(u32, u32),
    NoTir(u32),
    NoSpread(u32),
    NoQueue(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let table = || 1u32..12;
    let tir = || 0u32..6;
    prop_oneof![
        (table(), 0u8..8, prop::option::of(table())).prop_map(|(a, b, c)| Step::Table(a, b, c)),
        (table(), table()).prop_map(|(a, b)| Step::Miss(a, b)),
        table().prop_map(Step::Root),
        (table(), 0u32..20, 0u32..20, any::<u8>()).prop_map(|(a, b, c, d)| Step::Group(a, b, c, d)),
        (table(), 0u32..20, prop::collection::vec((any::<bool>(), 0u32..12), 0..20))
            .prop_map(|(a, b, c)| Step::Entry(a, b, c)),
        (tir(), 0u32..12).prop_map(|(a, b)| Step::Tir(a, b)),
        (tir(), prop::collection::vec(RQN..RQN + 9, 0..20)).prop_map(|(a, b)| Step::Spread(a, b)),
        table().prop_map(Step::NoTable),
        (table(), 0u32..20).prop_map(|(a, b)| Step::NoGroup(a, b)),
        (table(), 0u32..20).prop_map(|(a, b)| Step::NoEntry(a, b)),
        tir().prop_map(Step::NoTir),
        tir().prop_map(Step::NoSpread),
        (RQN..RQN + 8).prop_map(Step::NoQueue),
    ]
}

/// Executes a command; errors are allowed.
fn apply(steering: &mut Steering, step: &Step) {
    let all = &[0; MATCH_LEN];
    let done = match step.clone() {
        Step::Table(number, level, next) => {
            steering.add_table(number, table(level, next.map_or(Miss::Usual, Miss::Table)))
        }
        Step::Miss(number, next) => steering.set_miss(number, Miss::Table(next)),
        Step::Root(number) => steering.set_root(Direction::Receive, Some(number)),
        Step::Group(number, first, last, enable) => {
            let group = GroupContext { first, last, enable, criteria: all };
            steering.add_group(number, 100 + first, group)
        }
        Step::Entry(number, index, destinations) => {
            let destination = |(is_table, number)| match is_table {
                true => FlowDestination::Table(number),
                false => FlowDestination::Tir(number),
            };
            let context = to(&destinations.into_iter().map(destination).collect::<Vec<_>>());
            // In the group that contains the index.
            (100..120)
                .map(|group| steering.add_entry(number, (group, index), all, context.clone()))
                .find(Result::is_ok)
                .unwrap_or(Ok(()))
        }
        Step::Tir(number, spread) if spread < 6 => {
            steering.set_tir(number, tir(Spread::Table(spread)))
        }
        Step::Tir(number, queue) => steering.set_tir(number, tir(Spread::Queue(RQN + queue - 6))),
        Step::Spread(number, queues) => steering.set_spread(number, queues),
        Step::NoTable(number) => steering.remove_table(number),
        Step::NoGroup(number, first) => steering.remove_group(number, 100 + first),
        Step::NoEntry(number, index) => steering.remove_entry(number, index),
        Step::NoTir(number) => steering.remove_tir(number),
        Step::NoSpread(number) => steering.remove_spread(number),
        Step::NoQueue(number) => {
            steering.remove_queue(number);
            Ok(())
        }
    };
    let _ = done;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_tables_come_to_an_end(steps in prop::collection::vec(step(), 0..200)) {
        let mut steering = scene();
        for step in &steps {
            apply(&mut steering, step);
            prop_assert!(reached(&mut steering, &Packet::udp()).len() <= 1 << 10);
        }
    }

    #[test]
    fn any_bytes_are_a_frame(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        edits in prop::collection::vec((0usize..80, any::<u8>()), 0..6),
        kind in 0u8..5,
        mss in 0usize..100,
    ) {
        let mut frame = match kind {
            0 => bytes.clone(),
            1 => Packet::tcp().payload(&bytes).bytes(),
            2 => Packet::udp().tag(0x8100, 7).payload(&bytes).bytes(),
            3 => Packet::tcp().v6([1; 16], [2; 16]).payload(&bytes).bytes(),
            _ => Packet::udp().v6([1; 16], [2; 16]).protocol(0).payload(&bytes).bytes(),
        };
        for &(at, value) in &edits {
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
        }
        let headers = Headers::parse(&frame);
        if let Some(ip) = &headers.ip {
            prop_assert!(ip.at < ip.payload && ip.payload <= ip.end && ip.end <= frame.len());
            prop_assert!(ip.l4.is_none_or(|l4| ip.payload + l4.len <= ip.end));
        }
        checksum::verify(&frame, &headers);
        if let Some(frames) = segment::segments(&frame, &bytes, mss) {
            let sent: usize = frames.iter().map(|one| one.len() - frame.len()).sum();
            prop_assert_eq!(sent, bytes.len());
        }
        let whole = headers.ip.as_ref().is_some_and(|ip| ip.l4.is_some() && !ip.cut);
        checksum::fill(&mut frame, true, true);
        let verdict = checksum::verify(&frame, &Headers::parse(&frame));
        prop_assert!(!whole || verdict.l3 && verdict.l4);
        let mut steering = scene();
        catch_all(&mut steering, 1, &[FlowDestination::Tir(RQN)]);
        prop_assert_eq!(steering.route(&frame, &headers, Some(SQN)).len(), 1);
    }
}

/// Tables that all lead to the next one many times: copies would double with each level.
#[test]
fn copies_of_copies_have_a_bound() {
    let mut steering = scene();
    for number in 2..=60u32 {
        steering.add_table(number, table(number as u8, Miss::Usual)).unwrap();
    }
    for number in 1..60 {
        catch_all(&mut steering, number, &[FlowDestination::Table(number + 1); 200]);
    }
    catch_all(&mut steering, 60, &[FlowDestination::Tir(RQN); 200]);
    assert!(reached(&mut steering, &Packet::udp()).len() <= 1 << 10);
}

/// A search of a group takes time: a table with many groups, looked up repeatedly for one frame,
/// ends at a limit.
#[test]
fn tables_with_many_groups_have_a_bound() {
    const GROUPS: u32 = 1 << 12;
    let mut steering = scene();
    steering.add_table(2, TableContext { log_size: 12, ..table(2, Miss::Usual) }).unwrap();
    catch_all(&mut steering, 1, &[FlowDestination::Table(2); 200]);
    for at in 0..GROUPS {
        let criteria = &[0; MATCH_LEN];
        let group = GroupContext { first: at, last: at, enable: 0, criteria };
        steering.add_group(2, 1000 + at, group).unwrap();
    }
    let last = (1000 + GROUPS - 1, GROUPS - 1);
    steering.add_entry(2, last, &[0; MATCH_LEN], to(&[FlowDestination::Tir(RQN)])).unwrap();
    let copies = reached(&mut steering, &Packet::udp()).len();
    assert!((1..=16).contains(&copies), "{copies}");
}

/// A table that other tables lead to may be destroyed, and another with its number created at any
/// level.
#[test]
fn a_table_that_is_gone_drops_and_a_loop_made_so_ends() {
    let mut steering = scene();
    steering.add_table(2, table(2, Miss::Usual)).unwrap();
    catch_all(&mut steering, 1, &[FlowDestination::Table(2)]);
    steering.remove_table(2).unwrap();
    assert_eq!(reached(&mut steering, &Packet::udp()), []);
    steering.add_table(2, table(0, Miss::Table(1))).unwrap();
    assert_eq!(reached(&mut steering, &Packet::udp()), []);
}
