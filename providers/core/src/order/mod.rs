//! Memory order toward a device: fences, and the loads and stores that a device observes.

#[cfg(feature = "adversary")]
pub mod adversary;
pub mod device_memory;
pub mod doorbell_memory;
pub mod fence;
pub mod mmio;
pub mod prefetch;
