//! The PCI function over its socket, without a virtual machine: a client that plays QEMU, and on it
//! a driver that plays mlx5_core.

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
mod memory;
mod owners;
mod page_faults;
mod tags;
mod two;
mod umem;
