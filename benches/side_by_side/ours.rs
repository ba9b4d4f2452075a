//! Our half: queue pairs on a software HCA that is never stepped.
//!
//! # Safety
//!
//! The device never reads a work request, so it accesses no memory. The harness writes completions
//! for posted work requests only.
#![allow(unsafe_code, reason = "raw posts are what is measured")]

use std::hint::black_box;
use std::mem::MaybeUninit;

use uverbs::provider::{AnyCq, AnySq, Provider, SendOps as _};
use uverbs::unstable::mlx5::{Cq, Mlx5, Sq};
use uverbs::{
    AccessFlags, Any, Completion, CompletionQueue, Context, DoorbellMode, ExposedMemory, Frame,
    Local, Notify, ProtectionDomain, QueuePair, Slab, WorkCompletion, Wr,
};

use crate::device::{CqRing, Event};
use crate::ops::{Area, LINES, Op, PAYLOAD, Send64, refused};

/// Gives the provider's own queue behind the type parameter.
pub(crate) trait Bench: Provider {
    fn cq(cq: &Self::Cq) -> &Cq;
    fn sq(sq: &Self::Sq) -> &Sq;
}

impl Bench for Mlx5 {
    fn cq(cq: &Cq) -> &Cq {
        cq
    }

    fn sq(sq: &Sq) -> &Sq {
        sq
    }
}

impl Bench for Any {
    fn cq(cq: &AnyCq) -> &Cq {
        match cq {
            AnyCq::Mlx5(cq) => cq,
            AnyCq::Rxe(_) => panic!("the benchmark's device is an mlx5 one"),
            #[cfg(feature = "any-siw")]
            AnyCq::Siw(_) => panic!("the benchmark's device is an mlx5 one"),
            #[cfg(feature = "any-rdmavt")]
            AnyCq::Rdmavt(_) => panic!("the benchmark's device is an mlx5 one"),
            #[cfg(feature = "any-efa")]
            AnyCq::Efa(_) => panic!("the benchmark's device is an mlx5 one"),
        }
    }

    fn sq(sq: &AnySq) -> &Sq {
        match sq {
            AnySq::Mlx5(sq) => sq,
            AnySq::Rxe(_) => panic!("the benchmark's device is an mlx5 one"),
            #[cfg(feature = "any-siw")]
            AnySq::Siw(_) => panic!("the benchmark's device is an mlx5 one"),
            #[cfg(feature = "any-rdmavt")]
            AnySq::Rdmavt(_) => panic!("the benchmark's device is an mlx5 one"),
            #[cfg(feature = "any-efa")]
            AnySq::Efa(_) => panic!("the benchmark's device is an mlx5 one"),
        }
    }
}

/// Places of a program's own table of frames.
const POSTED: usize = 1024;

/// How large a side is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Queue pairs.
    pub(crate) qps: u32,
    /// WQEBBs of a send queue, and entries of a receive queue.
    pub(crate) units: u32,
    pub(crate) recvs: u32,
    /// Entries of a gather list.
    pub(crate) sges: u32,
    /// Completions that the queue holds.
    pub(crate) cqes: u32,
    pub(crate) doorbell: DoorbellMode,
    /// Completions raise events.
    pub(crate) channel: bool,
}

/// Queue pairs with one completion queue.
#[derive(Debug)]
pub(crate) struct Side<P: Bench> {
    pub(crate) qps: Vec<QueuePair<P>>,
    /// The queue pairs' user indices in completions, and their numbers.
    numbers: Vec<(u32, u32)>,
    pub(crate) cq: CompletionQueue<P>,
    pub(crate) ring: CqRing,
    pub(crate) area: Area,
    slab: Slab,
    pub(crate) frames: Vec<Frame>,
    /// Frames that were posted raw, by number: a program's own table.
    posted: Box<[MaybeUninit<Frame>; POSTED]>,
    into: Vec<WorkCompletion>,
    /// Next work request's number.
    id: u64,
    /// Next WQEBB of each send queue.
    pi: Vec<u32>,
    sum: u64,
    _memory: ExposedMemory,
    _pd: ProtectionDomain,
}

