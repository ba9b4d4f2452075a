//! The uverbs kernel ABI as Rust types: data that crosses the kernel boundary, without code that
//! acts on it.
//!
//! Structs, fields and constants keep the names of the kernel's uapi headers, so that a name from
//! the kernel, rdma-core or a trace is found here. Numbers are in the host's byte order, except
//! where the header says `__be`. Enums are plain integers, so values of newer kernels are kept.
//!
//! | here | header |
//! |---|---|
//! | [`ioctl`] | `rdma_user_ioctl_cmds.h` |
//! | [`objects`] | `ib_user_ioctl_cmds.h` |
//! | [`write`](mod@write), [`device`], [`port`] | `ib_user_verbs.h`, `ib_user_ioctl_verbs.h` |
//! | [`gid`], [`pd`], [`mr`], [`mw`], [`cq`], [`qp`] | `ib_user_verbs.h`, `ib_user_ioctl_verbs.h` |
//! | [`srq`], [`ah`], [`wq`], [`xrcd`], [`mcast`] | `ib_user_verbs.h`, `ib_user_ioctl_verbs.h` |
//! | [`event`], [`wc`], [`flow`], [`driver_id`] | `ib_user_verbs.h`, `ib_user_ioctl_verbs.h` |
//! | [`comp_cntr`] | `ib_user_ioctl_verbs.h` |
//! | [`mlx5`] | `mlx5-abi.h`, `mlx5_user_ioctl_cmds.h`, `mlx5_user_ioctl_verbs.h` |
//! | [`efa`] | `efa-abi.h` |
//! | [`efa::io`] | rdma-core's `providers/efa/efa_io_defs.h` |
//! | [`rxe`] | `rdma_user_rxe.h` |
//! | [`rvt`] | `rvt-abi.h` |
//! | [`siw`] | `siw-abi.h` |
//! | [`rdma_cm`] | `rdma_user_cm.h` |
//! | [`netlink`] | `rdma_netlink.h` |
//!
//! How C maps to Rust:
//!
//! - every struct is `repr(C)` and derives zerocopy's traits, which refuse padding: a hole that the
//!   C compiler leaves is a field `_pad0`, and bytes never leave uninitialised;
//! - a flexible array at the end (`driver_data[]`, `attrs[]`) is left off: it starts at the
//!   struct's size;
//! - an anonymous union is a field named after its first member, a named union an array of bytes
//!   with accessors.
//!
//! `tests/layout.rs` compares each offset, size and value with fixtures that gcc made from the
//! headers (`xtask/layouts/kernel_abi.py`, `efa.py`).
#![no_std]
#![forbid(unsafe_code)]

pub mod ah;
pub mod comp_cntr;
pub mod cq;
pub mod device;
pub mod driver_id;
pub mod efa;
pub mod event;
pub mod flow;
pub mod gid;
pub mod ioctl;
pub mod mcast;
pub mod mlx5;
pub mod mr;
pub mod mw;
pub mod netlink;
pub mod objects;
pub mod pd;
pub mod port;
pub mod qp;
pub mod rdma_cm;
mod rings;
pub mod srq;
mod union;
pub mod wc;
pub mod wq;
pub mod write;
pub mod xrcd;

pub use rings::{rvt, rxe, siw};
