//! The device's own memory.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};
use std::os::fd::IntoRawFd;
use std::ptr::NonNull;
use std::slice;

use uverbs_core::Errno;
use uverbs_core::error::Error;
use uverbs_core::objects::dm::DmCore;
use uverbs_core::objects::dm_operation::DmOp;
use uverbs_core::provider::ContextOps;

use crate::base::answer::{code, kept, minus_one, null, refuse};
use crate::base::live::Kind;
use crate::device::context::Context;
use crate::post::request::memory;
use crate::sys::{ibv_alloc_dm_attr, ibv_context, ibv_dm};

#[repr(C)]
pub(crate) struct Dm {
    c: ibv_dm,
    core: DmCore,
}

impl Dm {
    /// # Safety
    ///
    /// C's contract.
    pub(crate) unsafe fn core<'a>(dm: *const ibv_dm) -> &'a DmCore {
        // SAFETY: by C's contract; C's struct is the first member of this object.
        &unsafe { &*dm.cast::<Self>() }.core
    }
}

pub(crate) unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *const ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    // SAFETY: by C's contract.
    let (of, attr) = unsafe { (Context::of(context), &*attr) };
    if attr.comp_mask != 0 {
        return null(Errno::EINVAL);
    }
    let made = of.ops().alloc_dm(attr.length, attr.log_align_req);
    kept(of.left(), Kind::Memory, made.map(|core| whole(context, core))).cast()
}

fn whole(context: *mut ibv_context, core: DmCore) -> Box<Dm> {
    let c = ibv_dm {
        context,
        memcpy_to_dm: Some(copy_to),
        memcpy_from_dm: Some(copy_from),
        comp_mask: 0,
        handle: core.handle(),
    };
    Box::new(Dm { c, core })
}

/// Imports device memory by its handle. Dropping the object leaves the memory allocated.
pub(crate) unsafe extern "C" fn import_dm(context: *mut ibv_context, handle: u32) -> *mut ibv_dm {
    // SAFETY: by C's contract.
    let of = unsafe { Context::of(context) };
    // SAFETY: by C's contract; the creator shares the memory with this program.
    let made = unsafe { of.ops().import_dm(handle) };
    kept(of.left(), Kind::Memory, made.map(|core| whole(context, core))).cast()
}

pub(crate) unsafe extern "C" fn unimport_dm(dm: *mut ibv_dm) {
    // SAFETY: C's contract: the memory was imported.
    drop(unsafe { Context::of((*dm).context).left().take::<Dm>(Kind::Memory, dm.cast()) });
}

pub(crate) unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    // SAFETY: by C's contract.
    let done = unsafe { &mut *dm.cast::<Dm>() }.core.free();
    if done.is_ok() {
        // SAFETY: the object was kept as a box of this type, and is destroyed.
        drop(unsafe { Context::of((*dm).context).left().take::<Dm>(Kind::Memory, dm.cast()) });
    }
    code(done)
}

pub(crate) unsafe extern "C" fn export_dmabuf_fd(dm: *const ibv_dm) -> c_int {
    // SAFETY: by C's contract.
    match unsafe { Dm::core(dm) }.export_dmabuf() {
        Ok(file) => file.into_raw_fd(),
        Err(error) => minus_one(error.to_errno()),
    }
}

/// Maps the address of an operation. The program unmaps it (munmap(2)).
pub(crate) unsafe extern "C" fn map_op_addr(dm: *const ibv_dm, op: u8) -> *mut c_void {
    // SAFETY: by C's contract.
    let (of, core) = unsafe { (Context::of((*dm).context), Dm::core(dm)) };
    if of.mlx5().is_none() {
        return null(Errno::EOPNOTSUPP);
    }
    match uverbs_mlx5::operation_pages(core, DmOp::from_raw(op)) {
        Ok((start, pages)) => {
            let at = pages.as_mut_ptr().wrapping_add(start).cast();
            std::mem::forget(pages);
            at
        }
        Err(error) => null(error.to_errno()),
    }
}

/// C's error numbers: out of range, and not a multiple of words.
fn copied(result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(Error::OutOfRange(_)) => refuse(Errno::EFAULT),
        Err(_) => refuse(Errno::EINVAL),
    }
}

unsafe extern "C" fn copy_to(
    dm: *mut ibv_dm,
    offset: u64,
    from: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: by C's contract.
    copied(unsafe { Dm::core(dm).write(offset as usize, memory(from.cast(), length)) })
}

unsafe extern "C" fn copy_from(
    to: *mut c_void,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
) -> c_int {
    // The pointer may be null for 0 bytes.
    let to = if length == 0 { NonNull::dangling().as_ptr() } else { to };
    // SAFETY: by C's contract.
    copied(unsafe {
        Dm::core(dm).read(offset as usize, slice::from_raw_parts_mut(to.cast(), length))
    })
}
