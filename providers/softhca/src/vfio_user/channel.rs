//! Socket of a client: messages, and descriptors that come with them. The client chooses these, so
//! a [`Closer`] closes all of them, and also the socket, which may contain more.
//!
//! The server sends commands, too, which read and write the client's memory. Commands of the client
//! that arrive before the reply wait in a queue.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use zerocopy::{FromZeros, IntoBytes};

use super::message::{Header, flag};
use crate::closer::{Closer, Connection, Foreign};
use crate::descriptors;

/// Time limit for a message from its first byte to its last, and for the client to take a reply.
const MESSAGE: Duration = Duration::from_secs(10);
/// Time limit for the client's descriptors to be closed, if many wait.
const CLOSING: Duration = Duration::from_millis(100);
/// Maximum descriptors of a message (QEMU's own limit is 16).
const MAX_FDS: usize = 16;
/// Maximum commands of the client that wait for the reply to one of the server, and of their bytes
/// and descriptors.
const MAX_WAITING: usize = 4096;
const MAX_WAITING_BYTES: usize = 4 << 20;
const MAX_WAITING_FDS: usize = 64;

/// A message and its descriptors.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) header: Header,
    pub(super) body: Vec<u8>,
    pub(super) fds: Vec<Foreign>,
}

/// A client's socket.
#[derive(Debug)]
pub(super) struct Channel {
    socket: Connection,
    closer: Closer,
    limit: Duration,
    asked: Mutex<Asked>,
}

/// Commands of the server, and of the client meanwhile.
#[derive(Debug, Default)]
struct Asked {
    id: u16,
    waiting: VecDeque<Message>,
    /// Bytes and descriptors of the waiting commands.
    bytes: usize,
    fds: usize,
    /// A command failed, so the stream has no known position.
    broken: bool,
}

impl Asked {
    /// Lets a command of the client wait.
    fn hold(&mut self, message: Message) -> io::Result<()> {
        let (bytes, fds) = (self.bytes + message.body.len(), self.fds + message.fds.len());
        let most = self.waiting.len() == MAX_WAITING;
        if most || bytes > MAX_WAITING_BYTES || fds > MAX_WAITING_FDS {
            return Err(broken("too many commands before a reply"));
        }
        (self.bytes, self.fds) = (bytes, fds);
        self.waiting.push_back(message);
        Ok(())
    }

