//! Posts and polls of a queue pair that is its own peer, on a stepped software device. The device
//! works outside of the counted instructions.

use uverbs::provider::Provider;
use uverbs::transport::Transport;
use uverbs::{
    AccessFlags, CompletionQueue, Context, Error, ExposedMemory, Frame, ProtectionDomain,
    QueuePair, Slab,
};

use crate::hot::Seen;
use crate::ops::{Area, LINES, PAYLOAD, refused};
use crate::shared::poll_frames;
use crate::{OPS, count};

/// Bytes of a frame.
const DATA: usize = PAYLOAD as usize;

/// Queues and memory.
pub(crate) struct Side<P: Provider, T: Transport> {
    pub(crate) qp: QueuePair<P, T>,
    sends: CompletionQueue<P>,
    recvs: CompletionQueue<P>,
    pub(crate) area: Area,
    _memory: ExposedMemory,
    slab: Slab,
    pub(crate) frames: Vec<Frame>,
}

impl<P: Provider, T: Transport> Side<P, T> {
    /// `queue_pair` makes the queue pair, with room for [`OPS`] sends and receives, and connects it
    /// to itself.
    pub(crate) fn new(
        context: &Context<P>,
        queue_pair: impl FnOnce(
            &ProtectionDomain,
            [&CompletionQueue<P>; 2],
        ) -> Result<QueuePair<P, T>, Error>,
    ) -> Result<Self, Error> {
        let pd = context.alloc_pd()?;
        let (sends, recvs) = (context.create_cq(2 * OPS)?, context.create_cq(2 * OPS)?);
        let qp = queue_pair(&pd, [&sends, &recvs])?;
        let memory = pd.expose((LINES * u64::from(PAYLOAD)) as usize, AccessFlags::empty())?;
        let area = Area::of(&memory);
        let slab = pd.slab(DATA, 2 * OPS as usize)?;
        let frames = Vec::with_capacity(4 * OPS as usize);
        Ok(Self { qp, sends, recvs, area, _memory: memory, slab, frames })
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

    /// Takes all completions.
    fn drain(&mut self) {
        let Self { sends, recvs, frames, .. } = self;
        let mut seen = Seen::default();
        while poll_frames(sends, &mut seen, frames) + poll_frames(recvs, &mut seen, frames) != 0 {}
        assert_eq!(seen.failed, 0);
    }
}

/// A provider's own part.
pub(crate) trait OwnPeer {
    type Provider: Provider;
    type Transport: Transport;
    /// Name in the counts.
    const NAME: &'static str;

    fn side(&mut self) -> &mut Side<Self::Provider, Self::Transport>;

    /// Lets the device work.
    fn work(&mut self);

    /// Posts `batches` doorbells of `N` work requests by address and key: the loop of
    /// `side_by_side`.
    fn send_raw<const N: usize>(&mut self, batches: usize);

    /// Posts as many frames.
    fn send_owned<const N: usize>(&mut self, batches: usize);

    /// Posts receives for all sends.
    fn expect(&mut self) {
        let side = self.side();
        side.stock();
        side.receive::<32>(OPS as usize / 32);
        side.stock();
    }

    /// Lets the device work, and takes all completions.
    fn finish(&mut self) {
        self.work();
        self.side().drain();
    }
}

/// Counts posts by `N`.
fn posts<S: OwnPeer, const N: usize>(own: &mut S) {
    let (name, batches) = (S::NAME, OPS as usize / N);
    let raw = |own: &mut S| own.send_raw::<N>(batches);
    count(&format!("post_{name}_send64_{N} raw"), OPS, own, S::expect, raw, S::finish);
    let owned = |own: &mut S| own.send_owned::<N>(batches);
    count(&format!("post_{name}_send64_{N} owned"), OPS, own, S::expect, owned, S::finish);
    let receives = |own: &mut S| own.side().receive::<N>(batches);
    let deliver = |own: &mut S| {
        own.send_raw::<32>(OPS as usize / 32);
        own.finish();
    };
    let stock = |own: &mut S| own.side().stock();
    count(&format!("recv_{name}_{N} owned"), OPS, own, stock, receives, deliver);
}

/// Counts each.
pub(crate) fn all<S: OwnPeer>(own: &mut S) {
    posts::<S, 1>(own);
    posts::<S, 32>(own);
    let name = S::NAME;
    let deliver = |own: &mut S| {
        own.expect();
        own.send_raw::<1>(OPS as usize);
        own.work();
    };
    for kind in ["sends", "receives"] {
        let work = |own: &mut S| {
            let Side { sends, recvs, frames, .. } = own.side();
            let queue = if kind == "sends" { sends } else { recvs };
            let (mut seen, mut count) = (Seen::default(), 0);
            while count < OPS as usize {
                count += poll_frames(queue, &mut seen, frames);
            }
        };
        count(&format!("poll_{name}_{kind} function"), OPS, own, deliver, work, S::finish);
    }
    let empty = |own: &mut S| {
        let Side { sends, frames, .. } = own.side();
        for _ in 0..OPS {
            assert_eq!(poll_frames(sends, &mut Seen::default(), frames), 0);
        }
    };
    count(&format!("poll_{name}_empty function"), OPS, own, |_| (), empty, |_| ());
}
