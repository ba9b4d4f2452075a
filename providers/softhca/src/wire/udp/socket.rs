//! A UDP socket: options, and sending and receiving several datagrams per call.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, IpMembershipRequest, MsgFlags, SetSockOpt, SockType,
    SockaddrStorage, bind, getsockopt, recvmsg, sendmsg, setsockopt, sockopt,
};

use super::options::{MtuDiscover, MtuDiscover6, MulticastAll, NoCheck6};
use crate::wire::Route;
use uverbs_front::raw_socket;

/// Receive buffer asked for; `net.core.rmem_max` limits it.
const RECEIVE_BUFFER: usize = 4 << 20;
/// Maximum bytes of a datagram, or of several that the kernel joined.
pub(super) const LONGEST: usize = 1 << 16;
/// Room for all requested control messages, twice.
const CONTROL: usize = 512;
/// `IP_PMTUDISC_PROBE`: the header has DF, and identification 0 while the socket is unconnected
/// (ip(7); net/ipv4/ip_output.c, `ip_select_ident`).
const PROBE: libc::c_int = libc::IP_PMTUDISC_PROBE;

#[derive(Debug)]
pub(super) struct Socket {
    socket: UdpSocket,
    pub(super) address: SocketAddr,
    control: Box<[u8]>,
    /// Datagrams lost for lack of room, by the kernel's last count.
    lost: u32,
    /// Bytes of the receive buffer, as counted by the kernel.
    pub(super) room: usize,
}

/// Result of one receive call.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) from: SocketAddr,
    pub(super) route: Route,
    /// Bytes of consecutive datagrams in the buffer, all of `stride` bytes except the last.
    pub(super) len: usize,
    pub(super) stride: usize,
    /// Datagrams lost before these for lack of room.
    pub(super) lost: u32,
}

impl Socket {
    /// # Errors
    /// The system's error; `EADDRINUSE` if the port is in use.
    pub(super) fn bind(address: SocketAddr) -> io::Result<Socket> {
        let socket = raw_socket::socket(raw_socket::family(address.ip()), SockType::Datagram)?;
        bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
        Socket::new(UdpSocket::from(socket))
    }

