//! Identity and capabilities of a device, for both fronts; for the PCI function also the layout of
//! its BAR and device memory. The modules know neither front.

#[cfg_attr(not(feature = "pci"), allow(dead_code, reason = "only a PCI function has a BAR"))]
pub(crate) mod bar;
pub(crate) mod capabilities;
pub(crate) mod card;
#[cfg_attr(not(feature = "pci"), allow(dead_code, reason = "only a PCI function has a BAR"))]
pub(crate) mod memory;
pub(crate) mod profile;
