//! A send queue whose consumer index the kernel moves correctly, or anywhere. The test computes the
//! queue's room and its writes once more, with indexes of 64 bits that never wrap.
#![allow(unsafe_code, reason = "posts, which is unsafe, to rings that no device reads")]

use std::collections::VecDeque;

use uverbs_core::Errno;
use uverbs_core::attr::QpCap;
use uverbs_core::memory::frame::Slab;
use uverbs_core::memory::post::Source;
use uverbs_core::provider::{CqOps, Polled, SendOps};
use uverbs_core::queues::work::{Data, PostError, SendFlags, Wr};
use uverbs_kernel_rings::testing::free;

use super::request::{Feed, Granted, Op, Request};
use crate::SendCursor;
use crate::tests::rig::{CAP, Rig, wc};

/// Frames there are, and entries of the completion queue.
const FRAMES: u32 = 24;
const ENTRIES: u32 = 15;
/// Linux 6.2, `enum ib_uverbs_device_cap_flags`: FLUSH of both types, ATOMIC WRITE.
const PLACES: u64 = 1 << 38 | 1 << 39 | 1 << 40;

/// A work request that is in the ring.
struct Posted {
    index: u64,
    id: u64,
    signaled: bool,
    framed: bool,
}

struct Sends {
    rig: Rig,
    slab: Slab,
    granted: Granted,
    /// The elements as they must stand.
    elements: Vec<Vec<u8>>,
    /// A batch that is not rung.
    batch: Option<SendCursor>,
    /// Indexes behind the last element of the batch, and of the elements that were rung, that the
    /// kernel has left, completed, and that were polled.
    end: u64,
    rung: u64,
    left: u64,
    completed: u64,
    retired: u64,
    /// Not retired, and not forgotten.
    posted: VecDeque<Posted>,
    /// Completions that are not polled: index, and true for a failure.
    told: VecDeque<(u64, bool)>,
    /// The consumer index as it stands.
    consumer: u32,
    /// How far the queue may write by that, and by any that it had.
    limit: u64,
    most: u64,
    /// The kernel stored an index that it shouldn't have.
    lied: bool,
    enabled: bool,
    failed: bool,
    refused: Option<Errno>,
    next: u64,
}

impl Sends {
    fn new(bytes: &mut Feed<'_>) -> Self {
        let max_send_wr = [1, 3, 7][usize::from(bytes.u8() % 3)];
        let mut rig = Rig::with(ENTRIES, PLACES, QpCap { max_send_wr, ..CAP });
        let start = bytes.u32();
        rig.start_at(start);
        let slab = rig.slab(64, FRAMES);
        let cap = rig.qp.cap();
        let granted =
            Granted { sges: cap.max_send_sge as usize, inline: cap.max_inline_data as usize };
        let queue = rig.sends.lock().expect("nobody panics with it");
        let elements: Vec<Vec<u8>> = (0..queue.slots()).map(|index| queue.read(index)).collect();
        drop(queue);
        let at = u64::from(start);
        let (batch, posted, told) = Default::default();
        let mut sends = Self {
            rig,
            slab,
            granted,
            elements,
            batch,
            end: at,
            rung: at,
            left: at,
            completed: at,
            retired: at,
            posted,
            told,
            consumer: start,
            limit: at,
            most: at,
            lied: false,
            enabled: true,
            failed: false,
            refused: None,
            next: 1,
        };
        sends.look(start);
        sends
    }

    fn slots(&self) -> u64 {
        self.elements.len() as u64
    }

    /// The consumer index is now this: the queue may write up to the element before it, for a full
    /// ring has one element less than slots (kernel `rxe_queue.h:queue_full`).
    fn look(&mut self, consumer: u32) {
        self.consumer = consumer;
        let slots = self.slots();
        let is_free = |index: &u64| (index + 1) % slots != u64::from(consumer) % slots;
        let free = (self.rung..).take_while(is_free).count() as u64;
        self.limit = self.rung + free;
        self.most = self.most.max(self.limit);
    }

    fn begin(&mut self) {
        self.batch = Some(self.rig.sq.begin());
        self.posted.retain(|wr| wr.index < self.rung);
        self.end = self.rung;
    }

    /// Answer of the kernel to the next doorbell. A failed queue pair rings by another command.
    fn answer(&self) -> Option<Errno> {
        let state = self.rig.kernel.state();
        state.kick_answers.first().copied().filter(|_| !self.failed)
    }

