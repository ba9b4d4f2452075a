//! Objects of the verbs: queue pairs, queues, keys, device memory.

pub(crate) mod cq;
pub(crate) mod dct;
pub(crate) mod mcast;
pub(crate) mod memic;
pub(crate) mod mkey;
pub(crate) mod qp;
pub(crate) mod srq;
