//! An open device: exchange with the driver, capabilities, doorbell pages, clock, device memory.

pub(crate) mod ah;
pub(crate) mod ah_map;
pub(crate) mod caps;
pub(crate) mod clock;
pub(crate) mod context;
pub(crate) mod dm;
pub(crate) mod ece;
pub(crate) mod lag;
pub(crate) mod reserved;
pub(crate) mod uar;
