//! Which devices `UVERBS_DEVICE` asks for.

use uverbs::Device;
use uverbs_core::error::Error;

/// Names of devices, separated by commas: `softhca@loopback`, `mlx5_0`. Unset or empty: the
/// kernel's.
pub(crate) const DEVICE: &str = "UVERBS_DEVICE";

/// The devices that programs are shown.
pub(crate) fn devices() -> Result<Vec<Device>, Error> {
    match std::env::var(DEVICE) {
        Ok(names) if !names.is_empty() => names.split(',').map(uverbs::device).collect(),
        _ => uverbs::devices(),
    }
}
