//! Our half of the cases with a shared receive queue.
//!
//! # Safety
//!
//! As in `ours.rs`: the device never reads a work request.
#![allow(unsafe_code, reason = "raw posts are what is measured")]

use uverbs::provider::AnySrq;
use uverbs::unstable::mlx5::{Mlx5, Srq};
use uverbs::{
    AccessFlags, Any, CompletionQueue, Context, Error, ExposedMemory, Frame, Local, QueuePair,
    SharedReceiveQueue, Slab,
};

use crate::cases::{CQES, DEPTH, Names, POSTS, Variant};
use crate::device::{CqRing, Event, SrqRing};
use crate::ops::{Area, LINES, PAYLOAD, refused};
use crate::ours::Bench;

/// Gives the provider's own queue behind the type parameter.
pub(crate) trait Shares: Bench {
    fn srq(srq: &Self::Srq) -> &Srq;
}

impl Shares for Mlx5 {
    fn srq(srq: &Srq) -> &Srq {
        srq
    }
}

impl Shares for Any {
    fn srq(srq: &AnySrq) -> &Srq {
        match srq {
            AnySrq::Mlx5(srq) => srq,
            AnySrq::Rxe(_) => panic!("the benchmark's device is an mlx5 one"),
            #[cfg(feature = "any-siw")]
            AnySrq::Siw(_) => panic!("the benchmark's device is an mlx5 one"),
            #[cfg(feature = "any-rdmavt")]
            AnySrq::Rdmavt(_) => panic!("the benchmark's device is an mlx5 one"),
            #[cfg(feature = "any-efa")]
            AnySrq::Efa(_) => panic!("the benchmark's device is an mlx5 one"),
        }
    }
}

struct Side<P: Shares> {
    srq: SharedReceiveQueue<P>,
    links: SrqRing,
    cq: CompletionQueue<P>,
    ring: CqRing,
    /// The queue pair's user index in completions, and its number.
    numbers: (u32, u32),
    area: Area,
    slab: Slab,
    frames: Vec<Frame>,
    id: u64,
    _qp: QueuePair<P>,
    _memory: ExposedMemory,
}

impl<P: Shares> Side<P> {
    fn new(context: &Context<P>) -> Result<Self, Error> {
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(CQES - CQES / 4)?;
        let memory = pd.expose((LINES * u64::from(PAYLOAD)) as usize, AccessFlags::empty())?;
        let srq = context.shared_receive_queue(&pd).max_wr(DEPTH).build()?;
        let qp = context.queue_pair(&pd, &cq).shared_receives(&srq);
        let mut qp = qp.max_send_wr(1).max_recv_wr(0).build()?;
        qp.prepare(&Local::default())?;
        qp.connect_to_self()?;
        let raw = P::cq(cq.provider()).raw_parts();
        let sq = P::sq(qp.send_queue().provider()).raw_parts();
        let shared = P::srq(srq.provider()).raw_parts();
        let area = Area::of(&memory);
        Ok(Self {
            links: SrqRing::new(shared.buf, shared.stride, shared.head),
            ring: CqRing::new(raw.buf, (raw.bytes / raw.stride) as u32, raw.stride),
            numbers: (sq.user_index, sq.qpn),
            slab: pd.slab(PAYLOAD as usize, 2 * POSTS as usize)?,
            frames: Vec::with_capacity(2 * POSTS as usize),
            srq,
            cq,
            area,
            id: 0,
            _qp: qp,
            _memory: memory,
        })
    }

    /// Has frames for a round.
    fn stock(&mut self) {
        while self.frames.len() < POSTS as usize {
            self.frames.push(self.slab.take().expect("a free frame"));
        }
    }

    #[inline(never)]
    fn post_raw<const N: usize>(&mut self, batches: usize) {
        let area = self.area;
        let mut id = self.id;
        for _ in 0..batches {
            let mut batch = self.srq.batch();
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
    fn post_safe<const N: usize>(&mut self, batches: usize) {
        let mut id = self.id;
        for _ in 0..batches {
            let mut batch = self.srq.batch();
            for _ in 0..N {
                let frame = self.frames.pop().expect("a frame");
                batch.post(id, frame).map_err(refused).expect("room");
                id += 1;
            }
            batch.ring();
        }
        self.id = id;
    }

    /// A message for each receive of a round.
    fn retire(&mut self) {
        let (uidx, qpn) = self.numbers;
        for _ in 0..POSTS {
            let index = self.links.take();
            self.ring.complete(uidx, qpn, Event::SharedRecv(index));
        }
        let Self { cq, frames, .. } = self;
        let got = cq.poll_with(64, |mut completion| {
            assert!(completion.result().is_ok());
            frames.extend(completion.take_frame());
        });
        assert_eq!(got, POSTS as usize);
    }
}

/// Variants of a case that posts receives to a shared queue, `N` for each doorbell record.
pub(crate) fn variants<P: Shares, const N: usize>(
    variants: &mut Vec<Variant>,
    context: &Context<P>,
    names: &Names,
) {
    let mut raw = Side::new(context).expect("our objects");
    let batches = POSTS as usize / N;
    variants.push(Variant::new(names.raw, move |clock| {
        let ticks = clock.time(|| raw.post_raw::<N>(batches));
        raw.retire();
        (ticks, POSTS as usize)
    }));
    let mut owned = Side::new(context).expect("our objects");
    variants.push(Variant::new(names.owned, move |clock| {
        owned.stock();
        let ticks = clock.time(|| owned.post_safe::<N>(batches));
        owned.retire();
        (ticks, POSTS as usize)
    }));
}
