//! A driver for ConnectX (mlx5) functions in user space, without the kernel's mlx5_core.
//!
//! It owns a PCI function: brings it up by firmware commands, supplies the firmware's pages,
//! watches its health, and resets it at the end. Not tried on hardware: the software HCA behind a
//! vfio-user socket (`uverbs softhca serve`) is the only device that it has driven.
//!
//! | file | content |
//! |---|---|
//! | `discovery` | functions of this machine in sysfs |
//! | `transport` | access to a function: BAR, DMA mappings, interrupts, reset |
//! | `memory`, `dma`, `area` | memory that the device uses, buffers in it, programs' memory |
//! | `config`, `registers` | configuration space, initialization segment |
//! | `command` | command queue, mailboxes |
//! | `device` | state that thread and users share; the first failure |
//! | `pages`, `bar`, `uar` | pages that the firmware asks for; use of the BAR's pages; doorbells |
//! | `caps`, `port` | capabilities; port and its addresses |
//! | `eq`, `event`, `worker`, `tick` | event queue, events, the driver's thread |
//! | `function` | bring-up and teardown |
//! | `interface` | IP addresses of a function |
//! | `objects` | first objects by commands: domains, regions, completion queues, RC queue pairs |
//! | `services` | queues of the driver: management datagrams (queue pair 1), ARP and ND |
//! | `door`, `backend` | a function as an RDMA device: the front's objects by commands |
//!
//! Layouts come from `uverbs-mlx5-prm`; the order of steps follows Linux's mlx5_core.
//!
//! # What a device can do to the process
//!
//! Buffers of the driver are reached by volatile accesses alone, and stay mapped until the function
//! is reset. A program's region is reached while it is registered: by an IOMMU in whole pages, by a
//! vfio-user server in the region's bytes alone, in both for stores only if its rights allow them.
//! Answers, events and lengths are checked before use, and every wait has a limit ([`Limits`]). So
//! a device that lies can make calls fail, report false completions, read registered memory and, by
//! an IOMMU, the rest of its pages, and change what is in buffers and in writable regions with the
//! rest of their pages.
//!
//! A forked child does not have the function: its calls fail with [`Error::Forked`], and buffers
//! are not mapped there.

mod area;
mod backend;
mod bar;
mod caps;
mod command;
mod config;
mod device;
pub mod discovery;
mod dma;
mod door;
mod eq;
mod error;
mod event;
mod function;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod interface;
mod memory;
mod objects;
mod pages;
mod port;
mod registers;
mod services;
#[cfg(any(test, fuzzing))]
#[cfg_attr(not(test), allow(dead_code, reason = "fuzzers use a part of the device"))]
mod tests;
mod tick;
pub mod transport;
mod uar;
mod worker;

pub use caps::Caps;
pub use device::Limits;
pub use dma::{Buffer, PAGE};
pub use door::Hca;
pub use error::Error;
pub use event::Event;
pub use function::{Function, Identity};
pub use interface::{Address, Interface, Mac};
pub use memory::Memory;
pub use objects::cq::CompletionQueue;
pub use objects::pd::ProtectionDomain;
pub use objects::qp::{Peer, QueuePair, Sge};
pub use objects::region::Region;
pub use port::{LinkState, Port};
pub use registers::FirmwareVersion;
