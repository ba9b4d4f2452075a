//! The commands, one noun each. Each checks what it was given as Linux does, and changes the state.

pub(crate) mod ah;
pub(crate) mod counters;
pub(crate) mod cq;
pub(crate) mod dct;
pub(crate) mod device;
pub(crate) mod devx;
pub(crate) mod dm;
pub(crate) mod dmabuf;
pub(crate) mod event;
pub(crate) mod flow;
pub(crate) mod flow_spec;
pub(crate) mod map;
pub(crate) mod mcast;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod pd;
pub(crate) mod port;
pub(crate) mod qp;
pub(crate) mod qp_modify;
pub(crate) mod qp_request;
pub(crate) mod raw_packet;
pub(crate) mod srq;
pub(crate) mod uar;
pub(crate) mod write;
pub(crate) mod xrc;
