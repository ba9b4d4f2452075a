//! Threads that share queues and end each other's objects: a frame is in one place at a time, and
//! in hand it doesn't change.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::free;
use common::{device, local, only_on_softhca};
use uverbs::{
    AccessFlags, CompletionQueue, Context, Destroyed, ExposedMemory, Frame, ProtectionDomain,
    QueuePair, SharedReceiveQueue, Slab, WorkCompletion,
};

const LEN: usize = 64;
const FRAMES: usize = 96;
const CQS: usize = 3;
const QPS: usize = 5;
const TIME: Duration = Duration::from_secs(2);

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

/// A queue pair, and the places of its send and receive completion queue.
type Made = (QueuePair, [usize; 2]);

struct World {
    context: Context,
    pd: ProtectionDomain,
    slab: Slab,
    memory: ExposedMemory,
    cqs: Vec<Mutex<CompletionQueue>>,
    srq: Mutex<SharedReceiveQueue>,
    qps: Vec<Mutex<Option<Made>>>,
    gone: Mutex<Vec<Destroyed>>,
    /// Addresses of frames that some thread has in hand.
    hands: Mutex<HashSet<usize>>,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    fn new() -> Self {
        let context = device().open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let slab = pd.slab(LEN, FRAMES).unwrap();
        let all = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
        let memory = pd.expose(LEN, all).unwrap();
        let cqs = (0..CQS).map(|_| Mutex::new(context.create_cq(4096).unwrap())).collect();
        let srq = context.shared_receive_queue(&pd).max_wr(32).build().unwrap();
        let qps = (0..QPS).map(|_| Mutex::default()).collect();
        let (gone, hands) = Default::default();
        Self { context, pd, slab, memory, cqs, srq: Mutex::new(srq), qps, gone, hands }
    }

    /// Keeps a frame for a moment, and gives it away.
    fn hold(&self, mut frame: Frame, dice: &mut Dice) -> Frame {
        let at = frame.as_ptr().addr();
        assert!(lock(&self.hands).insert(at), "a frame in two hands");
        let byte = dice.below(256) as u8;
        frame.set_len(LEN);
        frame.fill(byte);
        if dice.below(4) == 0 {
            thread::yield_now();
        }
        assert!(frame.iter().all(|it| *it == byte), "a frame in hand changed");
        assert!(lock(&self.hands).remove(&at));
        frame
    }

    fn make(&self, dice: &mut Dice) -> Made {
        let at = [dice.below(CQS), dice.below(CQS)];
        let builder = {
            let send = lock(&self.cqs[at[0]]);
            let builder = self.context.queue_pair(&self.pd, &send).overcommit().max_send_wr(16);
            drop(send);
            builder.max_recv_wr(16).max_inline_data(LEN as u32).recv_cq(&lock(&self.cqs[at[1]]))
        };
        let builder =
            if dice.below(2) == 0 { builder.shared_receives(&lock(&self.srq)) } else { builder };
        let mut qp = builder.build().unwrap();
        qp.prepare(&common::impatient()).unwrap();
        qp.connect_to_self().unwrap();
        (qp, at)
    }

    fn post(&self, qp: &mut QueuePair, dice: &mut Dice) {
        let Some(frame) = self.slab.take() else { return };
        let frame = self.hold(frame, dice);
        let kind = dice.below(6);
        if kind == 0 {
            let _ = qp.post_recv(1, frame);
            return;
        }
        let mut batch = qp.batch();
        let _ = match kind {
            1 => batch.send(2, frame),
            2 => batch.write(3, frame, self.memory.remote(0)),
            3 => batch.read(4, frame, self.memory.remote(0)),
            4 => batch.write(5, frame, self.memory.remote(1 << 20)),
            _ => {
                let _ = batch.write_inline(6, &[1; 8], self.memory.remote(8));
                batch.read(7, frame, self.memory.remote(0))
            }
        };
        match dice.below(4) {
            0 => drop(batch),
            _ => batch.ring(),
        }
    }

