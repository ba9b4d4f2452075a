//! A descriptor that comes with a server's message.
//!
//! # Safety
//!
//! The one unsafe operation takes ownership of received descriptors, which the kernel opened for
//! this process.
#![allow(unsafe_code, reason = "descriptors arrive as numbers")]

use std::io::{self, IoSliceMut};
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::sys::socket::{MsgFlags, recvmsg};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Control message (`struct cmsghdr` and its data). The kernel opens as many descriptors as fit,
/// and drops the rest: two, since the length is rounded up.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Control {
    len: usize,
    level: i32,
    kind: i32,
    fds: [RawFd; 2],
}

/// Receives bytes, and the first descriptor that comes with them.
pub(super) fn receive(
    socket: &UnixStream,
    buf: &mut [u8],
    file: &mut Option<OwnedFd>,
) -> io::Result<usize> {
    let mut control = Control::new_zeroed();
    let mut parts = [IoSliceMut::new(buf)];
    let space = Some(control.as_mut_bytes());
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, space, MsgFlags::MSG_CMSG_CLOEXEC)?;
    let bytes = message.bytes;
    if (control.level, control.kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
        let count = control.len.saturating_sub(offset_of!(Control, fds)) / size_of::<RawFd>();
        for fd in control.fds.into_iter().take(count) {
            // SAFETY: a new descriptor, which only this value owns.
            let received = unsafe { OwnedFd::from_raw_fd(fd) };
            // Others are closed.
            file.get_or_insert(received);
        }
    }
    Ok(bytes)
}
