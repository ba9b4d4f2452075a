//! Structs of `infiniband/verbs.h` under their C names, as in rdma-core 65. In rdma-core 44,
//! `verbs_context` lacks the functions that later releases put in front, and some structs lack
//! members at their end.
//!
//! Members of unknown type are addresses or bytes. An enumeration is `u32`. `cargo xtask layouts`
//! compares sizes and offsets with the header.
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

/// `union ibv_gid`, network byte order. Its 64-bit members make its alignment 8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct ibv_gid {
    pub raw: [u8; 16],
}

/// Room of a `pthread_mutex_t` in C's structs; unused by the library and by programs.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(8))]
pub struct Mutex {
    _room: [u64; 5],
}

/// Room of a `pthread_cond_t` in C's structs; unused by the library and by programs.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(8))]
pub struct Cond {
    _room: [u64; 6],
}
