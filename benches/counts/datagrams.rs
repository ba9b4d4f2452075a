//! Datagrams that a queue pair sends to itself: posts, and polls of their completions.
//!
//! A stepped software HCA works outside of the counted instructions.

use uverbs::raw::{Data, SendOp, Sge};
use uverbs::softhca::SoftHca;
use uverbs::transport::Ud;
use uverbs::unstable::mlx5::Mlx5;
use uverbs::{
    AccessFlags, CompletionQueue, Destination, Device, Error, ExposedMemory, Frame, GRH_LEN, Local,
    PostError, QueuePair, SendQueue, Slab, Unposted, Wr,
};

use crate::hot::Seen;
use crate::ops::{Area, LINES, PAYLOAD, refused};
use crate::{OPS, count};

/// Bytes of data: inline a WQE of two WQEBBs.
const DATA: usize = 32;
/// More steps than anything here takes.
const MANY: usize = 100_000;

struct Side {
    hca: SoftHca,
    qp: QueuePair<Mlx5, Ud>,
    sends: CompletionQueue<Mlx5>,
    recvs: CompletionQueue<Mlx5>,
    to: Destination<Mlx5>,
    area: Area,
    memory: ExposedMemory,
    slab: Slab,
    frames: Vec<Frame>,
}

/// One SEND of copied bytes, and its doorbell.
#[inline(never)]
fn send_inline_to(
    queue: &mut SendQueue<Mlx5, Ud>,
    id: u64,
    data: &[u8],
    to: &Destination<Mlx5>,
) -> Result<(), PostError> {
    let mut batch = queue.batch();
    batch.send_inline_to(id, data, to)?;
    batch.ring();
    Ok(())
}

/// One SEND by address and key, and its doorbell.
#[inline(never)]
fn send_one_to(
    queue: &mut SendQueue<Mlx5, Ud>,
    id: u64,
    sge: Sge,
    to: &Destination<Mlx5>,
) -> Result<(), PostError> {
    let mut batch = queue.batch();
    // SAFETY: the memory lives as long as the queue pair.
    unsafe { batch.raw().post_to(id, SendOp::Send, Data::One(sge), to) }?;
    batch.ring();
    Ok(())
}

/// One SEND of a frame, and its doorbell.
#[inline(never)]
fn send_frame_to(
    queue: &mut SendQueue<Mlx5, Ud>,
    id: u64,
    frame: Frame,
    to: &Destination<Mlx5>,
) -> Result<(), Unposted> {
    let mut batch = queue.batch();
    batch.send_to(id, frame, to)?;
    batch.ring();
    Ok(())
}

