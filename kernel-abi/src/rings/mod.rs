//! Drivers whose queues are rings that the kernel owns.

pub mod rvt;
pub mod rxe;
pub mod siw;
