//! The hub of each transport: it can send to each peer, and has receives for what they send.

use uverbs::{Context, GRH_LEN, Rc, Ud};

use crate::common::{Outcome, open_to_all};
use crate::peer::{BYTES, MESSAGE, Node, Other, Target};
use crate::{Cost, Meter};

/// Receives that the hub posts on each of its queue pairs.
const RECEIVES: usize = 32;

/// Makes a hub for so many peers, and sends to each.
pub(crate) type Hub = fn(&Context, usize) -> Outcome<Found>;

/// What the hub consists of, and what it cost.
pub(crate) struct Found {
    pub(crate) queue_pairs: usize,
    pub(crate) handles: usize,
    pub(crate) receives: usize,
    pub(crate) cost: Cost,
}

/// A connection, and so a queue pair with receives of its own, for each peer.
pub(crate) fn rc(context: &Context, peers: usize) -> Outcome<Found> {
    let (pd, mut cq) = (context.alloc_pd()?, context.create_cq(256)?);
    let port = context.local_port(&open_to_all())?;
    let mut others = Other::<Rc>::many(context, peers, |qp| qp.prepare_on(&port))?;
    let meter = Meter::new()?;
    let slab = pd.slab(BYTES, RECEIVES * peers)?;
    let mut hub = Vec::new();
    for other in &others {
        let new = context.queue_pair(&pd, &cq).max_send_wr(8).max_recv_wr(RECEIVES as u32);
        let mut qp = new.build()?;
        let here = qp.prepare_on(&port)?;
        for number in 0..RECEIVES {
            qp.post_recv(number as u64, slab.take().ok_or("no free frame")?)?;
        }
        qp.connect(&other.at)?;
        hub.push((qp, here));
    }
    let cost = meter.stop()?;
    for ((qp, here), other) in hub.iter_mut().zip(&mut others) {
        other.qp.connect(here)?;
        qp.post_send_inline(2, MESSAGE)?;
        other.hears(&mut cq)?;
    }
    let receives = RECEIVES * peers;
    Ok(Found { queue_pairs: hub.len(), handles: 0, receives, cost })
}

/// A connection for each node, that is for [`Node::PEERS`] peers, in each direction a queue pair,
/// and one shared queue of receives: each message names the queue of its peer.
pub(crate) fn xrc(context: &Context, peers: usize) -> Outcome<Found> {
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

/// One queue pair that connects to whichever peer it sends to, one that takes what they send, one
/// shared queue of receives, and an address handle for each peer.
pub(crate) fn dc(context: &Context, peers: usize) -> Outcome<Found> {
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

/// One queue pair with one set of receives for all, and an address handle for each peer.
pub(crate) fn ud(context: &Context, peers: usize) -> Outcome<Found> {
    let (pd, mut cq) = (context.alloc_pd()?, context.create_cq(256)?);
    let port = context.local_port(&open_to_all())?;
    let mut others = Other::<Ud>::many(context, peers, |qp| qp.bring_up_on(&port))?;
    let meter = Meter::new()?;
    let slab = pd.slab(GRH_LEN + BYTES, RECEIVES)?;
    let mut hub = context.queue_pair(&pd, &cq).ud().max_send_wr(8).build()?;
    hub.bring_up_on(&port)?;
    for number in 0..RECEIVES {
        hub.post_recv(number as u64, slab.take().ok_or("no free frame")?)?;
    }
    let ways: uverbs::Result<Vec<_>> =
        others.iter().map(|other| hub.destination(&other.at)).collect();
    let ways = ways?;
    let cost = meter.stop()?;
    for (way, other) in ways.iter().zip(&mut others) {
        hub.send_queue().post_send_inline_to(2, MESSAGE, way)?;
        other.hears(&mut cq)?;
    }
    Ok(Found { queue_pairs: 1, handles: ways.len(), receives: RECEIVES, cost })
}
