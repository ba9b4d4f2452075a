//! The PCI function over its socket, without a virtual machine: a client in the role of QEMU, and a
//! driver in the role of mlx5_core.

mod bring_up;
mod counters;
mod data;
mod driver;
mod dynamic;
mod ethernet;
mod files;
mod frames;
mod general;
mod host;
mod hostile;
mod mad;
mod mapped;
mod memory;
mod owners;
mod page_faults;
mod station;
mod tags;
mod two;
mod umem;
