//! Descriptors that come with a message over a Unix socket.
//!
//! # Safety
//!
//! The one unsafe operation takes ownership of descriptors that arrived in a message: the kernel
//! has just opened them for this process, and only the control message names them.
#![allow(unsafe_code, reason = "descriptors arrive as numbers")]

use std::io::IoSliceMut;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::closer::{Closer, Foreign};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recvmsg};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Descriptors that the kernel delivers at once (linux/net/scm.h, `SCM_MAX_FD`), made even so that
/// nothing is padded.
const ROOM: usize = 253 + 1;

/// A control message as the kernel writes it (`struct cmsghdr` and its data), with room for all
/// that can come: descriptors are open here however many are wanted, so each must be seen.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Control {
    len: usize,
    level: i32,
    kind: i32,
    fds: [RawFd; ROOM],
}

impl Control {
    /// Takes the descriptors that `recvmsg` put here. The length says how many there are, also
    /// after MSG_CTRUNC (as when this process may open no more).
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
    /// Bytes that it put into the buffer.
    pub(crate) bytes: usize,
    /// Descriptors that came with the bytes, opened close-on-exec.
    pub(crate) fds: Vec<Foreign>,
    /// There were more that this process may not open.
    pub(crate) cut: bool,
}

/// Receives bytes, and the descriptors that come with them, which `closer` will close.
///
/// # Errors
///
/// What `recvmsg` says.
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

/// Takes a descriptor that the kernel has just made for us.
fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: it came with SCM_RIGHTS: it is new, open, and owned here alone.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
