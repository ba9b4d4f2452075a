//! The peers of the hub.

use uverbs::transport::Transport;
use uverbs::{
    Any, CompletionQueue, Context, DcEndpoint, DcTarget, Endpoint, ForXrc, GRH_LEN, QueuePair,
    SharedReceiveQueue, XrcDomain, XrcIni, XrcTarget,
};

use crate::common::{Outcome, PATIENCE, open_to_all};

/// Bytes of a receive.
pub(crate) const BYTES: usize = 1024;
/// What the hub sends to each.
pub(crate) const MESSAGE: &[u8] = b"from the hub";

/// A peer of the hub, with one receive.
pub(crate) struct Other<T: Transport> {
    pub(crate) qp: QueuePair<Any, T>,
    pub(crate) at: T::Endpoint,
    cq: CompletionQueue,
}

impl<T: Transport> Other<T> {
    pub(crate) fn many(
        context: &Context,
        count: usize,
        bring: impl Fn(&mut QueuePair<Any, T>) -> uverbs::Result<T::Endpoint>,
    ) -> Outcome<Vec<Self>> {
        let one = |_| {
            let (pd, cq) = (context.alloc_pd()?, context.create_cq(16)?);
            let new = context.queue_pair(&pd, &cq).transport::<T>();
            let mut qp = new.max_send_wr(8).max_recv_wr(8).build()?;
            let at = bring(&mut qp)?;
            qp.post_recv(1, pd.slab(GRH_LEN + BYTES, 1)?.take().ok_or("no free frame")?)?;
            Ok(Self { qp, at, cq })
        };
        (0..count).map(one).collect()
    }

    /// The hub's message was sent, and came.
    pub(crate) fn hears(&mut self, hub: &mut CompletionQueue) -> Outcome {
        heard(hub, &mut self.cq)
    }
}

fn heard(hub: &mut CompletionQueue, peer: &mut CompletionQueue) -> Outcome {
    hub.wait(PATIENCE)?.result?;
    let frame = peer.wait(PATIENCE)?.frame.ok_or("a receive gives its frame back")?;
    assert!(frame.ends_with(MESSAGE));
    Ok(())
}

/// A machine with several peers, which have one connection with the hub in common.
pub(crate) struct Node {
    pub(crate) peers: Vec<Listener>,
    pub(crate) qp: QueuePair<Any, XrcIni>,
    pub(crate) target: XrcTarget,
    /// Of both.
    pub(crate) at: (Endpoint, Endpoint),
}

/// One of them, with one receive. Each could be a process of its own, if the domain were a file's.
pub(crate) struct Listener {
    pub(crate) srq: SharedReceiveQueue<Any, ForXrc>,
    cq: CompletionQueue,
}

impl Node {
    pub(crate) const PEERS: usize = 8;

    pub(crate) fn many(context: &Context, peers: usize) -> Outcome<Vec<Self>> {
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

    /// As [`Other::hears`].
    pub(crate) fn hears(&mut self, hub: &mut CompletionQueue) -> Outcome {
        heard(hub, &mut self.cq)
    }
}

/// A peer that whoever knows its key connects to, with one receive.
pub(crate) struct Target {
    pub(crate) at: DcEndpoint,
    // The target goes before what it receives from.
    _target: DcTarget,
    _srq: SharedReceiveQueue,
    cq: CompletionQueue,
}

impl Target {
    pub(crate) const KEY: u64 = 0x1122_3344_5566_7788;

    pub(crate) fn many(context: &Context, count: usize) -> Outcome<Vec<Self>> {
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

    /// As [`Other::hears`].
    pub(crate) fn hears(&mut self, hub: &mut CompletionQueue) -> Outcome {
        heard(hub, &mut self.cq)
    }
}
