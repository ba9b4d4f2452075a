//! Cancellation of threads: pthread_cancel(3).
//!
//! glibc ends a cancelled thread in a cancellation point (pthreads(7)), by unwinding its stack. A
//! Rust function with values to drop can't be unwound so, and a lock that it holds would stay
//! locked. So a cancellation point is found in two places alone:
//!
//! - the functions of `waits` below, which the calls wait in that wait in C's library. Their
//!   callers are `extern "C-unwind"`, and have nothing to drop and no lock while they wait.
//! - nowhere else: libc's cancellation points, called by whichever crate, are replaced by functions
//!   that put cancellation off. The linker does it (`--wrap`, named in `build.rs`): a call of
//!   `read` gets `__wrap_read`, and `__real_read` is libc's. So calls still leave through libc's
//!   symbols, where a preloaded library sees them.
//!
//! `tests/c-stack/tests/process.rs` compares the library's imports with the list.
//!
//! # Safety
//!
//! Functions have the C signatures of those that they stand for, and pass on their arguments.
//! `open64` is variadic in C; here it takes the one argument that may follow, which the calling
//! conventions of Linux on x86-64 and AArch64 pass alike.
#![allow(unsafe_code, reason = "takes the place of C functions")]

use std::ffi::{c_int, c_void};

use libc::{pollfd, ssize_t};

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE`.
const DISABLE: c_int = 1;

/// Disables cancellation until dropped.
struct PutOff(c_int);

impl PutOff {
    fn new() -> Self {
        let mut before = 0;
        // SAFETY: the call changes this thread's state and writes the old one to a local variable.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self(before)
    }
}

impl Drop for PutOff {
    fn drop(&mut self) {
        let mut disabled = 0;
        // SAFETY: the call changes this thread's state and writes the old one to a local variable.
        unsafe { pthread_setcancelstate(self.0, &raw mut disabled) };
    }
}

#[cfg(not(any(test, fuzzing)))]
mod replaced {
    use std::ffi::{c_char, c_int, c_uint, c_void};

    use libc::{
        DIR, addrinfo, clockid_t, dirent64, epoll_event, ifaddrs, iovec, msghdr, nfds_t, off_t,
        pollfd, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec,
    };

    use super::PutOff;
    use crate::exports::verbs::jump;

    macro_rules! replace {
        ($($name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {$(
            mod $name {
                #[allow(unused_imports, reason = "each function has some of the types")]
                use super::*;

                // `C-unwind`, since the module `waits` declares two of these functions so.
                unsafe extern "C-unwind" {
                    #[link_name = concat!("__real_", stringify!($name))]
                    fn real($($arg: $type),*) -> $answer;
                }

                unsafe extern "C" fn replacement($($arg: $type),*) -> $answer {
                    let _put_off = PutOff::new();
                    // SAFETY: the arguments are the caller's, by libc's contract.
                    unsafe { real($($arg),*) }
                }

                std::arch::global_asm!(
                    ".pushsection .text.uverbs_c_abi,\"ax\",@progbits",
                    concat!(".globl __wrap_", stringify!($name)),
                    concat!(".hidden __wrap_", stringify!($name)),
                    concat!(".type __wrap_", stringify!($name), ", @function"),
                    concat!("__wrap_", stringify!($name), ":"),
                    jump!(),
                    concat!(
                        ".size __wrap_", stringify!($name), ", . - __wrap_", stringify!($name)
                    ),
                    ".popsection",
                    function = sym replacement,
                );
            }
        )*};
    }

    replace! {
        accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
        clock_nanosleep(
            clock: clockid_t, flags: c_int, time: *const timespec, left: *mut timespec
        ) -> c_int;
        close(fd: c_int) -> c_int;
        closedir(folder: *mut DIR) -> c_int;
        connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
        epoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int;
        fallocate(fd: c_int, mode: c_int, from: off_t, len: off_t) -> c_int;
        getaddrinfo(
            node: *const c_char, service: *const c_char, hints: *const addrinfo,
            found: *mut *mut addrinfo
        ) -> c_int;
        getifaddrs(found: *mut *mut ifaddrs) -> c_int;
        getrandom(to: *mut c_void, len: size_t, flags: c_uint) -> ssize_t;
        nanosleep(time: *const timespec, left: *mut timespec) -> c_int;
        open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
        opendir(path: *const c_char) -> *mut DIR;
        pause() -> c_int;
        poll(files: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
        ppoll(
            files: *mut pollfd, count: nfds_t, limit: *const timespec, mask: *const sigset_t
        ) -> c_int;
        pread64(fd: c_int, to: *mut c_void, len: size_t, from: off_t) -> ssize_t;
        pwrite64(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t;
        read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t;
        readdir64(folder: *mut DIR) -> *mut dirent64;
        recv(fd: c_int, to: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
        recvfrom(
            fd: c_int, to: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr,
            addr_len: *mut socklen_t
        ) -> ssize_t;
        recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
        send(fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t;
        sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
        sendto(
            fd: c_int, from: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr,
            addr_len: socklen_t
        ) -> ssize_t;
        write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t;
        writev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    }
}

mod waits {
    use super::c_int;
    use super::c_void;
    use super::pollfd;
    use super::ssize_t;

    unsafe extern "C-unwind" {
        #[cfg_attr(not(any(test, fuzzing)), link_name = "__real_poll")]
        pub(super) fn poll(files: *mut pollfd, count: libc::nfds_t, timeout: c_int) -> c_int;
        #[cfg_attr(not(any(test, fuzzing)), link_name = "__real_read")]
        pub(super) fn read(fd: c_int, to: *mut c_void, len: usize) -> ssize_t;
        pub(super) fn pthread_testcancel();
    }
}

/// read(2) as a cancellation point.
///
/// # Safety
///
/// `to` has room for `len` bytes. The caller holds no lock and no value that needs dropping.
pub(crate) unsafe fn read(fd: c_int, to: *mut c_void, len: usize) -> ssize_t {
    // SAFETY: by the contract of `read`.
    unsafe { waits::read(fd, to, len) }
}

/// poll(2) as a cancellation point.
///
/// # Safety
///
/// `files` has `count` entries. The caller holds no lock and no value that needs dropping.
pub(crate) unsafe fn poll(files: *mut pollfd, count: usize, milliseconds: c_int) -> c_int {
    // SAFETY: by the contract of `poll`.
    unsafe { waits::poll(files, count as libc::nfds_t, milliseconds) }
}

/// Cancellation point: ends the thread if a cancellation is pending.
///
/// # Safety
///
/// The caller holds no lock and no value that needs dropping.
pub(crate) unsafe fn point() {
    // SAFETY: by the contract of `point`.
    unsafe { waits::pthread_testcancel() };
}
