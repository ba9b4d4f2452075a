//! Creating, connecting and shutting down sockets.
//!
//! # Safety
//!
//! The contracts are those that libc documents for functions of these names: addresses and values
//! have as many bytes as the call says.
#![allow(unsafe_code, reason = "takes the place of C functions")]

use std::ffi::c_void;

use libc::{
    AF_INET, AF_INET6, EALREADY, EINPROGRESS, EINTR, EISCONN, F_GETFL, F_SETFD, F_SETFL,
    FD_CLOEXEC, IPPROTO_TCP, O_CLOEXEC, O_NONBLOCK, O_RDONLY, SO_REUSEADDR, SO_TYPE, SOCK_CLOEXEC,
    SOCK_DGRAM, SOCK_NONBLOCK, SOCK_STREAM, SOL_SOCKET, TCP_NODELAY, c_int, sockaddr, socklen_t,
};

use crate::config::{bare, config};
use crate::forks;
use crate::rdma::{inside, is_inside};
use crate::real::uncancelled;
use crate::switch::{set, set_sizes};
use crate::table::{self, Descriptor, Kind};
use crate::{descriptors, rdma, real};

/// Gives the program a descriptor for `inner`. On failure `inner` is closed.
fn give(kind: Kind, inner: c_int, flags: c_int) -> c_int {
    if inner < 0 {
        return inner;
    }
    let close_on_exec = if flags & SOCK_CLOEXEC == 0 { 0 } else { O_CLOEXEC };
    // SAFETY: the path is a C string.
    let open = || unsafe { libc::open(c"/dev/null".as_ptr(), O_RDONLY | close_on_exec) };
    let fd = uncancelled(open);
    let entry = Descriptor::new(kind, inner);
    let errno = match (fd >= 0).then(|| table::insert(fd, entry)) {
        Some(Ok(())) => return fd,
        Some(Err(errno)) => {
            // SAFETY: just made, and unknown to other threads.
            unsafe { real::close(fd) };
            errno
        }
        None => real::errno(),
    };
    descriptors::end(entry);
    real::fail(errno)
}

/// Creates a socket of librdmacm with the queue sizes of the environment.
fn make(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: the call takes numbers only.
    let socket = inside(|| unsafe { rdma::rsocket(family, bare(kind), protocol) });
    if socket >= 0 {
        set_sizes(socket);
        if kind & SOCK_NONBLOCK != 0 {
            // SAFETY: the socket is open.
            unsafe { rdma::rfcntl(socket, F_SETFL, O_NONBLOCK.into()) };
        }
    }
    socket
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    let is_taken = !is_inside() && config().takes(family, kind, protocol) && rdma::is_there();
    if is_taken {
        let is_tcp = [AF_INET, AF_INET6].contains(&family)
            && bare(kind) == SOCK_STREAM
            && [0, IPPROTO_TCP].contains(&protocol);
        if config().forks && is_tcp {
            // SAFETY: the arguments are the caller's, by libc's contract.
            let tcp = unsafe { real::socket(family, kind, protocol) };
            return give(Kind::Undecided, tcp, kind);
        }
        let socket = make(family, kind, protocol);
        if socket >= 0 {
            return give(Kind::Rdma, socket, kind);
        }
    }
    // SAFETY: the arguments are the caller's, by libc's contract.
    unsafe { real::socket(family, kind, protocol) }
}

/// Declares functions that go to librdmacm for its sockets and to libc for all others.
macro_rules! either {
    ($($name:ident, $rdma:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(fd: c_int, $($arg: $type),*) -> $answer {
            // SAFETY: the arguments are the caller's, by libc's contract.
            unsafe {
                match table::get(fd) {
                    Some(Descriptor { kind: Kind::Rdma, inner }) => {
                        inside(|| rdma::$rdma(inner, $($arg),*))
                    }
                    Some(Descriptor { inner, .. }) => real::$name(inner, $($arg),*),
                    None => real::$name(fd, $($arg),*),
                }
            }
        }
    )*};
}

