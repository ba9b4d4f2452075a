//! Memory regions.
//!
//! # Safety
//!
//! The program registers its own memory, and keeps it: C's contract.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::attr::AccessFlags;
use uverbs_core::commands::mr::MrMemory;
use uverbs_core::error::Error;
use uverbs_core::objects::mr::MrCore;

use crate::answer::{boxed, code, set_errno};
use crate::pd::Pd;
use crate::sys::{ibv_mr, ibv_pd};

/// `IBV_REREG_MR_CHANGE_*`.
const CHANGE_TRANSLATION: c_int = 1;
const CHANGE_PD: c_int = 2;
const CHANGE_ACCESS: c_int = 4;
/// `IBV_REREG_MR_ERR_INPUT` and `IBV_REREG_MR_ERR_CMD`.
const ERR_INPUT: c_int = -1;
const ERR_CMD: c_int = -4;

#[repr(C)]
struct Mr {
    c: ibv_mr,
    core: MrCore,
}

/// # Safety
///
/// C's contract.
unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> Result<Box<Mr>, Error> {
    // SAFETY: C's contract.
    let of = unsafe { Pd::of(pd) };
    let (uverbs, access) = (of.context().core().uverbs(), AccessFlags::from_bits_retain(access));
    let start = addr.expose_provenance() as u64;
    // SAFETY: the memory is the program's promise.
    let keys = unsafe { uverbs.reg_mr(of.core().handle(), start, length as u64, iova, access) }?;
    // SAFETY: just made in this domain, and this is its only owner.
    let core = unsafe { MrCore::new(Arc::clone(of.core()), keys.handle, keys.lkey, keys.rkey) };
    let (handle, lkey, rkey) = (keys.handle, keys.lkey, keys.rkey);
    let c = ibv_mr { context: of.context_ptr(), pd, addr, length, handle, lkey, rkey };
    Ok(Box::new(Mr { c, core }))
}

pub(crate) unsafe extern "C" fn reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: u32,
) -> *mut ibv_mr {
    // SAFETY: C's contract.
    boxed(unsafe { register(pd, addr, length, addr.expose_provenance() as u64, access) }).cast()
}

pub(crate) unsafe extern "C" fn reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> *mut ibv_mr {
    // SAFETY: C's contract.
    boxed(unsafe { register(pd, addr, length, iova, access) }).cast()
}

pub(crate) unsafe extern "C" fn rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let translation = flags & CHANGE_TRANSLATION != 0;
    let known = CHANGE_TRANSLATION | CHANGE_PD | CHANGE_ACCESS;
    if flags & !known != 0
        || translation && (length == 0 || addr.is_null())
        || access != 0 && flags & CHANGE_ACCESS == 0
    {
        set_errno(Errno::EINVAL);
        return ERR_INPUT;
    }
    // SAFETY: C's contract.
    let mr = unsafe { &mut *mr.cast::<Mr>() };
    let start = addr.expose_provenance() as u64;
    let memory = translation.then_some(MrMemory { addr: start, len: length as u64, iova: start });
    // SAFETY: C's contract: with this flag it is a domain.
    let to = (flags & CHANGE_PD != 0).then(|| Arc::clone(unsafe { Pd::of(pd) }.core()));
    let access =
        (flags & CHANGE_ACCESS != 0).then_some(AccessFlags::from_bits_retain(access as u32));
    // SAFETY: the memory is the program's promise.
    if let Err(error) = unsafe { mr.core.reregister(memory, to, access) } {
        set_errno(error.to_errno());
        return ERR_CMD;
    }
    (mr.c.lkey, mr.c.rkey) = (mr.core.lkey(), mr.core.rkey());
    if flags & CHANGE_PD != 0 {
        mr.c.pd = pd;
    }
    if translation {
        (mr.c.addr, mr.c.length) = (addr, length);
    }
    0
}

pub(crate) unsafe extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: C's contract.
    let done = unsafe { &mut *mr.cast::<Mr>() }.core.deregister();
    if done.is_ok() {
        // SAFETY: it was made as this box, and is gone.
        drop(unsafe { Box::<Mr>::from_raw(mr.cast()) });
    }
    code(done)
}
