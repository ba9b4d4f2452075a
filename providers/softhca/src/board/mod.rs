//! What both fronts need of the device that they stand before: its identity and limits, and for the PCI function the
//! layout of its BAR and its own memory. It knows neither front.

#[cfg(feature = "pci")]
pub(crate) mod bar;
#[cfg(feature = "pci")]
pub(crate) mod memory;
pub(crate) mod profile;
