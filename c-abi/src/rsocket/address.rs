//! Socket addresses: C's `sockaddr` and Rust's `SocketAddr`.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. An address has as many bytes
//! as its length says. A buffer for an address has as many bytes as `*len`.
#![allow(unsafe_code, reason = "pointers of C")]

use std::ffi::c_int;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use libc::{AF_INET, AF_INET6, sockaddr, socklen_t};
use uverbs_core::Errno;

/// Reads a C address.
///
/// # Errors
///
/// `EINVAL` for a null or truncated address, `EAFNOSUPPORT` for another family.
///
/// # Safety
///
/// C's contract.
pub(super) unsafe fn read(addr: *const sockaddr, len: socklen_t) -> Result<SocketAddr, Errno> {
    if addr.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: by C's contract.
    let bytes = unsafe { std::slice::from_raw_parts(addr.cast::<u8>(), len as usize) };
    parse(bytes)
}

fn parse(bytes: &[u8]) -> Result<SocketAddr, Errno> {
    let family = bytes.first_chunk().map(|family| u16::from_ne_bytes(*family));
    let port = |bytes: &[u8]| u16::from_be_bytes([bytes[2], bytes[3]]);
    let word =
        |bytes: &[u8], at: usize| -> [u8; 4] { std::array::from_fn(|byte| bytes[at + byte]) };
    match c_int::from(family.ok_or(Errno::EINVAL)?) {
        AF_INET => {
            let bytes: &[u8; 16] = bytes.first_chunk().ok_or(Errno::EINVAL)?;
            Ok((Ipv4Addr::from(word(bytes, 4)), port(bytes)).into())
        }
        AF_INET6 => {
            let bytes: &[u8; 28] = bytes.first_chunk().ok_or(Errno::EINVAL)?;
            let ip: [u8; 16] = std::array::from_fn(|byte| bytes[8 + byte]);
            let flow = u32::from_be_bytes(word(bytes, 4));
            let scope = u32::from_ne_bytes(word(bytes, 24));
            Ok(SocketAddrV6::new(Ipv6Addr::from(ip), port(bytes), flow, scope).into())
        }
        _ => Err(Errno::EAFNOSUPPORT),
    }
}

/// Writes an address to C's buffer, truncated to its length, and its full length to `len`. A null
/// buffer is skipped.
///
/// # Safety
///
/// C's contract.
pub(super) unsafe fn write(from: SocketAddr, to: *mut sockaddr, len: *mut socklen_t) {
    if to.is_null() || len.is_null() {
        return;
    }
    let mut bytes = [0; 28];
    bytes[2..4].copy_from_slice(&from.port().to_be_bytes());
    let (family, whole) = match from {
        SocketAddr::V4(from) => {
            bytes[4..8].copy_from_slice(&from.ip().octets());
            (AF_INET, 16)
        }
        SocketAddr::V6(from) => {
            bytes[4..8].copy_from_slice(&from.flowinfo().to_be_bytes());
            bytes[8..24].copy_from_slice(&from.ip().octets());
            bytes[24..].copy_from_slice(&from.scope_id().to_ne_bytes());
            (AF_INET6, 28)
        }
    };
    bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    // SAFETY: C's contract: `len` says how many bytes there are at `to`.
    unsafe {
        let fits = whole.min(*len as usize);
        to.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), fits);
        *len = whole as socklen_t;
    }
}
