//! Programs that fork between `accept` and the first byte (`RDMAV_FORK_SAFE`). An RDMA connection
//! belongs to the process that created it. So both sides connect by TCP first, and switch at their
//! first byte, when the right process runs (`preload.c`: `fork_passive`, `fork_active`).
//!
//! The passive side listens by librdmacm at the same port, announces it by four zero bytes over
//! TCP, and accepts one connection. The active side peeks at the first bytes. If they are zeros, it
//! connects again by librdmacm. If either side fails, both stay on TCP. One process of the host at
//! a time listens, since all use the same port.
//!
//! A server that polls for the client's first byte waits for ever, as with C's library.
//!
//! # Safety
//!
//! Addresses are local variables with their lengths; descriptors come from the table.
#![allow(unsafe_code, reason = "calls C functions")]

use std::ptr::null_mut;
use std::time::Duration;

use libc::{
    AF_INET, F_GETFL, F_SETFL, IPPROTO_TCP, MSG_PEEK, O_CREAT, O_NONBLOCK, O_RDWR, SHUT_RDWR,
    SO_REUSEADDR, SOCK_STREAM, SOL_SOCKET, TCP_NODELAY, c_int, sockaddr, sockaddr_in, sockaddr_in6,
    sockaddr_storage, socklen_t,
};

use crate::rdma::inside;
use crate::real::uncancelled;
use crate::table::{self, Descriptor, Kind};
use crate::{config, rdma, real};

/// Bytes of the word by which the passive side announces that it listens.
const WORD: usize = 4;

/// Sets the queue sizes of the environment on a socket of librdmacm. On failure the defaults stay.
pub(crate) fn set_sizes(socket: c_int) {
    let names = [rdma::SQSIZE, rdma::RQSIZE, rdma::INLINE];
    for (name, size) in names.into_iter().zip(config::config().sizes) {
        if size != 0 {
            set(rdma::rsetsockopt, socket, rdma::SOL_RDMA, name, size);
        }
    }
}

type Set = unsafe fn(c_int, c_int, c_int, *const std::ffi::c_void, socklen_t) -> c_int;

pub(crate) fn set(by: Set, socket: c_int, level: c_int, name: c_int, value: c_int) -> c_int {
    // SAFETY: one number, which lives for the call.
    unsafe { by(socket, level, name, (&raw const value).cast(), size_of::<c_int>() as socklen_t) }
}

/// Copies the socket options of a system socket to one of librdmacm (`copysockopts`).
fn copy_options(to: c_int, from: c_int) {
    // SAFETY: flags and numbers of sockets that are open.
    unsafe {
        rdma::rfcntl(to, F_SETFL, real::fcntl(from, F_GETFL, 0).into());
        for (level, name) in [(SOL_SOCKET, SO_REUSEADDR), (IPPROTO_TCP, TCP_NODELAY)] {
            let (mut value, mut len) = (0, size_of::<c_int>() as socklen_t);
            let found = real::getsockopt(from, level, name, (&raw mut value).cast(), &raw mut len);
            if found == 0 && value != 0 {
                set(rdma::rsetsockopt, to, level, name, value);
            }
        }
    }
}

/// Switches the passive side: returns a connected socket of librdmacm.
fn passive(tcp: c_int) -> Option<c_int> {
    // SAFETY: the name is a C string; a null result is checked below.
    let turn = unsafe { libc::sem_open(c"/rsocket_fork".as_ptr(), O_CREAT | O_RDWR, 0o770, 1) };
    if turn == libc::SEM_FAILED {
        return None;
    }
    // SAFETY: the semaphore is open until the last line.
    unsafe {
        while libc::sem_wait(turn) != 0 && real::errno() == libc::EINTR {}
        let connected = listen_for_one(tcp);
        libc::sem_post(turn);
        libc::sem_close(turn);
        connected
    }
}

