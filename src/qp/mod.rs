//! Queue pairs: making one, connecting it, changing its state, taking it down.

pub(crate) mod builder;
pub(crate) mod connect;
pub(crate) mod destroyed;
pub(crate) mod endpoint;
pub(crate) mod local;
pub(crate) mod on_thread;
pub(crate) mod prepared;
pub(crate) mod queue_pair;
pub(crate) mod refused;
pub(crate) mod states;
