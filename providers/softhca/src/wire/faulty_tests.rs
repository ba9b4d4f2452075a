use crate::wire::Route;
use proptest::prelude::*;

use super::*;
use crate::wire::Fabric;

const HERE: Address = Address { gid: [1; 16], lid: 0 };
const US: Duration = Duration::from_micros(1);

fn frame(n: u32) -> Frame {
    Frame {
        src: HERE,
        dst: HERE,
        route: Route::default(),
        bytes: n.to_be_bytes().to_vec(),
        loan: None,
    }
}

fn number(frame: &Frame) -> u32 {
    u32::from_be_bytes(frame.bytes[..].try_into().unwrap())
}

/// Creates a faulty wire from a port to itself.
fn wire(seed: u64, faults: Faults) -> Faulty<Box<dyn Wire>> {
    let port = Fabric::new().attach(&[HERE]);
    Faulty::new(Box::new(port), seed, faults)
}

/// Receives frames and advances time from event to event until the wire is idle.
fn drain(wire: &mut impl Wire, trace: &mut Vec<(Duration, u32)>, now: &mut Duration) {
    for _ in 0..100_000 {
        while let Some(frame) = wire.receive() {
            trace.push((*now, number(&frame)));
        }
        let Some(next) = wire.next_event() else {
            return;
        };
        assert!(next > *now, "an event in the past would spin");
        *now = next;
        wire.advance(*now);
    }
    panic!("the wire never becomes idle");
}

/// Sends frames `0..count`, 1 µs apart; returns arrivals and counts.
fn run(seed: u64, faults: Faults, count: u32) -> (Vec<(Duration, u32)>, FaultStats) {
    let mut wire = wire(seed, faults);
    let control = wire.control();
    let (mut trace, mut now) = (Vec::new(), Duration::ZERO);
    for n in 0..count {
        wire.transmit(frame(n)).unwrap();
        while let Some(frame) = wire.receive() {
            trace.push((now, number(&frame)));
        }
        now += US;
        wire.advance(now);
    }
    drain(&mut wire, &mut trace, &mut now);
    (trace, control.stats())
}

fn numbers(trace: &[(Duration, u32)]) -> Vec<u32> {
    trace.iter().map(|(_, n)| *n).collect()
}

fn all(count: u32) -> Vec<u32> {
    (0..count).collect()
}

#[test]
fn no_faults_change_nothing() {
    let (trace, stats) = run(1, Faults::default(), 500);
    assert_eq!(numbers(&trace), all(500));
    // Without delay: each arrives within its microsecond.
    assert!(trace.iter().all(|(at, n)| *at == US * *n));
    assert_eq!(stats, FaultStats { sent: 500, ..Default::default() });
    assert!(wire(1, Faults::default()).needs_icrc());
}

#[test]
fn loses() {
    let (trace, stats) = run(2, Faults { loss: 0.1, ..Default::default() }, 1000);
    assert_eq!(trace.len() as u64 + stats.lost, 1000);
    assert!((60..140).contains(&stats.lost), "{stats:?}");
    assert!(numbers(&trace).is_sorted());
    let (trace, stats) = run(2, Faults { loss: 1.0, ..Default::default() }, 100);
    assert_eq!((trace.len(), stats.lost), (0, 100));
}

#[test]
fn duplicates() {
    let (trace, stats) = run(3, Faults { duplicate: 0.1, ..Default::default() }, 1000);
    assert_eq!(trace.len() as u64, 1000 + stats.duplicated);
    assert!((60..140).contains(&stats.duplicated), "{stats:?}");
    let mut seen = numbers(&trace);
    assert!(seen.is_sorted());
    seen.dedup();
    assert_eq!(seen, all(1000));
}

