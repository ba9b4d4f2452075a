//! What the environment asks for: which devices, and what C's provider would take from there.

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

/// Bytes of a completion queue's entries, where the program doesn't say; as C's provider reads them
/// (`verbs.c:get_cqe_size`): no number is 0.
pub(crate) fn cqe_size() -> Option<u16> {
    let text = std::env::var("MLX5_CQE_SIZE").ok()?;
    Some(text.trim().parse().unwrap_or(0))
}
