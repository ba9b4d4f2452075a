//! librdmacm's functions (`rdma/rsocket.h`).
//!
//! # Safety
//!
//! Each function has the signature of the header. Its caller keeps the contract of the socket call
//! that it stands for.
#![allow(unsafe_code, reason = "calls C functions that are found by name")]

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::OnceLock;
use std::sync::atomic::AtomicPtr;

use libc::{
    c_int, c_long, epoll_event, iovec, msghdr, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t,
};

use crate::real::functions;

/// Socket option level of librdmacm, and the options that the environment sets (`rdma/rsocket.h`).
pub(crate) const SOL_RDMA: c_int = 0x1_0000;
pub(crate) const SQSIZE: c_int = 0;
pub(crate) const RQSIZE: c_int = 1;
pub(crate) const INLINE: c_int = 2;

thread_local! {
    /// True while this thread is inside librdmacm, which may create sockets of the system for
    /// itself.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if the calling thread is inside librdmacm.
pub(crate) fn is_inside() -> bool {
    IS_INSIDE.get()
}

/// Runs a call into librdmacm. Sockets that librdmacm creates meanwhile stay the system's.
pub(crate) fn inside<T>(call: impl FnOnce() -> T) -> T {
    let before = IS_INSIDE.replace(true);
    let answer = call();
    IS_INSIDE.set(before);
    answer
}

/// Handle of librdmacm, loaded by the first socket; null if it is not installed.
fn library() -> *mut c_void {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let load = || {
        // SAFETY: a C string; the library stays.
        let handle = unsafe { libc::dlopen(c"librdmacm.so.1".as_ptr(), libc::RTLD_NOW) };
        handle.expose_provenance()
    };
    with_exposed_provenance_mut(*LIBRARY.get_or_init(|| inside(load)))
}

/// Returns true if librdmacm could be loaded.
pub(crate) fn is_there() -> bool {
    !library().is_null()
}

functions! { library() =>
    uverbs_before_fork() -> c_int = c"uverbs_before_fork";
    rsocket(family: c_int, kind: c_int, protocol: c_int) -> c_int = c"rsocket";
    rbind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int = c"rbind";
    rlisten(fd: c_int, backlog: c_int) -> c_int = c"rlisten";
    raccept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int = c"raccept";
    rconnect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int = c"rconnect";
    rshutdown(fd: c_int, how: c_int) -> c_int = c"rshutdown";
    rclose(fd: c_int) -> c_int = c"rclose";
    rgetpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int = c"rgetpeername";
    rgetsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int = c"rgetsockname";
    rgetsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t)
        -> c_int = c"rgetsockopt";
    rsetsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t)
        -> c_int = c"rsetsockopt";
    rfcntl(fd: c_int, command: c_int, argument: c_long) -> c_int = c"rfcntl";
    rrecv(fd: c_int, to: *mut c_void, len: size_t, flags: c_int) -> ssize_t = c"rrecv";
    rrecvfrom(fd: c_int, to: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr,
        addr_len: *mut socklen_t) -> ssize_t = c"rrecvfrom";
    rrecvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t = c"rrecvmsg";
    rread(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t = c"rread";
    rreadv(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t = c"rreadv";
    rsend(fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t = c"rsend";
    rsendto(fd: c_int, from: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr,
        addr_len: socklen_t) -> ssize_t = c"rsendto";
    rsendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t = c"rsendmsg";
    rwrite(fd: c_int, from: *const c_void, len: size_t) -> ssize_t = c"rwrite";
    rwritev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t = c"rwritev";
    rpoll(files: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int = c"rpoll";
    repoll_create(flags: c_int) -> c_int = c"repoll_create";
    repoll_ctl(epoll: c_int, what: c_int, fd: c_int, event: *mut epoll_event)
        -> c_int = c"repoll_ctl";
    repoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int)
        -> c_int = c"repoll_wait";
}
