//! The verbs of [`crate::uverbs::Uverbs`], one file per noun.

pub mod channel;
pub mod cq;
pub mod device;
pub mod gid;
pub mod mr;
pub mod pd;
pub mod qp;
