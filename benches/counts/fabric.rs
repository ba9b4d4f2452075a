//! SRD of an Elastic Fabric Adapter, on a queue pair that is its own peer.
//!
//! A stepped software device works outside of the counted instructions. Work requests are copied to
//! its memory, and doorbells are stores there.

use std::sync::Arc;

use uverbs::raw::{Data, SendOp};
use uverbs::transport::Srd;
use uverbs::{
    AccessFlags, CompletionQueue, Destination, Device, Efa, Error, ExposedMemory, Frame, Local,
    QueuePair, Slab, Wr,
};
use uverbs_softefa::SoftEfa;

use crate::hot::Seen;
use crate::ops::{Area, LINES, PAYLOAD, refused};
use crate::quiet::Quiet;
use crate::shared::poll_frames;
use crate::{OPS, count};

/// Bytes of a frame.
const DATA: usize = PAYLOAD as usize;
const QKEY: u32 = 0x1111_1111;

struct Side {
    device: SoftEfa,
    qp: QueuePair<Efa, Srd>,
    to: Destination<Efa>,
    sends: CompletionQueue<Efa>,
    recvs: CompletionQueue<Efa>,
    area: Area,
    _memory: ExposedMemory,
    slab: Slab,
    frames: Vec<Frame>,
}

/// Data of a raw post.
#[derive(Clone, Copy)]
enum Kind {
    Piece,
    Inline,
}

impl Side {
    fn new() -> Result<Self, Error> {
        let device = SoftEfa::builder().number(0).stepped().build().expect("a software device");
        let source = Quiet(Arc::new(device.clone()));
        let context = Device::from_source(Arc::new(source)).open_as::<Efa>()?;
        let pd = context.alloc_pd()?;
        let (sends, recvs) = (context.create_cq(2 * OPS)?, context.create_cq(2 * OPS)?);
        let builder = context.queue_pair(&pd, &sends).recv_cq(&recvs).max_send_wr(OPS);
        let builder = builder.max_recv_wr(OPS).max_inline_data(32);
        let mut qp = builder.srd().build()?;
        let local = Local { qkey: QKEY, psn: Some(0), rnr_retry: 6, ..Local::default() };
        let at = qp.bring_up(&local)?;
        let to = qp.destination(&at)?;
        let memory = pd.expose((LINES * u64::from(PAYLOAD)) as usize, AccessFlags::empty())?;
        let area = Area {
            addr: memory.remote(0).addr,
            lkey: memory.sge(0, PAYLOAD).lkey,
            rkey: memory.remote(0).rkey,
            bytes: &[[1; 8]; LINES as usize],
        };
        let slab = pd.slab(DATA, 2 * OPS as usize)?;
        let frames = Vec::with_capacity(4 * OPS as usize);
        Ok(Self { device, qp, to, sends, recvs, area, _memory: memory, slab, frames })
    }

    /// `batches` doorbells of `N` work requests: the loop of `side_by_side`.
    #[inline(never)]
    fn send_raw<const N: usize>(&mut self, batches: usize, kind: Kind) {
        let (area, to) = (self.area, &self.to);
        let queue = self.qp.send_queue();
        let mut id = 0;
        for _ in 0..batches {
            let mut batch = queue.batch();
            for at in 0..N {
                let wr = if at + 1 == N { Wr::new(id) } else { Wr::new(id).unsignaled() };
                let data = match kind {
                    Kind::Piece => Data::One(area.sge(id, PAYLOAD)),
                    Kind::Inline => Data::Inline(&[7; 8]),
                };
                // SAFETY: the memory lives as long as the queue pair.
                unsafe { batch.raw().post_to(wr, SendOp::Send, data, to) }.expect("room");
                id += 1;
            }
            batch.ring();
        }
    }

    #[inline(never)]
    fn send_owned<const N: usize>(&mut self, batches: usize) {
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

    #[inline(never)]
    fn receive<const N: usize>(&mut self, batches: usize) {
        let queue = self.qp.recv_queue();
        let mut id = 0;
        for _ in 0..batches {
            let mut batch = queue.batch();
            for _ in 0..N {
                let frame = self.frames.pop().expect("a frame");
                batch.post(id, frame).map_err(refused).expect("room");
                id += 1;
            }
            batch.ring();
        }
    }

    /// Frames for as many posts as are counted, beside those in the queues.
    fn stock(&mut self) {
        self.frames.truncate(OPS as usize);
        while self.frames.len() < OPS as usize {
            self.frames.push(self.slab.take().expect("a free frame"));
        }
        self.frames.iter_mut().for_each(|frame| frame.set_len(DATA));
    }

    /// Posts receives for all sends.
    fn expect(&mut self) {
        self.stock();
        self.receive::<32>(OPS as usize / 32);
        self.stock();
    }

    /// Lets the device work, and takes all completions.
    fn finish(&mut self) {
        while self.device.step() {}
        let Self { sends, recvs, frames, .. } = self;
        let mut seen = Seen::default();
        while poll_frames(sends, &mut seen, frames) + poll_frames(recvs, &mut seen, frames) != 0 {}
        assert_eq!(seen.failed, 0);
    }
}

fn posts<const N: usize>(side: &mut Side) {
    let batches = OPS as usize / N;
    let (prepare, finish) = (Side::expect, Side::finish);
    for (name, kind) in [("send64", Kind::Piece), ("inline8", Kind::Inline)] {
        let raw = |side: &mut Side| side.send_raw::<N>(batches, kind);
        count(&format!("post_efa_{name}_{N} raw"), OPS, side, prepare, raw, finish);
    }
    let owned = |side: &mut Side| side.send_owned::<N>(batches);
    count(&format!("post_efa_send64_{N} owned"), OPS, side, prepare, owned, finish);
    let receives = |side: &mut Side| side.receive::<N>(batches);
    let deliver = |side: &mut Side| {
        side.send_raw::<32>(OPS as usize / 32, Kind::Piece);
        side.finish();
    };
    count(&format!("recv_efa_{N} owned"), OPS, side, Side::stock, receives, deliver);
}

/// Counts each.
pub(crate) fn all() {
    let mut side = Side::new().expect("the objects");
    posts::<1>(&mut side);
    posts::<32>(&mut side);
    let deliver = |side: &mut Side| {
        side.expect();
        side.send_raw::<1>(OPS as usize, Kind::Piece);
        while side.device.step() {}
    };
    for name in ["poll_efa_sends function", "poll_efa_receives function"] {
        let work = |side: &mut Side| {
            let Side { sends, recvs, frames, .. } = side;
            let queue = if name.contains("sends") { sends } else { recvs };
            let (mut seen, mut count) = (Seen::default(), 0);
            while count < OPS as usize {
                count += poll_frames(queue, &mut seen, frames);
            }
        };
        count(name, OPS, &mut side, deliver, work, Side::finish);
    }
    let empty = |side: &mut Side| {
        for _ in 0..OPS {
            assert_eq!(poll_frames(&mut side.sends, &mut Seen::default(), &mut side.frames), 0);
        }
    };
    count("poll_efa_empty function", OPS, &mut side, |_| (), empty, |_| ());
}
