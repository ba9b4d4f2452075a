//! By reliable connections.

use uverbs::{Context, Rc};

use crate::common::{Outcome, open_to_all};
use crate::peer::{BYTES, MESSAGE, Other};
use crate::{Found, Meter, RECEIVES};

/// A connection for each peer, so each has a queue pair with separate receives.
pub(crate) fn hub(context: &Context, peers: usize) -> Outcome<Found> {
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
