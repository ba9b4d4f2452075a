//! How two devices of a host find each other, and how one passes its ring to the other.
//!
//! Each address of a device has an abstract Unix socket, named by user number and address. Like UDP
//! ports, such names belong to a network namespace and vanish with their owner. A device with a
//! packet for an address connects to its socket, and sends a message: its addresses, and the
//! descriptor of a new ring. It may write packets at once. The socket stays open: a byte wakes the
//! reader, and its end tells that the other device is gone.
//!
//! Abstract names have no permissions. So both sides ask the kernel for the other's user, and
//! refuse other users.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, SockType, UnixAddr, bind, connect,
    getsockopt, send, sendmsg, sockopt,
};
use nix::unistd::geteuid;

use super::loan::Identity;
use super::memory::Memory;
use super::ring::Writer;
use crate::closer::{Closer, Connection, Foreign};
use crate::descriptors::{self, Received};
use uverbs_front::raw_socket;

/// Maximum addresses of a device that packets may come from.
pub(super) const SOURCES: usize = 16;
/// First bytes of a message; the last byte is the version of the ring's format.
const MAGIC: [u8; 8] = *b"uverbs\0\x04";
/// Offset of the addresses: after the magic, their number, and the sender's name and its address.
const ADDRESSES: usize = 40;
const MESSAGE: usize = ADDRESSES + SOURCES * 16;
/// User number of users unknown in this user namespace (`/proc/sys/kernel/overflowuid`'s default).
/// Different users share it.
const NOBODY: u32 = 65534;

/// Name of an address's socket.
fn name(address: SocketAddr) -> String {
    format!("{}{address}", prefix())
}

/// Beginning of the names of this user's devices.
fn prefix() -> String {
    format!("uverbs-softhca/{}/", geteuid())
}

/// Addresses of all devices of this user and network namespace, by the kernel's list of sockets
/// (proc_pid_net(5)). Empty if that can't be read.
pub(super) fn all() -> BTreeSet<SocketAddr> {
    let list = fs::read("/proc/thread-self/net/unix").unwrap_or_default();
    let (list, prefix) = (String::from_utf8_lossy(&list), format!("@{}", prefix()));
    let last = list.lines().filter_map(|line| line.rsplit_once(' ').map(|(_, path)| path));
    last.filter_map(|path| path.strip_prefix(&prefix)?.parse().ok()).collect()
}

/// Returns `true` if the other end of a socket belongs to this process's user.
fn is_ours(socket: impl AsFd) -> bool {
    let own = geteuid().as_raw();
    let peer = getsockopt(&socket, sockopt::PeerCredentials).map(|peer| peer.uid());
    own != NOBODY && peer == Ok(own)
}

/// Begins to listen for those who have packets for an address. The name may still be its last
/// owner's, whose process is about to end: it is asked for again until `patience` is over.
///
/// # Errors
/// `EADDRINUSE` where somebody has the name.
pub(super) fn listen(
    address: SocketAddr,
    patience: Duration,
    closer: &Closer,
) -> io::Result<Foreign<UnixListener>> {
    let name = UnixAddr::new_abstract(name(address).as_bytes())?;
    let start = Instant::now();
    let socket = raw_socket::socket(AddressFamily::Unix, SockType::Stream)?;
    loop {
        match bind(socket.as_raw_fd(), &name) {
            Err(Errno::EADDRINUSE) if start.elapsed() < patience => {
                thread::sleep(Duration::from_millis(1));
            }
            bound => break bound?,
        }
    }
    nix::sys::socket::listen(&socket, Backlog::MAXCONN)?;
    Ok(closer.own(UnixListener::from(socket)))
}

