//! Which store or load is ordered against which: fences, and accesses that a device sees.

#[cfg(feature = "adversary")]
pub mod adversary;
pub mod device_memory;
pub mod doorbell_memory;
pub mod fence;
pub mod mmio;
pub mod prefetch;