impl<P: Bench> Side<P> {
    pub(crate) fn new(context: &Context<P>, shape: Shape) -> Result<Self, uverbs::Error> {
        let pd = context.alloc_pd()?;
        // Three quarters of the ring: with more, entries would go back to the device in steps
        // smaller than a burst.
        let mut cq = context.completion_queue(shape.cqes - shape.cqes / 4);
        if shape.channel {
            cq = cq.channel(&context.create_comp_channel()?);
        }
        let cq = cq.build()?;
        let memory = pd.expose(
            LINES as usize * PAYLOAD as usize,
            AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC,
        )?;
        let slab = pd.slab(PAYLOAD as usize, 1024)?;
        let mut qps = Vec::new();
        let mut numbers = Vec::new();
        for _ in 0..shape.qps {
            let mut qp = context
                .queue_pair(&pd, &cq)
                .max_send_wr(if shape.sges > 1 { shape.units / 2 } else { shape.units })
                .max_recv_wr(shape.recvs)
                .max_send_sge(shape.sges)
                .max_inline_data(if shape.sges > 1 { 64 } else { 0 })
                .doorbell(shape.doorbell)
                .overcommit()
                .build()?;
            qp.prepare(&Local::default())?;
            qp.connect_to_self()?;
            let raw = P::sq(qp.send_queue().provider()).raw_parts();
            numbers.push((raw.user_index, raw.qpn));
            qps.push(qp);
        }
        let raw = P::cq(cq.provider()).raw_parts();
        let entries = (raw.bytes / raw.stride) as u32;
        Ok(Self {
            ring: CqRing::new(raw.buf, entries, raw.stride),
            area: Area::of(&memory),
            frames: Vec::with_capacity(1024),
            posted: Box::new([const { MaybeUninit::uninit() }; POSTED]),
            into: (0..64).map(|_| WorkCompletion::default()).collect(),
            id: 0,
            pi: vec![0; qps.len()],
            sum: 0,
            qps,
            numbers,
            cq,
            slab,
            _memory: memory,
            _pd: pd,
        })
    }

    /// Keeps the send queues on this thread, as `SendQueue::stay_on_thread` does.
    pub(crate) fn stay(&mut self) {
        for qp in &mut self.qps {
            // SAFETY: the queue is left as it is otherwise.
            let sq = unsafe { qp.send_queue().provider_mut() };
            // SAFETY: a benchmark has one thread.
            unsafe { sq.stay() };
        }
    }

    /// The device's word that the last send of a queue pair is done.
    pub(crate) fn complete_send(&mut self, qp: usize, index: u32) {
        let (uidx, qpn) = self.numbers[qp];
        self.ring.complete(uidx, qpn, Event::Send(index));
    }

    pub(crate) fn complete_recv(&mut self) {
        let (uidx, qpn) = self.numbers[0];
        self.ring.complete(uidx, qpn, Event::Recv);
    }

    /// Takes frames for so many posts.
    pub(crate) fn stock(&mut self, count: usize) {
        while self.frames.len() < count {
            self.frames.push(self.slab.take().expect("a free frame"));
        }
        for frame in &mut self.frames {
            frame.set_len(PAYLOAD as usize);
        }
    }

    /// As if the last raw posts had been of frames.
    pub(crate) fn keep(&mut self, posts: u32) {
        for back in 1..=u64::from(posts) {
            let frame = self.frames.pop().expect("a frame");
            self.posted[(self.id - back) as usize % POSTED].write(frame);
        }
    }

    /// After raw posts of frames: has them back.
    pub(crate) fn take_back(&mut self, posts: u32) {
        for back in 1..=u64::from(posts) {
            let place = (self.id - back) as usize % POSTED;
            // SAFETY: each of these posts put one there.
            self.frames.push(unsafe { self.posted[place].assume_init_read() });
        }
    }

    /// Polls all completions, outside of the timed part.
    pub(crate) fn drain(&mut self) -> usize {
        let Self { cq, frames, .. } = self;
        let mut seen = 0;
        loop {
            let got = cq.poll_with(64, |mut completion| {
                assert!(completion.result().is_ok());
                frames.extend(completion.take_frame());
            });
            if got == 0 {
                return seen;
            }
            seen += got;
        }
    }

    /// `batches` doorbells of `N` work requests.
    #[inline(never)]
    pub(crate) fn post_raw<O: Op, const N: usize>(&mut self, batches: usize) {
        let area = self.area;
        let queue = self.qps[0].send_queue();
        let mut id = self.id;
        for _ in 0..batches {
            let mut batch = queue.batch();
            for at in 0..N {
                let wr = if at + 1 == N { Wr::new(id) } else { Wr::new(id).unsignaled() };
                O::raw(&mut batch, wr, id, &area).expect("room");
                id += 1;
            }
            batch.ring();
        }
        self.id = id;
    }

