//! Exported functions that are unsupported: each returns `EOPNOTSUPP` in the form of its result.
#![allow(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_void};

use uverbs_core::Errno;

use crate::base::answer::{minus_one, null, refuse};

/// Stub of a function that returns a pointer.
pub(crate) unsafe extern "C" fn no_object() -> *mut c_void {
    null(Errno::EOPNOTSUPP)
}

/// Stub of a function that returns an error number.
pub(crate) unsafe extern "C" fn not_supported() -> c_int {
    refuse(Errno::EOPNOTSUPP)
}

/// Stub of a function that returns -1 on failure.
pub(crate) unsafe extern "C" fn no_number() -> c_int {
    minus_one(Errno::EOPNOTSUPP)
}

/// Stub of a function without a result.
pub(crate) unsafe extern "C" fn nothing() {}
