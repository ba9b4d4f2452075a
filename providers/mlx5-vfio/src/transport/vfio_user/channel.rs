//! Socket to a vfio-user server: one request at a time.
//!
//! The server may be hostile: lengths are compared with what the request allows, and a message that
//! trickles in has a time limit. After a violation the stream has no known position, so the
//! connection ends.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr, connect};
use uverbs_core::memory::process::Process;
use uverbs_core::thread;

use super::message::{Header, flag};
use super::reader::{Line, Reply, SHORTEST};
use crate::error::Error;

/// A connection.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) line: Arc<Line>,
    id: u16,
    process: Process,
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
                Ok(()) => return Self::new(socket, limit),
                Err(nix::errno::Errno::EINTR) => {}
                // The backlog is full.
                Err(nix::errno::Errno::EAGAIN) => {
                    return Err(Error::Busy { path: path.to_owned() });
                }
                Err(errno) => return Err(failed(errno)),
            }
        }
    }

    /// Uses a connected socket.
    pub(super) fn new(socket: UnixStream, limit: Duration) -> Result<Self, Error> {
        let line = Arc::new(Line::new(socket, limit)?);
        let reads = Arc::clone(&line);
        let started = thread::start("uverbs-vfio", move || reads.run());
        started.map_err(Error::system("starting a thread"))?;
        Ok(Self { line, id: 0, process: Process::current() })
    }

    /// Sends a request with descriptors, and returns the reply.
    pub(super) fn request(
        &mut self,
        (command, what): (u16, &'static str),
        body: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<Reply, Error> {
        self.id = self.id.wrapping_add(1);
        let answer = self.line.request((self.id, command), (body, fds));
        let answer = answer.map_err(|failure| self.line.end(what, failure))?;
        // The server's own errno leaves the stream in order.
        answer.map_err(|errno| Error::System { what, errno })
    }

    /// Sends a request that has no reply.
    pub(super) fn post(
        &mut self,
        (command, what): (u16, &'static str),
        body: &[u8],
    ) -> Result<(), Error> {
        self.id = self.id.wrapping_add(1);
        let header = Header::new(self.id, command, flag::NO_REPLY, body);
        let sent = self.line.send((&header, body, &[]), Instant::now() + self.line.limit);
        sent.map_err(|failure| self.line.end(what, failure))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // The parent of a forked child goes on with the connection.
        if self.process.is_current() {
            self.line.served.clear();
            self.line.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::{Backlog, bind, listen};
    use uverbs_core::Errno;

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
        let asked = path.clone();
        std::thread::spawn(move || told.send(Channel::connect(&asked, limit).map(drop)));
        match tells.recv_timeout(Duration::from_secs(10)).unwrap() {
            Err(Error::Busy { path: busy }) => assert_eq!(busy, path),
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