/// Accepts the next connection.
///
/// # Errors
/// `WouldBlock` if no connection waits; `PermissionDenied` for another user; errors of the system.
pub(super) fn accept(listener: &UnixListener, closer: &Closer) -> io::Result<Connection> {
    // Another user's connection may contain files, so it is closed by the closer, too.
    let socket = closer.connection(listener.accept()?.0);
    if !is_ours(&socket) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Connects to the device of an address, and passes a new ring for packets from `sources`.
///
/// # Errors
/// `ECONNREFUSED` without a device; `EPERM` for another user's device; errors of the system.
pub(super) fn meet(
    address: SocketAddr,
    sources: &[[u8; 16]],
    identity: Identity,
    closer: &Closer,
) -> Result<(Connection, Writer), Errno> {
    let socket = raw_socket::socket(AddressFamily::Unix, SockType::Stream)?;
    let socket = closer.connection(UnixStream::from(socket));
    connect(socket.as_raw_fd(), &UnixAddr::new_abstract(name(address).as_bytes())?)?;
    if !is_ours(&socket) {
        return Err(Errno::EPERM);
    }
    let (memory, file) = Memory::create()?;
    let bytes = message(sources, identity);
    let fds = [file.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&fds)];
    let flags = MsgFlags::MSG_NOSIGNAL;
    let parts = [IoSlice::new(&bytes)];
    match sendmsg::<()>(socket.as_raw_fd(), &parts, &rights, flags, None)? {
        MESSAGE => Ok((socket, Writer::new(memory))),
        _ => Err(Errno::EMSGSIZE),
    }
}

pub(super) fn message(sources: &[[u8; 16]], identity: Identity) -> [u8; MESSAGE] {
    let mut bytes = [0; MESSAGE];
    bytes[..8].copy_from_slice(&MAGIC);
    let sources = &sources[..sources.len().min(SOURCES)];
    bytes[8] = sources.len() as u8;
    let [first, second] = identity.name;
    for (to, word) in bytes[16..ADDRESSES].chunks_exact_mut(8).zip([identity.at, first, second]) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    for (to, from) in bytes[ADDRESSES..].chunks_exact_mut(16).zip(sources) {
        to.copy_from_slice(from);
    }
    bytes
}

/// First message of a peer that connected.
#[derive(Debug)]
pub(super) struct Greeting {
    /// Its addresses.
    pub(super) sources: Vec<[u8; 16]>,
    pub(super) memory: Memory,
    /// Identity of its memory.
    pub(super) identity: Identity,
}

/// Reads the first message of a peer that connected. `None` until it has arrived.
///
/// # Errors
/// `EPROTO` for an invalid message; errors of the system.
pub(super) fn hear(socket: &UnixStream, closer: &Closer) -> Result<Option<Greeting>, Errno> {
    let mut bytes = [0; MESSAGE];
    let received = match descriptors::receive(socket, &mut bytes, closer) {
        Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
        received => received?,
    };
    understand(&bytes, &received).map(Some)
}

/// Parses the message.
fn understand(bytes: &[u8; MESSAGE], received: &Received) -> Result<Greeting, Errno> {
    let whole = received.bytes == MESSAGE && bytes[..8] == MAGIC && !received.cut;
    let count = usize::from(bytes[8]);
    let sources = bytes[ADDRESSES..].chunks_exact(16).take(count).map(|gid| gid.try_into());
    let sources = sources.collect::<Result<Vec<[u8; 16]>, _>>().unwrap_or_default();
    let [file] = &received.fds[..] else { return Err(Errno::EPROTO) };
    if !whole || count == 0 || count > SOURCES {
        return Err(Errno::EPROTO);
    }
    let word = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
    let identity = Identity { at: word(16), name: [word(24), word(32)] };
    Ok(Greeting { sources, memory: Memory::open(file)?, identity })
}

/// Number of the connected process; 0 if it is unknown here.
pub(super) fn process(socket: &UnixStream) -> i32 {
    getsockopt(socket, sockopt::PeerCredentials).map_or(0, |peer| peer.pid())
}

/// Wakes the reader at the other end. A full socket has woken it already.
pub(super) fn ring(socket: BorrowedFd<'_>) {
    let _ = send(socket.as_raw_fd(), &[1], MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT);
}

/// Reads wake-up bytes by one call. Returns `false` if the other end is gone, or sent descriptors,
/// which no device does.
pub(super) fn drain(socket: &UnixStream, closer: &Closer) -> bool {
    let mut bytes = [0; 256];
    match descriptors::receive(socket, &mut bytes, closer) {
        Ok(received) => received.bytes != 0 && received.fds.is_empty(),
        Err(errno) => matches!(errno, Errno::EAGAIN | Errno::EINTR),
    }
}
