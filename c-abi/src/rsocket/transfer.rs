//! Sending and receiving: `rsend`, `rrecv`, `rsendto`, `rrecvfrom`, `rreadv`, `rwritev`.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. Buffers have as many bytes as
//! the call says.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};
use std::io::{self, Read, Write};
use std::net::SocketAddr;

use libc::{
    MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL, POLLIN, POLLOUT, iovec, msghdr, sockaddr, socklen_t,
};
use uverbs_core::Errno;
use uverbs_streams::{RdmaStream, StreamError};

use super::address;
use super::bytes;
use super::connect::rgetpeername;
use super::datagrams;
use super::errno;
use super::poll;
use super::socket::{Socket, find, of};
use crate::base::answer::minus_one;
use crate::post::request::memory;

/// A peer that vanished ends the stream, as in C's library.
fn end(error: io::Error) -> Result<usize, Errno> {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<StreamError>());
    if inner == Some(&StreamError::Lost) { Ok(0) } else { Err(errno(&error)) }
}

/// Result of a call that moved `done` bytes before `result`. If bytes were moved, they are
/// returned, and the next call returns the error.
fn counted(done: usize, result: Result<usize, Errno>) -> Result<usize, Errno> {
    if done > 0 { Ok(done + result.unwrap_or(0)) } else { result }
}

impl Socket {
    fn receive(&self, to: &mut [u8], flags: c_int) -> Result<usize, Errno> {
        if self.is_of_datagrams() {
            return datagrams::receive(self, to, flags).map(|(len, _)| len);
        }
        let (stream, now) = (self.stream()?, self.is_nonblocking(flags));
        if flags & MSG_PEEK != 0 {
            let peeked = if now { stream.try_peek(to) } else { stream.peek(to) };
            return peeked.or_else(end);
        }
        let all = flags & MSG_WAITALL != 0;
        let mut done = 0;
        while done < to.len() && (done == 0 || all) {
            let to = &mut to[done..];
            let read = if now { stream.try_read(to) } else { (&*stream).read(to) };
            match read.or_else(end) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(errno) => return counted(done, Err(errno)),
            }
        }
        Ok(done)
    }

    /// Sends all bytes, or, without waiting, as many as fit.
    fn send(&self, from: &[u8], flags: c_int) -> Result<usize, Errno> {
        if self.is_of_datagrams() {
            return datagrams::send(self, from, flags, None);
        }
        let (stream, now) = (self.stream()?, self.is_nonblocking(flags));
        if now {
            return stream.try_write(from).map_err(|error| errno(&error));
        }
        let mut done = 0;
        while done < from.len() {
            match write(&stream, &from[done..]) {
                Ok(count) => done += count,
                Err(errno) => return counted(done, Err(errno)),
            }
        }
        Ok(done)
    }
}

fn write(mut stream: &RdmaStream, from: &[u8]) -> Result<usize, Errno> {
    stream.write(from).map_err(|error| errno(&error))
}

/// # Safety
///
/// C's contract: `len` writable bytes.
unsafe fn room<'a>(to: *mut c_void, len: usize) -> &'a mut [u8] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: by the contract of `room`.
    unsafe { std::slice::from_raw_parts_mut(to.cast(), len) }
}

pub(crate) unsafe extern "C-unwind" fn rrecv(
    socket: c_int,
    to: *mut c_void,
    len: usize,
    flags: c_int,
) -> isize {
    // SAFETY: a cancellation here leaves no value undropped and no lock held.
    unsafe { poll::before(socket, POLLIN, flags) };
    // SAFETY: by C's contract.
    bytes(of(socket).and_then(|socket| socket.receive(unsafe { room(to, len) }, flags)))
}

pub(crate) unsafe extern "C-unwind" fn rread(socket: c_int, to: *mut c_void, len: usize) -> isize {
    // SAFETY: by C's contract.
    unsafe { rrecv(socket, to, len, 0) }
}

