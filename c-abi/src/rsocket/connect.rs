//! Creating, binding, listening, accepting, connecting and closing sockets.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::net::Shutdown;
use std::sync::Arc;

use libc::{
    AF_INET, AF_INET6, IPPROTO_TCP, IPPROTO_UDP, O_NONBLOCK, POLLIN, SHUT_RD, SHUT_RDWR, SHUT_WR,
    SOCK_CLOEXEC, SOCK_DGRAM, SOCK_NONBLOCK, SOCK_STREAM, sockaddr, socklen_t,
};
use uverbs_core::Errno;

use super::address;
use super::done;
use super::errno;
use super::options::Options;
use super::poll;
use super::socket::{Phase, Socket, any, of, remove};
use crate::base::answer::minus_one;

pub(crate) unsafe extern "C" fn rsocket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    let flags = kind & (SOCK_NONBLOCK | SOCK_CLOEXEC);
    let kind = kind & !flags;
    let fits = match kind {
        SOCK_STREAM => [0, IPPROTO_TCP].contains(&protocol),
        SOCK_DGRAM => [0, IPPROTO_UDP].contains(&protocol),
        _ => false,
    };
    if !fits || ![AF_INET, AF_INET6].contains(&family) {
        return minus_one(Errno::ENOTSUP);
    }
    match Socket::insert((family, kind), Options::default(), Phase::New(None)) {
        Ok(number) => {
            if let Ok(socket) = of(number).as_ref()
                && flags & SOCK_NONBLOCK != 0
            {
                socket.state().status = O_NONBLOCK;
            }
            number
        }
        Err(errno) => minus_one(errno),
    }
}

/// On a stream, only remembers the address. `rlisten` or `rconnect` reports an address that is
/// unavailable.
pub(crate) unsafe extern "C" fn rbind(
    socket: c_int,
    addr: *const sockaddr,
    len: socklen_t,
) -> c_int {
    done(of(socket).and_then(|socket| {
        // SAFETY: by C's contract.
        let addr = unsafe { address::read(addr, len) }?;
        if socket.is_of_datagrams() {
            return socket.datagrams(Some(addr)).map(drop);
        }
        let mut state = socket.state();
        if !matches!(state.phase, Phase::New(None)) {
            return Err(Errno::EINVAL);
        }
        state.phase = Phase::New(Some(addr));
        Ok(())
    }))
}

pub(crate) unsafe extern "C" fn rlisten(socket: c_int, backlog: c_int) -> c_int {
    done(of(socket).and_then(|socket| {
        if socket.is_of_datagrams() {
            return Err(Errno::ENOTSUP);
        }
        let mut state = socket.state();
        let own = match state.phase {
            Phase::New(own) => own.unwrap_or_else(|| any(socket.family)),
            Phase::Listening(_) | Phase::Inherited(_) => return Ok(()),
            _ => return Err(Errno::EINVAL),
        };
        state.options.backlog = backlog.max(0).unsigned_abs();
        state.listen(own).map(drop)
    }))
}

pub(crate) unsafe extern "C-unwind" fn raccept(
    socket: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: a cancellation here leaves no value undropped and no lock held.
    unsafe { poll::before(socket, POLLIN, 0) };
    let accepted = of(socket).and_then(|socket| {
        let listener = socket.listener()?;
        // Current options of the listener: the program may have changed them since `rlisten`.
        let options = socket.state().options.clone();
        let streams = options.of_streams()?;
        let (stream, peer) = listener.accept_with(&streams).map_err(|error| errno(&error))?;
        // SAFETY: by C's contract.
        unsafe { address::write(peer, addr, len) };
        Socket::insert((socket.family, socket.kind), options, Phase::Connected(Arc::new(stream)))
    });
    accepted.unwrap_or_else(minus_one)
}

pub(crate) unsafe extern "C" fn rconnect(
    socket: c_int,
    addr: *const sockaddr,
    len: socklen_t,
) -> c_int {
    done(of(socket).and_then(|socket| {
        // SAFETY: by C's contract.
        let addr = unsafe { address::read(addr, len) }?;
        socket.connect(addr)
    }))
}

pub(crate) unsafe extern "C" fn rshutdown(socket: c_int, how: c_int) -> c_int {
    let how = match how {
        SHUT_RD => Shutdown::Read,
        SHUT_WR => Shutdown::Write,
        SHUT_RDWR => Shutdown::Both,
        _ => return minus_one(Errno::EINVAL),
    };
    done(of(socket).and_then(|socket| {
        let stream = socket.stream()?;
        match stream.shutdown(how) {
            // The peer disconnected first: success, as with C's library (`rs_disconnected`).
            Err(error) if error.kind() == std::io::ErrorKind::NotConnected => Ok(()),
            other => other.map_err(|error| errno(&error)),
        }
    }))
}

pub(crate) unsafe extern "C" fn rclose(socket: c_int) -> c_int {
    if super::epoll::close(socket) {
        return 0;
    }
    super::epoll::forget(socket);
    done(remove(socket).map(|socket| socket.close()))
}

pub(crate) unsafe extern "C" fn rgetsockname(
    socket: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    done(of(socket).and_then(|socket| {
        let own = match socket.phase() {
            Phase::Listening(listener) => listener.local_addr(),
            Phase::Connected(stream) => stream.local_addr(),
            Phase::Datagrams(datagrams) => datagrams.local_addr(),
            Phase::New(own) => Ok(own.unwrap_or_else(|| any(socket.family))),
            Phase::Inherited(own) => Ok(own),
            Phase::Connecting | Phase::Failed(_) => Ok(any(socket.family)),
        };
        let own = own.map_err(|error| errno(&error))?;
        // SAFETY: by C's contract.
        unsafe { address::write(own, addr, len) };
        Ok(())
    }))
}

pub(crate) unsafe extern "C" fn rgetpeername(
    socket: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    done(of(socket).and_then(|socket| {
        let peer = match socket.phase() {
            Phase::Connected(stream) => stream.peer_addr(),
            Phase::Datagrams(datagrams) => datagrams.peer_addr(),
            _ => return Err(Errno::ENOTCONN),
        };
        let peer = peer.map_err(|error| errno(&error))?;
        // SAFETY: by C's contract.
        unsafe { address::write(peer, addr, len) };
        Ok(())
    }))
}
