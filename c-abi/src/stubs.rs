//! What is exported and isn't implemented: each answers `EOPNOTSUPP` in the way of its kind.
#![allow(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_void};

use uverbs_core::Errno;

use crate::answer::{minus_one, null, refuse};

/// Of a function that gives a pointer.
pub(crate) unsafe extern "C" fn no_object() -> *mut c_void {
    null(Errno::EOPNOTSUPP)
}

/// Of a function that gives an errno.
pub(crate) unsafe extern "C" fn not_supported() -> c_int {
    refuse(Errno::EOPNOTSUPP)
}

/// Of a function that gives -1, or something that isn't negative.
pub(crate) unsafe extern "C" fn no_number() -> c_int {
    minus_one(Errno::EOPNOTSUPP)
}

/// Of a function that gives nothing.
pub(crate) unsafe extern "C" fn nothing() {}
