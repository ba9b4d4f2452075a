//! Identity and limits of a device, for both fronts; for the PCI function also the layout of its
//! BAR and device memory. The modules know neither front.

#[cfg(feature = "pci")]
pub(crate) mod bar;
#[cfg(feature = "pci")]
pub(crate) mod memory;
pub(crate) mod profile;
