//! Indirect mkeys, and the work requests that lay them out: `mlx5dv_create_mkey`,
//! `mlx5dv_wr_mr_list`, `mlx5dv_wr_mkey_configure` and its setters (rdma-core
//! `providers/mlx5/qp.c`, `mlx5_send_wr_mkey_configure` and the functions after it).
//!
//! # Safety
//!
//! By C's contract (crate root), posts are made between `wr_start` and `wr_complete` or `wr_abort`
//! by one thread, and the memory that they name stays registered.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;

use uverbs_core::Errno;
use uverbs_core::attr::AccessFlags;
use uverbs_core::objects::mw::MwCore;
use uverbs_core::provider::ContextOps;
use uverbs_core::queues::layout::{Block, KeyParts};
use uverbs_core::queues::work::{Sge, Wr};

use crate::base::answer::{code, kept, null};
use crate::base::live::Kind;
use crate::memory::pd::Pd;
use crate::sys::ibv_pd;

/// Accepted flags: `MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT` and `_REMOTE_INVALIDATE`. Every mkey is
/// both.
const FLAGS: u32 = 1 | 1 << 4;

/// `struct mlx5dv_mkey_init_attr`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct MkeyInit {
    pd: *mut ibv_pd,
    create_flags: u32,
    max_entries: u16,
}

/// `struct mlx5dv_mkey`, followed by our members.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Mkey {
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) core: MwCore,
    /// Maximum entries of a layout.
    pub(crate) room: u32,
}

pub(crate) unsafe extern "C" fn create_mkey(attr: *mut MkeyInit) -> *mut Mkey {
    // SAFETY: C's contract.
    let attr = unsafe { &*attr };
    if attr.create_flags == 0 || attr.create_flags & !FLAGS != 0 {
        return null(Errno::EOPNOTSUPP);
    }
    let pd = attr.pd;
    // SAFETY: C's contract.
    let of = unsafe { Pd::of(pd) };
    let made = of.context().ops().alloc_indirect(of.core(), attr.max_entries.into());
    let made = made.map(|(core, room)| {
        // The lowest byte is 0, as in C's provider (`verbs.c:_mlx5dv_create_mkey`). The first
        // layout sets it; the key is unusable before.
        let key = core.rkey() & !0xff;
        Box::new(Mkey { lkey: key, rkey: key, pd, core, room })
    });
    kept(of.context().left(), Kind::Window, made)
}

pub(crate) unsafe extern "C" fn destroy_mkey(mkey: *mut Mkey) -> c_int {
    // SAFETY: C's contract.
    let all = unsafe { &mut *mkey };
    let (pd, done) = (all.pd, all.core.dealloc());
    if done.is_ok() {
        // SAFETY: the kernel does not destroy a domain before its mkeys.
        let left = unsafe { Pd::of(pd) }.context().left();
        // SAFETY: the object was kept as a box of this type, and is destroyed.
        drop(unsafe { left.take::<Mkey>(Kind::Window, mkey) });
    }
    code(done)
}

/// `struct mlx5dv_mr_interleaved`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Interleaved {
    pub(crate) addr: u64,
    pub(crate) bytes_count: u32,
    pub(crate) bytes_skip: u32,
    pub(crate) lkey: u32,
}

/// `struct mlx5dv_mkey_conf_attr`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Configuration {
    pub(crate) conf_flags: u32,
    pub(crate) comp_mask: u64,
}

/// Layout of an mkey that is being built.
#[derive(Debug)]
pub(crate) struct Building {
    /// The mkey, and the maximum entries of its layout.
    pub(crate) key: (u32, u32),
    pub(crate) wr: Wr,
    /// Missing calls of setters.
    pub(crate) left: u8,
    pub(crate) access: Option<AccessFlags>,
    pub(crate) parts: Option<Parts>,
}

/// Entries of a layout that is being built.
#[derive(Debug)]
pub(crate) enum Parts {
    List(Vec<Sge>),
    Interleaved(u32, Vec<Block>),
}

impl Parts {
    pub(crate) fn borrowed(&self) -> KeyParts<'_> {
        match self {
            Self::List(list) => KeyParts::List(list),
            Self::Interleaved(rounds, blocks) => KeyParts::Interleaved { rounds: *rounds, blocks },
        }
    }
}
