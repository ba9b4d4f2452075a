//! Our half of the cases with datagrams: a queue pair of UD that sends to itself.
//!
//! # Safety
//!
//! As in `ours.rs`: the device never reads a work request.
#![allow(unsafe_code, reason = "raw posts are what is measured")]

use uverbs::provider::SendOps as _;
use uverbs::raw::{Data, SendOp};
use uverbs::transport::Ud;
use uverbs::{
    AccessFlags, CompletionQueue, Context, Destination, DoorbellMode, Error, ExposedMemory, Frame,
    Local, QueuePair, Slab, Wr,
};

use crate::cases::{CQES, Names, POSTS, Variant};
use crate::device::{CqRing, Event};
use crate::ops::{Area, LINES, PAYLOAD, refused};
use crate::ours::Bench;

/// WQEBBs of a WQE: control, address vector and one piece are 80 bytes.
pub(crate) const UNITS: u32 = 2;
/// The most that a WQE may have on these queues: 64 bytes inline behind control and address vector.
const MOST_UNITS: u32 = 3;

struct Side<P: Bench> {
    qp: QueuePair<P, Ud>,
    cq: CompletionQueue<P>,
    ring: CqRing,
    to: Destination<P>,
    /// The queue pair's user index in completions, and its number.
    numbers: (u32, u32),
    area: Area,
    slab: Slab,
    frames: Vec<Frame>,
    id: u64,
    /// Next WQEBB.
    pi: u32,
    _memory: ExposedMemory,
}

impl<P: Bench> Side<P> {
    fn new(context: &Context<P>, units: u32, doorbell: DoorbellMode) -> Result<Self, Error> {
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(CQES - CQES / 4)?;
        let memory = pd.expose((LINES * u64::from(PAYLOAD)) as usize, AccessFlags::empty())?;
        let qp = context.queue_pair(&pd, &cq).ud().max_send_wr(units / MOST_UNITS).max_recv_wr(1);
        let qp = qp.max_send_sge(4).max_inline_data(64).doorbell(doorbell).overcommit();
        let mut qp = qp.build()?;
        let here = qp.bring_up(&Local::default())?;
        let to = qp.destination(&here)?;
        let raw = P::cq(cq.provider()).raw_parts();
        let sq = P::sq(qp.send_queue().provider()).raw_parts();
        let area = Area::of(&memory);
        Ok(Self {
            ring: CqRing::new(raw.buf, (raw.bytes / raw.stride) as u32, raw.stride),
            numbers: (sq.user_index, sq.qpn),
            slab: pd.slab(PAYLOAD as usize, 2 * POSTS as usize)?,
            frames: Vec::with_capacity(2 * POSTS as usize),
            qp,
            cq,
            to,
            area,
            id: 0,
            pi: 0,
            _memory: memory,
        })
    }

    fn stay(&mut self) {
        // SAFETY: the queue is left as it is otherwise.
        let sq = unsafe { self.qp.send_queue().provider_mut() };
        // SAFETY: a benchmark has one thread.
        unsafe { sq.stay() };
    }

    /// Has frames for a round.
    fn stock(&mut self) {
        while self.frames.len() < POSTS as usize {
            let mut frame = self.slab.take().expect("a free frame");
            frame.set_len(PAYLOAD as usize);
            self.frames.push(frame);
        }
    }

    #[inline(never)]
    fn post_raw<const N: usize>(&mut self, batches: usize) {
        let (area, to) = (self.area, &self.to);
        let queue = self.qp.send_queue();
        let mut id = self.id;
        for _ in 0..batches {
            let mut batch = queue.batch();
            for at in 0..N {
                let wr = if at + 1 == N { Wr::new(id) } else { Wr::new(id).unsignaled() };
                let piece = Data::One(area.sge(id, PAYLOAD));
                // SAFETY: see the file's text.
                unsafe { batch.raw().post_to(wr, SendOp::Send, piece, to) }.expect("room");
                id += 1;
            }
            batch.ring();
        }
        self.id = id;
    }

    #[inline(never)]
    fn post_safe<const N: usize>(&mut self, batches: usize) {
        let to = &self.to;
        let queue = self.qp.send_queue();
        let mut id = self.id;
        for _ in 0..batches {
            let mut batch = queue.batch();
            for at in 0..N {
                let wr = if at + 1 == N { Wr::new(id) } else { Wr::new(id).unsignaled() };
                let frame = self.frames.pop().expect("a frame");
                batch.send_to(wr, frame, to).map_err(refused).expect("room");
                id += 1;
            }
            batch.ring();
        }
        self.id = id;
    }

    /// The device's word that a round's last send is done.
    fn retire(&mut self) {
        self.pi = self.pi.wrapping_add(POSTS * UNITS);
        let (uidx, qpn) = self.numbers;
        self.ring.complete(uidx, qpn, Event::Send(self.pi.wrapping_sub(UNITS)));
        let Self { cq, frames, .. } = self;
        let got = cq.poll_with(64, |mut completion| {
            assert!(completion.result().is_ok());
            frames.extend(completion.take_frame());
        });
        assert_eq!(got, 1);
    }
}

/// Variants of a case that sends datagrams, `N` for each doorbell.
pub(crate) fn variants<P: Bench, const N: usize>(
    variants: &mut Vec<Variant>,
    context: &Context<P>,
    units: u32,
    names: &Names,
) {
    let side = |mode| Side::new(context, units, mode).expect("our objects");
    let batches = POSTS as usize / N;
    let mut add_raw = |name, mut side: Side<P>| {
        variants.push(Variant::new(name, move |clock| {
            let ticks = clock.time(|| side.post_raw::<N>(batches));
            side.retire();
            (ticks, POSTS as usize)
        }));
    };
    add_raw(names.raw, side(DoorbellMode::BlueFlame));
    let mut stays = side(DoorbellMode::BlueFlame);
    stays.stay();
    add_raw(names.stays, stays);
    add_raw(names.non_cached, side(DoorbellMode::NonCached));
    let mut owned = side(DoorbellMode::BlueFlame);
    variants.push(Variant::new(names.owned, move |clock| {
        owned.stock();
        let ticks = clock.time(|| owned.post_safe::<N>(batches));
        owned.retire();
        (ticks, POSTS as usize)
    }));
}
