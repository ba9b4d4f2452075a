//! `rdma_getaddrinfo`: resolves host and service names by the system's `getaddrinfo`, and adds the
//! port space, the queue pair type and the source address.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. Returned lists are memory of
//! C's `calloc` and are freed once. libfabric stores memory from its allocator in them, which is
//! freed with the list.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

use libc::{addrinfo, sockaddr, sockaddr_storage, socklen_t};
use uverbs_core::Errno;
use uverbs_kernel_abi::rdma_cm::{RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP};

use super::address::{length, put};
use super::sys::{UD, rdma_addrinfo};
use crate::base::answer::minus_one;

/// `RAI_*`.
const PASSIVE: c_int = 1;
const NUMERICHOST: c_int = 2;
/// `RAI_SA`, `RAI_DNS`: resolution by InfiniBand's subnet administration, or by names.
pub(crate) const SA: c_int = 16;
pub(crate) const DNS: c_int = 32;
/// `AF_IB`: InfiniBand addresses, which the system does not resolve.
pub(super) const AF_IB: c_int = 27;
/// `IBV_QPT_RC`.
const RC: c_int = 2;

/// Hints for the system's call.
fn asked(hints: &rdma_addrinfo) -> addrinfo {
    // SAFETY: numbers, and pointers that may be null.
    let mut asked: addrinfo = unsafe { std::mem::zeroed() };
    if hints.ai_flags & PASSIVE != 0 {
        asked.ai_flags |= libc::AI_PASSIVE;
    }
    if hints.ai_flags & NUMERICHOST != 0 {
        asked.ai_flags |= libc::AI_NUMERICHOST;
    }
    // The family counts also without `RAI_FAMILY` (rdma-core `addrinfo.c:ucma_convert_to_ai`).
    if hints.ai_family != AF_IB {
        asked.ai_family = hints.ai_family;
    }
    let datagrams = hints.ai_qp_type == UD as c_int
        || [RDMA_PS_UDP, RDMA_PS_IPOIB].map(c_int::from).contains(&hints.ai_port_space);
    (asked.ai_socktype, asked.ai_protocol) = match datagrams {
        true => (libc::SOCK_DGRAM, libc::IPPROTO_UDP),
        false => (libc::SOCK_STREAM, libc::IPPROTO_TCP),
    };
    asked
}

/// Port space and queue pair type. Either follows from the other if it is missing.
fn kinds(hints: &rdma_addrinfo) -> (c_int, c_int) {
    let of_space = |space: c_int| match space as u16 {
        RDMA_PS_UDP | RDMA_PS_IPOIB => UD as c_int,
        _ => RC,
    };
    match (hints.ai_port_space, hints.ai_qp_type) {
        (0, kind) if kind == UD as c_int => (RDMA_PS_UDP.into(), kind),
        (0, 0) => (RDMA_PS_TCP.into(), RC),
        (0, kind) => (RDMA_PS_TCP.into(), kind),
        (space, 0) => (space, of_space(space)),
        (space, kind) => (space, kind),
    }
}

/// Allocates a zeroed `T` by C's `calloc`. Null: out of memory.
pub(crate) fn zeros<T>() -> *mut T {
    // SAFETY: the call only allocates memory.
    unsafe { libc::calloc(1, size_of::<T>()).cast() }
}

/// Copies an address to memory of C's `calloc`. Null: out of memory.
fn copied(bytes: &[u8]) -> *mut sockaddr {
    let room: *mut sockaddr_storage = zeros();
    // SAFETY: null or new, and zeros are an address.
    if let Some(room) = unsafe { room.as_mut() } {
        put(room, bytes);
    }
    room.cast()
}

/// # Safety
///
/// C's contract. Null: no address.
unsafe fn bytes<'a>(addr: *const sockaddr, len: socklen_t) -> Option<&'a [u8]> {
    if addr.is_null() || len == 0 {
        return None;
    }
    // SAFETY: by C's contract.
    Some(unsafe { std::slice::from_raw_parts(addr.cast(), len as usize) })
}

