//! libc's functions, which the exports of this library hide.
//!
//! # Safety
//!
//! Each function has the signature that libc's headers give it, and its caller keeps libc's
//! contract. Many are cancellation points (pthreads(7)), where a thread may end. They are
//! `C-unwind` for that reason. So are this library's functions, which have nothing to drop when
//! they call one.
#![allow(unsafe_code, reason = "calls C functions that are found by name")]

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    c_int, c_long, c_ulong, epoll_event, fd_set, iovec, msghdr, nfds_t, off_t, pollfd, sigset_t,
    size_t, sockaddr, socklen_t, ssize_t, timespec, timeval,
};

/// Sets `errno` and returns -1.
pub(crate) fn fail(errno: c_int) -> c_int {
    // SAFETY: `errno` belongs to this thread.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// Error number of the last failed call.
pub(crate) fn errno() -> c_int {
    // SAFETY: `errno` belongs to this thread.
    unsafe { *libc::__errno_location() }
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Runs a wait under the caller's signal mask, if there is one. A pending signal that the mask lets
/// through is delivered, and ends the wait with `EINTR` before it begins. A signal that comes
/// between that look and the wait does not end it, unlike in the kernel.
///
/// # Safety
///
/// The mask is null or valid.
pub(crate) unsafe fn masked(mask: *const sigset_t, wait: impl FnOnce() -> c_int) -> c_int {
    if mask.is_null() {
        return wait();
    }
    let [mut before, mut pending] = [const { MaybeUninit::<sigset_t>::uninit() }; 2];
    // SAFETY: a mask that the caller vouches for; the old one and the pending signals are written
    // before they are used.
    unsafe {
        libc::sigpending(pending.as_mut_ptr());
        let comes = |signal| {
            libc::sigismember(pending.as_ptr(), signal) == 1 && libc::sigismember(mask, signal) == 0
        };
        let is_interrupted = (1..=libc::SIGRTMAX()).any(comes);
        libc::pthread_sigmask(libc::SIG_SETMASK, mask, before.as_mut_ptr());
        let answer = if is_interrupted { fail(libc::EINTR) } else { wait() };
        let why = errno();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut());
        *libc::__errno_location() = why;
        answer
    }
}

/// Runs a wait with its limit in milliseconds, under the caller's signal mask.
///
/// # Safety
///
/// As for [`milliseconds`] and [`masked`].
pub(crate) unsafe fn timed(
    limit: *const timespec,
    mask: *const sigset_t,
    wait: impl FnOnce(c_int) -> c_int,
) -> c_int {
    // SAFETY: by the contract of `timed`.
    match unsafe { milliseconds(limit) } {
        // SAFETY: by the contract of `timed`.
        Some(limit) => unsafe { masked(mask, || wait(limit)) },
        None => fail(libc::EINVAL),
    }
}

/// Milliseconds of a time, rounded up; -1 for null, which is no limit. `None` for an invalid time.
///
/// # Safety
///
/// The time is null, or points to one.
unsafe fn milliseconds(time: *const timespec) -> Option<c_int> {
    // SAFETY: by this function's contract.
    let Some(time) = (unsafe { time.as_ref() }) else { return Some(-1) };
    if time.tv_sec < 0 || !(0..1_000_000_000).contains(&time.tv_nsec) {
        return None;
    }
    let spent =
        time.tv_sec.saturating_mul(1000).saturating_add((time.tv_nsec + 999_999) / 1_000_000);
    Some(spent.min(c_int::MAX.into()) as c_int)
}

/// Runs a closure with thread cancellation disabled (`PTHREAD_CANCEL_DISABLE`): it has values to
/// drop, or other threads wait for it.
pub(crate) fn uncancelled<T>(run: impl FnOnce() -> T) -> T {
    let (mut before, mut disabled) = (0, 0);
    // SAFETY: the call changes this thread's state and writes the old one to a local variable.
    unsafe { pthread_setcancelstate(1, &raw mut before) };
    let answer = run();
    // SAFETY: the call changes this thread's state and writes the old one to a local variable.
    unsafe { pthread_setcancelstate(before, &raw mut disabled) };
    answer
}

/// Address of the function in the next library, looked up once.
pub(crate) fn find(known: &AtomicPtr<c_void>, library: *mut c_void, name: &CStr) -> *mut c_void {
    let at = known.load(Ordering::Relaxed);
    if !at.is_null() {
        return at;
    }
    // SAFETY: a C string and a handle of dlopen's, or `RTLD_NEXT`.
    let at = unsafe { libc::dlsym(library, name.as_ptr()) };
    known.store(at, Ordering::Relaxed);
    at
}

/// Declares functions of a library. Each is looked up at its first call; a missing one returns
/// `ENOSYS`.
macro_rules! functions {
    ($library:expr => $(
        $name:ident($($arg:ident: $type:ty),*) -> $answer:ty = $symbol:literal;
    )*) => {$(
        pub(crate) unsafe fn $name($($arg: $type),*) -> $answer {
            static AT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
            let at = $crate::real::find(&AT, $library, $symbol);
            if at.is_null() {
                return $crate::real::fail(libc::ENOSYS) as $answer;
            }
            // SAFETY: the function of this name has this signature, and the caller keeps its
            // contract.
            unsafe {
                let function: unsafe extern "C-unwind" fn($($type),*) -> $answer =
                    std::mem::transmute(at);
                function($($arg),*)
            }
        }
    )*};
}
pub(crate) use functions;

functions! { libc::RTLD_NEXT =>
    socket(family: c_int, kind: c_int, protocol: c_int) -> c_int = c"socket";
    bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int = c"bind";
    listen(fd: c_int, backlog: c_int) -> c_int = c"listen";
    accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int)
        -> c_int = c"accept4";
    connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int = c"connect";
    shutdown(fd: c_int, how: c_int) -> c_int = c"shutdown";
    close(fd: c_int) -> c_int = c"close";
    getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int = c"getpeername";
    getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int = c"getsockname";
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t)
        -> c_int = c"getsockopt";
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t)
        -> c_int = c"setsockopt";
    fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int = c"fcntl";
    fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int = c"fcntl64";
    ioctl(fd: c_int, request: c_ulong, argument: c_long) -> c_int = c"ioctl";
    dup2(from: c_int, to: c_int) -> c_int = c"dup2";
    recv(fd: c_int, to: *mut c_void, len: size_t, flags: c_int) -> ssize_t = c"recv";
    recvfrom(fd: c_int, to: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr,
        addr_len: *mut socklen_t) -> ssize_t = c"recvfrom";
    recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t = c"recvmsg";
    read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t = c"read";
    readv(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t = c"readv";
    send(fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t = c"send";
    sendto(fd: c_int, from: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr,
        addr_len: socklen_t) -> ssize_t = c"sendto";
    sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t = c"sendmsg";
    write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t = c"write";
    writev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t = c"writev";
    sendfile(to: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t = c"sendfile";
    poll(files: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int = c"poll";
    select(most: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *mut timeval) -> c_int = c"select";
    ppoll(files: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t)
        -> c_int = c"ppoll";
    pselect(most: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *const timespec, mask: *const sigset_t) -> c_int = c"pselect";
    epoll_pwait(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int,
        mask: *const sigset_t) -> c_int = c"epoll_pwait";
    epoll_pwait2(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: *const timespec,
        mask: *const sigset_t) -> c_int = c"epoll_pwait2";
    epoll_create1(flags: c_int) -> c_int = c"epoll_create1";
    epoll_create(size: c_int) -> c_int = c"epoll_create";
    epoll_ctl(epoll: c_int, what: c_int, fd: c_int, event: *mut epoll_event)
        -> c_int = c"epoll_ctl";
    epoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int)
        -> c_int = c"epoll_wait";
}
