//! The structs of `infiniband/verbs.h`, with its names, as rdma-core 65 has them. Those of 44 are
//! the same but for what was added in front of `verbs_context` and behind some others.
//!
//! Members of which nothing here knows the type are addresses or bytes. An enumeration is `u32`.
//! `cargo xtask layouts` compares sizes and offsets with the header.
#![allow(non_camel_case_types, reason = "C's names")]
#![allow(missing_docs, reason = "the header's members; its own documentation is verbs(7)")]

mod attr;
mod device;
mod objects;
mod packet;
mod work;

pub use attr::*;
pub use device::*;
pub use objects::*;
pub use packet::*;
pub use work::*;

/// `union ibv_gid`: network order. Its members of 64 bits make it aligned to 8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct ibv_gid {
    pub raw: [u8; 16],
}

/// `pthread_mutex_t` as it stands in C's structs: room, which nothing here or in programs uses.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(8))]
pub struct Mutex {
    _room: [u64; 5],
}

/// The same of `pthread_cond_t`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(8))]
pub struct Cond {
    _room: [u64; 6],
}