/// Listens by librdmacm at the port of `tcp`, on all addresses, and announces it over TCP.
fn listen_for_one(tcp: c_int) -> Option<c_int> {
    // SAFETY: any bytes are an address.
    let mut addr: sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut len = size_of::<sockaddr_storage>() as socklen_t;
    let at = (&raw mut addr).cast::<sockaddr>();
    // SAFETY: the address is as long as `len` says, and has the layout of its family.
    unsafe {
        if real::getsockname(tcp, at, &raw mut len) != 0 {
            return None;
        }
        if c_int::from(addr.ss_family) == AF_INET {
            (*at.cast::<sockaddr_in>()).sin_addr.s_addr = 0;
        } else {
            let addr = at.cast::<sockaddr_in6>();
            (*addr).sin6_addr.s6_addr = [0; 16];
            ((*addr).sin6_flowinfo, (*addr).sin6_scope_id) = (0, 0);
        }
    }
    // SAFETY: the sockets are open, and the address has `len` bytes.
    unsafe {
        let listener = rdma::rsocket(addr.ss_family.into(), SOCK_STREAM, 0);
        if listener < 0 {
            return None;
        }
        set(rdma::rsetsockopt, listener, SOL_SOCKET, SO_REUSEADDR, 1);
        let word = [0u8; WORD];
        let is_told = rdma::rbind(listener, at, len) == 0
            && rdma::rlisten(listener, 1) == 0
            && real::write(tcp, word.as_ptr().cast(), WORD) == WORD as isize;
        let socket = if is_told { rdma::raccept(listener, null_mut(), null_mut()) } else { -1 };
        rdma::rclose(listener);
        (socket >= 0).then_some(socket)
    }
}

/// Switches the active side: returns a connected socket of librdmacm.
fn active(tcp: c_int) -> Option<c_int> {
    // SAFETY: a socket that is open, with this function's memory.
    unsafe {
        let flags = real::fcntl(tcp, F_GETFL, 0);
        real::fcntl(tcp, F_SETFL, (flags & !O_NONBLOCK).into());
        let mut word = [0xffu8; WORD];
        // Waits for all four bytes: a program's own first message may be shorter.
        let flag = MSG_PEEK | libc::MSG_WAITALL;
        let seen = real::recv(tcp, word.as_mut_ptr().cast(), WORD, flag);
        real::fcntl(tcp, F_SETFL, flags.into());
        if seen != WORD as isize || word != [0; WORD] {
            return None;
        }
        let mut addr: sockaddr_storage = std::mem::zeroed();
        let mut len = size_of::<sockaddr_storage>() as socklen_t;
        let at = (&raw mut addr).cast::<sockaddr>();
        if real::getpeername(tcp, at, &raw mut len) != 0 {
            return None;
        }
        let socket = rdma::rsocket(addr.ss_family.into(), SOCK_STREAM, 0);
        if socket >= 0 && rdma::rconnect(socket, at, len) != 0 {
            rdma::rclose(socket);
            return None;
        }
        (socket >= 0).then_some(socket)
    }
}

/// Entry of a descriptor before its first transfer; switches it to librdmacm if it is undecided.
pub(crate) fn settle(fd: c_int) -> Option<Descriptor> {
    let entry = table::get(fd)?;
    match entry.kind {
        Kind::Active | Kind::Passive | Kind::Switching => uncancelled(|| change(fd)),
        _ => Some(entry),
    }
}

fn change(fd: c_int) -> Option<Descriptor> {
    loop {
        let entry = table::get(fd)?;
        match entry.kind {
            Kind::Active | Kind::Passive => {}
            // Another thread switches the descriptor.
            Kind::Switching => {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            _ => return Some(entry),
        }
        let tcp = entry.inner;
        let switching = Descriptor::new(Kind::Switching, tcp);
        if !table::replace(fd, entry, switching) {
            continue;
        }
        let is_passive = entry.kind == Kind::Passive;
        let connected = inside(|| if is_passive { passive(tcp) } else { active(tcp) });
        let Some(socket) = connected else {
            table::replace(fd, switching, Descriptor::new(Kind::Plain, tcp));
            continue;
        };
        set_sizes(socket);
        copy_options(socket, tcp);
        if !table::replace(fd, switching, Descriptor::new(Kind::Rdma, socket)) {
            // SAFETY: this thread's socket. Another thread closed the descriptor and its TCP socket
            // meanwhile.
            unsafe { rdma::rclose(socket) };
            return None;
        }
        // SAFETY: the descriptor belonged to this connection alone.
        unsafe {
            real::shutdown(tcp, SHUT_RDWR);
            real::close(tcp);
        }
    }
}
