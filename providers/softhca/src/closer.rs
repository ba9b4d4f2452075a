//! Descriptors chosen by a peer, and the thread that closes them.
//!
//! The last close of a file may block: a file server does not answer, or a socket lingers over
//! data. So a file sent by a peer is a [`Foreign`]: when it is dropped, a thread closes it, for
//! which the device never waits. A [`Connection`] may hold such files unread. It is shut down when
//! dropped, and closed by the same thread.
//!
//! If a message brings more descriptors than this process may open, the kernel closes the rest
//! inside the receive call, which may block, too. So peers' messages are received only while few
//! descriptors wait here ([`Closer::is_crowded`]).

use std::io;
use std::net::Shutdown;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::time::Duration;

use uverbs_core::memory::process::Process;
use uverbs_core::thread;

/// Descriptors that may wait to be closed while more are taken.
const MANY: usize = 64;

enum Work {
    Close(OwnedFd),
    Tell(std::sync::mpsc::SyncSender<()>),
}

/// Thread that closes descriptors. It ends once the last clone is dropped and all are closed.
#[derive(Clone, Debug)]
pub(crate) struct Closer {
    thread: Sender<Work>,
    waiting: Arc<AtomicUsize>,
}

impl Closer {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The system's error when there are no more threads.
    pub(crate) fn new() -> io::Result<Self> {
        let (thread, work) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&waiting);
        let run = move || {
            for work in work {
                match work {
                    Work::Close(fd) => {
                        drop(fd);
                        left.fetch_sub(1, Ordering::Relaxed);
                    }
                    Work::Tell(done) => drop(done.try_send(())),
                }
            }
        };
        thread::start("softhca-close", run)?;
        Ok(Self { thread, waiting })
    }

    /// Takes charge of a descriptor.
    pub(crate) fn own<T: Into<OwnedFd>>(&self, file: T) -> Foreign<T> {
        Foreign { file: Some(file), closer: self.clone() }
    }

    /// Takes charge of a connection.
    pub(crate) fn connection(&self, socket: UnixStream) -> Connection {
        Connection { socket: self.own(socket), process: Process::current() }
    }

    /// Returns `true` if too many descriptors wait to take more.
    pub(crate) fn is_crowded(&self) -> bool {
        self.waiting() > MANY
    }

    /// Descriptors that are not closed yet.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Waits until all descriptors that were dropped before are closed. False after `limit`.
    pub(crate) fn settle(&self, limit: Duration) -> bool {
        let (done, is_done) = sync_channel(1);
        // The thread lives as long as a sender; in a forked child it doesn't, and nothing comes.
        let _ = self.thread.send(Work::Tell(done));
        is_done.recv_timeout(limit).is_ok()
    }

    fn close(&self, fd: OwnedFd) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _ = self.thread.send(Work::Close(fd));
    }
}

/// A file whose close may block.
#[derive(Debug)]
pub(crate) struct Foreign<T: Into<OwnedFd> = OwnedFd> {
    /// `None` after the drop.
    file: Option<T>,
    closer: Closer,
}

impl<T: Into<OwnedFd>> Deref for Foreign<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.file.as_ref().expect("a file until it is dropped")
    }
}

impl<T: Into<OwnedFd> + AsFd> AsFd for Foreign<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

impl<T: Into<OwnedFd>> Drop for Foreign<T> {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            self.closer.close(file.into());
        }
    }
}

/// Connection to a peer. Dropping it shuts it down at once.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: Foreign<UnixStream>,
    process: Process,
}

impl Deref for Connection {
    type Target = UnixStream;

    fn deref(&self) -> &UnixStream {
        &self.socket
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A forked child's copy of the socket is the parent's connection.
        if self.process.is_current() {
            let _ = self.socket.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use nix::sys::socket::{setsockopt, sockopt};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    /// A socket whose last close blocks while the returned peer exists and reads nothing.
    pub(crate) fn slow_to_close() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (there, _) = listener.accept().unwrap();
        slow.set_nonblocking(true).unwrap();
        while slow.write(&[0; 1 << 16]).is_ok() {}
        slow.set_nonblocking(false).unwrap();
        let linger = libc::linger { l_onoff: 1, l_linger: 600 };
        setsockopt(&slow, sockopt::Linger, &linger).unwrap();
        (slow.into(), there)
    }

    /// All descriptors are closed in the end, also those behind a slow one.
    #[test]
    fn all_descriptors_are_closed_in_the_end() {
        let closer = Closer::new().unwrap();
        let (slow, there) = slow_to_close();
        drop(closer.own(slow));
        let (reader, writer) = io::pipe().unwrap();
        for _ in 0..2 * MANY {
            drop(closer.own(OwnedFd::from(writer.try_clone().unwrap())));
        }
        drop(closer.own(OwnedFd::from(writer)));
        let (here, mut away) = UnixStream::pair().unwrap();
        drop(closer.connection(here));
        assert!(closer.is_crowded() && !closer.settle(Duration::from_millis(50)));
        assert_eq!(away.read(&mut [0]).unwrap(), 0, "a peer is told at once");
        drop(there);
        assert!(closer.settle(LIMIT) && closer.waiting() == 0);
        // The pipe ends when its last writer is closed.
        assert_eq!((&reader).read(&mut [0]).unwrap(), 0);
    }
}
