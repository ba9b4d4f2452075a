//! The files that say that something came, behind one that stands for all.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::engine::Engine;

const COMPLETION: u64 = 0;
const CONNECTION: u64 = 1;
const BELL: u64 = 2;

/// Readable while the completion channel, the connection's channel or the bell is.
#[derive(Debug)]
pub(super) struct Files {
    all: Epoll,
    /// Wakes the thread that sleeps on `all`, when another took away what it waits for.
    bell: EventFd,
}

impl Files {
    pub(super) fn new(engine: &Engine) -> io::Result<Self> {
        let all = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let readable = |what| EpollEvent::new(EpollFlags::EPOLLIN, what);
        all.add(engine.channel().as_fd(), readable(COMPLETION))?;
        all.add(engine.connection().as_fd(), readable(CONNECTION))?;
        all.add(bell.as_fd(), readable(BELL))?;
        Ok(Self { all, bell })
    }

    /// Sleeps until one is readable, or for so long.
    pub(super) fn sleep(&self, most: Duration) -> io::Result<()> {
        // Rounded up, so that the last fraction of a millisecond is slept and not spun away.
        let millis = most.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
        let limit = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
        let mut files = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
        match poll(&mut files, limit) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Wakes the thread that sleeps.
    pub(super) fn ring(&self) {
        // It can fail only where the bell rings already.
        let _ = self.bell.write(1);
    }

    /// Takes out what is there. Whether there was something. `bell`: also the bell's ringing.
    pub(super) fn drain(&self, engine: &mut Engine, bell: bool) -> io::Result<bool> {
        let mut events = [EpollEvent::empty(); 3];
        let count = match self.all.wait(&mut events, EpollTimeout::ZERO) {
            Ok(count) => count,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        let mut some = false;
        for event in &events[..count] {
            match event.data() {
                COMPLETION => engine.drain_channel()?,
                CONNECTION => {
                    if !engine.hear()? {
                        // What still comes (the end of timewait) is of no use, and would stay.
                        self.all.delete(engine.connection().as_fd())?;
                    }
                }
                _ if bell => {
                    let _ = self.bell.read();
                }
                _ => continue,
            }
            some = true;
        }
        Ok(some)
    }
}

/// The file that stands for all.
impl AsFd for Files {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.all.0.as_fd()
    }
}
