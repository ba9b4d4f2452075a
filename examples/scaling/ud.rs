//! By datagrams.

use uverbs::{Context, GRH_LEN, Ud};

use crate::common::{Outcome, open_to_all};
use crate::peer::{BYTES, MESSAGE, Other};
use crate::{Found, Meter, RECEIVES};

/// One queue pair with one set of receives for all, and an address handle for each peer.
pub(crate) fn hub(context: &Context, peers: usize) -> Outcome<Found> {
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