    #[inline(never)]
    pub(crate) fn post_safe<O: Op, const N: usize>(&mut self, batches: usize) {
        let area = self.area;
        let queue = self.qps[0].send_queue();
        let mut id = self.id;
        for _ in 0..batches {
            let mut batch = queue.batch();
            for at in 0..N {
                let wr = if at + 1 == N { Wr::new(id) } else { Wr::new(id).unsignaled() };
                O::safe(&mut batch, wr, id, &area, &mut self.frames).expect("room");
                id += 1;
            }
            batch.ring();
        }
        self.id = id;
    }

    /// Posts raw frames, which the program keeps in a table meanwhile.
    #[inline(never)]
    pub(crate) fn post_kept<O: Op, const N: usize>(&mut self, batches: usize) {
        let Self { area, qps, frames, posted, .. } = self;
        let queue = qps[0].send_queue();
        let mut id = self.id;
        for _ in 0..batches {
            let mut batch = queue.batch();
            for at in 0..N {
                let wr = if at + 1 == N { Wr::new(id) } else { Wr::new(id).unsignaled() };
                let frame = frames.pop().expect("a frame");
                O::piece(&mut batch, wr, id, area, frame.sge()).expect("room");
                posted[id as usize % POSTED].write(frame);
                id += 1;
            }
            batch.ring();
        }
        self.id = id;
    }

    #[inline(never)]
    pub(crate) fn recv_raw<const N: usize>(&mut self, batches: usize) {
        let area = self.area;
        let queue = self.qps[0].recv_queue();
        let mut id = self.id;
        for _ in 0..batches {
            let mut batch = queue.batch();
            for _ in 0..N {
                // SAFETY: see the file's text.
                unsafe { batch.post_raw(id, &[area.sge(id, PAYLOAD)]) }.expect("room");
                id += 1;
            }
            batch.ring();
        }
        self.id = id;
    }

    #[inline(never)]
    pub(crate) fn recv_kept<const N: usize>(&mut self, batches: usize) {
        let Self { qps, frames, posted, .. } = self;
        let queue = qps[0].recv_queue();
        let mut id = self.id;
        for _ in 0..batches {
            let mut batch = queue.batch();
            for _ in 0..N {
                let frame = frames.pop().expect("a frame");
                // SAFETY: see the file's text.
                unsafe { batch.post_raw(id, &[frame.sge()]) }.expect("room");
                posted[id as usize % POSTED].write(frame);
                id += 1;
            }
            batch.ring();
        }
        self.id = id;
    }

    #[inline(never)]
    pub(crate) fn recv_safe<const N: usize>(&mut self, batches: usize) {
        let queue = self.qps[0].recv_queue();
        let mut id = self.id;
        for _ in 0..batches {
            let mut batch = queue.batch();
            for _ in 0..N {
                let frame = self.frames.pop().expect("a frame");
                batch.post(id, frame).map_err(refused).expect("room");
                id += 1;
            }
            batch.ring();
        }
        self.id = id;
    }

    /// After posts of `units` WQEBBs each: retires them all.
    pub(crate) fn retire_sends(&mut self, posts: u32, units: u32) {
        self.pi[0] = self.pi[0].wrapping_add(posts * units);
        let last = self.pi[0].wrapping_sub(units);
        self.complete_send(0, last);
        assert_eq!(self.drain(), 1);
    }

    pub(crate) fn retire_recvs(&mut self, posts: u32) {
        for _ in 0..posts {
            self.complete_recv();
        }
        assert_eq!(self.drain(), posts as usize);
    }

    /// Posts a send on queue pair after queue pair, `count` in all, each done when it returns.
    pub(crate) fn fill_sends(&mut self, count: u32, owned: bool) {
        let qps = self.qps.len();
        for at in 0..count as usize {
            let at = at % qps;
            let mut batch = self.qps[at].batch();
            let (wr, id) = (Wr::new(self.id), self.id);
            if owned {
                Send64::safe(&mut batch, wr, id, &self.area, &mut self.frames).expect("room");
            } else {
                Send64::raw(&mut batch, wr, id, &self.area).expect("room");
            }
            batch.ring();
            self.id += 1;
        }
        for at in 0..count as usize {
            let at = at % qps;
            let index = self.pi[at];
            self.pi[at] = index.wrapping_add(1);
            self.complete_send(at, index);
        }
    }

