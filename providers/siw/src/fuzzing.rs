//! What fuzzers call (`fuzz/`, docs/TESTING.md): rings whose other side, the kernel's, goes on as
//! it should, nearly, or stores anything. Any bytes will do; a broken promise panics.

use std::collections::BTreeSet;

use uverbs_core::memory::frame::{Frame, Slab};
use uverbs_core::provider::{CqOps, Polled, View};
use uverbs_core::queues::work::{Data, SendOp, Wr};

use crate::tests::rig::Rig;

mod answers;
#[path = "../../../fuzz/liar.rs"]
mod liar;

pub use answers::siw_answers;

/// Frames there are, and entries of the completion queue.
const FRAMES: u32 = 24;
const ENTRIES: u32 = 16;

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
        let (id, data) = (self.next, frame.sge());
        self.next += 1;
        let posted = match recv {
            true => self.rig.recv(id, &[data], Some(frame)),
            false => self.rig.send(Wr::new(id), SendOp::Send, Data::One(data), Some(frame)),
        };
        if posted.is_ok() {
            self.posted[usize::from(!recv)].insert(id);
        }
    }

    /// The kernel takes the oldest work request that it sees, and completes it.
    fn complete(&mut self, recv: bool, opcode: u8, status: u16, bytes: u32) {
        let kernel = &self.rig.kernel;
        let taken = if recv { kernel.take_recv() } else { kernel.take_send() };
        if let Some(taken) = taken {
            kernel.complete(taken.id(), opcode, status, bytes);
        }
    }

    /// Polls once. Each work request completes at most once.
    fn poll(&mut self) -> bool {
        let Some(Polled { view, wr_id, frame, .. }) = self.rig.cq.next() else { return false };
        let all = view.decode();
        assert_eq!((all.result, all.is_recv), (view.result(), view.is_recv()));
        let of = &mut self.posted[usize::from(!all.is_recv)];
        assert!(of.remove(&wr_id), "{wr_id} completed, and was not outstanding");
        drop(frame);
        true
    }

    fn drain(&mut self) {
        for _ in 0..=2 * ENTRIES {
            if !self.poll() {
                return;
            }
        }
        panic!("more completions than entries");
    }
}

/// Posts, and a kernel that completes them, with any status and opcode, or that lies.
pub fn siw_rings(data: &[u8]) {
    let mut bytes = data.iter().copied();
    let rig = Rig::new(ENTRIES);
    let slab = rig.slab(64, FRAMES);
    let mut world = World { rig, slab, posted: Default::default(), next: 1 };
    while let Some(op) = bytes.next() {
        let mut next = || bytes.next().unwrap_or(0);
        match op % 8 {
            0 => world.post(false),
            1 => world.post(true),
            2 => world.complete(op & 8 != 0, if op & 8 != 0 { 4 } else { 2 }, 0, 40),
            3 => world.complete(op & 8 != 0, next(), next().into(), u32::from(next()) << 24),
            // Of nothing that was posted, or of what was completed already.
            4 => {
                let id = u64::from(next()) | u64::from(next()) << 31 | u64::from(next()) << 56;
                world.rig.kernel.complete(id, next(), next().into(), 40);
            }
            5 => world.rig.kernel.spoil((op >> 3).into(), next(), next(), next()),
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
        super::replay::replay("siw_rings", super::siw_rings);
    }

    #[test]
    fn what_is_kept_of_answers() {
        super::replay::replay("siw_answers", super::siw_answers);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_stores_of_the_kernel(data in prop::collection::vec(any::<u8>(), 0..300)) {
            super::siw_rings(&data);
        }

        #[test]
        fn any_answers_of_the_kernel(data in prop::collection::vec(any::<u8>(), 0..600)) {
            super::siw_answers(&data);
        }
    }
}