    /// Takes the oldest command that waits.
    fn take(&mut self) -> Option<Message> {
        let message = self.waiting.pop_front()?;
        self.bytes -= message.body.len();
        self.fds -= message.fds.len();
        Some(message)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Channel {
    pub(super) fn new(socket: UnixStream, closer: &Closer) -> io::Result<Self> {
        Self::with_limit(socket, closer, MESSAGE)
    }

    fn with_limit(socket: UnixStream, closer: &Closer, limit: Duration) -> io::Result<Self> {
        let (socket, closer) = (closer.connection(socket), closer.clone());
        socket.set_nonblocking(true)?;
        Ok(Self { socket, closer, limit, asked: Mutex::default() })
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if [`Channel::receive`] has an outcome without a look at the socket.
    pub(super) fn is_ready(&self) -> bool {
        let asked = self.asked();
        asked.broken || !asked.waiting.is_empty()
    }

    /// Receives a command, which has begun; `None` if the client has left.
    pub(super) fn receive(&self) -> io::Result<Option<Message>> {
        let mut asked = self.asked();
        if asked.broken {
            return Err(broken("a command of the server failed"));
        }
        if let Some(message) = asked.take() {
            return Ok(Some(message));
        }
        match self.next()? {
            Some(message) if !message.header.is_command() => Err(broken("a reply to no command")),
            message => Ok(message),
        }
    }

    /// Sends a command to the client, and returns the body of its reply; `None` if it refused, or
    /// if an earlier command failed.
    pub(super) fn ask(&self, command: u16, body: &[u8]) -> Option<Vec<u8>> {
        let mut asked = self.asked();
        if asked.broken {
            return None;
        }
        let reply = self.reply(&mut asked, command, body);
        asked.broken = reply.is_err();
        reply.ok().flatten()
    }

    fn reply(&self, asked: &mut Asked, command: u16, body: &[u8]) -> io::Result<Option<Vec<u8>>> {
        asked.id = asked.id.wrapping_add(1);
        let size = (size_of::<Header>() + body.len()) as u32;
        let header = Header { id: asked.id, command, size, flags: flag::COMMAND, error: 0 };
        self.send(&[header.as_bytes(), body].concat())?;
        let until = Instant::now() + self.limit;
        loop {
            if Instant::now() >= until {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.wait(io::ErrorKind::WouldBlock.into(), PollFlags::POLLIN, until)?;
            let message = self.next()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if message.header.is_command() {
                asked.hold(message)?;
            } else if (message.header.id, message.header.command) != (asked.id, command) {
                return Err(broken("a reply to another command"));
            } else {
                return Ok((message.header.flags & flag::ERROR == 0).then_some(message.body));
            }
        }
    }

    /// Receives a message, which has begun; `None` if the client has left.
    fn next(&self) -> io::Result<Option<Message>> {
        let until = Instant::now() + self.limit;
        let (mut header, mut fds) = (Header::new_zeroed(), Vec::new());
        match self.fill(header.as_mut_bytes(), &mut fds, until)? {
            0 => return Ok(None),
            bytes if bytes < size_of::<Header>() => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => {}
        }
        let mut body = vec![0; header.body().ok_or_else(|| broken("not a vfio-user message"))?];
        match self.fill(&mut body, &mut fds, until)? {
            bytes if bytes < body.len() => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(Some(Message { header, body, fds })),
        }
    }

    /// Sends a command that has neither body nor reply.
    pub(super) fn tell(&self, command: u16) -> io::Result<()> {
        let (size, flags) = (size_of::<Header>() as u32, flag::COMMAND | flag::NO_REPLY);
        self.send(Header { id: 0, command, size, flags, error: 0 }.as_bytes())
    }

    /// Sends all of `bytes`.
    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.send_with(bytes, None)
    }

    /// Sends all of `bytes`, and a descriptor with the first.
    pub(super) fn send_with(&self, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let until = Instant::now() + self.limit;
        let fds = file.map(|file| [file.as_raw_fd()]);
        let mut rights = fds.as_ref().map(|fds| ControlMessage::ScmRights(fds));
        let mut rest = bytes;
        while !rest.is_empty() {
            let (parts, to) = ([IoSlice::new(rest)], self.socket.as_raw_fd());
            let flags = MsgFlags::MSG_NOSIGNAL;
            match sendmsg::<()>(to, &parts, rights.as_slice(), flags, None) {
                Ok(bytes) => {
                    rest = &rest[bytes..];
                    rights = None;
                }
                Err(error) => self.wait(error.into(), PollFlags::POLLOUT, until)?,
            }
        }
        Ok(())
    }

    /// Handles an error. If the socket is only not ready, waits for it.
    fn wait(&self, error: io::Error, what: PollFlags, until: Instant) -> io::Result<()> {
        match error.kind() {
            io::ErrorKind::Interrupted => return Ok(()),
            io::ErrorKind::WouldBlock => {}
            _ => return Err(error),
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "a message that does not end"));
        }
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.socket.as_fd(), what)], timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Fills `buf` with a part of a message, and adds its descriptors to `fds`. Returns fewer bytes
    /// than `buf` has if the client has left.
    fn fill(&self, buf: &mut [u8], fds: &mut Vec<Foreign>, until: Instant) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            // They are closed at once, unless the client chose slow ones.
            if self.closer.is_crowded() && !self.closer.settle(CLOSING) {
                return Err(broken("descriptors that take too long to close"));
            }
            let rest = &mut buf[done..];
            let received = match descriptors::receive(&self.socket, rest, &self.closer) {
                Err(error) => {
                    self.wait(error.into(), PollFlags::POLLIN, until)?;
                    continue;
                }
                Ok(received) => received,
            };
            fds.extend(received.fds);
            if fds.len() > MAX_FDS {
                return Err(broken("too many descriptors in a message"));
            }
            if received.cut {
                return Err(broken("descriptors that could not be taken"));
            }
            match received.bytes {
                0 => break,
                bytes => done += bytes,
            }
        }
        Ok(done)
    }
}