    pub(crate) fn fill_recvs(&mut self, count: u32, owned: bool) {
        if owned {
            self.recv_safe::<1>(count as usize);
        } else {
            self.recv_raw::<1>(count as usize);
        }
        for _ in 0..count {
            self.complete_recv();
        }
    }

    /// A program's look at a completion: number, success, length.
    #[inline(always)]
    fn look(completion: &Completion<'_, P>, sum: &mut u64) {
        if completion.result().is_err() {
            failed();
        }
        *sum += completion.id();
        if completion.is_recv() {
            *sum += u64::from(completion.byte_len());
        }
    }

    /// `polls` times up to `N`, by closure. Gives the completions seen, as all the others.
    #[inline(never)]
    pub(crate) fn poll_with<const N: usize>(&mut self, polls: usize) -> usize {
        let mut sum = 0;
        let mut seen = 0;
        for _ in 0..polls {
            seen += self.cq.poll_with(N, |completion| Self::look(&completion, &mut sum));
        }
        self.sum += sum;
        seen
    }

    #[inline(never)]
    pub(crate) fn poll_burst<const N: usize>(&mut self, polls: usize) -> usize {
        let mut sum = 0;
        let mut seen = 0;
        for _ in 0..polls {
            let mut burst = self.cq.poll(N);
            while let Some(completion) = burst.next() {
                Self::look(&completion, &mut sum);
                seen += 1;
            }
        }
        self.sum += sum;
        seen
    }

    #[inline(never)]
    pub(crate) fn poll_into<const N: usize>(&mut self, polls: usize) -> usize {
        let mut sum = 0;
        let mut seen = 0;
        for _ in 0..polls {
            let got = self.cq.poll_into(&mut self.into[..N]);
            for completion in &self.into[..got] {
                if completion.result.is_err() {
                    failed();
                }
                sum += completion.id;
                if completion.is_recv {
                    sum += u64::from(completion.byte_len);
                }
            }
            seen += got;
        }
        self.sum += sum;
        seen
    }

    /// By closure, of raw work requests; the frames come out of the program's table.
    #[inline(never)]
    pub(crate) fn poll_kept<const N: usize>(&mut self, polls: usize) -> usize {
        let Self { cq, frames, posted, .. } = self;
        let mut sum = 0;
        let mut seen = 0;
        for _ in 0..polls {
            seen += cq.poll_with(N, |completion| {
                Self::look(&completion, &mut sum);
                let place = &posted[completion.id() as usize % POSTED];
                // SAFETY: this number's post put one there.
                let mut frame = unsafe { place.assume_init_read() };
                if completion.is_recv() {
                    frame.set_len(completion.byte_len() as usize);
                }
                frames.push(frame);
            });
        }
        self.sum += sum;
        seen
    }

    /// As [`poll_with`](Self::poll_with), each behind an arm.
    #[allow(dead_code, reason = "another benchmark includes this file, too")]
    #[inline(never)]
    pub(crate) fn arm_poll_with<const N: usize>(&mut self, polls: usize) -> usize {
        let mut sum = 0;
        let mut seen = 0;
        for _ in 0..polls {
            self.cq.arm(Notify::Any).expect("it has a channel");
            seen += self.cq.poll_with(N, |completion| Self::look(&completion, &mut sum));
        }
        self.sum += sum;
        seen
    }

    /// By closure; the frames come back.
    #[inline(never)]
    pub(crate) fn poll_owned<const N: usize>(&mut self, polls: usize) -> usize {
        let Self { cq, frames, .. } = self;
        let mut sum = 0;
        let mut seen = 0;
        for _ in 0..polls {
            seen += cq.poll_with(N, |mut completion| {
                Self::look(&completion, &mut sum);
                if let Some(frame) = completion.take_frame() {
                    frames.push(frame);
                }
            });
        }
        self.sum += sum;
        seen
    }

    /// Uses the sum of the polls, so that the compiler keeps them.
    pub(crate) fn finish(&self) {
        black_box(self.sum);
    }
}

#[cold]
#[inline(never)]
fn failed() -> ! {
    panic!("a completion failed");
}
