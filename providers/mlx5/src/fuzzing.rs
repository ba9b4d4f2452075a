//! What fuzzers call (`fuzz/`, docs/TESTING.md): completions of a device that lies. Any bytes will
//! do; a broken promise panics.
#![allow(unsafe_code, reason = "posts, which is unsafe, to rings that no device reads")]

use std::collections::BTreeSet;

use uverbs_core::memory::frame::{Frame, Slab};
use uverbs_core::memory::post::Source;
use uverbs_core::provider::{CqOps, Polled, RecvOps, SendOps, View};
use uverbs_core::queues::work::{Data, SendOp, Wr};

use crate::tests::fixture::{PollSide, RecvSide, SendSide, slab};
use crate::wqe::Room;

/// Frames there are, entries of the completion queue, and places of each work queue.
const FRAMES: u32 = 24;
const ENTRIES: u32 = 16;
const UNITS: u32 = 8;

/// One queue pair's halves, the queue where both complete, and whose the frames are.
struct World {
    send: SendSide,
    recv: RecvSide,
    poll: PollSide,
    slab: Slab,
    /// Numbers of work requests that nobody has seen complete: of receives, of sends.
    posted: [BTreeSet<u64>; 2],
    counts: [u16; 2],
    next: u64,
}

impl World {
    fn new(shift: u32) -> World {
        let send = SendSide::new(UNITS, Room { max_sge: 1, max_inline: 0 }, false);
        let (recv, poll) = (RecvSide::new(UNITS, 4, 1), PollSide::new(ENTRIES, shift));
        poll.attach(&send.shared);
        poll.attach(&recv.shared);
        let slab = slab(64, FRAMES);
        // A slot that was never used has number 0.
        World { send, recv, poll, slab, posted: Default::default(), counts: [0; 2], next: 1 }
    }

    /// Posts a send, or a receive, of a frame, where there is one and room for it.
    fn post(&mut self, recv: bool) {
        let Some(frame) = self.slab.take() else { return };
        let (id, data) = (self.next, frame.sge());
        self.next += 1;
        if recv {
            let mut at = self.recv.rq.begin();
            // SAFETY: no device writes it.
            let Ok(slot) = (unsafe { self.recv.rq.post(&mut at, id, &[data]) }) else { return };
            // SAFETY: the slot of the post just made.
            unsafe { self.recv.rq.own(&at, slot, frame.hold()) };
            // SAFETY: of the last `begin`.
            unsafe { self.recv.rq.ring(at) };
        } else {
            let mut at = self.send.sq.begin();
            let (wr, data) = (Wr::new(id), Data::One(data));
            // SAFETY: no device reads it.
            let posted = unsafe { self.send.sq.post(&mut at, wr, SendOp::Send, data) };
            let Ok(slot) = posted else { return };
            // SAFETY: the slot of the post just made.
            unsafe { self.send.sq.own(&at, slot, frame.hold()) };
            // SAFETY: of the last `begin`.
            unsafe { self.send.sq.ring(at) };
        }
        assert!(self.posted[usize::from(!recv)].insert(id));
    }

    /// The entry that an honest device would write for the oldest one that it wasn't told of.
    fn honest(&mut self, recv: bool) -> [u8; 64] {
        let of = if recv { &self.recv.shared } else { &self.send.shared };
        let count = &mut self.counts[usize::from(!recv)];
        let mut cqe = [0; 64];
        cqe[32..36].copy_from_slice(&of.user_index.value().to_be_bytes());
        cqe[44..48].copy_from_slice(&40u32.to_be_bytes());
        // A SEND at either end (PRM, "Completion Queue Entry").
        cqe[56] = if recv { 0 } else { 0x0a };
        cqe[57..60].copy_from_slice(&of.qpn.to_be_bytes()[1..]);
        cqe[60..62].copy_from_slice(&count.to_be_bytes());
        cqe[63] = if recv { 2 << 4 } else { 0 };
        *count = count.wrapping_add(1);
        cqe
    }

    /// Polls once. Each work request completes at most once, and gives back no frame but its own.
    fn poll(&mut self) -> bool {
        let Some(Polled { view, wr_id, frame, .. }) = self.poll.cq.next() else { return false };
        let all = view.decode();
        assert_eq!((all.result, all.is_recv), (view.result(), view.is_recv()));
        let _ = format!("{view:?}");
        let of = &mut self.posted[usize::from(!all.is_recv)];
        if of.remove(&wr_id) {
            // A send's stands for those before it, too.
            of.retain(|other| all.is_recv || *other > wr_id);
        } else {
            // That a receive was posted at all is trusted (docs/UNSAFE.md); it gives nothing back.
            let is_recv = all.is_recv;
            let nothing = is_recv && frame.is_none();
            assert!(nothing, "{wr_id}, {frame:?} completed, not outstanding, receive: {is_recv}");
        }
        true
    }

    fn drain(&mut self) {
        for _ in 0..=ENTRIES {
            if !self.poll() {
                return;
            }
        }
        panic!("more completions than entries");
    }
}

/// Posts, and entries of a device that tells the truth, nearly, or anything; it tears entries that
/// it wrote, too.
pub fn completions(data: &[u8]) {
    let mut bytes = data.iter().copied();
    let shift = 6 + u32::from(bytes.next().unwrap_or(0) & 1);
    let mut world = World::new(shift);
    while let Some(op) = bytes.next() {
        let mut next = || bytes.next().unwrap_or(0);
        match op % 8 {
            0 => world.post(false),
            1 => world.post(true),
            2 | 3 => {
                let cqe = world.honest(op % 2 == 0);
                world.poll.complete(cqe);
            }
            4 | 5 => {
                let mut cqe = world.honest(op % 2 == 0);
                for _ in 0..next() % 4 {
                    cqe[usize::from(next() % 64)] = next();
                }
                world.poll.complete(cqe);
            }
            6 => {
                let at = usize::from(u16::from_le_bytes([next(), next()])) % (16 << shift);
                world.poll.ring.write(at, &[next()]);
            }
            _ if op & 8 != 0 => world.poll.cq.publish(),
            _ if op & 16 != 0 => {
                world.poll();
            }
            _ => world.drain(),
        }
    }
    world.drain();
    let World { send, recv, poll, slab, .. } = world;
    drop((send, recv, poll));
    // Each frame is there once at most, whoever kept others.
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
        super::replay::replay("completions", super::completions);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_completions(data in prop::collection::vec(any::<u8>(), 0..300)) {
            super::completions(&data);
        }
    }
}