#[test]
fn reorders_within_its_depth() {
    let faults = Faults { reorder: 0.1, reorder_depth: 3, ..Default::default() };
    let (trace, stats) = run(4, faults, 1000);
    assert!((60..140).contains(&stats.held_back), "{stats:?}");
    let seen = numbers(&trace);
    let mut overtaken = 0;
    for (i, n) in seen.iter().enumerate() {
        // Later frames that arrived earlier; held-back ones do not count.
        let ahead = seen[..i].iter().filter(|m| *m > n).count();
        overtaken = overtaken.max(ahead);
    }
    assert!((1..=8).contains(&overtaken), "{overtaken}");
    let mut sorted = seen.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, all(1000));
    assert_ne!(seen, sorted);
}

#[test]
fn a_frame_held_back_alone_comes_in_the_end() {
    let mut wire = wire(5, Faults { reorder: 1.0, ..Default::default() });
    wire.transmit(frame(7)).unwrap();
    assert!(wire.receive().is_none());
    assert_eq!(wire.next_event(), Some(HOLD_LIMIT));
    wire.advance(HOLD_LIMIT - US);
    assert!(wire.receive().is_none());
    wire.advance(HOLD_LIMIT);
    assert_eq!(wire.receive(), Some(frame(7)));
    assert_eq!(wire.next_event(), None);
}

#[test]
fn as_many_overtake_as_the_depth_allows() {
    let mut seen = [0; 5];
    for seed in 0..60 {
        let hold = Faults { reorder: 1.0, reorder_depth: 3, ..Default::default() };
        let mut wire = wire(seed, hold);
        wire.transmit(frame(0)).unwrap();
        wire.control().set_faults(Faults::default());
        for n in 1..=6 {
            wire.transmit(frame(n)).unwrap();
        }
        let order: Vec<_> = std::iter::from_fn(|| wire.receive()).map(|f| number(&f)).collect();
        seen[order.iter().position(|n| *n == 0).unwrap()] += 1;
    }
    assert_eq!((seen[0], seen[4]), (0, 0));
    assert!(seen[1..=3].iter().all(|times| *times > 5), "{seen:?}");
}

#[test]
fn time_does_not_go_back() {
    let mut wire = wire(5, Faults { delay: 10 * US, ..Default::default() });
    wire.advance(100 * US);
    wire.advance(50 * US);
    wire.transmit(frame(7)).unwrap();
    assert_eq!(wire.next_event(), Some(110 * US));
}

#[test]
fn corrupts_one_bit() {
    let (trace, stats) = run(6, Faults { corrupt: 0.1, ..Default::default() }, 1000);
    let wrong: Vec<_> = (0..).zip(numbers(&trace)).filter(|(n, m)| n != m).collect();
    assert_eq!(wrong.len() as u64, stats.corrupted);
    assert!((60..140).contains(&stats.corrupted), "{stats:?}");
    assert!(wrong.iter().all(|(n, m)| (n ^ m).count_ones() == 1));
    // Anywhere in the frame.
    let bits = wrong.iter().fold(0, |bits, (n, m)| bits | (n ^ m));
    assert!(u32::count_ones(bits) > 20, "{bits:#x}");
    // An empty frame has no bit to flip.
    let mut wire = wire(6, Faults { corrupt: 1.0, ..Default::default() });
    wire.transmit(Frame { bytes: Vec::new(), ..frame(0) }).unwrap();
    assert_eq!(wire.receive().unwrap().bytes, []);
}

#[test]
fn delays_and_keeps_the_order() {
    let (trace, _) = run(7, Faults { delay: 50 * US, ..Default::default() }, 200);
    assert_eq!(numbers(&trace), all(200));
    assert!(trace.iter().all(|(at, n)| *at == US * *n + 50 * US));

    let faults = Faults { delay: 50 * US, jitter: 30 * US, ..Default::default() };
    let (trace, _) = run(7, faults, 200);
    assert_eq!(numbers(&trace), all(200));
    let late = |(at, n): &(Duration, u32)| *at - US * *n;
    assert!(trace.iter().all(|t| (50 * US..=81 * US).contains(&late(t))));
    assert!(trace.iter().any(|t| late(t) > 60 * US));
}

