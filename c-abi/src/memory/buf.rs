//! Buffers that the library allocates for a protection domain: `ibv_alloc_buf`, `ibv_free_buf`.
//! They are ordinary memory; they would be dma-bufs if programs must not know their address.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. A buffer is freed once, after
//! the regions over it.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{c_int, c_void};

use uverbs_core::Errno;
use uverbs_core::memory::pages::page_size;

use crate::base::answer::{minus_one, null};
use crate::memory::mr_ex::{MrInit, reg_mr_ex};
use crate::sys::{ibv_mr, ibv_pd};

/// `struct ibv_buf`, opaque to programs.
#[derive(Debug)]
pub(crate) struct Buf {
    pd: *mut ibv_pd,
    addr: *mut u8,
    layout: Layout,
}

impl Buf {
    /// Returns true if the bytes lie in the buffer, which was allocated for `pd`.
    pub(crate) fn has(&self, pd: *mut ibv_pd, addr: *mut c_void, length: usize) -> bool {
        let offset = addr.addr().checked_sub(self.addr.addr());
        let end = offset.and_then(|offset| offset.checked_add(length));
        pd == self.pd && end.is_some_and(|end| end <= self.layout.size())
    }
}

/// Allocates whole pages, as rdma-core's `dummy_ops.c:alloc_buf`. The program owns the buffer until
/// it frees it, even after closing the device.
pub(crate) unsafe extern "C" fn alloc_buf(
    pd: *mut ibv_pd,
    size: usize,
    buf: *mut *mut Buf,
) -> *mut c_void {
    let layout = match Layout::from_size_align(size, page_size()) {
        Ok(layout) if size != 0 => layout,
        Ok(_) => return null(Errno::EINVAL),
        Err(_) => return null(Errno::ENOMEM),
    };
    // SAFETY: the layout's size is not 0.
    let addr = unsafe { alloc_zeroed(layout) };
    if addr.is_null() {
        return null(Errno::ENOMEM);
    }
    // SAFETY: by C's contract.
    unsafe { buf.write(Box::into_raw(Box::new(Buf { pd, addr, layout }))) };
    addr.cast()
}

pub(crate) unsafe extern "C" fn free_buf(buf: *mut Buf) {
    // SAFETY: C's contract: the object was kept as a box of this type.
    let Buf { addr, layout, .. } = *unsafe { Box::from_raw(buf) };
    // SAFETY: allocated with this layout, and no region is over it.
    unsafe { dealloc(addr, layout) };
}

/// Ordinary memory cannot be exported as a dma-buf.
pub(crate) unsafe extern "C" fn export_buf_dmabuf_fd(_: *mut Buf) -> c_int {
    minus_one(Errno::ENODATA)
}

pub(crate) unsafe extern "C" fn reg_buf_mr(
    pd: *mut ibv_pd,
    buf: *const Buf,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: by C's contract.
    unsafe { reg_mr_ex(pd, &MrInit::of_buf(buf, addr, length, access)) }
}
