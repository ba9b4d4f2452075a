//! Device memory that is in the device itself.

use std::os::fd::OwnedFd;
use std::sync::Arc;

/// An allocation of device memory, or the addresses of an operation on one.
#[derive(Clone, Debug)]
pub struct DeviceMemory {
    /// Address of the first byte, for keys (`MLX5_MKC_ACCESS_MODE_MEMIC`); of an operation the
    /// address for that byte.
    pub start: u64,
    /// File that programs map.
    pub file: Arc<OwnedFd>,
    /// Offset in the file of the page that has the first byte.
    pub offset: u64,
}
