//! A socket, and its number.
//!
//! The number is an eventfd, so it is unique among files. The eventfd becomes readable when a
//! nonblocking connect ends.

use std::collections::HashMap;
use std::ffi::c_int;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use libc::{O_NONBLOCK, POLLERR, POLLHUP, POLLIN, POLLOUT, SOCK_DGRAM, pollfd};
use nix::sys::eventfd::{EfdFlags, EventFd};
use uverbs_core::{Errno, thread};
use uverbs_streams::{RdmaDatagram, RdmaListener, RdmaStream, Ready, StreamOptions};

use super::errno;
use super::options::Options;
use crate::device::list;

/// State of a socket.
#[derive(Clone)]
pub(super) enum Phase {
    /// Created; with the address of `rbind`, if bound.
    New(Option<SocketAddr>),
    Listening(Arc<RdmaListener>),
    Connecting,
    Connected(Arc<RdmaStream>),
    /// A bound or connected socket of datagrams.
    Datagrams(Arc<RdmaDatagram>),
    /// The connect failed; with the address of `rbind`, if bound.
    Failed(Option<SocketAddr>),
}

/// Program memory of `riomap`, offered to the peer or only registered.
pub(super) struct Mapped {
    pub(super) addr: usize,
    pub(super) len: usize,
    pub(super) is_offered: bool,
}

pub(super) struct State {
    pub(super) options: Options,
    /// `O_*` and `FD_*`, as `rfcntl` returns them.
    pub(super) status: c_int,
    pub(super) descriptor: c_int,
    pub(super) phase: Phase,
    /// `SO_ERROR`: the reason of a failed connect.
    pub(super) error: c_int,
    pub(super) mapped: Vec<Mapped>,
}

pub(super) struct Socket {
    file: EventFd,
    pub(super) family: c_int,
    /// `SOCK_STREAM` or `SOCK_DGRAM`.
    pub(super) kind: c_int,
    state: Mutex<State>,
}

static SOCKETS: RwLock<Option<HashMap<RawFd, Arc<Socket>>>> = RwLock::new(None);

/// Returns the socket with this number.
pub(super) fn of(number: c_int) -> Result<Arc<Socket>, Errno> {
    find(number).ok_or(Errno::EBADF)
}

pub(super) fn find(number: c_int) -> Option<Arc<Socket>> {
    SOCKETS.read().unwrap_or_else(PoisonError::into_inner).as_ref()?.get(&number).cloned()
}

/// Removes the socket with this number.
pub(super) fn remove(number: c_int) -> Result<Arc<Socket>, Errno> {
    let mut sockets = SOCKETS.write().unwrap_or_else(PoisonError::into_inner);
    sockets.as_mut().and_then(|sockets| sockets.remove(&number)).ok_or(Errno::EBADF)
}

