//! Places of a machine and their distances: processors, NUMA nodes, PCI functions, interfaces.

pub use uverbs_core::report::place::{NotPci, PciAddress, PortPlace};

pub use crate::device::near::{Distance, Locality, Point};