#[test]
fn marks_what_says_that_it_heeds_marks() {
    for (mark, classes) in [(0.0, [0x40, 1, 2, 3]), (1.0, [0x40, 3, 3, 3])] {
        let mut wire = wire(7, Faults { mark, ..Default::default() });
        for traffic_class in [0x40, 1, 2, 3] {
            let route = Route { traffic_class, ..Route::default() };
            wire.transmit(Frame { route, ..frame(0) }).unwrap();
        }
        let came = std::iter::from_fn(|| wire.receive()).map(|frame| frame.route.traffic_class);
        assert_eq!(came.collect::<Vec<_>>(), classes);
        assert_eq!(wire.control().stats().marked, if mark == 0.0 { 0 } else { 3 });
    }
}

#[test]
fn back_pressure_below_loses_nothing() {
    let fabric = Fabric::with_queue_depth(4);
    let mut wire = Faulty::new(fabric.attach(&[HERE]), 8, Faults::default());
    let count = 100;
    for n in 0..count {
        wire.transmit(frame(n)).unwrap();
    }
    assert_eq!(wire.next_event(), Some(RETRY_AFTER));
    let (mut trace, mut now) = (Vec::new(), Duration::ZERO);
    drain(&mut wire, &mut trace, &mut now);
    assert_eq!(numbers(&trace), all(count));
}

#[test]
fn the_backlog_is_bounded_and_offering_again_draws_no_dice() {
    let faults = Faults { loss: 0.3, delay: US, ..Default::default() };
    let sends = BACKLOG as u32 * 2;
    let outcome = |offers: usize| {
        let mut wire = wire(9, faults);
        let (mut trace, mut now, mut refused) = (Vec::new(), Duration::ZERO, 0);
        for n in 0..sends {
            let mut next = frame(n);
            while let Err(WireFull(back)) = wire.transmit(next) {
                next = back;
                refused += 1;
                if refused % offers == 0 {
                    drain(&mut wire, &mut trace, &mut now);
                }
            }
        }
        drain(&mut wire, &mut trace, &mut now);
        assert!(refused > 0);
        numbers(&trace)
    };
    assert_eq!(outcome(1), outcome(5));
}

#[test]
fn faults_can_be_changed_from_outside() {
    let mut wire = wire(10, Faults { loss: 1.0, ..Default::default() });
    let control = wire.control();
    wire.transmit(frame(1)).unwrap();
    assert!(wire.receive().is_none());
    control.set_faults(Faults::default());
    wire.transmit(frame(2)).unwrap();
    assert_eq!(wire.receive(), Some(frame(2)));
    assert_eq!(control.stats(), FaultStats { sent: 2, lost: 1, ..Default::default() });
}

#[test]
fn one_fault_does_not_move_another() {
    let lossy = Faults { loss: 0.2, ..Default::default() };
    let (a, _) = run(11, lossy, 300);
    let (b, stats) = run(11, Faults { corrupt: 0.5, delay: US, ..lossy }, 300);
    assert!(stats.corrupted > 0);
    assert_eq!(a.len(), b.len());
}

fn any_faults() -> impl Strategy<Value = Faults> {
    let p = || 0.0..0.5;
    let us = || (0u64..200).prop_map(Duration::from_micros);
    (p(), p(), p(), 0u32..10, p(), us(), us(), p()).prop_map(
        |(loss, duplicate, reorder, reorder_depth, corrupt, delay, jitter, mark)| Faults {
            loss,
            duplicate,
            reorder,
            reorder_depth,
            corrupt,
            delay,
            jitter,
            mark,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Equal seeds give equal arrivals, to the nanosecond; and every frame is counted.
    #[test]
    fn deterministic_and_complete(seed in any::<u64>(), faults in any_faults()) {
        let (trace, stats) = run(seed, faults, 200);
        let again = run(seed, faults, 200);
        prop_assert_eq!((&trace, stats), (&again.0, again.1));
        prop_assert_eq!(trace.len() as u64, stats.sent - stats.lost + stats.duplicated);
    }

    #[test]
    fn seeds_differ(seed in any::<u64>()) {
        let faults = Faults { loss: 0.5, ..Default::default() };
        prop_assert_ne!(run(seed, faults, 200).0, run(seed ^ 1, faults, 200).0);
    }
}
