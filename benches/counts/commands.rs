//! Sends that a command carries, and rings of the kernel's: rdmavt, on an RC queue pair that is
//! connected to itself.
//!
//! A stepped software device works outside of the counted instructions, and so does the kernel's
//! part of each command.

use std::sync::Arc;

use uverbs::raw::{Data, SendOp};
use uverbs::softhca::SoftHca;
use uverbs::{
    AccessFlags, CompletionQueue, Device, Error, ExposedMemory, Frame, Local, QueuePair, Rdmavt,
    Slab, Wr,
};

use crate::hot::Seen;
use crate::ops::{Area, LINES, PAYLOAD, refused};
use crate::quiet::Quiet;
use crate::shared::poll_frames;
use crate::{OPS, count};

/// More steps than anything here takes.
const MANY: usize = 100_000;
/// Bytes of a frame.
const DATA: usize = PAYLOAD as usize;

struct Side {
    hca: SoftHca,
    qp: QueuePair<Rdmavt>,
    sends: CompletionQueue<Rdmavt>,
    recvs: CompletionQueue<Rdmavt>,
    area: Area,
    _memory: ExposedMemory,
    slab: Slab,
    frames: Vec<Frame>,
}

impl Side {
    fn new() -> Result<Self, Error> {
        let hca = SoftHca::builder().omni_path().stepped().build().expect("a software device");
        let device = Device::from_source(Arc::new(Quiet(Arc::new(hca.clone()))));
        let context = device.open_as::<Rdmavt>()?;
        let pd = context.alloc_pd()?;
        let (sends, recvs) = (context.create_cq(2 * OPS)?, context.create_cq(2 * OPS)?);
        let builder = context.queue_pair(&pd, &sends).recv_cq(&recvs);
        let mut qp = builder.max_send_wr(OPS).max_recv_wr(OPS).build()?;
        qp.prepare(&Local::default())?;
        qp.connect_to_self()?;
        let memory = pd.expose((LINES * u64::from(PAYLOAD)) as usize, AccessFlags::empty())?;
        let area = Area {
            addr: memory.remote(0).addr,
            lkey: memory.sge(0, PAYLOAD).lkey,
            rkey: memory.remote(0).rkey,
            bytes: &[[1; 8]; LINES as usize],
        };
        let slab = pd.slab(DATA, 2 * OPS as usize)?;
        let frames = Vec::with_capacity(4 * OPS as usize);
        Ok(Self { hca, qp, sends, recvs, area, _memory: memory, slab, frames })
    }

    /// `batches` commands of `N` work requests: the loop of `side_by_side`.
    #[inline(never)]
    fn send_raw<const N: usize>(&mut self, batches: usize) {
        let area = self.area;
        let queue = self.qp.send_queue();
        let mut id = 0;
        for _ in 0..batches {
            let mut batch = queue.batch();
            for at in 0..N {
                let wr = if at + 1 == N { Wr::new(id) } else { Wr::new(id).unsignaled() };
                let piece = Data::One(area.sge(id, PAYLOAD));
                // SAFETY: the memory lives as long as the queue pair.
                unsafe { batch.raw().post(wr, SendOp::Send, piece) }.expect("room");
                id += 1;
            }
            batch.ring();
        }
    }

    #[inline(never)]
    fn send_owned<const N: usize>(&mut self, batches: usize) {
        let queue = self.qp.send_queue();
        let mut id = 0;
        for _ in 0..batches {
            let mut batch = queue.batch();
            for at in 0..N {
                let wr = if at + 1 == N { Wr::new(id) } else { Wr::new(id).unsignaled() };
                let frame = self.frames.pop().expect("a frame");
                batch.send(wr, frame).map_err(refused).expect("room");
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

    /// Lets the device work, and takes all completions.
    fn finish(&mut self) {
        self.hca.step_until_idle(MANY);
        let Self { sends, recvs, frames, .. } = self;
        let mut seen = Seen::default();
        while poll_frames(sends, &mut seen, frames) + poll_frames(recvs, &mut seen, frames) != 0 {}
        assert_eq!(seen.failed, 0);
    }
}

fn posts<const N: usize>(side: &mut Side) {
    let batches = OPS as usize / N;
    let prepare = |side: &mut Side| {
        side.stock();
        side.receive::<32>(OPS as usize / 32);
        side.stock();
    };
    let finish = |side: &mut Side| side.finish();
    let raw = |side: &mut Side| side.send_raw::<N>(batches);
    count(&format!("post_rdmavt_send64_{N} raw"), OPS, side, prepare, raw, finish);
    let owned = |side: &mut Side| side.send_owned::<N>(batches);
    count(&format!("post_rdmavt_send64_{N} owned"), OPS, side, prepare, owned, finish);
    let receives = |side: &mut Side| side.receive::<N>(batches);
    let deliver = |side: &mut Side| {
        side.send_raw::<32>(OPS as usize / 32);
        side.finish();
    };
    let stock = |side: &mut Side| side.stock();
    count(&format!("recv_rdmavt_{N} owned"), OPS, side, stock, receives, deliver);
}

/// Counts each.
pub(crate) fn all() {
    let mut side = Side::new().expect("the objects");
    posts::<1>(&mut side);
    posts::<32>(&mut side);
    let deliver = |side: &mut Side| {
        side.stock();
        side.receive::<32>(OPS as usize / 32);
        side.stock();
        side.send_raw::<1>(OPS as usize);
        side.hca.step_until_idle(MANY);
    };
    let finish = |side: &mut Side| side.finish();
    for name in ["poll_rdmavt_sends function", "poll_rdmavt_receives function"] {
        let work = |side: &mut Side| {
            let Side { sends, recvs, frames, .. } = side;
            let queue = if name.contains("sends") { sends } else { recvs };
            let (mut seen, mut count) = (Seen::default(), 0);
            while count < OPS as usize {
                count += poll_frames(queue, &mut seen, frames);
            }
        };
        count(name, OPS, &mut side, deliver, work, finish);
    }
    let empty = |side: &mut Side| {
        for _ in 0..OPS {
            assert_eq!(poll_frames(&mut side.sends, &mut Seen::default(), &mut side.frames), 0);
        }
    };
    count("poll_rdmavt_empty function", OPS, &mut side, |_| (), empty, |_| ());
}
