//! The files that say that something came, behind one that stands for all.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

/// Object that threads wait on: an end of a stream, or a datagram socket. Its methods never wait.
pub(super) trait Engine {
    /// Counter that changes with each processed event.
    fn activity(&self) -> u64;

    /// Looks at what completed, and answers it.
    fn progress(&mut self) -> io::Result<()>;

    /// Arms the channels for the next completion. Returns true if one was not armed before: then
    /// the caller polls once more, for completions in between.
    fn arm(&mut self) -> io::Result<bool>;

    /// The files that are readable while something came, from 0 on.
    fn source(&self, number: usize) -> Option<BorrowedFd<'_>>;

    /// Takes out the events of one of these files. Returns true if more may follow.
    fn take(&mut self, number: usize) -> io::Result<bool>;

    /// After a long silence: is the device still there?
    fn look_at_device(&mut self);
}

/// The bell, among the numbers of an engine's files.
const BELL: u64 = u64::MAX;

/// Readable while one of an engine's files or the bell is.
#[derive(Debug)]
pub(super) struct Files {
    all: Epoll,
    /// Wakes the thread that sleeps on `all`, when another took away what it waits for. Made when
    /// it first rings, since most streams have one thread.
    bell: OnceLock<EventFd>,
}

impl Files {
    pub(super) fn new(engine: &impl Engine) -> io::Result<Self> {
        let all = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let mut number = 0;
        while let Some(file) = engine.source(number) {
            all.add(file, EpollEvent::new(EpollFlags::EPOLLIN, number as u64))?;
            number += 1;
        }
        Ok(Self { all, bell: OnceLock::new() })
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

    /// Wakes the thread that sleeps. Called with the engine's lock held. Without a descriptor for
    /// the bell the thread sleeps to the end of its limit.
    pub(super) fn ring(&self) {
        let bell = match self.bell.get() {
            Some(bell) => bell,
            None => {
                let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
                let Ok(new) = EventFd::from_flags(flags) else { return };
                let readable = EpollEvent::new(EpollFlags::EPOLLIN, BELL);
                if self.all.add(new.as_fd(), readable).is_err() {
                    return;
                }
                self.bell.get_or_init(|| new)
            }
        };
        // It can fail only where the bell rings already.
        let _ = bell.write(1);
    }

    /// Takes out all events. Returns true if there were any. With `bell`, takes the bell's ringing,
    /// too.
    pub(super) fn drain(&self, engine: &mut impl Engine, bell: bool) -> io::Result<bool> {
        let mut events = [EpollEvent::empty(); 4];
        let count = match self.all.wait(&mut events, EpollTimeout::ZERO) {
            Ok(count) => count,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        let mut some = false;
        for event in &events[..count] {
            match event.data() {
                BELL if bell => {
                    let _ = self.bell.get().map(EventFd::read);
                }
                BELL => continue,
                number => {
                    let number = number as usize;
                    if !engine.take(number)?
                        && let Some(file) = engine.source(number)
                    {
                        // Later events are useless, and would keep the epoll set readable.
                        self.all.delete(file)?;
                    }
                }
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