    fn poll(&self, at: usize, dice: &mut Dice) {
        let mut cq = lock(&self.cqs[at]);
        let mut done: [WorkCompletion; 8] = Default::default();
        let count = if dice.below(2) == 0 {
            cq.poll_into(&mut done)
        } else {
            let mut burst = cq.poll(8);
            let mut count = 0;
            while let Some(completion) = burst.next() {
                done[count] = completion.into();
                count += 1;
            }
            if dice.below(3) == 0 {
                std::mem::forget(burst);
            }
            count
        };
        cq.check().unwrap();
        drop(cq);
        for completion in &mut done[..count] {
            if let Some(frame) = completion.frame.take() {
                drop(self.hold(frame, dice));
            }
        }
    }

    fn end(&self, (mut qp, at): Made, dice: &mut Dice) {
        match dice.below(5) {
            0 => drop(qp),
            1 => lock(&self.gone).push(qp.destroy().unwrap()),
            2 => {
                let (send, recv) = qp.split();
                thread::scope(|scope| {
                    scope.spawn(|| drop(send));
                    drop(recv);
                });
            }
            3 => {
                qp.fail().unwrap();
                let _ = qp.post_send_inline(9, b"flushed");
                drop(qp);
            }
            _ => {
                let [low, high] = [at[0].min(at[1]), at[0].max(at[1])];
                let mut first = lock(&self.cqs[low]);
                let frames = if low == high {
                    qp.reset(&mut [&mut *first])
                } else {
                    qp.reset(&mut [&mut *first, &mut *lock(&self.cqs[high])])
                };
                drop(first);
                for (_, frame) in frames.unwrap() {
                    drop(self.hold(frame, dice));
                }
                qp.prepare(&local()).unwrap();
                qp.connect_to_self().unwrap();
                self.post(&mut qp, dice);
                drop(qp);
            }
        }
    }

    fn turn(&self, dice: &mut Dice) {
        match dice.below(12) {
            0..=4 => {
                let mut place = lock(&self.qps[dice.below(QPS)]);
                match &mut *place {
                    Some((qp, _)) => self.post(qp, dice),
                    None => *place = Some(self.make(dice)),
                }
            }
            5 => {
                let taken = lock(&self.qps[dice.below(QPS)]).take();
                if let Some(taken) = taken {
                    self.end(taken, dice);
                }
            }
            6 => {
                let gone = lock(&self.gone).pop();
                if let Some(gone) = gone {
                    let frames = lock(&self.cqs[dice.below(CQS)]).reclaim(&gone);
                    for (_, frame) in frames {
                        drop(self.hold(frame, dice));
                    }
                    lock(&self.gone).push(gone);
                }
            }
            7 | 8 => {
                if let Some(frame) = self.slab.take() {
                    let frame = self.hold(frame, dice);
                    let _ = lock(&self.srq).post(8, frame);
                }
            }
            _ => self.poll(dice.below(CQS), dice),
        }
    }
}

#[test]
fn frames_are_in_one_place_whatever_threads_end() {
    if !only_on_softhca("its numbers of objects are its own") {
        return;
    }
    let world = World::new();
    let start = Instant::now();
    thread::scope(|scope| {
        for seed in 0..4 {
            let world = &world;
            scope.spawn(move || {
                let mut dice = Dice(seed);
                while start.elapsed() < TIME {
                    world.turn(&mut dice);
                }
            });
        }
    });
    // All frames come back.
    let World { slab, qps, gone, cqs, srq, .. } = world;
    drop(qps);
    drop(gone);
    drop(srq.into_inner().unwrap().destroy().unwrap());
    for cq in cqs {
        let mut cq = cq.into_inner().unwrap();
        while cq.poll(64).next().is_some() {}
        drop(cq);
    }
    assert_eq!(free(&slab), FRAMES);
}
