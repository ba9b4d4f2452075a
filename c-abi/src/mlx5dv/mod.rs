//! Functions of `mlx5dv.h`.

pub(crate) mod caps;
pub(crate) mod dr;
pub(crate) mod dr_action;
pub(crate) mod dr_dump;
pub(crate) mod make;
pub(crate) mod matcher;
pub(crate) mod queues;
