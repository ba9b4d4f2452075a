//! The socket to the client: messages, and the descriptors that come with them.
//!
//! # Safety
//!
//! The one unsafe operation takes ownership of descriptors that arrived in a message: the kernel has just opened them for this
//! process, and only the control message names them.
#![allow(unsafe_code, reason = "descriptors arrive as numbers")]

use std::io::{self, IoSliceMut, Read, Write};
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recvmsg};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::message::Header;

/// How long a message may take from its first byte to its last, and an answer to be taken.
const MESSAGE: Duration = Duration::from_secs(10);
/// Descriptors that a message may bring (QEMU's own limit is 16).
const MAX_FDS: usize = 16;
/// Descriptors that the kernel delivers at once (linux/net/scm.h, `SCM_MAX_FD`), made even so that nothing is padded.
const ROOM_FDS: usize = 253 + 1;

/// A control message as the kernel writes it (`struct cmsghdr` and its data), with room for all that can come: descriptors
/// are open here however many are wanted, so each must be seen.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Control {
    len: usize,
    level: i32,
    kind: i32,
    fds: [RawFd; ROOM_FDS],
}

impl Control {
    /// Takes what a call of `recvmsg` has put here. Also after MSG_CTRUNC, as when this process may open no more: the length
    /// says how many there are.
    fn take(self) -> Vec<OwnedFd> {
        if (self.level, self.kind) != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            return Vec::new();
        }
        let count = self.len.saturating_sub(offset_of!(Self, fds)) / size_of::<RawFd>();
        self.fds.into_iter().take(count).map(own).collect()
    }
}

/// A message and what came with it.
pub(super) struct Message {
    pub(super) header: Header,
    pub(super) body: Vec<u8>,
    pub(super) fds: Vec<OwnedFd>,
}

/// A client's socket.
pub(super) struct Channel {
    socket: UnixStream,
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Channel {
    pub(super) fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_read_timeout(Some(MESSAGE))?;
        socket.set_write_timeout(Some(MESSAGE))?;
        Ok(Self { socket })
    }

    /// Takes a message; None when the client has left.
    pub(super) fn receive(&self) -> io::Result<Option<Message>> {
        let mut header = Header::new_zeroed();
        let Some(fds) = self.start(header.as_mut_bytes())? else { return Ok(None) };
        let mut body = vec![0; header.body().ok_or_else(|| broken("not a vfio-user message"))?];
        (&self.socket).read_exact(&mut body)?;
        Ok(Some(Message { header, body, fds }))
    }

    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.socket).write_all(bytes)
    }

    /// Fills `buf` with the start of a message, and takes the descriptors that come with it. None at the end.
    fn start(&self, buf: &mut [u8]) -> io::Result<Option<Vec<OwnedFd>>> {
        let mut fds = Vec::new();
        let mut done = 0;
        while done < buf.len() {
            let mut control = Control::new_zeroed();
            let mut parts = [IoSliceMut::new(&mut buf[done..])];
            let raw = self.socket.as_raw_fd();
            let space = Some(control.as_mut_bytes());
            let (bytes, flags) =
                match recvmsg::<()>(raw, &mut parts, space, MsgFlags::MSG_CMSG_CLOEXEC) {
                    Err(Errno::EINTR) => continue,
                    Err(error) => return Err(error.into()),
                    Ok(message) => (message.bytes, message.flags),
                };
            fds.extend(control.take());
            if fds.len() > MAX_FDS {
                return Err(broken("too many descriptors in a message"));
            }
            if flags.contains(MsgFlags::MSG_CTRUNC) {
                return Err(broken("descriptors that could not be taken"));
            }
            match bytes {
                0 if done == 0 => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => done += bytes,
            }
        }
        Ok(Some(fds))
    }
}

fn broken(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Takes a descriptor that the kernel has just made for us.
fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: it came with SCM_RIGHTS: it is new, open, and nobody else in this process knows it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