impl Socket {
    /// Adds a socket and returns its number.
    pub(super) fn insert(
        (family, kind): (c_int, c_int),
        options: Options,
        phase: Phase,
    ) -> Result<c_int, Errno> {
        let file = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let file = file.map_err(|errno| Errno::from_raw(errno as i32))?;
        let (number, mapped) = (file.as_fd().as_raw_fd(), Vec::new());
        let state = State { options, status: 0, descriptor: 0, phase, error: 0, mapped };
        let socket = Arc::new(Self { file, family, kind, state: Mutex::new(state) });
        let mut sockets = SOCKETS.write().unwrap_or_else(PoisonError::into_inner);
        sockets.get_or_insert_default().insert(number, socket);
        Ok(number)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn phase(&self) -> Phase {
        self.state().phase.clone()
    }

    /// Returns true if a call with these flags (`MSG_*`) must not wait.
    pub(super) fn is_nonblocking(&self, flags: c_int) -> bool {
        flags & libc::MSG_DONTWAIT != 0 || self.state().status & O_NONBLOCK != 0
    }

    /// Returns true if a call with these flags may wait for the peer.
    pub(super) fn may_wait(&self, flags: c_int) -> bool {
        let is_begun =
            matches!(self.phase(), Phase::Listening(_) | Phase::Connected(_) | Phase::Datagrams(_));
        is_begun && !self.is_nonblocking(flags)
    }

    /// The stream of a connected socket.
    ///
    /// # Errors
    ///
    /// `EAGAIN` while connecting (`rsend`), `ENOTCONN` otherwise.
    pub(super) fn stream(&self) -> Result<Arc<RdmaStream>, Errno> {
        match &self.state().phase {
            Phase::Connected(stream) => Ok(Arc::clone(stream)),
            Phase::Connecting => Err(Errno::EAGAIN),
            _ => Err(Errno::ENOTCONN),
        }
    }

    pub(super) fn is_of_datagrams(&self) -> bool {
        self.kind == SOCK_DGRAM
    }

    /// The socket of datagrams, created at first use at address `at` or any.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an address if the socket is bound; the error of the creation.
    pub(super) fn datagrams(&self, at: Option<SocketAddr>) -> Result<Arc<RdmaDatagram>, Errno> {
        let mut state = self.state();
        if let Phase::Datagrams(known) = &state.phase {
            return if at.is_none() { Ok(Arc::clone(known)) } else { Err(Errno::EINVAL) };
        }
        let at = at.unwrap_or_else(|| any(self.family));
        let made = state.options.of_streams()?.datagrams(at).map_err(|error| errno(&error))?;
        let made = Arc::new(made);
        state.phase = Phase::Datagrams(Arc::clone(&made));
        Ok(made)
    }

    /// Connects; a nonblocking socket starts a connect.
    ///
    /// # Errors
    ///
    /// `EINPROGRESS` if the connect was started; `EISCONN`, `EALREADY`, `EINVAL`; the reason of a
    /// failed connect.
    pub(super) fn connect(self: &Arc<Self>, to: SocketAddr) -> Result<(), Errno> {
        if self.is_of_datagrams() {
            return self.datagrams(None)?.connect(to).map_err(|error| errno(&error));
        }
        let mut state = self.state();
        let own = match state.phase {
            Phase::New(own) | Phase::Failed(own) => own,
            Phase::Connecting => return Err(Errno::EALREADY),
            Phase::Connected(_) => return Err(Errno::EISCONN),
            Phase::Listening(_) | Phase::Datagrams(_) => return Err(Errno::EINVAL),
        };
        let options = state.options.of_streams()?;
        let options = match own {
            Some(own) => options.from(own),
            None => options,
        };
        (state.phase, state.error) = (Phase::Connecting, 0);
        let waits = state.status & O_NONBLOCK == 0;
        drop(state);
        // Clears the notification of an earlier attempt.
        let _ = self.file.read();
        if waits {
            return self.connected(options.connect(to), own, false);
        }
        let socket = Arc::clone(self);
        let begun = thread::start("rconnect", move || {
            // `SO_ERROR` reports the result.
            let _ = socket.connected(options.connect(to), own, true);
            // Only readability matters: a full counter refuses the write, but is readable.
            let _ = socket.file.write(1);
        });
        match begun {
            Ok(()) => Err(Errno::EINPROGRESS),
            Err(error) => self.connected(Err(error), own, false),
        }
    }

    fn connected(
        &self,
        result: io::Result<RdmaStream>,
        own: Option<SocketAddr>,
        later: bool,
    ) -> Result<(), Errno> {
        let (phase, done) = match result {
            Ok(stream) => (Phase::Connected(Arc::new(stream)), Ok(())),
            Err(error) => (Phase::Failed(own), Err(errno(&error))),
        };
        let mut state = self.state();
        state.phase = phase;
        // A blocking call returned the error itself.
        if let (Err(errno), true) = (done, later) {
            state.error = errno.raw();
        }
        done
    }

    /// Shuts down the stream and withdraws the memory offered to the peer. Another thread may still
    /// hold the socket in a wait.
    pub(super) fn close(&self) {
        let Phase::Connected(stream) = self.phase() else { return };
        let _ = stream.shutdown(Shutdown::Both);
        let mapped = std::mem::take(&mut self.state().mapped);
        for it in mapped.iter().filter(|it| it.is_offered) {
            let _ = stream.unmap(it.addr as u64, it.len);
        }
    }

    /// Current events among `events` (`POLL*`), and the file and events to wait for until one
    /// occurs.
    pub(super) fn look(&self, events: i16) -> (i16, pollfd) {
        let watched = |fd: RawFd, events| pollfd { fd, events, revents: 0 };
        let bit = |is: bool, bit: i16| if is { bit } else { 0 };
        let own = watched(self.file.as_fd().as_raw_fd(), POLLIN);
        let over = events & (POLLIN | POLLOUT) | POLLERR;
        // Read once: another thread may connect the socket meanwhile.
        match self.phase() {
            Phase::New(_) | Phase::Connecting => (0, own),
            Phase::Failed(_) => (over, own),
            Phase::Listening(listener) => {
                let file = watched(listener.as_fd().as_raw_fd(), events & POLLIN);
                let mut seen = file;
                super::poll::glance(std::slice::from_mut(&mut seen));
                (seen.revents, file)
            }
            Phase::Datagrams(datagrams) => {
                let file = watched(datagrams.as_fd().as_raw_fd(), POLLIN);
                let wanted = Ready { read: events & POLLIN != 0, write: events & POLLOUT != 0 };
                let Ok(ready) = datagrams.ready(wanted) else { return (over, file) };
                (bit(ready.read, POLLIN) | bit(ready.write, POLLOUT), file)
            }
            Phase::Connected(stream) => {
                let file = watched(stream.as_fd().as_raw_fd(), POLLIN);
                let wanted = Ready { read: events & POLLIN != 0, write: events & POLLOUT != 0 };
                let Ok(ready) = stream.ready(wanted) else { return (over, file) };
                // `POLLHUP` comes after all bytes were read: a program that stops at `POLLHUP`
                // (rstream's `do_poll`) would lose the rest.
                let ended = stream.is_ended();
                let seen = bit(ready.read, POLLIN) | bit(ready.write, POLLOUT);
                (seen | bit(ended, POLLHUP), file)
            }
        }
    }
}

/// The unspecified address of a family.
pub(super) fn any(family: c_int) -> SocketAddr {
    match family {
        libc::AF_INET6 => (Ipv6Addr::UNSPECIFIED, 0).into(),
        _ => (Ipv4Addr::UNSPECIFIED, 0).into(),
    }
}

/// Options with the connection manager of the devices that programs see: see
/// [`crate::cm::channel`].
pub(super) fn on_device(options: StreamOptions) -> Result<StreamOptions, Errno> {
    let devices = list::devices().map_err(|error| error.to_errno())?;
    let device = devices.first().ok_or(Errno::ENODEV)?;
    Ok(options.on(device.device()))
}
