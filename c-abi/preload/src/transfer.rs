//! Transfers: `read`, `write`, `send`, `recv`, `sendfile`.
//!
//! # Safety
//!
//! The contracts are those that libc documents for functions of these names: buffers have as many
//! bytes as the call says.
#![allow(unsafe_code, reason = "takes the place of C functions")]

use std::ffi::c_void;

use libc::{c_int, iovec, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};

use crate::rdma::inside;
use crate::real::uncancelled;
use crate::switch::settle;
use crate::table::{Descriptor, Kind};
use crate::{rdma, real};

/// Declares functions that go to librdmacm for its sockets and to libc for all other files.
macro_rules! moves {
    ($($name:ident, $rdma:ident($($arg:ident: $type:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(fd: c_int, $($arg: $type),*) -> ssize_t {
            // SAFETY: the arguments are the caller's, by libc's contract.
            unsafe {
                match settle(fd) {
                    Some(Descriptor { kind: Kind::Rdma, inner }) => {
                        // A first datagram may make librdmacm create a UDP socket of the system.
                        inside(|| rdma::$rdma(inner, $($arg),*))
                    }
                    Some(Descriptor { kind: Kind::Epoll, .. }) | None => real::$name(fd, $($arg),*),
                    Some(Descriptor { inner, .. }) => real::$name(inner, $($arg),*),
                }
            }
        }
    )*};
}

moves! {
    recv, rrecv(to: *mut c_void, len: size_t, flags: c_int);
    recvfrom, rrecvfrom(
        to: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t
    );
    recvmsg, rrecvmsg(msg: *mut msghdr, flags: c_int);
    read, rread(to: *mut c_void, len: size_t);
    readv, rreadv(pieces: *const iovec, count: c_int);
    send, rsend(from: *const c_void, len: size_t, flags: c_int);
    sendmsg, rsendmsg(msg: *const msghdr, flags: c_int);
    write, rwrite(from: *const c_void, len: size_t);
    writev, rwritev(pieces: *const iovec, count: c_int);
}

/// Sends. Linux's TCP ignores the address of a connected socket (`tcp_sendmsg`, net/ipv4/tcp.c);
/// librdmacm fails with EISCONN.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
    addr: *const sockaddr,
    addr_len: socklen_t,
) -> ssize_t {
    // SAFETY: the arguments are the caller's, by libc's contract.
    unsafe {
        match settle(fd) {
            Some(Descriptor { kind: Kind::Rdma, inner }) => inside(|| {
                let sent = rdma::rsendto(inner, from, len, flags, addr, addr_len);
                match sent < 0 && real::errno() == libc::EISCONN {
                    true => rdma::rsend(inner, from, len, flags),
                    false => sent,
                }
            }),
            Some(Descriptor { kind: Kind::Epoll, .. }) | None => {
                real::sendto(fd, from, len, flags, addr, addr_len)
            }
            Some(Descriptor { inner, .. }) => real::sendto(inner, from, len, flags, addr, addr_len),
        }
    }
}

/// Bytes per read when `sendfile` copies a file to librdmacm.
const PART: usize = 64 << 10;

/// Sends up to `len` bytes of a file through librdmacm, at most to the file's end. Advances
/// `offset`, or else the file's position, by the bytes sent.
fn send_file(to: c_int, from: c_int, offset: Option<&mut off_t>, len: usize) -> ssize_t {
    let mut part = vec![0; len.min(PART)];
    let start = match &offset {
        Some(offset) => **offset,
        // SAFETY: the call takes numbers only.
        None => unsafe { libc::lseek(from, 0, libc::SEEK_CUR) },
    };
    if start < 0 {
        // A pipe is refused, as libc does.
        return real::fail(libc::EINVAL) as ssize_t;
    }
    let (mut at, mut answer) = (start, 0);
    while (at - start) < len as off_t {
        let wanted = (len - (at - start) as usize).min(PART);
        // SAFETY: the buffer has so many bytes.
        unsafe {
            answer = libc::pread(from, part.as_mut_ptr().cast(), wanted, at);
            if answer > 0 {
                answer = rdma::rwrite(to, part.as_ptr().cast(), answer as usize);
            }
        }
        if answer <= 0 {
            break;
        }
        at += answer as off_t;
    }
    match offset {
        Some(offset) => *offset = at,
        // SAFETY: the call takes numbers only.
        None => unsafe {
            libc::lseek(from, at, libc::SEEK_SET);
        },
    }
    // Bytes already sent are returned; the next call returns the error.
    if at == start { answer } else { (at - start) as ssize_t }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendfile(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    len: size_t,
) -> ssize_t {
    // SAFETY: the arguments are the caller's, by libc's contract; the offset may be null.
    unsafe {
        match settle(to) {
            Some(Descriptor { kind: Kind::Rdma, inner }) => {
                uncancelled(|| send_file(inner, from, offset.as_mut(), len))
            }
            Some(Descriptor { inner, .. }) => real::sendfile(inner, from, offset, len),
            None => real::sendfile(to, from, offset, len),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendfile64(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    len: size_t,
) -> ssize_t {
    // SAFETY: `sendfile64` is `sendfile`: offsets have 64 bits on 64-bit machines.
    unsafe { sendfile(to, from, offset, len) }
}
