//! Posts of work requests: single, lists, and `ibv_wr_*`.

pub(crate) mod chains;
pub(crate) mod copies;
pub(crate) mod extended;
pub(crate) mod mkey;
pub(crate) mod mlx5_ops;
pub(crate) mod pending;
pub(crate) mod posts;
pub(crate) mod recv;
pub(crate) mod recv_side;
pub(crate) mod request;
pub(crate) mod send;
pub(crate) mod sent_kinds;
pub(crate) mod shape;
pub(crate) mod single;
pub(crate) mod table;
pub(crate) mod tags;
pub(crate) mod wr;
