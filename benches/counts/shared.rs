//! Receives of a shared queue: posts to it, and polls of their completions, on an RC queue pair
//! that is connected to itself.
//!
//! A stepped software HCA works outside of the counted instructions.

use uverbs::provider::Provider;
use uverbs::raw::Sge;
use uverbs::softhca::SoftHca;
use uverbs::unstable::mlx5::Mlx5;
use uverbs::{
    AccessFlags, CompletionQueue, Device, Error, ExposedMemory, Frame, Local, PostError, QueuePair,
    SharedReceiveQueue, Slab, Unposted,
};

use crate::hot::{self, Seen};
use crate::ops::{Area, LINES, PAYLOAD, refused};
use crate::{OPS, count};

/// Bytes of a message.
const DATA: usize = 32;
/// More steps than anything here takes.
const MANY: usize = 100_000;

struct Side {
    hca: SoftHca,
    qp: QueuePair<Mlx5>,
    srq: SharedReceiveQueue<Mlx5>,
    sends: CompletionQueue<Mlx5>,
    recvs: CompletionQueue<Mlx5>,
    area: Area,
    memory: ExposedMemory,
    slab: Slab,
    frames: Vec<Frame>,
}

/// One receive by address and key, and its doorbell record.
#[inline(never)]
fn post_one(queue: &mut SharedReceiveQueue<Mlx5>, id: u64, sge: Sge) -> Result<(), PostError> {
    let mut batch = queue.batch();
    // SAFETY: the memory lives as long as the queue pair.
    unsafe { batch.post_raw(id, &[sge]) }?;
    batch.ring();
    Ok(())
}

/// One receive of a frame, and its doorbell record.
#[inline(never)]
fn post_frame(queue: &mut SharedReceiveQueue<Mlx5>, id: u64, frame: Frame) -> Result<(), Unposted> {
    queue.post(id, frame)
}

/// Sixteen completions at most, each with its frame.
#[inline(never)]
pub(crate) fn poll_frames<P: Provider>(
    queue: &mut CompletionQueue<P>,
    seen: &mut Seen,
    frames: &mut Vec<Frame>,
) -> usize {
    let mut got = 0;
    let mut burst = queue.poll(16);
    while let Some(mut completion) = burst.next() {
        got += 1;
        seen.ids += completion.id();
        if completion.result().is_err() {
            seen.failed += 1;
        }
        seen.bytes += u64::from(completion.byte_len());
        frames.extend(completion.take_frame());
    }
    got
}

impl Side {
    fn new() -> Result<Self, Error> {
        let hca = SoftHca::builder().stepped().build().expect("a software HCA");
        let context = Device::from(hca.clone()).open_as::<Mlx5>()?;
        let pd = context.alloc_pd()?;
        let (sends, recvs) = (context.create_cq(2 * OPS)?, context.create_cq(2 * OPS)?);
        let srq = context.shared_receive_queue(&pd).max_wr(OPS).build()?;
        let builder = context.queue_pair(&pd, &sends).recv_cq(&recvs).shared_receives(&srq);
        let builder = builder.max_send_wr(OPS).max_recv_wr(0).max_inline_data(DATA as u32);
        let mut qp = builder.build()?;
        qp.prepare(&Local::default())?;
        qp.connect_to_self()?;
        let memory = pd.expose((LINES * u64::from(PAYLOAD)) as usize, AccessFlags::empty())?;
        let area = Area::of(&memory);
        let slab = pd.slab(DATA, 2 * OPS as usize)?;
        let frames = Vec::with_capacity(2 * OPS as usize);
        Ok(Self { hca, qp, srq, sends, recvs, area, memory, slab, frames })
    }

    /// `batches` doorbell records of `N` receives: the loop of `side_by_side`.
    #[inline(never)]
    fn post_raw<const N: usize>(&mut self, batches: usize) {
        let area = self.area;
        let mut id = 0;
        for _ in 0..batches {
            let mut batch = self.srq.batch();
            for _ in 0..N {
                // SAFETY: the memory lives as long as the queue pair.
                unsafe { batch.post_raw(id, &[area.sge(id, PAYLOAD)]) }.expect("room");
                id += 1;
            }
            batch.ring();
        }
    }

    #[inline(never)]
    fn post_safe<const N: usize>(&mut self, batches: usize) {
        let mut id = 0;
        for _ in 0..batches {
            let mut batch = self.srq.batch();
            for _ in 0..N {
                let frame = self.frames.pop().expect("a frame");
                batch.post(id, frame).map_err(refused).expect("room");
                id += 1;
            }
            batch.ring();
        }
    }

    /// Frames for as many posts as are counted.
    fn stock(&mut self) {
        while self.frames.len() < OPS as usize {
            self.frames.push(self.slab.take().expect("a free frame"));
        }
    }

    fn post_frames(&mut self) {
        for (id, frame) in self.frames.drain(..OPS as usize).enumerate() {
            assert!(post_frame(&mut self.srq, id as u64, frame).is_ok());
        }
    }

    /// A message for each receive.
    fn deliver(&mut self) {
        for id in 0..OPS.into() {
            self.qp.post_send_inline(id, &[7; DATA]).expect("room");
        }
        self.hca.step_until_idle(MANY);
        let succeed = |completion: uverbs::Completion<'_, Mlx5>| {
            assert!(completion.result().is_ok());
        };
        assert_eq!(self.sends.poll_with(2 * OPS as usize, succeed), OPS as usize);
    }

    fn poll(&mut self) {
        let mut seen = Seen::default();
        while poll_frames(&mut self.recvs, &mut seen, &mut self.frames) != 0 {}
        assert_eq!((seen.failed, seen.bytes), (0, u64::from(OPS) * DATA as u64));
    }
}

fn recvs<const N: usize>(side: &mut Side) {
    let batches = OPS as usize / N;
    let back = |side: &mut Side| {
        side.deliver();
        side.poll();
    };
    let raw = |side: &mut Side| side.post_raw::<N>(batches);
    count(&format!("srq_recv_{N} raw"), OPS, side, |_| (), raw, back);
    let owned = |side: &mut Side| side.post_safe::<N>(batches);
    count(&format!("srq_recv_{N} owned"), OPS, side, Side::stock, owned, back);
}

/// Counts each.
pub(crate) fn all() {
    let mut side = Side::new().expect("the objects");
    recvs::<1>(&mut side);
    recvs::<32>(&mut side);
    let back = |side: &mut Side| {
        side.deliver();
        side.poll();
    };
    count(
        "srq_recv_one function",
        OPS,
        &mut side,
        |_| (),
        |side| {
            let sge = side.memory.sge(0, DATA as u32);
            for id in 0..OPS.into() {
                post_one(&mut side.srq, id, sge).expect("room");
            }
        },
        back,
    );
    count("srq_recv_frame function", OPS, &mut side, Side::stock, Side::post_frames, back);
    let fill = |side: &mut Side| {
        side.stock();
        side.post_frames();
        side.deliver();
    };
    count("srq_poll_receives function", OPS, &mut side, fill, Side::poll, |_| ());
    let raw = |side: &mut Side| {
        let sge = side.memory.sge(0, DATA as u32);
        for id in 0..OPS.into() {
            post_one(&mut side.srq, id, sge).expect("room");
        }
        side.deliver();
    };
    count(
        "srq_poll_raw function",
        OPS,
        &mut side,
        raw,
        |side| {
            let mut seen = Seen::default();
            while hot::poll_burst(&mut side.recvs, &mut seen) != 0 {}
            assert_eq!(seen.failed, 0);
        },
        |_| (),
    );
}
