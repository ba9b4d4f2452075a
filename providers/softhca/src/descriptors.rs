//! Descriptors received with a message over a Unix socket.
//!
//! # Safety
//!
//! The one unsafe operation takes ownership of received descriptors. The kernel opened them for
//! this process, and only the control message names them.
#![allow(unsafe_code, reason = "descriptors arrive as numbers")]

use std::io::IoSliceMut;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::closer::{Closer, Foreign};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recvmsg};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Maximum descriptors of a message (linux/net/scm.h, `SCM_MAX_FD`), rounded up to even so that the
/// struct has no padding.
const ROOM: usize = 253 + 1;

/// Control message as the kernel writes it (`struct cmsghdr` and its data), with room for the
/// maximum: the kernel opens all descriptors that fit, so each must be seen to be closed.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Control {
    len: usize,
    level: i32,
    kind: i32,
    fds: [RawFd; ROOM],
}

impl Control {
    /// Takes the received descriptors. The length tells their number, also after MSG_CTRUNC, when
    /// this process may open no more.
    fn take(self, closer: &Closer) -> Vec<Foreign> {
        if (self.level, self.kind) != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            return Vec::new();
        }
        let count = self.len.saturating_sub(offset_of!(Self, fds)) / size_of::<RawFd>();
        self.fds.into_iter().take(count).map(|fd| closer.own(own(fd))).collect()
    }
}

/// Result of one receive call.
pub(crate) struct Received {
    /// Number of bytes in the buffer.
    pub(crate) bytes: usize,
    /// Descriptors received with the bytes, opened close-on-exec.
    pub(crate) fds: Vec<Foreign>,
    /// True if the message had more descriptors than this process may open.
    pub(crate) cut: bool,
}

/// Receives bytes, and descriptors that come with them, which `closer` will close.
///
/// # Errors
///
/// The errors of `recvmsg`.
pub(crate) fn receive(
    socket: impl AsFd,
    buf: &mut [u8],
    closer: &Closer,
) -> Result<Received, Errno> {
    let mut control = Control::new_zeroed();
    let mut parts = [IoSliceMut::new(buf)];
    let raw = socket.as_fd().as_raw_fd();
    let space = Some(control.as_mut_bytes());
    let message = recvmsg::<()>(raw, &mut parts, space, MsgFlags::MSG_CMSG_CLOEXEC)?;
    let (bytes, cut) = (message.bytes, message.flags.contains(MsgFlags::MSG_CTRUNC));
    Ok(Received { bytes, fds: control.take(closer), cut })
}

/// Takes a descriptor that the kernel opened for this process.
fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: a new descriptor, received by SCM_RIGHTS, which only this value owns.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
