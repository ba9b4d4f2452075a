//! The kernel's objects, as handles that own them.

pub mod ah;
pub mod channel;
pub mod clock;
pub mod comp_cntr;
pub mod context;
pub mod counters;
pub mod cq;
pub mod dm;
pub mod dm_operation;
pub mod event;
pub mod flow;
pub mod mr;
pub mod mw;
pub mod pd;
pub mod qp;
pub mod qp_object;
pub mod rss;
pub mod srq;
mod users;
pub mod wq;
pub mod xrcd;
