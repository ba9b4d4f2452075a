//! Posting sends: batches, single posts, datagrams, posts that name their peer.

pub(crate) mod datagram;
pub(crate) mod directed;
pub(crate) mod queue;
pub(crate) mod single;
pub(crate) mod unposted;
pub(crate) mod unrung;