either! {
    bind, rbind(addr: *const sockaddr, len: socklen_t) -> c_int;
    shutdown, rshutdown(how: c_int) -> c_int;
    getpeername, rgetpeername(addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    getsockname, rgetsockname(addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    setsockopt, rsetsockopt(
        level: c_int, name: c_int, value: *const c_void, len: socklen_t
    ) -> c_int;
    getsockopt, rgetsockopt(
        level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t
    ) -> c_int;
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn listen(fd: c_int, backlog: c_int) -> c_int {
    let Some(entry) = table::get(fd) else {
        // SAFETY: the arguments are the caller's, by libc's contract.
        return unsafe { real::listen(fd, backlog) };
    };
    if entry.kind == Kind::Rdma {
        forks::expect();
        // SAFETY: the arguments are the caller's, by libc's contract.
        return inside(|| unsafe { rdma::rlisten(entry.inner, backlog) });
    }
    // SAFETY: the arguments are the caller's, by libc's contract.
    let answer = unsafe { real::listen(entry.inner, backlog) };
    if answer == 0 && entry.kind == Kind::Undecided {
        table::replace(fd, entry, Descriptor::new(Kind::Listening, entry.inner));
    }
    answer
}

/// # Safety
///
/// As `accept4`.
unsafe fn take(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
    // SAFETY: the arguments are the caller's, by libc's contract; what was accepted is open.
    unsafe {
        match table::get(fd) {
            Some(Descriptor { kind: Kind::Rdma, inner }) => {
                let socket = inside(|| rdma::raccept(inner, addr, len));
                if socket >= 0 {
                    set_sizes(socket);
                    let now = if flags & SOCK_NONBLOCK == 0 { 0 } else { O_NONBLOCK };
                    rdma::rfcntl(socket, F_SETFL, now.into());
                }
                give(Kind::Rdma, socket, flags)
            }
            Some(Descriptor { kind: Kind::Listening, inner }) => {
                give(Kind::Passive, real::accept4(inner, addr, len, flags), flags)
            }
            Some(Descriptor { inner, .. }) => real::accept4(inner, addr, len, flags),
            None => real::accept4(fd, addr, len, flags),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the arguments are the caller's, by libc's contract.
    unsafe { take(fd, addr, len, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the arguments are the caller's, by libc's contract.
    unsafe { take(fd, addr, len, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the arguments are the caller's, by libc's contract.
    unsafe {
        let Some(entry) = table::get(fd) else { return real::connect(fd, addr, len) };
        match entry.kind {
            Kind::Rdma => {
                let answer = inside(|| rdma::rconnect(entry.inner, addr, len));
                // A socket that connects, or is connected, stays: programs ask once more to learn
                // the outcome.
                let stays = [EINPROGRESS, EALREADY, EISCONN, EINTR];
                if answer == 0 || stays.contains(&real::errno()) {
                    return answer;
                }
                match by_tcp(fd, entry) {
                    tcp if tcp >= 0 => real::connect(tcp, addr, len),
                    _ => answer,
                }
            }
            Kind::Undecided => {
                table::replace(fd, entry, Descriptor::new(Kind::Active, entry.inner));
                real::connect(entry.inner, addr, len)
            }
            _ => real::connect(entry.inner, addr, len),
        }
    }
}

/// Replaces librdmacm's socket of a descriptor by a TCP socket of the same type, since librdmacm
/// could not connect (`transpose_socket`). On -1 `errno` is unchanged.
fn by_tcp(fd: c_int, entry: Descriptor) -> c_int {
    let why = real::errno();
    let number = |level, name| {
        let (mut value, mut len) = (0, size_of::<c_int>() as socklen_t);
        let to = (&raw mut value).cast();
        // SAFETY: room for one number.
        let answer = unsafe { rdma::rgetsockopt(entry.inner, level, name, to, &raw mut len) };
        if answer == 0 { value } else { 0 }
    };
    let mut addr = [0u8; 128];
    let mut len = addr.len() as socklen_t;
    // SAFETY: the sockets are open, and the address has room for `len` bytes.
    unsafe {
        let at = addr.as_mut_ptr().cast::<sockaddr>();
        let family = match rdma::rgetsockname(entry.inner, at, &raw mut len) {
            0 => c_int::from((*at).sa_family),
            _ => AF_INET,
        };
        let flags = rdma::rfcntl(entry.inner, F_GETFL, 0);
        let now = if flags & O_NONBLOCK == 0 { 0 } else { SOCK_NONBLOCK };
        // C's librdmacm does not report `SO_TYPE`.
        let kind = match number(SOL_SOCKET, SO_TYPE) {
            SOCK_DGRAM => SOCK_DGRAM,
            _ => SOCK_STREAM,
        };
        let tcp = real::socket(family, kind | now, 0);
        if tcp < 0 {
            return real::fail(why);
        }
        if real::fcntl(fd, libc::F_GETFD, 0) & FD_CLOEXEC != 0 {
            real::fcntl(tcp, F_SETFD, FD_CLOEXEC.into());
        }
        for (level, name) in [(SOL_SOCKET, SO_REUSEADDR), (IPPROTO_TCP, TCP_NODELAY)] {
            if number(level, name) != 0 {
                set(real::setsockopt, tcp, level, name, 1);
            }
        }
        if !table::replace(fd, entry, Descriptor::new(Kind::Plain, tcp)) {
            real::close(tcp);
            return real::fail(why);
        }
        rdma::rclose(entry.inner);
        tcp
    }
}
