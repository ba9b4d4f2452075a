//! Creation of queues: the driver's part of each command, and the sizes of rings.

pub(crate) mod buffer;
pub(crate) mod cq;
pub(crate) mod dct;
pub(crate) mod qp;
pub(crate) mod rts;
pub(crate) mod size;
pub(crate) mod srq;
pub(crate) mod work_queue;