    /// Why the next post must not be taken, as far as that is certain.
    fn refusal(&mut self, request: &Request) -> Option<PostError> {
        let wrong = request.refusal(&self.granted);
        if wrong.is_some() {
            return wrong;
        }
        if !self.enabled {
            return Some(PostError::State);
        }
        if self.refused == Some(Errno::EIO) {
            return Some(PostError::DeviceGone);
        }
        if self.refused.is_some() {
            self.refused = self.answer();
        }
        self.refused.map(|_| PostError::DoorbellRefused)
    }

    /// Posts into the batch, with a free frame if `framed` is set.
    fn post(&mut self, request: &Request, framed: bool) {
        if self.batch.is_none() {
            self.begin();
        }
        let refusal = self.refusal(request);
        let slots = self.slots();
        // All slots except one are in flight, or done and not polled.
        let is_held = self.end - self.retired >= slots - 1;
        let at = self.batch.as_mut().expect("just begun");
        let id = self.next;
        let (sq, wr) = (&mut self.rig.sq, Wr { id, flags: request.flags });
        let result = match &request.op {
            // SAFETY: no device reads the named memory; the cursor is from the last `begin`.
            Op::List(op, list) => unsafe { sq.post(at, wr, *op, Data::List(list)) },
            // SAFETY: of the last `begin`, and the bytes are copied.
            Op::Inline(op, bytes) => unsafe { sq.post(at, wr, *op, Data::Inline(bytes)) },
            // SAFETY: no device carries out the request; the cursor is from the last `begin`.
            Op::Rekey(op) => unsafe { sq.rekey(at, wr, op) },
            // SAFETY: no device carries out the request; the cursor is from the last `begin`.
            Op::Place(op) => unsafe { sq.place(at, wr, op) },
        };
        if let Some(refusal) = refusal {
            assert_eq!(result, Err(refusal), "{request:?}");
            return;
        }
        let is_full = self.end >= self.limit || is_held;
        let slot = match result {
            Ok(slot) => slot,
            Err(error) => {
                assert_eq!((error, is_full), (PostError::Full, true), "{request:?}");
                return;
            }
        };
        assert_eq!(slot, self.end as u32);
        if self.lied {
            let is_free = self.end < self.most && !is_held;
            assert!(is_free, "written over what the kernel never gave up, or nobody polled");
        } else {
            assert!(!is_full, "written over what the kernel reads, or nobody polled");
        }
        let frame = if framed { self.slab.take() } else { None };
        let framed = frame.is_some();
        if let Some(frame) = frame {
            // SAFETY: the slot of the post just made.
            unsafe { sq.own(at, slot, frame.hold()) };
        }
        let element = (self.end % slots) as usize;
        // Queue pair 0 and its send queue are 0 in the number; the rest is the slot.
        request.fill(&mut self.elements[element], u64::from(slot));
        let signaled = request.flags.contains(SendFlags::SIGNALED);
        self.posted.push_back(Posted { index: self.end, id, signaled, framed });
        self.end += 1;
        self.next += 1;
    }

    /// Rings the batch: one system call if it has new elements, or the kernel missed an earlier
    /// call.
    fn ring(&mut self) {
        let Some(at) = self.batch.take() else { return };
        let calls = u32::from(self.end != self.rung || self.refused.is_some());
        let before = self.calls();
        let answer = self.answer();
        // SAFETY: the cursor is from the last `begin`.
        unsafe { self.rig.sq.ring(at) };
        if calls != 0 {
            self.refused = answer;
        }
        assert_eq!(self.calls() - before, calls);
        assert_eq!(self.rig.sq.doorbell_error(), self.refused);
        self.rung = self.end;
        // An index that went astray means something else now.
        self.look(self.consumer);
    }

    fn calls(&self) -> u32 {
        let state = self.rig.kernel.state();
        state.kicks + state.states.len() as u32
    }

    /// The kernel leaves the oldest element, if it sees one.
    fn leave(&mut self) {
        let mut queue = self.rig.sends.lock().expect("nobody panics with it");
        // By an index that went astray the program may have lapped it.
        assert!(self.lied || self.rung - self.left < self.slots());
        if self.left == self.rung {
            return;
        }
        let head = queue.head();
        let element = &self.elements[(self.left % self.slots()) as usize];
        assert!(self.lied || head.as_ref() == Some(element), "not what was posted");
        queue.advance();
        drop(queue);
        self.left += 1;
        self.look(self.left as u32);
    }