fn broken(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::vfio_user::message::MAX_MESSAGE;

    const LIMIT: Duration = Duration::from_millis(300);
    /// Shorter than the limit, so that each single wait ends in time.
    const DRIP: Duration = Duration::from_millis(30);

    /// A message that comes in small parts, and never ends.
    #[test]
    fn a_message_that_comes_in_drops_is_given_up() {
        // In the header, and in the body.
        for whole in [0, size_of::<Header>()] {
            let (here, mut there) = UnixStream::pair().unwrap();
            let client = std::thread::spawn(move || {
                let header = Header { id: 1, command: 9, size: 1016, flags: 0, error: 0 };
                let message = [header.as_bytes(), &[0; 1000]].concat();
                there.write_all(&message[..whole])?;
                message[whole..].iter().try_for_each(|byte| {
                    std::thread::sleep(DRIP);
                    there.write_all(&[*byte])
                })
            });
            let start = Instant::now();
            let channel = Channel::with_limit(here, &Closer::new().unwrap(), LIMIT).unwrap();
            let error = channel.receive().err().map(|error| error.kind());
            assert_eq!(error, Some(io::ErrorKind::TimedOut));
            assert!(start.elapsed() >= LIMIT && start.elapsed() < 10 * LIMIT);
            drop(channel);
            assert!(client.join().unwrap().is_err(), "it was not at its end");
        }
    }

    /// Asks a client that sends commands of `bytes` bytes, with `fds` descriptors each, before its
    /// reply. Returns whether the reply came, and the commands that wait.
    fn ask_after(commands: usize, bytes: usize, fds: usize) -> (bool, usize) {
        let (here, mut there) = UnixStream::pair().unwrap();
        let client = std::thread::spawn(move || {
            let mut asked = [0; size_of::<Header>()];
            there.read_exact(&mut asked).unwrap();
            let size = (asked.len() + bytes) as u32;
            let header = Header { id: 1, command: 10, size, flags: flag::NO_REPLY, error: 0 };
            let fds = vec![there.as_raw_fd(); fds];
            for _ in 0..commands {
                let parts = [IoSlice::new(header.as_bytes())];
                let with = [ControlMessage::ScmRights(&fds)];
                let with = if fds.is_empty() { &[][..] } else { &with };
                let to = there.as_raw_fd();
                // The server may have closed the connection.
                if sendmsg::<()>(to, &parts, with, MsgFlags::MSG_NOSIGNAL, None).is_err()
                    || there.write_all(&vec![0; bytes]).is_err()
                {
                    return;
                }
            }
            let reply = Header { id: 1, command: 11, size: 16, flags: flag::REPLY, error: 0 };
            let _ = there.write_all(reply.as_bytes());
        });
        let closer = Closer::new().unwrap();
        let channel = Channel::with_limit(here, &closer, 20 * LIMIT).unwrap();
        let replied = channel.ask(11, &[]).is_some();
        let asked = channel.asked();
        let waiting = asked.waiting.len();
        assert_eq!((asked.bytes, asked.fds), (waiting * bytes, waiting * fds));
        drop(asked);
        for _ in 0..if replied { waiting } else { 0 } {
            assert!(channel.receive().unwrap().is_some());
        }
        drop(channel);
        client.join().unwrap();
        (replied, waiting)
    }

    #[test]
    fn commands_before_a_reply_have_a_limit() {
        let mib = 1 << 20;
        assert_eq!(ask_after(4, mib, 0), (true, 4));
        assert_eq!(ask_after(5, mib, 0), (false, 4));
        assert_eq!(ask_after(4, 16, 16), (true, 4));
        assert_eq!(ask_after(5, 16, 16), (false, 4));
        assert_eq!(ask_after(MAX_WAITING, 16, 0), (true, MAX_WAITING));
        assert_eq!(ask_after(MAX_WAITING + 1, 16, 0), (false, MAX_WAITING));
    }

    /// A client that takes its replies too slowly.
    #[test]
    fn an_answer_that_goes_in_drops_is_given_up() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let client = std::thread::spawn(move || {
            // Enough that the sender finds some room each time.
            let mut some = [0; 16384];
            while there.read(&mut some).is_ok_and(|bytes| bytes != 0) {
                std::thread::sleep(DRIP);
            }
        });
        let channel = Channel::with_limit(here, &Closer::new().unwrap(), LIMIT).unwrap();
        let start = Instant::now();
        let error = channel.send(&vec![0; MAX_MESSAGE]).err().map(|error| error.kind());
        assert_eq!(error, Some(io::ErrorKind::TimedOut));
        assert!(start.elapsed() < 10 * LIMIT);
        drop(channel);
        client.join().unwrap();
    }
}
