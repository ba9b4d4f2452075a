//! The peers of RC's and UD's hubs, and code that all peers share.

use uverbs::transport::Transport;
use uverbs::{Any, CompletionQueue, Context, GRH_LEN, QueuePair};

use crate::common::{Outcome, PATIENCE};

/// Bytes of a receive.
pub(crate) const BYTES: usize = 1024;
/// Message that the hub sends to each peer.
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

/// The hub's message was sent, and came.
pub(crate) fn heard(hub: &mut CompletionQueue, peer: &mut CompletionQueue) -> Outcome {
    hub.wait(PATIENCE)?.result?;
    let frame = peer.wait(PATIENCE)?.frame.ok_or("a receive gives its frame back")?;
    assert!(frame.ends_with(MESSAGE));
    Ok(())
}
