//! Event channels.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use uverbs_core::Errno;
use uverbs_core::commands::cm::Ucma;
use uverbs_core::error::Error;

use super::sys::rdma_event_channel;
use crate::base::answer::boxed;
use crate::base::cancel;
use crate::base::environment;

/// An event channel. The program's file is readable while an event is pending; its `O_NONBLOCK`
/// decides whether reading an event waits.
#[repr(C)]
pub(crate) struct Channel {
    c: rdma_event_channel,
    file: OwnedFd,
    ucma: Ucma,
}

/// Creates a file that is readable while `inner` is. Its flags are the program's; an embedded
/// device needs the flags of `inner`.
fn watching(inner: impl AsFd) -> Result<OwnedFd, Errno> {
    let last = || Errno::of(&std::io::Error::last_os_error());
    // SAFETY: the call takes flags only.
    let made = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if made < 0 {
        return Err(last());
    }
    // SAFETY: just made, and unknown to other threads.
    let file = unsafe { OwnedFd::from_raw_fd(made) };
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    let inner = inner.as_fd().as_raw_fd();
    // SAFETY: both files are open, and the event is read during the call.
    let added =
        unsafe { libc::epoll_ctl(file.as_raw_fd(), libc::EPOLL_CTL_ADD, inner, &raw mut event) };
    if added == 0 { Ok(file) } else { Err(last()) }
}

impl Channel {
    pub(crate) fn open() -> Result<Box<Self>, Error> {
        let ucma = Ucma::new(environment::connection_manager()?);
        let watched = watching(ucma.door().file());
        let file = watched.map_err(|errno| Error::System { what: "epoll", errno })?;
        let c = rdma_event_channel { fd: file.as_raw_fd() };
        Ok(Box::new(Self { c, file, ucma }))
    }

    /// # Safety
    ///
    /// C's contract.
    pub(crate) unsafe fn of<'a>(channel: *const rdma_event_channel) -> &'a Self {
        // SAFETY: by C's contract; C's struct is the first member of this object.
        unsafe { &*channel.cast() }
    }

    pub(crate) fn ucma(&self) -> &Ucma {
        &self.ucma
    }

    /// Waits until an event may be pending. A cancellation point.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if the program's file is nonblocking; `EINTR`.
    ///
    /// # Safety
    ///
    /// As [`cancel::poll`]: the caller holds no lock and no value that needs dropping.
    pub(crate) unsafe fn wait(&self) -> Result<(), Errno> {
        let last = || Errno::of(&std::io::Error::last_os_error());
        let file = self.file.as_raw_fd();
        // SAFETY: flags of a file that is open.
        let flags = unsafe { libc::fcntl(file, libc::F_GETFL) };
        if flags & libc::O_NONBLOCK != 0 {
            return Err(Errno::EAGAIN);
        }
        let mut poll = libc::pollfd { fd: file, events: libc::POLLIN, revents: 0 };
        // SAFETY: by the contract of `wait`; the entry lives for the call.
        if unsafe { cancel::poll(&raw mut poll, 1, -1) } < 0 { Err(last()) } else { Ok(()) }
    }
}

pub(crate) unsafe extern "C" fn create_event_channel() -> *mut rdma_event_channel {
    boxed(Channel::open()).cast()
}

pub(crate) unsafe extern "C" fn destroy_event_channel(channel: *mut rdma_event_channel) {
    // SAFETY: C's contract: the object was kept as a box of this type, and is used no more.
    drop(unsafe { Box::from_raw(channel.cast::<Channel>()) });
}
