//! Thread that receives what the server sends: replies for the thread that waits for them, and
//! commands of the server, which it carries out.

use std::io::{self, IoSlice, Read};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{ControlMessage, MsgFlags, send, sendmsg};
use uverbs_core::Errno;
use uverbs_front::watch::Watch;
use zerocopy::{FromZeros, IntoBytes};

use super::message::{Header, Look, MAX_TRANSFER, Transfer, command, flag};
use super::rights;
use super::served::Served;
use crate::error::Error;

/// Maximum bytes of a body: of VERSION's reply, with its JSON text, and of a transfer.
const MAX_BODY: usize = 4096;
const MAX_COMMAND: usize = size_of::<Transfer>() + MAX_TRANSFER as usize;
/// Minimum timeout of a socket, for which zero means forever.
pub(super) const SHORTEST: Duration = Duration::from_millis(1);

/// Failure after which the connection can't be used.
#[derive(Debug)]
pub(super) enum Failure {
    System(io::Error),
    Protocol(&'static str),
}

/// Connection, as its two threads use it.
#[derive(Debug)]
pub(super) struct Line {
    socket: UnixStream,
    /// Held while a message is sent.
    sending: Mutex<()>,
    inbox: Mutex<Inbox>,
    changed: Condvar,
    /// Readable after the connection was closed.
    pub(super) ended: EventFd,
    pub(super) served: Served,
    /// Doorbell pages that the program mapped, if a store into them can be noticed.
    pub(super) watch: OnceLock<Arc<Watch>>,
    pub(super) limit: Duration,
}

/// Body of a reply, and a descriptor that came with it.
pub(super) type Reply = (Vec<u8>, Option<OwnedFd>);

#[derive(Debug, Default)]
struct Inbox {
    /// Number and command of the request that waits for its reply.
    expected: Option<(u16, u16)>,
    /// The reply, or the server's error.
    reply: Option<Result<Reply, Errno>>,
    /// The first failure, until a request took it.
    failure: Option<Failure>,
    closed: bool,
    /// The server closed the connection.
    left: bool,
}

impl Line {
    pub(super) fn new(socket: UnixStream, limit: Duration) -> Result<Self, Error> {
        let (sending, inbox, changed) = (Mutex::new(()), Mutex::default(), Condvar::new());
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let ended = EventFd::from_flags(flags).map_err(Error::nix("eventfd"))?;
        let (served, watch) = (Served::default(), OnceLock::new());
        Ok(Self { socket, sending, inbox, changed, ended, served, watch, limit })
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the connection, and ends the thread.
    pub(super) fn close(&self) {
        self.inbox().closed = true;
        self.changed.notify_all();
        // Fails if the counter is full, which is readable, too.
        let _ = self.ended.write(1);
        // Fails if the server closed it first.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    /// True if the server closed the connection.
    pub(super) fn is_left(&self) -> bool {
        self.inbox().left
    }

    /// Notes a failure in which the server closed the connection.
    fn note(&self, failure: &Failure) {
        if let Failure::System(error) = failure {
            use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
            let left = matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof);
            let mut inbox = self.inbox();
            // This side's own close ends the stream, too.
            inbox.left |= left && !inbox.closed;
        }
    }

    /// Closes the connection after a failure of a message of this side.
    pub(super) fn end(&self, what: &'static str, failure: Failure) -> Error {
        self.note(&failure);
        self.close();
        match failure {
            Failure::System(error) if error.raw_os_error().is_none() => {
                Error::System { what, errno: Errno::ENOTCONN }
            }
            Failure::System(error) => Error::system(what)(error),
            Failure::Protocol(what) => Error::Protocol { what },
        }
    }

    /// Closes the connection after a failure, which the request that waits takes.
    fn fail(&self, failure: Failure) {
        self.note(&failure);
        let mut inbox = self.inbox();
        if !inbox.closed {
            inbox.failure = Some(failure);
        }
        drop(inbox);
        self.close();
    }

    /// Failure of a request on a closed connection: its reason, once.
    fn closed(inbox: &mut Inbox) -> Failure {
        let failure = inbox.failure.take();
        failure.unwrap_or_else(|| Failure::System(io::ErrorKind::NotConnected.into()))
    }

    /// Sends a request, and waits for the reply; its inner error is the server's.
    pub(super) fn request(
        &self,
        (id, number): (u16, u16),
        (body, fds): (&[u8], &[BorrowedFd<'_>]),
    ) -> Result<Result<Reply, Errno>, Failure> {
        let until = Instant::now() + self.limit;
        self.inbox().expected = Some((id, number));
        let header = Header::new(id, number, flag::COMMAND, body);
        self.send((&header, body, fds), until)?;
        let mut inbox = self.inbox();
        loop {
            if let Some(reply) = inbox.reply.take() {
                return Ok(reply);
            }
            if inbox.closed {
                return Err(Self::closed(&mut inbox));
            }
            let left = left(until)?;
            let waited = self.changed.wait_timeout(inbox, left);
            inbox = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sends a message.
    pub(super) fn send(
        &self,
        (header, body, fds): (&Header, &[u8], &[BorrowedFd<'_>]),
        until: Instant,
    ) -> Result<(), Failure> {
        let message = [header.as_bytes(), body].concat();
        let _sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        self.write(&message, fds, until)
    }

    /// Sends a message that has no reply, if that takes no wait; false if it would.
    pub(super) fn try_send(&self, header: &Header, body: &[u8]) -> Result<bool, Failure> {
        let message = [header.as_bytes(), body].concat();
        let Ok(_sending) = self.sending.try_lock() else { return Ok(false) };
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        match send(self.socket.as_raw_fd(), &message, flags) {
            // The kernel takes a short message as a whole (`net/unix/af_unix.c`,
            // `unix_stream_sendmsg`).
            Ok(bytes) => {
                self.write(&message[bytes..], &[], Instant::now() + self.limit).map(|()| true)
            }
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => Ok(false),
            Err(errno) => Err(Failure::System(errno.into())),
        }
    }

    /// Writes bytes. The caller has the lock of senders.
    fn write(
        &self,
        mut rest: &[u8],
        fds: &[BorrowedFd<'_>],
        until: Instant,
    ) -> Result<(), Failure> {
        let fds = fds.iter().map(AsRawFd::as_raw_fd).collect::<Vec<_>>();
        let rights = [ControlMessage::ScmRights(&fds)];
        let mut control = if fds.is_empty() { &[][..] } else { &rights[..] };
        let mut inbox = self.inbox();
        if inbox.closed {
            return Err(Self::closed(&mut inbox));
        }
        drop(inbox);
        while !rest.is_empty() {
            self.socket.set_write_timeout(Some(left(until)?)).map_err(Failure::System)?;
            let parts = [IoSlice::new(rest)];
            let to = self.socket.as_raw_fd();
            match sendmsg::<()>(to, &parts, control, MsgFlags::MSG_NOSIGNAL, None) {
                Ok(bytes) => {
                    rest = &rest[bytes..];
                    // Descriptors go with the first bytes.
                    control = &[];
                }
                Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => return Err(Failure::System(errno.into())),
            }
        }
        Ok(())
    }

    /// Receives until the connection is closed.
    pub(super) fn run(&self) {
        loop {
            if let Err(failure) = self.receive() {
                return self.fail(failure);
            }
        }
    }

    fn receive(&self) -> Result<(), Failure> {
        let (mut header, mut file) = (Header::new_zeroed(), None);
        self.fill(header.as_mut_bytes(), None, Some(&mut file))?;
        let until = Some(Instant::now() + self.limit);
        let is_reply = header.flags & flag::TYPE == flag::REPLY;
        let is_command = header.flags & flag::TYPE == flag::COMMAND;
        if is_command && header.command == command::ARM {
            return self.arm(&header);
        }
        let is_transfer =
            is_command && matches!(header.command, command::DMA_READ | command::DMA_WRITE);
        if !is_reply && !is_transfer {
            return Err(Failure::Protocol("a message that is no reply"));
        }
        if is_reply && self.inbox().expected != Some((header.id, header.command)) {
            return Err(Failure::Protocol("a reply to another message"));
        }
        let most = if is_reply { MAX_BODY } else { MAX_COMMAND };
        let body = (header.size as usize).checked_sub(size_of::<Header>());
        let body = body.filter(|body| *body <= most);
        let mut body = vec![0; body.ok_or(Failure::Protocol("a reply of an invalid length"))?];
        self.fill(&mut body, until, None)?;
        if !is_reply {
            return self.serve(&header, &body);
        }
        let mut inbox = self.inbox();
        inbox.expected = None;
        inbox.reply = Some(match header.flags & flag::ERROR {
            0 => Ok((body, file)),
            _ => Err(i32::try_from(header.error).map_or(Errno::EIO, Errno::from_raw)),
        });
        drop(inbox);
        self.changed.notify_all();
        Ok(())
    }

    /// Protects the doorbell pages, and tells the server so. Without protection the server looks
    /// at them now and then.
    fn arm(&self, header: &Header) -> Result<(), Failure> {
        if header.size as usize != size_of::<Header>() {
            return Err(Failure::Protocol("a command of an invalid length"));
        }
        if self.watch.get().is_some_and(|watch| watch.protect()) {
            self.look(false);
        }
        Ok(())
    }

    /// Has the server look at the doorbell pages: into which a store is made, or which are
    /// protected. Never waits: a server that has other messages to read looks anyway.
    pub(super) fn look(&self, stored: bool) {
        let look = Look { stored: stored.into() };
        let header = Header::new(0, command::LOOK, flag::NO_REPLY, look.as_bytes());
        // The end of the connection is seen by this side's next receive.
        let _ = self.try_send(&header, look.as_bytes());
    }

    /// Carries out a command of the server.
    fn serve(&self, header: &Header, body: &[u8]) -> Result<(), Failure> {
        let done = match header.command {
            command::DMA_READ => self.served.read(body),
            _ => self.served.write(body),
        };
        let (flags, error, body) = match done {
            Ok(body) => (flag::REPLY, 0, body),
            Err(errno) => (flag::REPLY | flag::ERROR, errno.raw().cast_unsigned(), Vec::new()),
        };
        let reply = Header { error, ..Header::new(header.id, header.command, flags, &body) };
        self.send((&reply, &body, &[]), Instant::now() + self.limit)
    }

    /// Fills `rest`, and takes a descriptor that comes with it; without a time limit, waits for the
    /// first byte for ever.
    fn fill(
        &self,
        mut rest: &mut [u8],
        mut until: Option<Instant>,
        mut file: Option<&mut Option<OwnedFd>>,
    ) -> Result<(), Failure> {
        let mut socket = &self.socket;
        while !rest.is_empty() {
            let left = until.map(left).transpose()?;
            socket.set_read_timeout(left).map_err(Failure::System)?;
            let read = match &mut file {
                Some(file) => rights::receive(socket, rest, file),
                None => socket.read(rest),
            };
            match read {
                Ok(0) => return Err(Failure::System(io::ErrorKind::UnexpectedEof.into())),
                Ok(bytes) => {
                    rest = &mut rest[bytes..];
                    until = until.or_else(|| Some(Instant::now() + self.limit));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::System(error)),
            }
        }
        Ok(())
    }
}

/// Time left, which is never zero.
fn left(until: Instant) -> Result<Duration, Failure> {
    let left = until.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(Failure::System(io::Error::from_raw_os_error(Errno::ETIMEDOUT.raw()))),
        false => Ok(left.max(SHORTEST)),
    }
}
