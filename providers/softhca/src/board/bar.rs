//! Layout of the PCI function's BAR 0, and its number of vectors and doorbell pages.

use super::capabilities::DEVICE_MEMORY_LEN;
use uverbs_mlx5_prm::doorbell::MLX5_ADAPTER_PAGE_SIZE;

/// Bytes of BAR 0.
pub(crate) const BAR0_LEN: u64 = 32 << 20;
/// MSI-X vectors.
pub(crate) const VECTORS: u16 = 64;
/// Offsets in BAR 0 of the MSI-X table and its pending bits. The host keeps both.
pub(crate) const MSIX_TABLE: u64 = 0x2000;
pub(crate) const MSIX_PBA: u64 = 0x3000;
/// Bytes of a doorbell page.
pub(crate) const PAGE: u64 = MLX5_ADAPTER_PAGE_SIZE as u64;
/// First and last number of a doorbell page: its offset / [`PAGE`].
pub(crate) const FIRST_UAR: u32 = 0x10;
pub(crate) const LAST_UAR: u32 = (OPERATIONS / PAGE) as u32 - 1;
/// Offset of the operations on device memory: behind the doorbell pages. Each operation has a range
/// as long as device memory.
pub(crate) const OPERATIONS: u64 = DEVICE_MEMORY - OPERATION_COUNT * DEVICE_MEMORY_LEN;
/// Number of operations on device memory: see `firmware/memic.rs`.
pub(crate) const OPERATION_COUNT: u64 = 2;
/// Offset of device memory, at the end of the BAR.
pub(crate) const DEVICE_MEMORY: u64 = BAR0_LEN - DEVICE_MEMORY_LEN;
