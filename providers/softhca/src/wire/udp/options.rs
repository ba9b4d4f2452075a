//! Socket options that nix has no names for.

#![allow(missing_docs, reason = "the kernel's names: ip(7), ipv6(7), udp(7)")]
#![allow(unreachable_pub, reason = "nix's macro makes them public")]

use nix::{setsockopt_impl, sockopt_impl};

sockopt_impl!(MtuDiscover, SetOnly, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::c_int);
sockopt_impl!(MtuDiscover6, SetOnly, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::c_int);
sockopt_impl!(MulticastAll, SetOnly, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, libc::c_int);
sockopt_impl!(NoCheck6, SetOnly, libc::IPPROTO_UDP, UDP_NO_CHECK6_RX, libc::c_int);
#[cfg(test)]
sockopt_impl!(NoChecksum, SetOnly, libc::SOL_SOCKET, libc::SO_NO_CHECK, libc::c_int);

/// linux/udp.h
const UDP_NO_CHECK6_RX: libc::c_int = 102;
