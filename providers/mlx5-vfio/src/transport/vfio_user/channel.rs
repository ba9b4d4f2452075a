//! Socket to a vfio-user server: one request at a time.
//!
//! The server may be hostile: lengths are compared with what the request allows, and a message that
//! trickles in has a time limit. After a violation the stream has no known position, so the
//! connection ends.

use std::io::{self, IoSlice, Read};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    self, AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, sendmsg,
};
use uverbs_core::Errno;
use zerocopy::{FromZeros, IntoBytes};

use super::message::{Header, flag};
use crate::error::Error;

/// Maximum bytes of a reply's body. Replies are longest for VERSION, with its JSON text.
const MAX_BODY: usize = 4096;
/// Minimum timeout of a socket, for which zero means forever.
const SHORTEST: Duration = Duration::from_millis(1);

/// A connection.
#[derive(Debug)]
pub(super) struct Channel {
    /// `None` after a failure.
    socket: Option<UnixStream>,
    /// The server closed the connection.
    left: bool,
    id: u16,
    limit: Duration,
}

impl Channel {
    /// Connects to a server. `limit` is the time limit of each message and its reply.
    pub(super) fn connect(path: &Path, limit: Duration) -> Result<Self, Error> {
        let until = Instant::now() + limit;
        let failed = Error::nix("connecting to the vfio-user socket");
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None);
        let socket = UnixStream::from(socket.map_err(&failed)?);
        let address = UnixAddr::new(path).map_err(&failed)?;
        loop {
            // The limit of a connect, too (kernel `net/unix/af_unix.c`, `unix_stream_connect`).
            let timeout = until.saturating_duration_since(Instant::now()).max(SHORTEST);
            let set = socket.set_write_timeout(Some(timeout));
            set.map_err(Error::system("SO_SNDTIMEO"))?;
            match connect(socket.as_raw_fd(), &address) {
                Ok(()) => return Ok(Self::new(socket, limit)),
                Err(nix::errno::Errno::EINTR) => {}
                // The backlog is full.
                Err(nix::errno::Errno::EAGAIN) => {
                    let what = "the connection to the vfio-user server".to_owned();
                    return Err(Error::TimedOut { what, waited: limit });
                }
                Err(errno) => return Err(failed(errno)),
            }
        }
    }

    /// Uses a connected socket.
    pub(super) fn new(socket: UnixStream, limit: Duration) -> Self {
        Self { socket: Some(socket), left: false, id: 0, limit }
    }

    /// True if the server closed the connection.
    pub(super) fn is_left(&self) -> bool {
        self.left
    }

    /// Sends a request with descriptors, and returns the body of the reply.
    pub(super) fn request(
        &mut self,
        (command, what): (u16, &'static str),
        body: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<Vec<u8>, Error> {
        let until = Instant::now() + self.limit;
        self.id = self.id.wrapping_add(1);
        let answer = self
            .send(command, 0, (body, fds), until)
            .and_then(|()| self.reply(command, until))
            .map_err(|failure| self.fail(what, failure))?;
        // The server's own errno leaves the stream in order.
        answer.map_err(|errno| Error::System { what, errno })
    }

    /// Sends a request that has no reply.
    pub(super) fn post(
        &mut self,
        (command, what): (u16, &'static str),
        body: &[u8],
    ) -> Result<(), Error> {
        let until = Instant::now() + self.limit;
        self.id = self.id.wrapping_add(1);
        self.send(command, flag::NO_REPLY, (body, &[]), until)
            .map_err(|failure| self.fail(what, failure))
    }

    /// Closes the connection.
    fn fail(&mut self, what: &'static str, failure: Failure) -> Error {
        self.socket = None;
        if let Failure::System(error) = &failure {
            use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
            self.left |= matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof);
        }
        match failure {
            Failure::System(error) if error.raw_os_error().is_none() => {
                Error::System { what, errno: Errno::ENOTCONN }
            }
            Failure::System(error) => Error::system(what)(error),
            Failure::Protocol(what) => Error::Protocol { what },
        }
    }

    fn socket(&self) -> Result<&UnixStream, Failure> {
        self.socket.as_ref().ok_or_else(|| Failure::System(io::ErrorKind::NotConnected.into()))
    }

    fn send(
        &self,
        command: u16,
        flags: u32,
        (body, fds): (&[u8], &[BorrowedFd<'_>]),
        until: Instant,
    ) -> Result<(), Failure> {
        let socket = self.socket()?;
        let size = (size_of::<Header>() + body.len()) as u32;
        let header = Header { id: self.id, command, size, flags, error: 0 };
        let message = [header.as_bytes(), body].concat();
        let fds = fds.iter().map(AsRawFd::as_raw_fd).collect::<Vec<_>>();
        let rights = [ControlMessage::ScmRights(&fds)];
        let mut control = if fds.is_empty() { &[][..] } else { &rights[..] };
        let mut rest = &message[..];
        while !rest.is_empty() {
            socket.set_write_timeout(Some(left(until)?)).map_err(Failure::System)?;
            let parts = [IoSlice::new(rest)];
            let to = socket.as_raw_fd();
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

    /// Receives the reply to the last request; its inner error is the server's.
    fn reply(&self, command: u16, until: Instant) -> Result<Result<Vec<u8>, Errno>, Failure> {
        let mut header = Header::new_zeroed();
        self.fill(header.as_mut_bytes(), until)?;
        if header.flags & flag::TYPE != flag::REPLY {
            return Err(Failure::Protocol("a message that is no reply"));
        }
        if (header.id, header.command) != (self.id, command) {
            return Err(Failure::Protocol("a reply to another message"));
        }
        let body = (header.size as usize).checked_sub(size_of::<Header>());
        let body = body.filter(|body| *body <= MAX_BODY);
        let mut body = vec![0; body.ok_or(Failure::Protocol("a reply of an invalid length"))?];
        self.fill(&mut body, until)?;
        Ok(match header.flags & flag::ERROR {
            0 => Ok(body),
            _ => Err(i32::try_from(header.error).map_or(Errno::EIO, Errno::from_raw)),
        })
    }

    fn fill(&self, mut rest: &mut [u8], until: Instant) -> Result<(), Failure> {
        let mut socket = self.socket()?;
        while !rest.is_empty() {
            socket.set_read_timeout(Some(left(until)?)).map_err(Failure::System)?;
            match socket.read(rest) {
                Ok(0) => return Err(Failure::System(io::ErrorKind::UnexpectedEof.into())),
                Ok(bytes) => rest = &mut rest[bytes..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::System(error)),
            }
        }
        Ok(())
    }
}

/// Failure after which the connection can't be used.
enum Failure {
    System(io::Error),
    Protocol(&'static str),
}

/// Time left, which is never zero.
fn left(until: Instant) -> Result<Duration, Failure> {
    let left = until.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(Failure::System(io::Error::from_raw_os_error(Errno::ETIMEDOUT.raw()))),
        false => Ok(left.max(SHORTEST)),
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::{Backlog, bind, listen};

    use super::*;

    /// A server that listens and accepts no client.
    #[test]
    fn a_full_backlog_has_the_limit_of_a_message() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hca.sock");
        let flags = SockFlag::SOCK_CLOEXEC;
        let server = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
        bind(server.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        listen(&server, Backlog::new(0).unwrap()).unwrap();
        let _first = UnixStream::connect(&path).unwrap();
        let (told, tells) = std::sync::mpsc::channel();
        let limit = Duration::from_millis(100);
        std::thread::spawn(move || told.send(Channel::connect(&path, limit).map(drop)));
        match tells.recv_timeout(Duration::from_secs(10)).unwrap() {
            Err(Error::TimedOut { waited, .. }) => assert_eq!(waited, limit),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_missing_server_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let refused = Channel::connect(&dir.path().join("none"), Duration::from_secs(10));
        let errno = Errno::ENOENT;
        let what = "connecting to the vfio-user socket";
        assert_eq!(refused.map(drop), Err(Error::System { what, errno }));
    }
}
