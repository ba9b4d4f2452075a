//! XRC domains.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. This object owns the kernel's
//! handle.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::attr::XrcFile;
use uverbs_core::objects::xrcd::XrcdCore;

use crate::base::answer::{code, kept, null};
use crate::base::live::Kind;
use crate::device::context::Context;
use crate::sys::{ibv_context, ibv_xrcd, ibv_xrcd_init_attr};

/// `IBV_XRCD_INIT_ATTR_FD` and `IBV_XRCD_INIT_ATTR_OFLAGS`: both are required.
pub(crate) const ATTR_BOTH: u32 = 1 | 2;

#[repr(C)]
pub(crate) struct Xrcd {
    c: ibv_xrcd,
    core: Arc<XrcdCore>,
}

impl Xrcd {
    /// # Safety
    ///
    /// C's contract.
    pub(crate) unsafe fn of<'a>(xrcd: *const ibv_xrcd) -> &'a Self {
        // SAFETY: by C's contract; C's struct is the first member of this object.
        unsafe { &*xrcd.cast() }
    }

    pub(crate) fn core(&self) -> &Arc<XrcdCore> {
        &self.core
    }

    pub(crate) fn context_ptr(&self) -> *mut ibv_context {
        self.c.context
    }

    pub(crate) fn context(&self) -> &Context {
        // SAFETY: by C's contract; the device is open while its XRC domain is in use.
        unsafe { Context::of(self.c.context) }
    }
}

pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attr: *const ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    // SAFETY: by C's contract.
    let (of, attr) = unsafe { (Context::of(context), &*attr) };
    if attr.comp_mask & !ATTR_BOTH != 0 {
        return null(Errno::EOPNOTSUPP);
    }
    if attr.comp_mask != ATTR_BOTH {
        return null(Errno::EINVAL);
    }
    let which = match attr.oflags & (libc::O_CREAT | libc::O_EXCL) {
        0 | libc::O_EXCL => XrcFile::Existing,
        libc::O_CREAT => XrcFile::OrNew,
        _ => XrcFile::New,
    };
    // SAFETY: C's contract: -1, or a file that is open for this call.
    let file = (attr.fd != -1).then(|| unsafe { BorrowedFd::borrow_raw(attr.fd) });
    let core = of.core();
    let made = core.uverbs().open_xrcd(file, which).map(|handle| {
        // SAFETY: the kernel just returned the handle, which is unknown to other threads.
        let core = unsafe { XrcdCore::new(Arc::clone(core), handle) };
        Box::new(Xrcd { c: ibv_xrcd { context }, core })
    });
    kept(of.left(), Kind::Xrcd, made).cast()
}

pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    // SAFETY: by C's contract; nothing is made in it afterwards.
    let of = unsafe { Xrcd::of(xrcd) };
    let done = of.core.close();
    if done.is_ok() {
        // SAFETY: the object was kept as a box of this type, and is destroyed.
        drop(unsafe { of.context().left().take::<Xrcd>(Kind::Xrcd, xrcd.cast()) });
    }
    code(done)
}
