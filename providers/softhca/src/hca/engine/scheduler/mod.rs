//! Turns of queue pairs, timers, page faults.

pub(crate) mod page_faults;
pub(crate) mod patience;
pub(crate) mod resume;
pub(crate) mod slices;
pub(crate) mod turn;
