//! The usual completion by the short way, compared with the same by the long one.

use std::sync::Arc;

use proptest::prelude::*;
use uverbs_core::provider::{CqOps, Polled, Sink, Usual, View};
use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::user_index::UserIndexes;

use super::cq::{Cqe, Seen, posted, seen};
use super::fixture::PollSide;

const UNITS: u32 = 8;

/// What a test sees of a completion.
struct See;

impl<V: View> Sink<V> for See {
    type Output = Seen;

    fn take(self, view: V, wr_id: u64) -> Seen {
        seen(view, wr_id)
    }
}

/// The next completion by the long way.
fn long(side: &mut PollSide) -> Option<Seen> {
    let Polled { view, wr_id, .. } = side.cq.next()?;
    Some(seen(view, wr_id))
}

/// By the short way where that leads somewhere.
fn short(side: &mut PollSide) -> Option<Seen> {
    let before = side.cq.consumer();
    match side.cq.next_usual(See) {
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

/// A queue and its queue pairs. The third one's tables may hold buffers.
struct World {
    side: PollSide,
    qps: Vec<Arc<QpShared>>,
    /// What the device completes next of each: a send, a receive.
    next: Vec<[u16; 2]>,
}

impl World {
    /// Behind `skipped` queue pairs that the queue doesn't know.
    fn new(shift: u32, skipped: u32) -> Self {
        let side = PollSide::new(UNITS, shift);
        let indexes = UserIndexes::default();
        let gone: Vec<_> = (0..skipped).map(|_| indexes.take("create_qp").unwrap()).collect();
        let qps: Vec<_> = (0..3).map(|_| posted(&indexes, UNITS)).collect();
        drop(gone);
        qps[2].send.will_own();
        qps[2].recv.will_own();
        qps.iter().for_each(|qp| side.attach(qp));
        let mut world = Self { side, next: vec![[0; 2]; qps.len()], qps };
        world.side.cq.settle();
        world
    }

    /// The device writes an entry of this queue pair, or of none. Of a success `off` is how far its
    /// counter is from what it should be.
    fn complete(&mut self, qp: usize, opcode: u8, sop: u8, off: u16) {
        let uidx = self.qps.get(qp).map_or(0xff_ffff, |qp| qp.user_index.value());
        let is_recv = !matches!(opcode, 0 | 13);
        let counter = match self.next.get_mut(qp) {
            Some(next) => {
                let counter = next[usize::from(is_recv)].wrapping_add(off);
                if off == 0 {
                    next[usize::from(is_recv)] += 1;
                }
                counter
            }
            None => off,
        };
        let cqe = Cqe::new(opcode, uidx).sop(sop).imm(0x0102_0304).bytes(77).counter(counter);
        self.side.complete(cqe.0);
    }
}

#[test]
fn successes_are_usual() {
    let mut world = World::new(6, 0);
    for (opcode, sop) in [(0, 8), (2, 0), (0, 16), (3, 0), (1, 0), (4, 0)] {
        world.complete(0, opcode, sop, 0);
        assert!(matches!(world.side.cq.next_usual(See), Usual::Taken(_)), "{opcode} {sop}");
    }
    assert_eq!(world.side.cq.next_usual(See), Usual::Nothing);
}

#[test]
fn what_is_unusual_stays() {
    // A failure; a queue pair with buffers; a send that isn't outstanding; nobody's.
    for (qp, opcode, off) in [(0, 13, 0), (0, 14, 0), (2, 0, 0), (2, 2, 0), (0, 0, 9), (7, 0, 0)] {
        let mut world = World::new(6, 0);
        world.complete(qp, opcode, 8, off);
        for _ in 0..2 {
            assert_eq!(world.side.cq.next_usual(See), Usual::Unusual, "{qp} {opcode} {off}");
        }
    }
}

#[test]
fn many_queue_pairs_are_unusual() {
    // Their state is fetched ahead, which is more than the short way does.
    let mut world = World::new(6, 300);
    world.complete(0, 0, 8, 0);
    assert_eq!(world.side.cq.next_usual(See), Usual::Unusual);
    assert_eq!(short(&mut world.side).map(|seen| seen.0), Some(100));
    // The same queue pair again is no reason to look for it.
    world.complete(0, 0, 8, 0);
    assert!(matches!(world.side.cq.next_usual(See), Usual::Taken(_)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 512 }))]

    /// Both ways find the same, and leave the same.
    #[test]
    fn both_ways_lead_to_the_same(
        entries in proptest::collection::vec(
            (
                prop_oneof![8 => 0usize..2, 2 => 2usize..3, 1 => Just(7)],
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
        let (mut one, mut other) = (World::new(shift, skipped), World::new(shift, skipped));
        for (count, &(qp, opcode, sop, off, polls)) in entries.iter().enumerate() {
            one.complete(qp, opcode, sop, off);
            other.complete(qp, opcode, sop, off);
            if !polls && count % UNITS as usize != UNITS as usize - 1 {
                continue;
            }
            loop {
                let by_long = long(&mut one.side);
                prop_assert_eq!(&by_long, &short(&mut other.side));
                if by_long.is_none() {
                    break;
                }
            }
            for world in [&mut one, &mut other] {
                world.side.cq.publish();
            }
            prop_assert_eq!(one.side.consumer_record(), other.side.consumer_record());
            prop_assert_eq!(one.side.cq.strays(), other.side.cq.strays());
            for (one, other) in one.qps.iter().zip(&other.qps) {
                prop_assert_eq!(one.send.reached(), other.send.reached());
                prop_assert_eq!(one.recv.reached(), other.recv.reached());
            }
        }
    }
}
