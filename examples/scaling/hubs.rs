//! The hub of each transport: it can send to each peer, and has receives for what they send.

use uverbs::{Context, GRH_LEN, Rc, Ud};

use crate::common::{Outcome, open_to_all};
use crate::peer::{BYTES, MESSAGE, Other};
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
