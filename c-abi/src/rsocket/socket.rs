//! A socket, and its number.
//!
//! The number is an eventfd, so it is unique among files. The eventfd becomes readable when a
//! nonblocking connect ends.

use std::collections::HashMap;
use std::ffi::c_int;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    /// Listens from the first wait on, in the process that waits (`forks.rs`).
    Inherited(SocketAddr),
    Connecting,
    Connected(Arc<RdmaStream>),
    /// A bound or connected socket of datagrams.
    Datagrams(Arc<RdmaDatagram>),
    /// The connect failed; with the address of `rbind`, if bound.
    Failed(Option<SocketAddr>),
}

/// Sockets that were idle when a wait last looked at them.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Idle {
    /// Events that the wait looked for.
    events: i16,
    /// Calls on the socket, and the stream's activity, before that look.
    calls: u64,
    activity: u64,
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
    idle: Option<Idle>,
}

pub(super) struct Socket {
    file: EventFd,
    pub(super) family: c_int,
    /// `SOCK_STREAM` or `SOCK_DGRAM`.
    pub(super) kind: c_int,
    state: Mutex<State>,
    /// Calls of the program: each may change what a wait finds.
    calls: AtomicU64,
    /// This process has waited for connections.
    waited: AtomicBool,
}

static SOCKETS: RwLock<Option<HashMap<RawFd, Arc<Socket>>>> = RwLock::new(None);

/// Returns the socket with this number.
pub(super) fn of(number: c_int) -> Result<Arc<Socket>, Errno> {
    let socket = find(number).ok_or(Errno::EBADF)?;
    socket.calls.fetch_add(1, Ordering::Relaxed);
    Ok(socket)
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
        let state =
            State { options, status: 0, descriptor: 0, phase, error: 0, mapped, idle: None };
        let (state, calls) = (Mutex::new(state), AtomicU64::new(0));
        let waited = AtomicBool::new(false);
        let socket = Arc::new(Self { file, family, kind, state, calls, waited });
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
        let phase = self.phase();
        let is_begun = matches!(phase, Phase::Connected(_) | Phase::Datagrams(_));
        let listens = matches!(phase, Phase::Listening(_) | Phase::Inherited(_));
        (is_begun || listens) && !self.is_nonblocking(flags)
    }

    /// The listener, for a wait. An inherited one begins to listen.
    ///
    /// # Errors
    ///
    /// `EBADF` for other sockets; `EAGAIN` while another process has the address; the error of
    /// listening.
    pub(super) fn listener(&self) -> Result<Arc<RdmaListener>, Errno> {
        self.waited.store(true, Ordering::Relaxed);
        let mut state = self.state();
        match state.phase {
            Phase::Listening(ref listener) => Ok(Arc::clone(listener)),
            Phase::Inherited(own) => {
                let begun = state.listen(own);
                drop(state);
                // A device at another address (`softhca@loopback`) would be used next time.
                begun.inspect_err(|_| list::forget_unused()).map_err(|errno| match errno {
                    Errno::EADDRINUSE | Errno::EADDRNOTAVAIL => Errno::EAGAIN,
                    errno => errno,
                })
            }
            _ => Err(Errno::EBADF),
        }
    }

    /// Stops listening until the first wait, unless this process has waited.
    pub(super) fn hand_on(&self) {
        let mut state = self.state();
        if let Phase::Listening(listener) = &state.phase
            && !self.waited.load(Ordering::Relaxed)
            && let Ok(own) = listener.local_addr()
        {
            state.phase = Phase::Inherited(own);
        }
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
            Phase::Listening(_) | Phase::Inherited(_) | Phase::Datagrams(_) => {
                return Err(Errno::EINVAL);
            }
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

    /// File whose readability ends the idleness of a stream that had none of these events when it
    /// was last looked at. Saves looks at many idle streams.
    pub(super) fn idle(&self, events: i16) -> Option<pollfd> {
        let state = self.state();
        let (idle, Phase::Connected(stream)) = (state.idle?, &state.phase) else { return None };
        let is_unchanged = events & !idle.events == 0
            && idle.calls == self.calls.load(Ordering::Relaxed)
            && idle.activity == stream.activity();
        let fd = stream.as_fd().as_raw_fd();
        is_unchanged.then_some(pollfd { fd, events: POLLIN, revents: 0 })
    }

    /// Current events of a busy stream, which is not armed ([`RdmaStream::glance`]); `None` of
    /// other sockets.
    pub(super) fn glance(&self, events: i16) -> Option<i16> {
        let Phase::Connected(stream) = self.phase() else { return None };
        let Ok(ready) = stream.glance(wanted(events)) else { return Some(over(events)) };
        Some(seen(ready, stream.is_ended()))
    }

    /// [`look_at`](Self::look_at), which notes whether a stream is idle.
    pub(super) fn look(&self, events: i16) -> (i16, pollfd) {
        let calls = self.calls.load(Ordering::Relaxed);
        let before = match &self.state().phase {
            Phase::Connected(stream) => Some(stream.activity()),
            _ => None,
        };
        let found = self.look_at(events);
        // A look that handled events is repeated.
        let idle = before.filter(|_| found.0 == 0);
        self.state().idle = idle.map(|activity| Idle { events, calls, activity });
        found
    }

    /// Current events among `events` (`POLL*`), and the file and events to wait for until one
    /// occurs.
    fn look_at(&self, events: i16) -> (i16, pollfd) {
        let watched = |fd: RawFd, events| pollfd { fd, events, revents: 0 };
        let own = watched(self.file.as_fd().as_raw_fd(), POLLIN);
        let over = over(events);
        // Read once: another thread may connect the socket meanwhile.
        match self.phase() {
            Phase::New(_) | Phase::Connecting => (0, own),
            Phase::Failed(_) => (over, own),
            Phase::Listening(_) | Phase::Inherited(_) => {
                let listener = match self.listener() {
                    Ok(listener) => listener,
                    Err(Errno::EAGAIN) => return (0, own),
                    // `accept` returns the error.
                    Err(_) => return (over, own),
                };
                let file = watched(listener.as_fd().as_raw_fd(), events & POLLIN);
                let mut seen = file;
                super::poll::glance(std::slice::from_mut(&mut seen));
                (seen.revents, file)
            }
            Phase::Datagrams(datagrams) => {
                let file = watched(datagrams.as_fd().as_raw_fd(), POLLIN);
                let Ok(ready) = datagrams.ready(wanted(events)) else { return (over, file) };
                (seen(ready, false), file)
            }
            Phase::Connected(stream) => {
                let file = watched(stream.as_fd().as_raw_fd(), POLLIN);
                let Ok(ready) = stream.ready(wanted(events)) else { return (over, file) };
                (seen(ready, stream.is_ended()), file)
            }
        }
    }
}

