//! Time limits of the calls of one stream, or of one datagram socket.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::waiting::Limit;

#[derive(Debug, Default)]
pub(super) struct Timeouts {
    nonblocking: AtomicBool,
    read: Timeout,
    write: Timeout,
}

/// `None` is as long as it takes.
#[derive(Debug, Default)]
struct Timeout(Mutex<Option<Duration>>);

impl Timeout {
    fn get(&self) -> Option<Duration> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for no time at all, as of sockets.
    fn set(&self, limit: Option<Duration>) -> io::Result<()> {
        if limit == Some(Duration::ZERO) {
            let why = "a timeout of zero; set_nonblocking doesn't wait";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = limit;
        Ok(())
    }
}

impl Timeouts {
    pub(super) fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    pub(super) fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }

    pub(super) fn read(&self) -> Option<Duration> {
        self.read.get()
    }

    pub(super) fn write(&self) -> Option<Duration> {
        self.write.get()
    }

    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for no time at all.
    pub(super) fn set_read(&self, limit: Option<Duration>) -> io::Result<()> {
        self.read.set(limit)
    }

    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for no time at all.
    pub(super) fn set_write(&self, limit: Option<Duration>) -> io::Result<()> {
        self.write.set(limit)
    }

    pub(super) fn read_limit(&self) -> Limit {
        if self.is_nonblocking() { Limit::Now } else { self.read().into() }
    }

    pub(super) fn write_limit(&self) -> Limit {
        if self.is_nonblocking() { Limit::Now } else { self.write().into() }
    }
}
