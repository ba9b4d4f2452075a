//! By extended reliable connections.

use uverbs::transport::XrcIni;
use uverbs::xrc::{ForXrc, XrcDomain, XrcTarget};
use uverbs::{Any, CompletionQueue, Context, Endpoint, QueuePair, SharedReceiveQueue};

use crate::common::{Outcome, open_to_all};
use crate::peer::{BYTES, MESSAGE, heard};
use crate::{Found, Meter, RECEIVES};

/// A connection for each node, that is for [`Node::PEERS`] peers, in each direction a queue pair,
/// and one shared queue of receives: each message names the queue of its peer.
pub(crate) fn hub(context: &Context, peers: usize) -> Outcome<Found> {
    let (pd, mut cq, local) = (context.alloc_pd()?, context.create_cq(256)?, open_to_all());
    let mut nodes = Node::many(context, peers)?;
    let meter = Meter::new()?;
    let slab = pd.slab(BYTES, RECEIVES)?;
    let domain = context.xrc_domain()?;
    let receives = context.shared_receive_queue(&pd).max_wr(RECEIVES as u32);
    let mut srq = receives.xrc(&domain, &cq).build()?;
    for number in 0..RECEIVES {
        srq.post(number as u64, slab.take().ok_or("no free frame")?)?;
    }
    let mut hub = Vec::new();
    for node in &nodes {
        let mut qp = context.queue_pair(&pd, &cq).xrc().max_send_wr(8).build()?;
        let mut target = context.xrc_target(&domain)?;
        let here = (qp.prepare(&local)?, target.prepare(&local)?);
        qp.connect(&node.at.1)?;
        target.connect(&node.at.0)?;
        hub.push((qp, target, here));
    }
    let cost = meter.stop()?;
    for ((qp, _, here), node) in hub.iter_mut().zip(&mut nodes) {
        node.qp.connect(&here.1)?;
        node.target.connect(&here.0)?;
        for peer in &mut node.peers {
            let mut batch = qp.batch();
            batch.send_inline_to(2, MESSAGE, &peer.srq.remote())?;
            batch.ring();
            peer.hears(&mut cq)?;
        }
    }
    Ok(Found { queue_pairs: 2 * hub.len(), handles: 0, receives: RECEIVES, cost })
}

/// A machine with several peers, which have one connection with the hub in common.
struct Node {
    peers: Vec<Listener>,
    qp: QueuePair<Any, XrcIni>,
    target: XrcTarget,
    /// Endpoints of the queue pair and of the target.
    at: (Endpoint, Endpoint),
}

/// A peer of the machine, with one receive. With a domain made from a file, each peer could be a
/// process.
struct Listener {
    srq: SharedReceiveQueue<Any, ForXrc>,
    cq: CompletionQueue,
}

impl Node {
    const PEERS: usize = 8;

    fn many(context: &Context, peers: usize) -> Outcome<Vec<Self>> {
        let counts = (0..peers).step_by(Self::PEERS).map(|first| Self::PEERS.min(peers - first));
        counts.map(|count| Self::new(context, count)).collect()
    }

    fn new(context: &Context, peers: usize) -> Outcome<Self> {
        let (domain, local) = (context.xrc_domain()?, open_to_all());
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(16)?);
        let mut qp = context.queue_pair(&pd, &cq).xrc().max_send_wr(8).build()?;
        let mut target = context.xrc_target(&domain)?;
        let at = (qp.prepare(&local)?, target.prepare(&local)?);
        let peers = (0..peers).map(|_| Listener::new(context, &domain)).collect::<Outcome<_>>()?;
        Ok(Self { peers, qp, target, at })
    }
}

impl Listener {
    fn new(context: &Context, domain: &XrcDomain) -> Outcome<Self> {
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(16)?);
        let mut srq = context.shared_receive_queue(&pd).max_wr(8).xrc(domain, &cq).build()?;
        srq.post(1, pd.slab(BYTES, 1)?.take().ok_or("no free frame")?)?;
        Ok(Self { srq, cq })
    }

    /// The hub's message was sent, and came.
    fn hears(&mut self, hub: &mut CompletionQueue) -> Outcome {
        heard(hub, &mut self.cq)
    }
}
