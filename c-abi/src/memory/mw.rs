//! Memory windows.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. Memory stays registered while
//! a window is bound to it.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::attr::AccessFlags;
use uverbs_core::objects::mw::MwCore;
use uverbs_core::queues::work::{Rekey, WindowKind};

use crate::base::answer::{code, kept, null};
use crate::base::live::Kind;
use crate::device::context::Context;
use crate::memory::pd::Pd;
use crate::sys::{ibv_mr, ibv_mw, ibv_mw_bind_info, ibv_pd};

/// `IBV_MW_TYPE_1`, `IBV_MW_TYPE_2`.
const TYPE_1: u32 = 1;
const TYPE_2: u32 = 2;

#[repr(C)]
pub(crate) struct Mw {
    c: ibv_mw,
    core: MwCore,
}

pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, mw_type: u32) -> *mut ibv_mw {
    let kind = match mw_type {
        TYPE_1 => WindowKind::Type1,
        TYPE_2 => WindowKind::Type2,
        _ => return null(Errno::EINVAL),
    };
    // SAFETY: by C's contract.
    let of = unsafe { Pd::of(pd) };
    let made = MwCore::alloc(Arc::clone(of.core()), kind).map(|core| {
        let (rkey, handle) = (core.rkey(), core.handle());
        Box::new(Mw { c: ibv_mw { context: of.context_ptr(), pd, rkey, handle, mw_type }, core })
    });
    kept(of.context().left(), Kind::Window, made).cast()
}

pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: by C's contract.
    let done = unsafe { &mut *mw.cast::<Mw>() }.core.dealloc();
    if done.is_ok() {
        // SAFETY: the object was kept as a box of this type, and is destroyed.
        drop(unsafe { Context::of((*mw).context).left().take::<Mw>(Kind::Window, mw.cast()) });
    }
    code(done)
}

/// Converts a bind of `mw` to a work request; `new` is the window's next rkey.
///
/// # Safety
///
/// C's contract.
pub(crate) unsafe fn bind(mw: *const ibv_mw, new: u32, info: &ibv_mw_bind_info) -> Rekey {
    // SAFETY: by C's contract; the region may be null for no bytes.
    let (mw, lkey) = unsafe { (&*mw, info.mr.as_ref().map_or(0, |mr: &ibv_mr| mr.lkey)) };
    Rekey::Bind {
        kind: if mw.mw_type == TYPE_1 { WindowKind::Type1 } else { WindowKind::Type2 },
        old: mw.rkey,
        new,
        lkey,
        addr: info.addr,
        len: info.length,
        access: AccessFlags::from_bits_retain(info.mw_access_flags),
    }
}