/// Sixteen datagrams at most, each with its frame and its source.
#[inline(never)]
fn poll_datagrams(
    queue: &mut CompletionQueue<Mlx5>,
    seen: &mut Seen,
    frames: &mut Vec<Frame>,
) -> usize {
    let mut got = 0;
    let mut burst = queue.poll(16);
    while let Some(mut completion) = burst.next() {
        got += 1;
        seen.ids += u64::from(completion.sender().qpn());
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
        let builder = context.queue_pair(&pd, &sends).recv_cq(&recvs).transport::<Ud>();
        let builder = builder.max_send_wr(OPS).max_recv_wr(OPS).max_inline_data(DATA as u32);
        let mut qp = builder.build()?;
        let endpoint = qp.bring_up(&Local::default())?;
        let to = qp.destination(&endpoint)?;
        let memory = pd.expose((LINES * u64::from(PAYLOAD)) as usize, AccessFlags::empty())?;
        let area = Area::of(&memory);
        let slab = pd.slab(GRH_LEN + DATA, 2 * OPS as usize)?;
        let frames = Vec::with_capacity(2 * OPS as usize);
        Ok(Self { hca, qp, sends, recvs, to, area, memory, slab, frames })
    }

    /// `batches` doorbells of `N` work requests: the loop of `side_by_side`.
    #[inline(never)]
    fn post_raw<const N: usize>(&mut self, batches: usize) {
        let (area, to) = (self.area, &self.to);
        let queue = self.qp.send_queue();
        let mut id = 0;
        for _ in 0..batches {
            let mut batch = queue.batch();
            for at in 0..N {
                let wr = if at + 1 == N { Wr::new(id) } else { Wr::new(id).unsignaled() };
                let piece = Data::One(area.sge(id, PAYLOAD));
                // SAFETY: the memory lives as long as the queue pair.
                unsafe { batch.raw().post_to(wr, SendOp::Send, piece, to) }.expect("room");
                id += 1;
            }
            batch.ring();
        }
    }

    #[inline(never)]
    fn post_safe<const N: usize>(&mut self, batches: usize) {
        let to = &self.to;
        let queue = self.qp.send_queue();
        let mut id = 0;
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
    }

    /// Frames for as many posts as are counted.
    fn stock(&mut self, len: usize) {
        self.frames.truncate(OPS as usize);
        while self.frames.len() < OPS as usize {
            self.frames.push(self.slab.take().expect("a free frame"));
        }
        for frame in &mut self.frames {
            frame.set_len(len);
        }
    }

    /// Lets the device send the posted datagrams, `signaled` of which complete.
    fn deliver(&mut self, signaled: usize) {
        self.hca.step_until_idle(MANY);
        let Self { sends, frames, .. } = self;
        let keep = |mut completion: uverbs::Completion<'_, Mlx5>| {
            assert!(completion.result().is_ok());
            frames.extend(completion.take_frame());
        };
        assert_eq!(sends.poll_with(2 * OPS as usize, keep), signaled);
    }
}

fn posts<const N: usize>(side: &mut Side) {
    let batches = OPS as usize / N;
    let deliver = |side: &mut Side| side.deliver(batches);
    let raw = |side: &mut Side| side.post_raw::<N>(batches);
    count(&format!("post_ud_send64_{N} raw"), OPS, side, |_| (), raw, deliver);
    let stock = |side: &mut Side| side.stock(PAYLOAD as usize);
    let owned = |side: &mut Side| side.post_safe::<N>(batches);
    count(&format!("post_ud_send64_{N} owned"), OPS, side, stock, owned, deliver);
}

/// Counts each.
pub(crate) fn all() {
    let mut side = Side::new().expect("the objects");
    posts::<1>(&mut side);
    posts::<32>(&mut side);
    let deliver = |side: &mut Side| side.deliver(OPS as usize);
    let post_inline = |side: &mut Side| {
        for id in 0..OPS.into() {
            let queue = side.qp.send_queue();
            send_inline_to(queue, id, &[7; DATA], &side.to).expect("room");
        }
    };
    count("ud_send_inline32 function", OPS, &mut side, |_| (), post_inline, deliver);
    count(
        "ud_send_one function",
        OPS,
        &mut side,
        |_| (),
        |side| {
            let sge = side.memory.sge(0, DATA as u32);
            for id in 0..OPS.into() {
                send_one_to(side.qp.send_queue(), id, sge, &side.to).expect("room");
            }
        },
        deliver,
    );
    count(
        "ud_send_frame function",
        OPS,
        &mut side,
        |side| side.stock(DATA),
        |side| {
            for id in 0..OPS.into() {
                let frame = side.frames.pop().expect("a frame");
                assert!(send_frame_to(side.qp.send_queue(), id, frame, &side.to).is_ok());
            }
        },
        deliver,
    );
    count(
        "ud_poll_receives function",
        OPS,
        &mut side,
        |side| {
            side.stock(GRH_LEN + DATA);
            for (id, frame) in side.frames.drain(..).enumerate() {
                assert!(side.qp.post_recv(id as u64, frame).is_ok());
            }
            post_inline(side);
            side.deliver(OPS as usize);
        },
        |side| {
            let mut seen = Seen::default();
            while poll_datagrams(&mut side.recvs, &mut seen, &mut side.frames) != 0 {}
            let bytes = OPS as usize * (GRH_LEN + DATA);
            assert_eq!((seen.failed, seen.bytes), (0, bytes as u64));
        },
        |_| (),
    );
}
