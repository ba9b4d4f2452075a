//! The responder: requests in order, READs and atomics, responses, NAKs.

pub(crate) mod checks;
pub(crate) mod deliver;
pub(crate) mod placement;
pub(crate) mod queue;
pub(crate) mod read_atomic;
pub(crate) mod response_tx;
