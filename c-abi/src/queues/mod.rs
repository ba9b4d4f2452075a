//! Queues: creation, changes and destruction of QPs, CQs, SRQs, work queues, address handles and
//! flows.

pub(crate) mod ah;
pub(crate) mod channel;
pub(crate) mod cq;
pub(crate) mod cq_ex;
pub(crate) mod direct;
pub(crate) mod ece;
pub(crate) mod flow;
pub(crate) mod make_cq;
pub(crate) mod make_qp;
pub(crate) mod modify;
pub(crate) mod qp;
pub(crate) mod rss;
pub(crate) mod srq;
pub(crate) mod wq;
pub(crate) mod xrc_target;
pub(crate) mod xrcd;