pub(crate) unsafe extern "C" fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    found: *mut *mut rdma_addrinfo,
) -> c_int {
    // SAFETY: numbers, and pointers that may be null.
    let none: rdma_addrinfo = unsafe { std::mem::zeroed() };
    if node.is_null() && service.is_null() && hints.is_null() {
        return minus_one(Errno::EINVAL);
    }
    // SAFETY: by C's contract; it may be null.
    let hints = unsafe { hints.as_ref() }.unwrap_or(&none);
    if hints.ai_flags & SA != 0 {
        return minus_one(Errno::EOPNOTSUPP);
    }
    let mut made = none;
    (made.ai_flags, (made.ai_port_space, made.ai_qp_type)) = (hints.ai_flags, kinds(hints));
    // SAFETY: by C's contract.
    let (own, peer) = unsafe {
        (bytes(hints.ai_src_addr, hints.ai_src_len), bytes(hints.ai_dst_addr, hints.ai_dst_len))
    };
    if let Some(own) = own {
        (made.ai_src_addr, made.ai_src_len) = (copied(own), own.len() as socklen_t);
        made.ai_family = hints.ai_family;
    }
    if node.is_null() && service.is_null() {
        // Result without a name: the addresses of the hints (rdma-core
        // `addrinfo.c:rdma_getaddrinfo`).
        if let Some(peer) = peer {
            (made.ai_dst_addr, made.ai_dst_len) = (copied(peer), peer.len() as socklen_t);
        }
        made.ai_family = hints.ai_family;
    } else {
        // SAFETY: by C's contract.
        let code = unsafe { look_up(node, service, hints, &mut made) };
        if code != 0 {
            // SAFETY: the addresses are copies made by this function.
            unsafe { drop_parts(&made) };
            return code;
        }
    }
    let given: *mut rdma_addrinfo = zeros();
    if given.is_null() {
        // SAFETY: the addresses are copies made by this function.
        unsafe { drop_parts(&made) };
        return minus_one(Errno::ENOMEM);
    }
    // SAFETY: by C's contract; the list was just allocated.
    unsafe {
        given.write(made);
        *found = given;
    }
    0
}

/// Writes the first address that the system finds. Returns the code of `getaddrinfo`.
///
/// # Safety
///
/// C's contract.
unsafe fn look_up(
    node: *const c_char,
    service: *const c_char,
    hints: &rdma_addrinfo,
    made: &mut rdma_addrinfo,
) -> c_int {
    let asked = asked(hints);
    let mut list = null_mut();
    let service = if service.is_null() && node.is_null() { c"0".as_ptr() } else { service };
    // SAFETY: by C's contract; `asked` has zeros where getaddrinfo(3) wants them.
    let code = unsafe { libc::getaddrinfo(node, service, &raw const asked, &raw mut list) };
    if code != 0 {
        return code;
    }
    // SAFETY: a list that the system gave has one entry at least, whose address is that long.
    unsafe {
        let first = &*list;
        let len = length(first.ai_family).unwrap_or(0).min(first.ai_addrlen as usize);
        let bytes = std::slice::from_raw_parts(first.ai_addr.cast::<u8>(), len);
        made.ai_family = first.ai_family;
        if hints.ai_flags & PASSIVE != 0 {
            drop_address(made.ai_src_addr);
            (made.ai_src_addr, made.ai_src_len) = (copied(bytes), len as socklen_t);
        } else {
            (made.ai_dst_addr, made.ai_dst_len) = (copied(bytes), len as socklen_t);
        }
        libc::freeaddrinfo(list);
    }
    0
}

/// # Safety
///
/// `addr` is null, or memory of C's allocator that is not used again.
unsafe fn drop_address(addr: *mut sockaddr) {
    // SAFETY: by the contract of `drop_address`.
    unsafe { libc::free(addr.cast()) };
}

/// # Safety
///
/// As [`drop_address`], for both addresses.
unsafe fn drop_parts(info: &rdma_addrinfo) {
    // SAFETY: by the contract of `drop_parts`.
    unsafe {
        drop_address(info.ai_src_addr);
        drop_address(info.ai_dst_addr);
    }
}

/// Frees names, route and private data. This library leaves them empty; the program may have
/// allocated them (rdma-core `addrinfo.c:rdma_freeaddrinfo`).
///
/// # Safety
///
/// Each is null, or memory of C's allocator that is not used again.
unsafe fn drop_additions(info: &rdma_addrinfo) {
    // SAFETY: by the contract of `drop_additions`.
    unsafe {
        libc::free(info.ai_src_canonname.cast());
        libc::free(info.ai_dst_canonname.cast());
        libc::free(info.ai_route);
        libc::free(info.ai_connect);
    }
}

pub(crate) unsafe extern "C" fn freeaddrinfo(info: *mut rdma_addrinfo) {
    let mut next = info;
    while !next.is_null() {
        // SAFETY: C's contract: a list that `rdma_getaddrinfo` returned, used for the last time.
        unsafe {
            let this = next;
            next = (*this).ai_next;
            drop_parts(&*this);
            drop_additions(&*this);
            libc::free(this.cast());
        }
    }
}