    /// The kernel completes the next work request, or, if `skips`, passes over unsignaled ones.
    fn complete(&mut self, skips: u8, status: u32) {
        let mut open =
            self.posted.iter().filter(|wr| (self.completed..self.rung).contains(&wr.index));
        let mut next = open.next();
        for _ in 0..skips {
            next = match next {
                Some(wr) if !wr.signaled => open.next(),
                other => other,
            };
        }
        let Some(wr) = next else { return };
        let number = u64::from(wr.index as u32).to_ne_bytes();
        let entry = wc(&number, status, 0, 0, None);
        if self.rig.completions.lock().expect("nobody panics with it").post(&entry) {
            self.completed = wr.index + 1;
            self.told.push_back((wr.index, status != 0));
        }
    }

    /// Polls once: the oldest completion, which ends all sends before it.
    fn poll(&mut self) {
        let polled = self.rig.cq.next().map(|Polled { wr_id, frame, .. }| (wr_id, frame.is_some()));
        let Some((index, failed)) = self.told.pop_front() else {
            assert_eq!(polled, None);
            return;
        };
        let wr = self.posted.iter().find(|wr| wr.index == index).expect("told once");
        assert_eq!(polled, Some((wr.id, wr.framed)));
        self.posted.retain(|wr| wr.index > index);
        self.retired = index + 1;
        self.failed |= failed;
    }

    fn enable(&mut self, on: bool) {
        self.enabled = on;
        let answer = self.answer();
        self.rig.sq.enable(on);
        if on && self.retired != self.rung {
            self.refused = answer;
        }
    }

    /// To RESET and back: the kernel drains the ring, and continues at its index (kernel
    /// `rxe_queue.c:rxe_queue_reset`).
    fn reset(&mut self) {
        while self.left != self.rung {
            self.leave();
        }
        self.rig.sends.lock().expect("nobody panics with it").poke_consumer(self.left as u32);
        self.rig.cq.sweep(0);
        // SAFETY: the kernel is done with it, and no completion is left.
        unsafe { self.rig.sq.reset() };
        (self.end, self.completed, self.retired) = (self.rung, self.rung, self.rung);
        (self.batch, self.refused, self.failed) = (None, None, false);
        self.posted.clear();
        self.told.clear();
        self.enabled = false;
        self.look(self.left as u32);
        (self.most, self.lied) = (self.limit, false);
    }

    /// The kernel stores an index: of an element that there is, or any.
    fn stray(&mut self, bytes: &mut Feed<'_>) {
        let index = match bytes.u8() % 2 {
            0 => u32::from(bytes.u8()) % self.slots() as u32,
            _ => bytes.u32(),
        };
        self.rig.sends.lock().expect("nobody panics with it").poke_consumer(index);
        self.lied = true;
        self.look(index);
    }

    /// Checks that the ring holds exactly the posted elements, and that the kernel sees the rung
    /// ones.
    fn check(&self) {
        let queue = self.rig.sends.lock().expect("nobody panics with it");
        for (index, element) in (0..).zip(&self.elements) {
            assert_eq!(&queue.read(index), element, "element {index}");
        }
        assert_eq!(u64::from(queue.raw_producer()), self.rung % self.slots());
    }

    /// Each frame is with a work request that is not over, or back.
    fn end(mut self) {
        self.begin();
        let held = self.posted.iter().filter(|wr| wr.framed).count();
        assert_eq!(free(&self.slab) + held, FRAMES as usize);
    }
}

/// Posts into a send queue of any size, that begins anywhere.
pub fn rxe_sends(data: &[u8]) {
    let mut bytes = Feed(data.iter());
    let mut sends = Sends::new(&mut bytes);
    while let Some(op) = bytes.0.next() {
        match op % 16 {
            0..=5 => {
                let request = bytes.request();
                sends.post(&request, op & 16 != 0);
            }
            6 | 7 => sends.ring(),
            8 => sends.begin(),
            9 => sends.leave(),
            10 => sends.complete(op >> 5, u32::from(op & 16 != 0 && bytes.u8() & 7 == 0)),
            11 => sends.poll(),
            12 => {
                sends.leave();
                sends.complete(0, 0);
                sends.poll();
                sends.rig.cq.publish();
            }
            13 => sends.stray(&mut bytes),
            14 => match op >> 4 {
                0..=3 => sends.enable(true),
                4 => sends.enable(false),
                5 => sends.rig.kernel.state().kick_answers.push(Errno::EPERM),
                6 => sends.rig.kernel.state().kick_answers.push(Errno::EIO),
                _ => sends.rig.cq.publish(),
            },
            _ if op & 16 != 0 => {
                sends.reset();
                sends.enable(true);
            }
            _ => sends.rig.cq.publish(),
        }
        sends.check();
    }
    sends.end();
}
