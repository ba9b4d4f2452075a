//! Memory regions.
//!
//! # Safety
//!
//! By C's contract (crate root), the program keeps the memory that it registers mapped until it
//! deregisters it.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::attr::AccessFlags;
use uverbs_core::commands::mr::{MrKeys, MrMemory, RegDmabuf};
use uverbs_core::error::Error;
use uverbs_core::objects::mr::MrCore;
use uverbs_core::provider::ContextOps;
use uverbs_kernel_abi::wc::ib_uverbs_sge;

use crate::base::answer::{code, kept, null, set_errno};
use crate::base::live::Kind;
use crate::device::context::Context;
use crate::memory::dm::Dm;
use crate::memory::pd::Pd;
use crate::post::request::copied;
use crate::sys::{ibv_dm, ibv_mr, ibv_pd, ibv_sge};

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
    /// `None`: the null region, or an imported one.
    core: Option<MrCore>,
    imported: bool,
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
) -> *mut ibv_mr {
    // SAFETY: by C's contract.
    let of = unsafe { Pd::of(pd) };
    let (uverbs, access) = (of.context().core().uverbs(), AccessFlags::from_bits_retain(access));
    let start = addr.expose_provenance() as u64;
    // SAFETY: by C's contract; the program keeps the memory mapped while it is registered.
    let keys = unsafe { uverbs.reg_mr(of.core().handle(), start, length as u64, iova, access) };
    // SAFETY: the region was just created in this domain, and this is its only owner.
    unsafe { give(of, keys, (pd, addr, length)) }
}

/// Gives a new region to C, with its struct filled in.
///
/// # Safety
///
/// The region was created in this domain and has no other owner.
unsafe fn give(
    of: &Pd,
    keys: Result<MrKeys, Error>,
    (pd, addr, length): (*mut ibv_pd, *mut c_void, usize),
) -> *mut ibv_mr {
    let made = keys.map(|MrKeys { handle, lkey, rkey }| {
        // SAFETY: by the contract of `give`.
        let core = unsafe { MrCore::new(Arc::clone(of.core()), handle, lkey, rkey) };
        let c = ibv_mr { context: of.context_ptr(), pd, addr, length, handle, lkey, rkey };
        Box::new(Mr { c, core: Some(core), imported: false })
    });
    kept(of.context().left(), Kind::Mr, made).cast()
}

pub(crate) unsafe extern "C" fn reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: u32,
) -> *mut ibv_mr {
    // SAFETY: by C's contract.
    unsafe { register(pd, addr, length, addr.expose_provenance() as u64, access) }
}

pub(crate) unsafe extern "C" fn reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> *mut ibv_mr {
    // SAFETY: by C's contract.
    unsafe { register(pd, addr, length, iova, access) }
}

pub(crate) unsafe extern "C" fn reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: by C's contract.
    unsafe { dmabuf(pd, (offset, length, iova), fd, access, None) }
}

/// `mlx5dv_reg_dmabuf_mr`.
pub(crate) unsafe extern "C" fn reg_driver_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
    driver_access: c_int,
) -> *mut ibv_mr {
    // SAFETY: by C's contract.
    if unsafe { Pd::of(pd) }.context().mlx5().is_none() {
        return null(Errno::EOPNOTSUPP);
    }
    let driver = Some((uverbs_mlx5::DATA_DIRECT.0, driver_access as u32));
    // SAFETY: by C's contract.
    unsafe { dmabuf(pd, (offset, length, iova), fd, access, driver) }
}

/// Registers a dma-buf.
///
/// # Safety
///
/// C's contract.
unsafe fn dmabuf(
    pd: *mut ibv_pd,
    (offset, length, iova): (u64, usize, u64),
    fd: c_int,
    access: c_int,
    driver: Option<(u16, u32)>,
) -> *mut ibv_mr {
    if fd < 0 {
        return null(Errno::EBADF);
    }
    // SAFETY: C's contract: an open file.
    let (of, buffer) = unsafe { (Pd::of(pd), BorrowedFd::borrow_raw(fd)) };
    let access = AccessFlags::from_bits_retain(access as u32);
    let len = length as u64;
    let attr = RegDmabuf { buffer, offset, len, iova, access, driver };
    let keys = of.context().core().uverbs().reg_dmabuf_mr(of.core().handle(), &attr);
    let addr = with_exposed_provenance_mut(offset as usize);
    // SAFETY: the region was just created in this domain, and this is its only owner.
    unsafe { give(of, keys, (pd, addr, length)) }
}

/// Access rights of device memory; optional rights are accepted, too.
const DM_ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC)
    .union(AccessFlags::from_bits_retain(ZERO_BASED | OPTIONAL));
