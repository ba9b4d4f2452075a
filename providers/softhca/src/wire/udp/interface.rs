//! The interface that has an address, and its MTU. The kernel is asked through the wire's socket,
//! which is in the right network namespace; /sys may show another one.
//!
//! # Safety
//!
//! One ioctl, which reads a name and writes a number within the given struct (netdevice(7),
//! SIOCGIFMTU).
#![allow(unsafe_code, reason = "an ioctl fills in a union")]

use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::if_nametoindex;

nix::ioctl_readwrite_bad!(get_mtu, libc::SIOCGIFMTU, libc::ifreq);

/// MTU of the interface that has an address.
pub(super) fn mtu(socket: BorrowedFd<'_>, address: IpAddr) -> Option<u32> {
    mtu_of(socket, &name(address)?)
}

/// Index of the interface that has an address.
pub(super) fn index(address: IpAddr) -> Option<u32> {
    if_nametoindex(name(address)?.as_str()).ok()
}

fn name(address: IpAddr) -> Option<String> {
    let has = |interface: &InterfaceAddress| {
        let own = interface.address.as_ref()?;
        let v4 = own.as_sockaddr_in().map(|own| IpAddr::V4(own.ip()));
        v4.or_else(|| own.as_sockaddr_in6().map(|own| IpAddr::V6(own.ip())))
    };
    let interface = getifaddrs().ok()?.find(|interface| has(interface) == Some(address));
    match interface {
        Some(interface) => Some(interface.interface_name),
        // All of 127.0.0.0/8 exists without being listed.
        None if address.is_loopback() => Some("lo".to_owned()),
        None => None,
    }
}

fn mtu_of(socket: BorrowedFd<'_>, name: &str) -> Option<u32> {
    // SAFETY: numbers, bytes and addresses, which may be 0.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let (_end, room) = request.ifr_name.split_last_mut()?;
    for (to, byte) in room.get_mut(..name.len())?.iter_mut().zip(name.bytes()) {
        *to = byte as libc::c_char;
    }
    // SAFETY: an open socket and a whole struct, whose name ends with the byte left out above.
    unsafe { get_mtu(socket.as_raw_fd(), &raw mut request) }.ok()?;
    // SAFETY: this ioctl fills in this member.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    u32::try_from(mtu).ok()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn loopback_has_what_the_system_says() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let text = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        let expected = text.trim().parse().ok();
        for address in ["127.0.0.1", "127.1.2.3"] {
            assert_eq!(mtu(socket.as_fd(), address.parse().unwrap()), expected);
        }
        let text = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap();
        assert_eq!(index("127.1.2.3".parse().unwrap()), text.trim().parse().ok());
        assert_eq!(index("192.0.2.1".parse().unwrap()), None);
        assert_eq!(mtu(socket.as_fd(), "192.0.2.1".parse().unwrap()), None);
        assert_eq!(mtu_of(socket.as_fd(), "an interface with a long name"), None);
    }
}
