//! Datagrams: sending and receiving on a socket of `SOCK_DGRAM`.

use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;

use libc::MSG_PEEK;
use uverbs_core::Errno;

use super::errno;
use super::socket::Socket;

/// Maximum bytes of a datagram (`RS_SNDLOWAT`).
pub(super) const MOST: usize = 2048;

/// Receives a datagram and its sender's address.
pub(super) fn receive(
    socket: &Socket,
    to: &mut [u8],
    flags: c_int,
) -> Result<(usize, SocketAddr), Errno> {
    let (of, now) = (socket.datagrams(None)?, socket.is_nonblocking(flags));
    let came = match (flags & MSG_PEEK != 0, now) {
        (false, false) => of.recv_from(to),
        (false, true) => of.try_recv_from(to),
        (true, false) => of.peek_from(to),
        (true, true) => of.try_peek_from(to),
    };
    came.map_err(|error| errno(&error))
}

/// Sends a datagram to `to`, or to the connected peer without an address.
pub(super) fn send(
    socket: &Socket,
    data: &[u8],
    flags: c_int,
    to: Option<SocketAddr>,
) -> Result<usize, Errno> {
    let (of, now) = (socket.datagrams(None)?, socket.is_nonblocking(flags));
    let to =
        to.map_or_else(|| of.peer_addr().map_err(|_| Errno::from_raw(libc::EDESTADDRREQ)), Ok)?;
    let sent = if now { of.try_send_to(data, to) } else { of.send_to(data, to) };
    sent.map(|()| data.len()).map_err(|error| match too_long(&error) {
        true => Errno::EMSGSIZE,
        false => errno(&error),
    })
}

fn too_long(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<uverbs::Error>());
    matches!(inner, Some(uverbs::Error::Limit { .. }))
}
