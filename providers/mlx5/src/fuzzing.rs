//! Entry points of fuzzers (`fuzz/`, docs/TESTING.md): completions of an honest and of a lying
//! device. All accept any bytes; a broken invariant panics.
#![allow(unsafe_code, reason = "posts, which is unsafe, to rings that no device reads")]

use std::collections::{BTreeSet, VecDeque};

use uverbs_core::memory::frame::{Frame, Slab};
use uverbs_core::memory::post::Source;
use uverbs_core::provider::{CqOps, Polled, RecvOps, SendOps, View};
use uverbs_core::queues::work::{Data, SendOp, Wr};

use crate::send::wqe::WqeLimits;
use crate::tests::fixture::{PollSide, RecvSide, SendSide, slab};

mod answers;
#[allow(unreachable_pub, reason = "public in the crate of the other providers' fuzzers")]
#[path = "../../kernel-rings/src/testing/liar.rs"]
mod liar;

pub use answers::mlx5_answers;

/// Number of frames and of CQEs.
const FRAMES: u32 = 24;
const ENTRIES: u32 = 16;
const UNITS: u32 = 8;

/// A work request whose completion was not polled yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Posted {
    id: u64,
    /// Index by which completions name it.
    counter: u16,
    /// Address of its frame.
    addr: u64,
    signaled: bool,
}

/// The two queues of a queue pair, their completion queue, and the frames.
struct World {
    /// The device is honest: each completion must arrive, in order.
    honest: bool,
    send: SendSide,
    recv: RecvSide,
    poll: PollSide,
    slab: Slab,
    /// Posted receives, and posted sends.
    posted: [VecDeque<Posted>; 2],
    /// Number of posted receives and sends.
    indexes: [u16; 2],
    /// Number of executed receives and sends.
    counts: [u16; 2],
    /// Unpolled completions of an honest device: true for a receive, and the work request.
    written: VecDeque<(bool, Posted)>,
    next: u64,
}

impl World {
    fn new(shift: u32, honest: bool) -> World {
        let send = SendSide::new(UNITS, WqeLimits { max_sge: 1, max_inline: 0 }, false);
        let (recv, poll) = (RecvSide::new(UNITS, 4, 1), PollSide::new(ENTRIES, shift));
        poll.attach(&send.shared);
        poll.attach(&recv.shared);
        let slab = slab(64, FRAMES);
        // An unused slot has number 0.
        let (posted, written) = Default::default();
        let (indexes, counts) = ([0; 2], [0; 2]);
        World { honest, send, recv, poll, slab, posted, indexes, counts, written, next: 1 }
    }

    /// Posts a send or a receive of a frame, if a frame is free and the queue has room.
    fn post(&mut self, recv: bool, signaled: bool) {
        let Some(frame) = self.slab.take() else { return };
        let (id, data) = (self.next, frame.sge());
        let wr = if signaled { Wr::new(id) } else { Wr::new(id).unsignaled() };
        let addr = data.addr;
        self.next += 1;
        if recv {
            let mut at = self.recv.rq.begin();
            // SAFETY: no device writes it.
            let Ok(slot) = (unsafe { self.recv.rq.post(&mut at, id, &[data]) }) else { return };
            // SAFETY: the slot of the post just made.
            unsafe { self.recv.rq.own(&at, slot, frame.hold()) };
            // SAFETY: the cursor is of the last `begin`.
            unsafe { self.recv.rq.ring(at) };
        } else {
            let mut at = self.send.sq.begin();
            let data = Data::One(data);
            // SAFETY: no device reads it.
            let posted = unsafe { self.send.sq.post(&mut at, wr, SendOp::Send, data) };
            let Ok(slot) = posted else { return };
            // SAFETY: the slot of the post just made.
            unsafe { self.send.sq.own(&at, slot, frame.hold()) };
            // SAFETY: the cursor is of the last `begin`.
            unsafe { self.send.sq.ring(at) };
        }
        let index = &mut self.indexes[usize::from(!recv)];
        let posted = Posted { id, counter: *index, addr, signaled: recv || signaled };
        self.posted[usize::from(!recv)].push_back(posted);
        // A SEND of one SGE takes one WQEBB.
        *index = index.wrapping_add(1);
    }

    /// An honest device executes the oldest outstanding work request, and writes its CQE if it is
    /// signaled.
    fn tell(&mut self, recv: bool) {
        let side = usize::from(!recv);
        let counter = self.counts[side];
        let Some(&posted) = self.posted[side].iter().find(|posted| posted.counter == counter)
        else {
            return;
        };
        // A full completion queue waits for the program.
        if self.written.len() == ENTRIES as usize {
            return;
        }
        if posted.signaled {
            let cqe = self.entry(recv);
            self.poll.complete(cqe);
            self.written.push_back((recv, posted));
        } else {
            self.counts[side] = counter.wrapping_add(1);
        }
    }

