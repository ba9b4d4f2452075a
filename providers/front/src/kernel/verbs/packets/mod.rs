//! Address handles, multicast groups, rules that steer packets and their counters.

pub(crate) mod ah;
pub(crate) mod counters;
pub(crate) mod flow;
pub(crate) mod flow_spec;
pub(crate) mod matcher;
pub(crate) mod mcast;
