//! Socket addresses of C programs.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;

use libc::{AF_INET, AF_INET6, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};
use uverbs_core::commands::cm::SockAddr;
use uverbs_core::error::Error;

use super::invalid;

/// Converts a C address to the commands' form; its family gives its length.
///
/// # Errors
///
/// `EINVAL` for null or an unknown family, as C's library refuses an address without a length
/// (`ucma_addrlen`).
///
/// # Safety
///
/// C's contract; `addr` may be null.
pub(crate) unsafe fn address(addr: *const sockaddr) -> Result<SockAddr, Error> {
    // SAFETY: by C's contract.
    let Some(family) = (unsafe { addr.as_ref() }).map(|addr| c_int::from(addr.sa_family)) else {
        return Err(invalid("rdma_bind_addr"));
    };
    let len = length(family).ok_or_else(|| invalid("rdma_bind_addr"))?;
    // SAFETY: C's contract: an address of this family.
    let bytes = unsafe { std::slice::from_raw_parts(addr.cast::<u8>(), len) };
    Ok(SockAddr::new(bytes).unwrap_or(SockAddr::NONE))
}

/// Bytes of an address of this family; `None` if unknown.
pub(crate) fn length(family: c_int) -> Option<usize> {
    match family {
        AF_INET => Some(size_of::<sockaddr_in>()),
        AF_INET6 => Some(size_of::<sockaddr_in6>()),
        _ => None,
    }
}

/// Copies an address into C's struct.
pub(crate) fn put(to: &mut sockaddr_storage, bytes: &[u8]) {
    let len = bytes.len().min(size_of::<sockaddr_storage>());
    // SAFETY: the storage has room for the bytes, and any bytes are an address.
    unsafe {
        (&raw mut *to).cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), len);
    }
}

/// Port of an address, network byte order.
pub(crate) fn port(addr: &sockaddr_storage) -> u16 {
    let at: *const sockaddr_storage = addr;
    // SAFETY: the storage has room for either kind.
    unsafe {
        match c_int::from(addr.ss_family) {
            AF_INET => (*at.cast::<sockaddr_in>()).sin_port,
            AF_INET6 => (*at.cast::<sockaddr_in6>()).sin6_port,
            _ => 0,
        }
    }
}
