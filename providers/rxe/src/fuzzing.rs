//! What fuzzers call (`fuzz/`, docs/TESTING.md): rings whose other side, the kernel's, goes on as
//! it should, nearly, or stores anything. Any bytes will do; a broken promise panics.
#![allow(unsafe_code, reason = "posts, which is unsafe, to rings that no device reads")]

use std::collections::BTreeSet;

use uverbs_core::memory::frame::{Frame, Slab};
use uverbs_core::memory::post::Source;
use uverbs_core::provider::{CqOps, Polled, RecvOps, SendOps, View};
use uverbs_core::queues::work::{Data, SendOp, Wr};

use crate::tests::rig::Rig;

mod answers;
#[path = "../../../fuzz/liar.rs"]
mod liar;
mod request;
mod sends;

pub use answers::rxe_answers;
pub use sends::rxe_sends;

/// Frames there are, and entries of the completion queue.
const FRAMES: u32 = 24;
const ENTRIES: u32 = 15;

struct World {
    rig: Rig,
    slab: Slab,
    /// Numbers of work requests that nobody has seen complete: of receives, of sends.
    posted: [BTreeSet<u64>; 2],
    next: u64,
}

impl World {
    /// Posts a send, or a receive, of a frame, where there is one and room for it.
    fn post(&mut self, recv: bool) {
        let Some(frame) = self.slab.take() else { return };
        let (id, data, rig) = (self.next, frame.sge(), &mut self.rig);
        self.next += 1;
        if recv {
            let mut at = rig.rq.begin();
            // SAFETY: no device writes it.
            let Ok(slot) = (unsafe { rig.rq.post(&mut at, id, &[data]) }) else { return };
            // SAFETY: the slot of the post just made.
            unsafe { rig.rq.own(&at, slot, frame.hold()) };
            // SAFETY: of the last `begin`.
            unsafe { rig.rq.ring(at) };
        } else {
            let mut at = rig.sq.begin();
            // SAFETY: no device reads it.
            let posted =
                unsafe { rig.sq.post(&mut at, Wr::new(id), SendOp::Send, Data::One(data)) };
            let Ok(slot) = posted else { return };
            // SAFETY: the slot of the post just made.
            unsafe { rig.sq.own(&at, slot, frame.hold()) };
            // SAFETY: of the last `begin`.
            unsafe { rig.sq.ring(at) };
        }
        assert!(self.posted[usize::from(!recv)].insert(id));
    }

    /// Polls once. Each work request completes at most once.
    fn poll(&mut self) -> bool {
        let Some(Polled { view, wr_id, frame, .. }) = self.rig.cq.next() else { return false };
        let all = view.decode();
        assert_eq!((all.result, all.is_recv), (view.result(), view.is_recv()));
        let of = &mut self.posted[usize::from(!all.is_recv)];
        assert!(of.remove(&wr_id), "{wr_id} completed, and was not outstanding");
        of.retain(|other| all.is_recv || *other > wr_id);
        drop(frame);
        true
    }

    fn drain(&mut self) {
        for _ in 0..=2 * ENTRIES + 1 {
            if !self.poll() {
                return;
            }
        }
        panic!("more completions than entries");
    }

    /// The kernel stores what it never would: an index, valid or any, or bytes of an element.
    fn lie(&self, mut next: impl FnMut() -> u8) {
        let rig = &self.rig;
        let queue = [&rig.completions, &rig.sends, &rig.recvs][usize::from(next() % 3)];
        let queue = queue.lock().expect("nobody panics with it");
        let index = match next() % 3 {
            // Of an element that there is.
            0 | 1 => u32::from(next()) % queue.slots(),
            _ => u32::from_ne_bytes([next(), next(), next(), next()]),
        };
        match next() % 3 {
            0 => queue.poke_producer(index),
            1 => queue.poke_consumer(index),
            _ => {
                let mut bytes = queue.read(index);
                for _ in 0..1 + next() % 4 {
                    // A completion has 48 bytes, a work request begins with its number.
                    bytes[usize::from(next() % 48)] = next();
                }
                queue.write(index, &bytes);
            }
        }
    }
}

/// Posts, and a kernel that completes them, with any status and opcode, or that lies.
pub fn rxe_rings(data: &[u8]) {
    let mut bytes = data.iter().copied();
    let mut rig = Rig::new(ENTRIES);
    rig.start_at(bytes.next().unwrap_or(0).into());
    let slab = rig.slab(64, FRAMES);
    let mut world = World { rig, slab, posted: Default::default(), next: 1 };
    while let Some(op) = bytes.next() {
        let mut next = || bytes.next().unwrap_or(0);
        match op % 8 {
            0 => world.post(false),
            1 => world.post(true),
            2 => {
                world.rig.complete_send(0, u32::from(op >> 3));
            }
            3 => {
                world.rig.complete_recv(0, 128 + u32::from(op >> 3 & 1), 40, None);
            }
            4 => {
                let (status, opcode) = (u32::from(next()), u32::from(next()));
                if op & 8 == 0 {
                    world.rig.complete_send(status, opcode);
                } else {
                    let length = u32::from_ne_bytes([next(), next(), next(), next()]);
                    world.rig.complete_recv(status, opcode, length, Some(7));
                }
            }
            5 => world.lie(next),
            6 => world.rig.cq.publish(),
            _ if op & 8 != 0 => world.drain(),
            _ => {
                world.poll();
            }
        }
    }
    world.drain();
    let World { rig, slab, .. } = world;
    drop(rig);
    let frames = std::iter::from_fn(|| slab.take()).collect::<Vec<Frame>>();
    let places = frames.iter().map(|frame| frame.sge().addr).collect::<BTreeSet<_>>();
    assert_eq!(places.len(), frames.len(), "a frame is there twice");
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    #[test]
    fn what_is_kept() {
        super::replay::replay("rxe_rings", super::rxe_rings);
    }

    #[test]
    fn what_is_kept_of_sends() {
        super::replay::replay("rxe_sends", super::rxe_sends);
    }

    /// Mostly short posts and what the kernel does with them, so that the ring is often full.
    fn step() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            8 => (0u8..2).prop_map(|signaled| vec![0, signaled, 2, 0, 0]),
            8 => prop::sample::select(vec![6, 9, 10, 11, 12]).prop_map(|step| vec![step]),
            1 => prop::collection::vec(any::<u8>(), 1..60),
        ]
    }

    #[test]
    fn what_is_kept_of_answers() {
        super::replay::replay("rxe_answers", super::rxe_answers);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_answers_of_the_kernel(data in prop::collection::vec(any::<u8>(), 0..600)) {
            super::rxe_answers(&data);
        }

        #[test]
        fn any_stores_of_the_kernel(data in prop::collection::vec(any::<u8>(), 0..300)) {
            super::rxe_rings(&data);
        }

        #[test]
        fn any_consumer_index(
            size: u8,
            start in prop_oneof![u32::MAX - 8..=u32::MAX, any::<u32>()],
            steps in prop::collection::vec(step(), 0..100),
        ) {
            let head = [&[size][..], &start.to_le_bytes()].concat();
            super::rxe_sends(&[head, steps.concat()].concat());
        }
    }
}
