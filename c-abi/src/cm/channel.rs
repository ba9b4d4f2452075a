//! Event channels.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uverbs_core::Errno;
use uverbs_core::commands::cm::Ucma;
use uverbs_core::error::Error;

use super::sys::rdma_event_channel;
use crate::base::answer::{given, last_errno};
use crate::base::cancel;
use crate::base::environment;
use crate::base::object::unique_key;

/// An event channel. The program's file is readable while an event is pending; its `O_NONBLOCK`
/// decides whether reading an event waits.
#[repr(C)]
pub(crate) struct Channel {
    c: rdma_event_channel,
    file: OwnedFd,
    ucma: Ucma,
    /// Tells channels apart that had the same address one after the other.
    key: u64,
}

// SAFETY: C's struct is a number.
unsafe impl Sync for Channel {}
// SAFETY: as above.
unsafe impl Send for Channel {}

/// Channels by address. A thread may wait for events of a channel that another destroys; Linux's
/// `ucma_get_event` keeps it asleep.
static LIVE: Mutex<BTreeMap<usize, Arc<Channel>>> = Mutex::new(BTreeMap::new());

fn live() -> MutexGuard<'static, BTreeMap<usize, Arc<Channel>>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Creates a file that is readable while `inner` is. Its flags are the program's; an embedded
/// device needs the flags of `inner`.
fn watching(inner: impl AsFd) -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes flags only.
    let made = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if made < 0 {
        return Err(last_errno());
    }
    // SAFETY: just made, and unknown to other threads.
    let file = unsafe { OwnedFd::from_raw_fd(made) };
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    let inner = inner.as_fd().as_raw_fd();
    // SAFETY: both files are open, and the event is read during the call.
    let added =
        unsafe { libc::epoll_ctl(file.as_raw_fd(), libc::EPOLL_CTL_ADD, inner, &raw mut event) };
    if added == 0 { Ok(file) } else { Err(last_errno()) }
}

impl Channel {
    pub(crate) fn open() -> Result<Arc<Self>, Error> {
        let ucma = Ucma::new(environment::connection_manager()?);
        let watched = watching(ucma.door().file());
        let file = watched.map_err(|errno| Error::System { what: "epoll", errno })?;
        let c = rdma_event_channel { fd: file.as_raw_fd() };
        Ok(Arc::new(Self { c, file, ucma, key: unique_key() }))
    }

    /// Keeps the channel until [`destroy_event_channel`] gets the result.
    pub(crate) fn keep(self: Arc<Self>) -> *mut rdma_event_channel {
        let channel = Arc::as_ptr(&self).cast_mut();
        live().insert(channel.addr(), self);
        channel.cast()
    }

    /// Returns the channel at the address unless it was destroyed. Sets `key` if it is unset, and
    /// finds only the channel with that key.
    pub(crate) fn find(
        channel: *const rdma_event_channel,
        key: &mut Option<u64>,
    ) -> Option<Arc<Self>> {
        let found = live().get(&channel.addr()).cloned()?;
        (*key.get_or_insert(found.key) == found.key).then_some(found)
    }

    /// The program's file.
    pub(crate) fn file(&self) -> RawFd {
        self.file.as_raw_fd()
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
}

/// Waits until an event of the channel with this file may be pending. A cancellation point.
///
/// # Errors
///
/// `EAGAIN` if the file is nonblocking; `EINTR`; `EBADF`.
///
/// # Safety
///
/// As [`cancel::poll`]: the caller holds no lock and no value that needs dropping.
pub(crate) unsafe fn wait(file: RawFd) -> Result<(), Errno> {
    // SAFETY: the call takes numbers only.
    let flags = unsafe { libc::fcntl(file, libc::F_GETFL) };
    if flags < 0 {
        return Err(last_errno());
    }
    if flags & libc::O_NONBLOCK != 0 {
        return Err(Errno::EAGAIN);
    }
    let mut poll = libc::pollfd { fd: file, events: libc::POLLIN, revents: 0 };
    // SAFETY: by the contract of `wait`; the entry lives for the call.
    if unsafe { cancel::poll(&raw mut poll, 1, -1) } < 0 { Err(last_errno()) } else { Ok(()) }
}

pub(crate) unsafe extern "C" fn create_event_channel() -> *mut rdma_event_channel {
    given(Channel::open().map(Channel::keep))
}

pub(crate) unsafe extern "C" fn destroy_event_channel(channel: *mut rdma_event_channel) {
    let ended = live().remove(&channel.addr());
    // Without the table's lock: the door's end is a command.
    drop(ended);
}
