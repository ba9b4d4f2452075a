//! What the environment asks for: which devices, and what C's provider would take from there.

use std::sync::Arc;

use uverbs::Device;
use uverbs_core::doors::cm::{CmDoor, KernelCmDoor};
use uverbs_core::error::Error;

use crate::device;

/// Names of devices, separated by commas: `softhca@loopback`, `mlx5_0`. Unset or empty: the
/// kernel's.
pub(crate) const DEVICE: &str = "UVERBS_DEVICE";

/// What [`DEVICE`] says, if anything.
fn named() -> Option<String> {
    std::env::var(DEVICE).ok().filter(|names| !names.is_empty())
}

/// The devices that programs are shown.
pub(crate) fn devices() -> Result<Vec<Device>, Error> {
    match named() {
        Some(names) => names.split(',').map(uverbs::device).collect(),
        None => uverbs::devices(),
    }
}

/// The connection manager of these devices: an embedded one's own, which knows no other device, or
/// the kernel's. Who names no device has the kernel's, and none is looked for: a program may open
/// a channel for each connection.
pub(crate) fn connection_manager() -> Result<Arc<dyn CmDoor>, Error> {
    let named = if named().is_some() { device::devices()? } else { Vec::new() };
    let opened = match named.first() {
        Some(device) => device.device().source().open_cm(),
        None => KernelCmDoor::open().map(|door| Arc::new(door) as Arc<dyn CmDoor>),
    };
    opened.map_err(|errno| Error::kernel("rdma_create_event_channel", errno))
}

/// Bytes of a completion queue's entries, where the program doesn't say; as C's provider reads them
/// (`verbs.c:get_cqe_size`): no number is 0.
pub(crate) fn cqe_size() -> Option<u16> {
    let text = std::env::var("MLX5_CQE_SIZE").ok()?;
    Some(text.trim().parse().unwrap_or(0))
}
