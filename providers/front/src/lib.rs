//! Front of a device: ib_uverbs, mlx5_ib and rdma_cm in user space.
//!
//! A front answers a program's ioctls with the bytes and errnos of Linux, keeps handles and states,
//! and hands out events. The device behind it is a [`Backend`](backend::Backend): a software HCA,
//! or the firmware of a ConnectX.
//!
//! | module | contents |
//! |---|---|
//! | [`cm_door`] | an open event channel of the connection manager |
//! | [`door`] | an open device file, over a device and who runs it |
//! | `kernel` | [`Kernel`]: commands, handles, errnos |
//! | [`cm`] | the connection manager |
//! | [`backend`] | the interface to the device |
//! | [`uar`], [`watch`], [`guard`] | doorbell pages; write protection while a device sleeps |
//! | [`raw_socket`] | sockets by raw system calls |
//!
//! Each row uses only the rows below it.
//!
//! The crate is internal to uverbs: its interface may change in each version.

pub mod backend;
pub mod cm;
pub mod cm_door;
pub mod door;
#[cfg(any(test, fuzzing))]
#[path = "../../../fuzz/feed.rs"]
#[allow(dead_code, reason = "the targets of other crates use more of it")]
mod feed;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod guard;
mod kernel;
mod maps;
pub mod raw_socket;
pub mod uar;
pub mod watch;

pub use kernel::{Device, Kernel, device_attributes, port_attributes, probe};
