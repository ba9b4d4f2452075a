//! `libuverbs_nodes.so`: preloaded (`LD_PRELOAD`), it answers a program that asks whether a
//! software HCA has a node in `/dev/infiniband`.
//!
//! UCX takes a device of libibverbs only if `/dev/infiniband/` and the device's `dev_name` is a
//! character device that it may read and write (`uct_ib_device_is_accessible`). A device in the
//! program itself has no node. For its path `stat` and `access` answer what they say of
//! `/dev/null`, which is such a character device. All other paths, and all other calls, are libc's:
//! the node can't be opened.
//!
//! # Safety
//!
//! The functions have the C signatures of those that they hide. They pass the program's arguments
//! on, to functions of libc that do the same at a path relative to a folder.
#![allow(unsafe_code, reason = "takes the place of C functions")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a call's arguments are the program's")]

use std::ffi::{CStr, c_char, c_int};

use libc::AT_FDCWD;

/// Prefix of the paths that are answered: names of software HCAs begin with `softhca`.
const NODES: &[u8] = b"/dev/infiniband/softhca";
/// Device whose `stat` and `access` results stand for a node's.
const LIKE: &CStr = c"/dev/null";

/// Returns the path to ask libc about: [`LIKE`] for a software HCA's node, else `asked`.
///
/// # Safety
///
/// `asked` is a C string or null, as for libc's functions.
unsafe fn path(asked: *const c_char) -> *const c_char {
    // SAFETY: by the contract of `path`.
    if !asked.is_null() && unsafe { CStr::from_ptr(asked) }.to_bytes().starts_with(NODES) {
        return LIKE.as_ptr();
    }
    asked
}

#[unsafe(no_mangle)]
unsafe extern "C" fn access(asked: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the arguments are the caller's, by libc's contract.
    unsafe { libc::faccessat(AT_FDCWD, path(asked), mode, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn stat(asked: *const c_char, to: *mut libc::stat) -> c_int {
    // SAFETY: the arguments are the caller's, by libc's contract.
    unsafe { libc::fstatat(AT_FDCWD, path(asked), to, 0) }
}

/// `stat64`, whose struct is `struct stat` on 64-bit machines.
#[unsafe(no_mangle)]
unsafe extern "C" fn stat64(asked: *const c_char, to: *mut libc::stat64) -> c_int {
    // SAFETY: the arguments are the caller's, by libc's contract.
    unsafe { libc::fstatat64(AT_FDCWD, path(asked), to, 0) }
}

/// `stat` of programs that were built with glibc before 2.33. The version of the struct is 0 or 1,
/// and the struct the same.
#[unsafe(no_mangle)]
unsafe extern "C" fn __xstat(_version: c_int, asked: *const c_char, to: *mut libc::stat) -> c_int {
    // SAFETY: the arguments are the caller's, by libc's contract.
    unsafe { stat(asked, to) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __xstat64(_: c_int, asked: *const c_char, to: *mut libc::stat64) -> c_int {
    // SAFETY: the arguments are the caller's, by libc's contract.
    unsafe { stat64(asked, to) }
}