    /// Joins a group on the interfaces of these addresses, whose port it has. Only the group's
    /// packets arrive, and only by these interfaces (`IP_MULTICAST_ALL`).
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn join(group: Ipv4Addr, own: &[SocketAddrV4]) -> io::Result<Socket> {
        let family = raw_socket::family(group.into());
        let socket = UdpSocket::from(raw_socket::socket(family, SockType::Datagram)?);
        // Other devices join the group with sockets at the same address.
        setsockopt(&socket, sockopt::ReuseAddr, &true)?;
        setsockopt(&socket, MulticastAll, &0)?;
        let port = own.first().map_or(0, SocketAddrV4::port);
        bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddrV4::new(group, port)))?;
        for own in own {
            let request = IpMembershipRequest::new(group, Some(*own.ip()));
            match setsockopt(&socket, sockopt::IpAddMembership, &request) {
                // Two addresses of an interface.
                Err(Errno::EADDRINUSE) => {}
                joined => joined?,
            }
        }
        Socket::new(socket)
    }

    fn new(socket: UdpSocket) -> io::Result<Socket> {
        let address = socket.local_addr()?;
        setsockopt(&socket, sockopt::RxqOvfl, &1)?;
        // The kernel may grant less without an error.
        setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER)?;
        // Without these options packets come one by one, and without their headers' fields.
        optional(&socket, sockopt::UdpGroSegment);
        match address.ip() {
            IpAddr::V4(_) => {
                setsockopt(&socket, MtuDiscover, &PROBE)?;
                // Packets to a group have the same hop limit as others.
                setsockopt(&socket, sockopt::IpMulticastTtl, &Route::HOPS)?;
                optional(&socket, sockopt::IpRecvTos);
                optional(&socket, sockopt::Ipv4RecvTtl);
            }
            IpAddr::V6(_) => {
                setsockopt(&socket, MtuDiscover6, &PROBE)?;
                // Linux's soft-RoCE sends no UDP checksum over IPv6 either.
                setsockopt(&socket, NoCheck6, &1)?;
                optional(&socket, sockopt::Ipv6RecvTClass);
                optional(&socket, sockopt::Ipv6RecvHopLimit);
            }
        }
        let room = getsockopt(&socket, sockopt::RcvBuf)?;
        Ok(Socket { socket, address, control: vec![0; CONTROL].into(), lost: 0, room })
    }

    pub(super) fn ip(&self) -> IpAddr {
        self.address.ip()
    }

    /// Sends these datagrams by one call. All have `segment` bytes, the last perhaps fewer.
    ///
    /// # Errors
    /// `EAGAIN` if there is no room now; other errors of the system.
    pub(super) fn send(
        &self,
        to: SocketAddr,
        route: Route,
        packets: &[IoSlice<'_>],
        segment: usize,
    ) -> Result<(), Errno> {
        let divided = packets.len() > 1;
        let segment = segment as u16;
        let (class, tos) = (i32::from(route.traffic_class), route.traffic_class);
        let hops = i32::from(route.hop_limit);
        let default = Route::default();
        let mut control = Vec::with_capacity(3);
        if divided {
            control.push(ControlMessage::UdpGsoSegments(&segment));
        }
        if tos != default.traffic_class {
            control.push(match to {
                SocketAddr::V4(_) => ControlMessage::Ipv4Tos(&tos),
                SocketAddr::V6(_) => ControlMessage::Ipv6TClass(&class),
            });
        }
        if route.hop_limit != default.hop_limit {
            control.push(match to {
                SocketAddr::V4(_) => ControlMessage::Ipv4Ttl(&hops),
                SocketAddr::V6(_) => ControlMessage::Ipv6HopLimit(&hops),
            });
        }
        let (fd, to) = (self.socket.as_raw_fd(), SockaddrStorage::from(to));
        sendmsg(fd, packets, &control, MsgFlags::MSG_DONTWAIT, Some(&to)).map(drop)
    }

    /// Receives the next datagrams, if any, into `buffer` of [`LONGEST`] bytes.
    ///
    /// # Errors
    /// `EAGAIN` without datagrams.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Result<Received, Errno> {
        let fd = self.socket.as_raw_fd();
        let mut into = [IoSliceMut::new(buffer)];
        let control = Some(&mut self.control[..]);
        let message = recvmsg::<SockaddrStorage>(fd, &mut into, control, MsgFlags::MSG_DONTWAIT)?;
        let (len, mut stride) = (message.bytes, message.bytes);
        let mut route = Route::default();
        let mut lost = 0;
        for control in message.cmsgs()? {
            match control {
                ControlMessageOwned::UdpGroSegments(each) => stride = each as usize,
                ControlMessageOwned::Ipv4Tos(tos) => route.traffic_class = tos,
                ControlMessageOwned::Ipv6TClass(class) => route.traffic_class = class as u8,
                ControlMessageOwned::Ipv4Ttl(hops) | ControlMessageOwned::Ipv6HopLimit(hops) => {
                    route.hop_limit = hops as u8;
                }
                ControlMessageOwned::RxqOvfl(all) => lost = all.wrapping_sub(self.lost),
                _ => {}
            }
        }
        let from = message.address.as_ref().and_then(socket_address).ok_or(Errno::EAFNOSUPPORT)?;
        self.lost = self.lost.wrapping_add(lost);
        Ok(Received { from, route, len, stride: stride.max(1), lost })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sets an option that some kernels lack.
fn optional<O: SetSockOpt<Val = bool>>(socket: &UdpSocket, option: O) {
    let _ = setsockopt(socket, option, &true);
}

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::from((v4.ip(), v4.port())));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::from((v6.ip(), v6.port()))))
}