/// `IBV_ACCESS_ZERO_BASED`, `IBV_ACCESS_OPTIONAL_RANGE`.
const ZERO_BASED: u32 = 1 << 5;
const OPTIONAL: u32 = 0x3ff0_0000;

pub(crate) unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
    access: u32,
) -> *mut ibv_mr {
    let access = AccessFlags::from_bits_retain(access);
    if !DM_ACCESS.contains(access) {
        return null(Errno::EINVAL);
    }
    // SAFETY: by C's contract.
    let (of, memory) = unsafe { (Pd::of(pd), Dm::core(dm)) };
    let (uverbs, length64) = (of.context().core().uverbs(), length as u64);
    let keys = uverbs.reg_dm_mr(of.core().handle(), memory.handle(), offset, length64, access);
    // SAFETY: the region was just created in this domain, and this is its only owner.
    unsafe { give(of, keys, (pd, null_mut(), length)) }
}

/// Returns the null region, which the device has: no command is sent.
pub(crate) unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    // SAFETY: by C's contract.
    let of = unsafe { Pd::of(pd) };
    let Some(lkey) = of.context().ops().null_lkey() else { return null(Errno::EOPNOTSUPP) };
    let context = of.context_ptr();
    let (addr, length) = (null_mut(), usize::MAX);
    let c = ibv_mr { context, pd, addr, length, handle: 0, lkey, rkey: 0 };
    let mr = Box::new(Mr { c, core: None, imported: false });
    of.context().left().give(Kind::Mr, mr).cast()
}

/// Imports a region by its handle. Dropping the object leaves it registered.
pub(crate) unsafe extern "C" fn import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
    // SAFETY: by C's contract.
    let of = unsafe { Pd::of(pd) };
    let found = of.context().core().uverbs().query_mr(handle).map(|found| {
        let (context, keys) = (of.context_ptr(), found.keys);
        let (addr, length) = (null_mut(), found.len as usize);
        let c = ibv_mr { context, pd, addr, length, handle, lkey: keys.lkey, rkey: keys.rkey };
        Box::new(Mr { c, core: None, imported: true })
    });
    kept(of.context().left(), Kind::Mr, found).cast()
}

pub(crate) unsafe extern "C" fn unimport_mr(mr: *mut ibv_mr) {
    // SAFETY: C's contract: the region was imported.
    drop(unsafe { Context::of((*mr).context).left().take::<Mr>(Kind::Mr, mr.cast()) });
}

pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: u32,
    flags: u32,
    list: *const ibv_sge,
    count: u32,
) -> c_int {
    // SAFETY: by C's contract.
    let (of, list) = unsafe { (Pd::of(pd), copied(list, count)) };
    let list: Vec<_> = list
        .iter()
        .map(|sge| ib_uverbs_sge { addr: sge.addr, length: sge.len, lkey: sge.lkey })
        .collect();
    let uverbs = of.context().core().uverbs();
    code(uverbs.advise_mr(of.core().handle(), advice, flags, &list))
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
    // SAFETY: by C's contract.
    let mr = unsafe { &mut *mr.cast::<Mr>() };
    let start = addr.expose_provenance() as u64;
    let memory = translation.then_some(MrMemory { addr: start, len: length as u64, iova: start });
    // SAFETY: C's contract: with this flag it is a domain.
    let to = (flags & CHANGE_PD != 0).then(|| Arc::clone(unsafe { Pd::of(pd) }.core()));
    let access =
        (flags & CHANGE_ACCESS != 0).then_some(AccessFlags::from_bits_retain(access as u32));
    let Some(core) = &mut mr.core else {
        set_errno(Errno::EINVAL);
        return ERR_INPUT;
    };
    // SAFETY: by C's contract; the program keeps the memory mapped while it is registered.
    if let Err(error) = unsafe { core.reregister(memory, to, access) } {
        set_errno(error.to_errno());
        return ERR_CMD;
    }
    (mr.c.lkey, mr.c.rkey) = (core.lkey(), core.rkey());
    if flags & CHANGE_PD != 0 {
        mr.c.pd = pd;
    }
    if translation {
        (mr.c.addr, mr.c.length) = (addr, length);
    }
    0
}

pub(crate) unsafe extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: by C's contract.
    let Mr { c, core, imported } = unsafe { &mut *mr.cast::<Mr>() };
    let done = match core {
        Some(core) => core.deregister(),
        // SAFETY: C's contract: programs that share a region agree on which of them deregisters it.
        None if *imported => unsafe { Context::of(c.context).core().uverbs().dereg_mr(c.handle) },
        None => Ok(()),
    };
    if done.is_ok() {
        // SAFETY: the object was kept as a box of this type, and is destroyed.
        drop(unsafe { Context::of((*mr).context).left().take::<Mr>(Kind::Mr, mr.cast()) });
    }
    code(done)
}
