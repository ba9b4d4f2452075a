//! SRD of an Elastic Fabric Adapter, on a queue pair that is its own peer. Work requests are copied
//! to the software device's memory, and doorbells are stores there.

use std::sync::Arc;

use uverbs::raw::{Data, SendOp};
use uverbs::transport::Srd;
use uverbs::{Destination, Device, Efa, Error, Local, Wr};
use uverbs_softefa::SoftEfa;

use crate::ops::{PAYLOAD, refused};
use crate::own_peer::{self, OwnPeer, Side};
use crate::quiet::Quiet;
use crate::{OPS, count};

const QKEY: u32 = 0x1111_1111;

struct Fabric {
    device: SoftEfa,
    to: Destination<Efa>,
    side: Side<Efa, Srd>,
}

/// Data of a raw post.
#[derive(Clone, Copy)]
enum Kind {
    Piece,
    Inline,
}

impl Fabric {
    fn new() -> Result<Self, Error> {
        let device = SoftEfa::builder().number(0).stepped().build().expect("a software device");
        let source = Quiet(Arc::new(device.clone()));
        let context = Device::from_source(Arc::new(source)).open_as::<Efa>()?;
        let mut side = Side::new(&context, |pd, [sends, recvs]| {
            let builder = context.queue_pair(pd, sends).recv_cq(recvs).max_send_wr(OPS);
            builder.max_recv_wr(OPS).max_inline_data(32).srd().build()
        })?;
        let local = Local { qkey: QKEY, psn: Some(0), rnr_retry: 6, ..Local::default() };
        let at = side.qp.bring_up(&local)?;
        let to = side.qp.destination(&at)?;
        Ok(Self { device, to, side })
    }

    #[inline(never)]
    fn send_kind<const N: usize>(&mut self, batches: usize, kind: Kind) {
        let (area, to) = (self.side.area, &self.to);
        let queue = self.side.qp.send_queue();
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
}

impl OwnPeer for Fabric {
    type Provider = Efa;
    type Transport = Srd;
    const NAME: &'static str = "efa";

    fn side(&mut self) -> &mut Side<Efa, Srd> {
        &mut self.side
    }

    fn work(&mut self) {
        while self.device.step() {}
    }

    fn send_raw<const N: usize>(&mut self, batches: usize) {
        self.send_kind::<N>(batches, Kind::Piece);
    }

    #[inline(never)]
    fn send_owned<const N: usize>(&mut self, batches: usize) {
        let (to, Side { qp, frames, .. }) = (&self.to, &mut self.side);
        let queue = qp.send_queue();
        let mut id = 0;
        for _ in 0..batches {
            let mut batch = queue.batch();
            for at in 0..N {
                let wr = if at + 1 == N { Wr::new(id) } else { Wr::new(id).unsignaled() };
                let frame = frames.pop().expect("a frame");
                batch.send_to(wr, frame, to).map_err(refused).expect("room");
                id += 1;
            }
            batch.ring();
        }
    }
}

fn inline<const N: usize>(fabric: &mut Fabric) {
    let posts = |fabric: &mut Fabric| fabric.send_kind::<N>(OPS as usize / N, Kind::Inline);
    let (expect, finish) = (Fabric::expect, Fabric::finish);
    count(&format!("post_efa_inline8_{N} raw"), OPS, fabric, expect, posts, finish);
}

/// Counts each.
pub(crate) fn all() {
    let mut fabric = Fabric::new().expect("the objects");
    own_peer::all(&mut fabric);
    inline::<1>(&mut fabric);
    inline::<32>(&mut fabric);
}
