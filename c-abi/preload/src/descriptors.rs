//! Closing and copying descriptors, and their flags.
//!
//! # Safety
//!
//! The contracts are those that libc documents for functions of these names.
#![allow(unsafe_code, reason = "takes the place of C functions")]

use std::ptr::with_exposed_provenance;

use libc::{
    EBADF, EFAULT, F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_SETFL, FIOCLEX, FIONBIO, FIONCLEX,
    O_NONBLOCK, c_int, c_long, c_ulong,
};

use crate::rdma::inside;
use crate::switch::settle;
use crate::table::{self, Descriptor, Kind};
use crate::{rdma, real};

/// Closes the socket or epoll after its last descriptor was closed.
pub(crate) fn end(entry: Descriptor) -> c_int {
    // SAFETY: the last descriptor of this entry was removed, so no other thread can use it.
    unsafe {
        match entry.kind {
            Kind::Rdma | Kind::Epoll => inside(|| rdma::rclose(entry.inner)),
            _ => real::close(entry.inner),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    let removed = table::remove(fd);
    // SAFETY: the argument is the caller's, by libc's contract.
    let closed = unsafe { real::close(fd) };
    match removed {
        Some((entry, true)) => end(entry),
        _ => closed,
    }
}

/// Gives a duplicated descriptor the table entry of its original.
fn copy(from: Option<Descriptor>, to: c_int) -> c_int {
    let Some(entry) = from.filter(|_| to >= 0) else { return to };
    match table::insert(to, entry) {
        Ok(()) => to,
        Err(errno) => {
            // SAFETY: just made, and unknown to other threads.
            unsafe { real::close(to) };
            real::fail(errno)
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    let entry = settle(fd);
    // SAFETY: the argument is the caller's, by libc's contract.
    copy(entry, unsafe { real::fcntl(fd, F_DUPFD, 0) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup2(from: c_int, to: c_int) -> c_int {
    let entry = settle(from);
    // SAFETY: the arguments are the caller's, by libc's contract.
    unsafe {
        if from == to || real::fcntl(from, F_GETFD, 0) < 0 {
            return real::dup2(from, to);
        }
        if let Some((entry, true)) = table::remove(to) {
            end(entry);
        }
        copy(entry, real::dup2(from, to))
    }
}

type Real = unsafe fn(c_int, c_int, c_long) -> c_int;

/// # Safety
///
/// As `fcntl`.
unsafe fn control(real: Real, fd: c_int, command: c_int, argument: c_long) -> c_int {
    // SAFETY: the arguments are the caller's, by libc's contract.
    unsafe {
        let entry = match command {
            // Flags of the descriptor, which is an open `/dev/null` also for librdmacm's sockets.
            F_GETFD | F_SETFD => return real(fd, command, argument),
            F_DUPFD | F_DUPFD_CLOEXEC => {
                let entry = settle(fd);
                return copy(entry, real(fd, command, argument));
            }
            _ => table::get(fd),
        };
        match entry {
            Some(Descriptor { kind: Kind::Rdma, inner }) => rdma::rfcntl(inner, command, argument),
            Some(Descriptor { kind: Kind::Epoll, .. }) | None => real(fd, command, argument),
            Some(Descriptor { inner, .. }) => real(inner, command, argument),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    if fd < 0 {
        return real::fail(EBADF);
    }
    // SAFETY: the arguments are the caller's, by libc's contract.
    unsafe { control(real::fcntl, fd, command, argument) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int {
    if fd < 0 {
        return real::fail(EBADF);
    }
    // SAFETY: the arguments are the caller's, by libc's contract.
    unsafe { control(real::fcntl64, fd, command, argument) }
}

/// Requests by number: `FIONBIO` of Python's and libuv's sockets. All others are the open file's,
/// or the socket's of the system.
///
/// # Safety
///
/// As `ioctl`: the argument is what the request says.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: c_long) -> c_int {
    // SAFETY: the arguments are the caller's, by libc's contract.
    unsafe {
        match table::get(fd) {
            Some(Descriptor { kind: Kind::Rdma, inner }) if request == FIONBIO => {
                let Some(on) = with_exposed_provenance::<c_int>(argument as usize).as_ref() else {
                    return real::fail(EFAULT);
                };
                let flags = if *on == 0 { 0 } else { O_NONBLOCK };
                inside(|| rdma::rfcntl(inner, F_SETFL, flags.into()))
            }
            Some(Descriptor { kind: Kind::Epoll | Kind::Rdma, .. }) | None => {
                real::ioctl(fd, request, argument)
            }
            // The descriptor's own flag.
            Some(_) if [FIOCLEX, FIONCLEX].contains(&request) => real::ioctl(fd, request, argument),
            Some(Descriptor { inner, .. }) => real::ioctl(inner, request, argument),
        }
    }
}
