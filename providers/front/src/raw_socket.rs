//! Sockets and epoll sets of the device, opened by raw system calls. A library that takes over a
//! program's sockets (libvma) interposes `socket`, and would open these by RDMA, on this device. It
//! doesn't know their numbers, so their later calls go to the system.
//!
//! # Safety
//!
//! The arguments are numbers, and each descriptor is new.
#![allow(unsafe_code, reason = "takes ownership of new descriptors")]

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::epoll::Epoll;
use nix::sys::socket::{AddressFamily, SockType, SockaddrStorage, bind, connect};

/// Any port: none is contacted.
const DISCARD: u16 = 9;

/// Opens a nonblocking socket of the default protocol.
pub fn socket(family: AddressFamily, kind: SockType) -> nix::Result<OwnedFd> {
    let kind = kind as libc::c_int | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: see the head of this file.
    owned(unsafe { libc::syscall(libc::SYS_socket, family as libc::c_int, kind, 0) })
}

/// Asks the kernel for a route between two addresses. No packet is sent.
///
/// # Errors
///
/// The error of connect(2), as `ENETUNREACH`.
pub fn route(from: IpAddr, to: IpAddr) -> nix::Result<()> {
    let socket = socket(family(to), SockType::Datagram)?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(from, 0)))?;
    connect(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(to, DISCARD)))
}

/// Address family of an IP address.
pub fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

/// Opens an epoll set.
pub fn epoll() -> nix::Result<Epoll> {
    // SAFETY: see the head of this file.
    owned(unsafe { libc::syscall(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) }).map(Epoll)
}

fn owned(answer: libc::c_long) -> nix::Result<OwnedFd> {
    let number = Errno::result(answer)? as RawFd;
    // SAFETY: the system just opened it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