pub(crate) unsafe extern "C-unwind" fn rrecvfrom(
    socket: c_int,
    to: *mut c_void,
    len: usize,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> isize {
    // SAFETY: a cancellation here leaves no value undropped and no lock held.
    unsafe { poll::before(socket, POLLIN, flags) };
    if let Some(socket) = find(socket).filter(|socket| socket.is_of_datagrams()) {
        // SAFETY: by C's contract.
        let received = datagrams::receive(&socket, unsafe { room(to, len) }, flags);
        return bytes(received.map(|(len, from)| {
            // SAFETY: by C's contract.
            unsafe { address::write(from, addr, addr_len) };
            len
        }));
    }
    // SAFETY: by C's contract.
    unsafe {
        let received = rrecv(socket, to, len, flags);
        if received > 0 && !addr.is_null() {
            // The bytes are valid even if the peer is gone by now.
            rgetpeername(socket, addr, addr_len);
        }
        received
    }
}

pub(crate) unsafe extern "C-unwind" fn rsend(
    socket: c_int,
    from: *const c_void,
    len: usize,
    flags: c_int,
) -> isize {
    // SAFETY: a cancellation here leaves no value undropped and no lock held.
    unsafe { poll::before(socket, POLLOUT, flags) };
    // SAFETY: by C's contract.
    bytes(of(socket).and_then(|socket| socket.send(unsafe { memory(from.cast(), len) }, flags)))
}

pub(crate) unsafe extern "C-unwind" fn rwrite(
    socket: c_int,
    from: *const c_void,
    len: usize,
) -> isize {
    // SAFETY: by C's contract.
    unsafe { rsend(socket, from, len, 0) }
}

pub(crate) unsafe extern "C-unwind" fn rsendto(
    socket: c_int,
    from: *const c_void,
    len: usize,
    flags: c_int,
    addr: *const sockaddr,
    addr_len: socklen_t,
) -> isize {
    // SAFETY: a cancellation here leaves no value undropped and no lock held.
    unsafe { poll::before(socket, POLLOUT, flags) };
    if !addr.is_null() || addr_len != 0 {
        return bytes(of(socket).and_then(|socket| {
            if !socket.is_of_datagrams() {
                return Err(Errno::EISCONN);
            }
            // SAFETY: by C's contract.
            let (to, data) = unsafe { (address::read(addr, addr_len)?, memory(from.cast(), len)) };
            datagrams::send(&socket, data, flags, Some(to))
        }));
    }
    // SAFETY: by C's contract.
    unsafe { rsend(socket, from, len, flags) }
}

/// Transfers buffer after buffer. Only the first bytes are waited for, unless the call asks for
/// all.
fn each(
    pieces: &[iovec],
    flags: c_int,
    one: impl Fn(&iovec, c_int) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let mut done = 0;
    for piece in pieces.iter().filter(|piece| piece.iov_len > 0) {
        match one(piece, if done == 0 { flags } else { flags | MSG_DONTWAIT }) {
            Ok(count) if count == piece.iov_len => done += count,
            short => return counted(done, short),
        }
    }
    Ok(done)
}

/// # Safety
///
/// C's contract.
unsafe fn receive_all(socket: c_int, pieces: &[iovec], flags: c_int) -> isize {
    let all = flags & MSG_WAITALL != 0;
    // A peek sees the same bytes for each buffer: only the first buffer gets them, as in C's
    // library.
    let first = pieces.iter().position(|piece| piece.iov_len > 0).filter(|_| flags & MSG_PEEK != 0);
    let pieces = first.map_or(pieces, |first| &pieces[first..=first]);
    bytes(of(socket).and_then(|socket| {
        if socket.is_of_datagrams() {
            // SAFETY: by C's contract.
            return unsafe { receive_one(&socket, pieces, flags) }.map(|(len, _)| len);
        }
        each(pieces, flags, |piece, later| {
            // SAFETY: by C's contract.
            let to = unsafe { room(piece.iov_base, piece.iov_len) };
            socket.receive(to, if all { flags } else { later })
        })
    }))
}

/// # Safety
///
/// C's contract.
unsafe fn send_all(socket: c_int, pieces: &[iovec], flags: c_int) -> isize {
    bytes(of(socket).and_then(|socket| {
        if socket.is_of_datagrams() {
            // SAFETY: by C's contract.
            return unsafe { send_one(&socket, pieces, flags, None) };
        }
        // A send waits for all bytes, so every buffer is handled alike.
        each(pieces, flags, |piece, _| {
            // SAFETY: by C's contract.
            socket.send(unsafe { memory(piece.iov_base.cast(), piece.iov_len) }, flags)
        })
    }))
}

/// Receives a datagram into several buffers.
///
/// # Safety
///
/// C's contract.
unsafe fn receive_one(
    socket: &Socket,
    pieces: &[iovec],
    flags: c_int,
) -> Result<(usize, SocketAddr), Errno> {
    let mut whole = [0; datagrams::MOST];
    let fits =
        pieces.iter().fold(0usize, |sum, piece| sum.saturating_add(piece.iov_len)).min(whole.len());
    let (len, from) = datagrams::receive(socket, &mut whole[..fits], flags)?;
    let mut rest = &whole[..len];
    for piece in pieces {
        let (part, others) = rest.split_at(rest.len().min(piece.iov_len));
        // SAFETY: by C's contract.
        let to = unsafe { room(piece.iov_base, piece.iov_len) };
        to[..part.len()].copy_from_slice(part);
        rest = others;
    }
    Ok((len, from))
}

/// Sends a datagram from several buffers.
///
/// # Safety
///
/// C's contract.
unsafe fn send_one(
    socket: &Socket,
    pieces: &[iovec],
    flags: c_int,
    to: Option<SocketAddr>,
) -> Result<usize, Errno> {
    let mut whole = Vec::new();
    for piece in pieces {
        if piece.iov_len > datagrams::MOST - whole.len() {
            return Err(Errno::EMSGSIZE);
        }
        // SAFETY: by C's contract.
        whole.extend_from_slice(unsafe { memory(piece.iov_base.cast(), piece.iov_len) });
    }
    datagrams::send(socket, &whole, flags, to)
}

/// # Safety
///
/// C's contract.
unsafe fn pieces<'a>(first: *const iovec, count: usize) -> &'a [iovec] {
    if count == 0 {
        return &[];
    }
    // SAFETY: by the contract of `pieces`.
    unsafe { std::slice::from_raw_parts(first, count) }
}

pub(crate) unsafe extern "C-unwind" fn rreadv(
    socket: c_int,
    first: *const iovec,
    count: c_int,
) -> isize {
    // SAFETY: a cancellation here leaves no value undropped and no lock held.
    unsafe { poll::before(socket, POLLIN, 0) };
    // SAFETY: by C's contract.
    unsafe { receive_all(socket, pieces(first, count.max(0) as usize), 0) }
}

pub(crate) unsafe extern "C-unwind" fn rwritev(
    socket: c_int,
    first: *const iovec,
    count: c_int,
) -> isize {
    // SAFETY: a cancellation here leaves no value undropped and no lock held.
    unsafe { poll::before(socket, POLLOUT, 0) };
    // SAFETY: by C's contract.
    unsafe { send_all(socket, pieces(first, count.max(0) as usize), 0) }
}

/// rsocket has no ancillary data.
pub(crate) unsafe extern "C-unwind" fn rrecvmsg(
    socket: c_int,
    msg: *mut msghdr,
    flags: c_int,
) -> isize {
    // SAFETY: a cancellation here leaves no value undropped and no lock held.
    unsafe { poll::before(socket, POLLIN, flags) };
    // SAFETY: by C's contract.
    unsafe {
        if (*msg).msg_control as usize != 0 && (*msg).msg_controllen != 0 {
            return minus_one(Errno::ENOTSUP) as isize;
        }
        let pieces = pieces((*msg).msg_iov, (*msg).msg_iovlen);
        match find(socket).filter(|socket| socket.is_of_datagrams()) {
            None => receive_all(socket, pieces, flags),
            Some(socket) => bytes(receive_one(&socket, pieces, flags).map(|(len, from)| {
                address::write(from, (*msg).msg_name.cast(), &raw mut (*msg).msg_namelen);
                (*msg).msg_flags = 0;
                len
            })),
        }
    }
}

pub(crate) unsafe extern "C-unwind" fn rsendmsg(
    socket: c_int,
    msg: *const msghdr,
    flags: c_int,
) -> isize {
    // SAFETY: a cancellation here leaves no value undropped and no lock held.
    unsafe { poll::before(socket, POLLOUT, flags) };
    // SAFETY: by C's contract.
    unsafe {
        if (*msg).msg_control as usize != 0 && (*msg).msg_controllen != 0 {
            return minus_one(Errno::ENOTSUP) as isize;
        }
        let pieces = pieces((*msg).msg_iov, (*msg).msg_iovlen);
        match find(socket).filter(|socket| socket.is_of_datagrams()) {
            Some(socket) if !(*msg).msg_name.is_null() => {
                let to = address::read((*msg).msg_name.cast(), (*msg).msg_namelen);
                bytes(to.and_then(|to| send_one(&socket, pieces, flags, Some(to))))
            }
            _ => send_all(socket, pieces, flags),
        }
    }
}
