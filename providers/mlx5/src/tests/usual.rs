//! Fast path of polling, compared with the slow path.
#![allow(unsafe_code, reason = "posts, to have something to complete")]

use std::sync::Arc;

use proptest::prelude::*;
use uverbs_core::provider::{CqOps, Polled, Sink, Usual, View};
use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::slots::SlotTable;
use uverbs_core::queues::srq::SrqShared;
use uverbs_core::queues::user_index::UserIndexes;

use super::cq::{Cqe, Seen, posted, seen};
use super::fixture::PollSide;

const UNITS: u32 = 8;

/// Sink that returns the fields of a completion. For `CALLS` see [`Sink`].
struct See<const CALLS: bool>;

impl<V: View, const CALLS: bool> Sink<V> for See<CALLS> {
    type Output = Seen;

    const CALLS: bool = CALLS;

    fn take(self, view: V, wr_id: u64) -> Seen {
        seen(view, wr_id)
    }
}

/// Polls the next completion on the slow path.
fn long(side: &mut PollSide) -> Option<Seen> {
    let Polled { view, wr_id, .. } = side.cq.next()?;
    Some(seen(view, wr_id))
}

/// Polls the next completion on the fast path, if possible.
fn short<const CALLS: bool>(side: &mut PollSide) -> Option<Seen> {
    let before = side.cq.consumer();
    match side.cq.next_usual(See::<CALLS>) {
        Usual::Taken(seen) => Some(seen),
        Usual::Nothing => {
            assert_eq!(long(side), None, "there is nothing by the long way, too");
            None
        }
        Usual::Unusual => {
            assert_eq!(side.cq.consumer(), before, "nothing is changed");
            long(side)
        }
    }
}

/// Queue pair of a [`World`] whose tables may hold buffers. The two before it are plain.
const BUFFERS: usize = 2;
/// Queue pair with a shared receive queue.
const SHARED: usize = 3;
const ALL: usize = 4;

/// A completion queue and its queue pairs.
struct World {
    side: PollSide,
    qps: Vec<Arc<QpShared>>,
    /// Next send and next receive that the device completes, for each queue pair.
    next: [[u16; 2]; ALL],
}

impl World {
    /// Creates it with user indexes behind `skipped` unknown queue pairs.
    fn new(shift: u32, skipped: u32) -> Self {
        let side = PollSide::new(UNITS, shift);
        let indexes = UserIndexes::default();
        let gone: Vec<_> = (0..skipped).map(|_| indexes.take("create_qp").unwrap()).collect();
        let mut qps: Vec<_> = (0..=BUFFERS).map(|_| posted(&indexes, UNITS)).collect();
        drop(gone);
        // SAFETY: the test is the only poster.
        unsafe { qps[BUFFERS].send.will_own() };
        // SAFETY: the test is the only poster.
        unsafe { qps[BUFFERS].recv.will_own() };
        let srq = SrqShared::new(UNITS + 1, None);
        // SAFETY: the slots from the front on, except the last; the test is the only poster.
        (0..UNITS).for_each(|slot| unsafe { srq.put(slot, 300 + u64::from(slot)) });
        let mut user = Arc::into_inner(posted(&indexes, UNITS)).unwrap();
        (user.recv, user.srq) = (SlotTable::none(), Some(Arc::new(srq)));
        qps.push(Arc::new(user));
        qps.iter().for_each(|qp| side.attach(qp));
        let mut world = Self { side, qps, next: [[0; 2]; ALL] };
        world.side.cq.settle();
        world
    }

    /// Writes a CQE of this queue pair, or of an unknown one. `off` is the error of its counter.
    fn complete(&mut self, qp: usize, opcode: u8, sop: u8, off: u16) {
        let uidx = self.qps.get(qp).map_or(0xff_ffff, |qp| qp.user_index.value());
        let is_recv = !matches!(opcode, 0 | 13);
        let mut counter = off;
        if let Some(next) = self.next.get_mut(qp) {
            let next = &mut next[usize::from(is_recv)];
            counter = next.wrapping_add(off);
            *next += u16::from(off == 0);
        }
        let cqe = Cqe::new(opcode, uidx).sop(sop).imm(0x0102_0304).bytes(77).counter(counter);
        self.side.complete(cqe.from(0x1234, 0x2765_4321, 0x55).0);
    }
}

