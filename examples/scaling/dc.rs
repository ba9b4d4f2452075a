//! By dynamic connections.

use uverbs::dc::{DcEndpoint, DcTarget};
use uverbs::{CompletionQueue, Context, SharedReceiveQueue};

use crate::common::{Outcome, open_to_all};
use crate::peer::{BYTES, MESSAGE, heard};
use crate::{Found, Meter, RECEIVES};

/// One queue pair that connects to whichever peer it sends to, one that takes what they send, one
/// shared queue of receives, and an address handle for each peer.
pub(crate) fn hub(context: &Context, peers: usize) -> Outcome<Found> {
    let (pd, mut cq, local) = (context.alloc_pd()?, context.create_cq(256)?, open_to_all());
    let mut others = Target::many(context, peers)?;
    let meter = Meter::new()?;
    let slab = pd.slab(BYTES, RECEIVES)?;
    let mut srq = context.shared_receive_queue(&pd).max_wr(RECEIVES as u32).build()?;
    for number in 0..RECEIVES {
        srq.post(number as u64, slab.take().ok_or("no free frame")?)?;
    }
    let mut target = context.dc_target(&pd, &cq, &srq, Target::KEY)?;
    target.bring_up(&local)?;
    let mut hub = context.queue_pair(&pd, &cq).dci().max_send_wr(8).build()?;
    hub.bring_up(&local)?;
    let ways: uverbs::Result<Vec<_>> =
        others.iter().map(|other| hub.destination(&other.at)).collect();
    let ways = ways?;
    let cost = meter.stop()?;
    for (way, other) in ways.iter().zip(&mut others) {
        let mut batch = hub.batch();
        batch.send_inline_to(2, MESSAGE, way)?;
        batch.ring();
        other.hears(&mut cq)?;
    }
    Ok(Found { queue_pairs: 2, handles: ways.len(), receives: RECEIVES, cost })
}

/// A peer that whoever knows its key connects to, with one receive.
struct Target {
    at: DcEndpoint,
    // The target is dropped before the queues that it receives from.
    _target: DcTarget,
    _srq: SharedReceiveQueue,
    cq: CompletionQueue,
}

impl Target {
    const KEY: u64 = 0x1122_3344_5566_7788;

    fn many(context: &Context, count: usize) -> Outcome<Vec<Self>> {
        (0..count).map(|_| Self::new(context)).collect()
    }

    fn new(context: &Context) -> Outcome<Self> {
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(16)?);
        let mut srq = context.shared_receive_queue(&pd).max_wr(8).build()?;
        srq.post(1, pd.slab(BYTES, 1)?.take().ok_or("no free frame")?)?;
        let mut target = context.dc_target(&pd, &cq, &srq, Self::KEY)?;
        let at = target.bring_up(&open_to_all())?;
        Ok(Self { at, _target: target, _srq: srq, cq })
    }

    /// The hub's message was sent, and came.
    fn hears(&mut self, hub: &mut CompletionQueue) -> Outcome {
        heard(hub, &mut self.cq)
    }
}
