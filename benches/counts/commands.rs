//! Sends that a command carries, and rings of the kernel's: rdmavt, on an RC queue pair that is
//! connected to itself. The kernel's part of each command is not counted.

use std::sync::Arc;

use uverbs::raw::{Data, SendOp};
use uverbs::softhca::SoftHca;
use uverbs::transport::Rc;
use uverbs::{Device, Error, Local, Rdmavt, Wr};

use crate::OPS;
use crate::ops::{PAYLOAD, refused};
use crate::own_peer::{self, OwnPeer, Side};
use crate::quiet::Quiet;

/// More steps than anything here takes.
const MANY: usize = 100_000;

struct Commands {
    hca: SoftHca,
    side: Side<Rdmavt, Rc>,
}

impl Commands {
    fn new() -> Result<Self, Error> {
        let hca = SoftHca::builder().omni_path().stepped().build().expect("a software device");
        let device = Device::from_source(Arc::new(Quiet(Arc::new(hca.clone()))));
        let context = device.open_as::<Rdmavt>()?;
        let side = Side::new(&context, |pd, [sends, recvs]| {
            let builder = context.queue_pair(pd, sends).recv_cq(recvs);
            let mut qp = builder.max_send_wr(OPS).max_recv_wr(OPS).build()?;
            qp.prepare(&Local::default())?;
            qp.connect_to_self()?;
            Ok(qp)
        })?;
        Ok(Self { hca, side })
    }
}

impl OwnPeer for Commands {
    type Provider = Rdmavt;
    type Transport = Rc;
    const NAME: &'static str = "rdmavt";

    fn side(&mut self) -> &mut Side<Rdmavt, Rc> {
        &mut self.side
    }

    fn work(&mut self) {
        self.hca.step_until_idle(MANY);
    }

    #[inline(never)]
    fn send_raw<const N: usize>(&mut self, batches: usize) {
        let area = self.side.area;
        let queue = self.side.qp.send_queue();
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
        let Side { qp, frames, .. } = &mut self.side;
        let queue = qp.send_queue();
        let mut id = 0;
        for _ in 0..batches {
            let mut batch = queue.batch();
            for at in 0..N {
                let wr = if at + 1 == N { Wr::new(id) } else { Wr::new(id).unsignaled() };
                let frame = frames.pop().expect("a frame");
                batch.send(wr, frame).map_err(refused).expect("room");
                id += 1;
            }
            batch.ring();
        }
    }
}

/// Counts each.
pub(crate) fn all() {
    own_peer::all(&mut Commands::new().expect("the objects"));
}