impl State {
    /// Listens at an address.
    pub(super) fn listen(&mut self, own: SocketAddr) -> Result<Arc<RdmaListener>, Errno> {
        let listener = self.options.of_streams()?.listen(own).map_err(|error| errno(&error))?;
        let waits = self.status & O_NONBLOCK == 0;
        listener.set_nonblocking(!waits).map_err(|error| errno(&error))?;
        let listener = Arc::new(listener);
        self.phase = Phase::Listening(Arc::clone(&listener));
        Ok(listener)
    }
}

/// Directions that a program asks for.
fn wanted(events: i16) -> Ready {
    Ready { read: events & POLLIN != 0, write: events & POLLOUT != 0 }
}

/// Events of ready directions. `POLLHUP` comes after all bytes were read: a program that stops at
/// `POLLHUP` (rstream's `do_poll`) would lose the rest.
fn seen(ready: Ready, ended: bool) -> i16 {
    let bit = |is: bool, bit: i16| if is { bit } else { 0 };
    bit(ready.read, POLLIN) | bit(ready.write, POLLOUT) | bit(ended, POLLHUP)
}

/// Events of a socket that can't be used any more.
fn over(events: i16) -> i16 {
    events & (POLLIN | POLLOUT) | POLLERR
}

/// All sockets.
pub(super) fn all() -> Vec<Arc<Socket>> {
    let sockets = SOCKETS.read().unwrap_or_else(PoisonError::into_inner);
    sockets.iter().flat_map(HashMap::values).cloned().collect()
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
