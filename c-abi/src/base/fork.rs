//! Fork and registered memory.
//!
//! Since Linux 5.12 a fork copies pinned pages, and the parent keeps the originals, so no
//! preparation is needed. On older kernels C's library marks each region (`madvise`); this library
//! does not.
//!
//! # Safety
//!
//! `uname` fills in a local struct.
#![allow(unsafe_code, reason = "functions of C")]

use std::ffi::{CStr, c_int, c_void};

use uverbs_core::Errno;

/// `IBV_FORK_DISABLED`, `IBV_FORK_UNNEEDED`.
const DISABLED: c_int = 0;
const UNNEEDED: c_int = 2;

/// Returns true if the kernel copies pinned pages on a fork.
fn kernel_copies() -> bool {
    let mut name = std::mem::MaybeUninit::<libc::utsname>::uninit();
    // SAFETY: the call fills the struct with C strings if it succeeds.
    let release = unsafe {
        if libc::uname(name.as_mut_ptr()) != 0 {
            return false;
        }
        CStr::from_ptr((*name.as_ptr()).release.as_ptr()).to_string_lossy().into_owned()
    };
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (5, 12),
        _ => false,
    }
}

pub(crate) unsafe extern "C" fn fork_init() -> c_int {
    if kernel_copies() { 0 } else { Errno::ENOSYS.raw() }
}

pub(crate) unsafe extern "C" fn is_fork_initialized() -> c_int {
    if kernel_copies() { UNNEEDED } else { DISABLED }
}

/// Function that C's providers call before registration: no-op.
pub(crate) unsafe extern "C" fn fork_range(_: *mut c_void, _: usize) -> c_int {
    0
}