#[test]
fn successes_are_usual() {
    let mut world = World::new(6, 0);
    for (opcode, sop) in [(0, 8), (2, 0), (0, 16), (3, 0), (1, 0), (4, 0)] {
        world.complete(0, opcode, sop, 0);
        assert!(
            matches!(world.side.cq.next_usual(See::<false>), Usual::Taken(_)),
            "{opcode} {sop}"
        );
    }
    assert_eq!(world.side.cq.next_usual(See::<false>), Usual::Nothing);
}

#[test]
fn a_receive_of_a_shared_queue_is_usual_where_calls_are() {
    let mut world = World::new(6, 0);
    world.complete(SHARED, 2, 0, 0);
    assert_eq!(world.side.cq.next_usual(See::<false>), Usual::Unusual);
    assert!(matches!(world.side.cq.next_usual(See::<true>), Usual::Taken((300, ..))));
    assert_eq!(world.side.cq.next_usual(See::<true>), Usual::Nothing);
}

#[test]
fn what_is_unusual_stays() {
    // A failure; a queue pair with buffers; a send that is not outstanding; an unknown queue pair.
    let buffers = [(BUFFERS, 0, 0), (BUFFERS, 2, 0)];
    let others = [(0, 13, 0), (0, 14, 0), (0, 0, 9), (SHARED, 2, 9), (7, 0, 0)];
    for (qp, opcode, off) in buffers.into_iter().chain(others) {
        let mut world = World::new(6, 0);
        world.complete(qp, opcode, 8, off);
        for _ in 0..2 {
            let found = world.side.cq.next_usual(See::<true>);
            assert_eq!(found, Usual::Unusual, "{qp} {opcode} {off}");
        }
    }
}

#[test]
fn many_queue_pairs_are_unusual() {
    // Their state is prefetched, which the fast path does not do.
    let mut world = World::new(6, 300);
    world.complete(0, 0, 8, 0);
    assert_eq!(world.side.cq.next_usual(See::<true>), Usual::Unusual);
    assert_eq!(short::<true>(&mut world.side).map(|seen| seen.0), Some(100));
    // A repeated queue pair needs no lookup.
    world.complete(0, 0, 8, 0);
    assert!(matches!(world.side.cq.next_usual(See::<true>), Usual::Taken(_)));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 512 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Both paths return equal completions, and leave equal states.
    #[test]
    fn both_ways_lead_to_the_same(
        entries in proptest::collection::vec(
            (
                prop_oneof![8 => 0usize..2, 4 => BUFFERS..ALL, 1 => Just(7)],
                prop_oneof![8 => Just(0u8), 8 => 1u8..5, 1 => 5u8..16],
                any::<u8>(),
                prop_oneof![12 => Just(0u16), 1 => any::<u16>()],
                any::<bool>(),
            ),
            1..60,
        ),
        shift in 6u32..8,
        many in any::<bool>(),
    ) {
        let skipped = if many { 300 } else { 0 };
        let mut worlds: [World; 3] = std::array::from_fn(|_| World::new(shift, skipped));
        for (count, &(qp, opcode, sop, off, polls)) in entries.iter().enumerate() {
            worlds.iter_mut().for_each(|world| world.complete(qp, opcode, sop, off));
            if !polls && count % UNITS as usize != UNITS as usize - 1 {
                continue;
            }
            let [one, two, three] = &mut worlds;
            loop {
                let seen = long(&mut one.side);
                prop_assert_eq!(&seen, &short::<true>(&mut two.side));
                prop_assert_eq!(&seen, &short::<false>(&mut three.side));
                if seen.is_none() {
                    break;
                }
            }
            worlds.iter_mut().for_each(|world| world.side.cq.publish());
            let left = |world: &World| {
                let PollSide { cq, .. } = &world.side;
                let reached = world.qps.iter().map(|qp| (qp.send.reached(), qp.recv.reached()));
                (world.side.consumer_record(), cq.strays(), reached.collect::<Vec<_>>())
            };
            prop_assert_eq!(left(&worlds[0]), left(&worlds[1]));
            prop_assert_eq!(left(&worlds[0]), left(&worlds[2]));
        }
    }
}