    /// CQE of the oldest unreported work request, as if one existed.
    fn entry(&mut self, recv: bool) -> [u8; 64] {
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

    /// Polls once. Each work request completes at most once, by a CQE that names its index, and
    /// returns only its frame and frames of earlier sends.
    fn poll(&mut self) -> bool {
        let Some(Polled { view, wr_id, frame, .. }) = self.poll.cq.next() else {
            assert!(!self.honest || self.written.is_empty(), "{:?} are lost", self.written);
            return false;
        };
        let all = view.decode();
        assert_eq!((all.result, all.is_recv), (view.result(), view.is_recv()));
        let _ = format!("{view:?}");
        let cq = &self.poll.cq;
        let counter = cq.entry(cq.consumer().wrapping_sub(1)).wqe_counter();
        if self.honest {
            let next = self.written.pop_front().map(|(recv, posted)| (recv, posted.id));
            assert_eq!(next, Some((all.is_recv, wr_id)), "not what was written");
        }
        let of = &mut self.posted[usize::from(!all.is_recv)];
        if let Some(at) = of.iter().position(|posted| posted.id == wr_id) {
            let posted = of[at];
            // Trusted completions (below) may have advanced a receive queue by whole turns.
            let turn = if all.is_recv { UNITS as u16 - 1 } else { u16::MAX };
            let differs = (posted.counter ^ counter) & turn;
            assert_eq!(differs, 0, "{posted:?} isn't the one that the entry names: {counter}");
            let addr = frame.as_ref().map(|frame| frame.sge().addr);
            assert_eq!(addr, Some(posted.addr), "another frame than that of {posted:?}");
            // A send's completion also completes earlier sends.
            match all.is_recv {
                true => drop(of.remove(at)),
                false => drop(of.drain(..=at)),
            }
        } else {
            // The device is trusted that a receive was posted (docs/UNSAFE.md); a wrong completion
            // returns no frame.
            let is_recv = all.is_recv;
            let nothing = is_recv && frame.is_none() && !self.honest;
            assert!(nothing, "{wr_id}, {frame:?} completed, not outstanding, receive: {is_recv}");
        }
        drop(frame);
        if self.honest {
            self.count_frames();
        }
        true
    }

    /// Checks that each frame is free or belongs to an outstanding work request.
    fn count_frames(&self) {
        let free = std::iter::from_fn(|| self.slab.take()).collect::<Vec<Frame>>().len();
        let out = self.posted.iter().map(VecDeque::len).sum::<usize>();
        assert_eq!(free + out, FRAMES as usize, "{:?} are outstanding", self.posted);
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

/// Posts work requests, and completes them by a device that is honest, nearly honest, or writes
/// arbitrary CQEs, some of them torn. The first byte selects an honest device.
pub fn completions(data: &[u8]) {
    let mut bytes = data.iter().copied();
    let first = bytes.next().unwrap_or(0);
    let (shift, honest) = (6 + u32::from(first & 1), first & 2 != 0);
    let mut world = World::new(shift, honest);
    while let Some(op) = bytes.next() {
        let mut next = || bytes.next().unwrap_or(0);
        match op % 8 {
            0 => world.post(false, op & 8 == 0),
            1 => world.post(true, true),
            2..=6 if honest => world.tell(op & 8 == 0),
            2 | 3 => {
                let cqe = world.entry(op % 2 == 0);
                world.poll.complete(cqe);
            }
            4 | 5 => {
                let mut cqe = world.entry(op % 2 == 0);
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
    assert!(!honest || world.poll.cq.strays() == 0, "an honest device's are skipped");
    let World { send, recv, poll, slab, .. } = world;
    drop((send, recv, poll));
    // Each frame exists at most once; the device may have kept others.
    let frames = std::iter::from_fn(|| slab.take()).collect::<Vec<Frame>>();
    let places = frames.iter().map(|frame| frame.sge().addr).collect::<BTreeSet<_>>();
    assert_eq!(places.len(), frames.len(), "a frame is there twice");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    #[test]
    fn what_is_kept() {
        support::replay("completions", super::completions);
    }

    #[test]
    fn what_is_kept_of_answers() {
        support::replay("mlx5_answers", super::mlx5_answers);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_answers_of_the_kernel(data in prop::collection::vec(any::<u8>(), 0..600)) {
            super::mlx5_answers(&data);
        }

        #[test]
        fn any_completions(data in prop::collection::vec(any::<u8>(), 0..300)) {
            super::completions(&data);
        }
    }
}
