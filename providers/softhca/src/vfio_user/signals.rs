//! Signals to a client's eventfds, without blocking.
//!
//! A write to an eventfd blocks while its counter is full, unless `O_NONBLOCK` is set. The client
//! shares flag and counter, and may change both between a test and the write. The kernel signals an
//! eventfd without blocking when an asynchronous read ends (io_submit(2), `IOCB_FLAG_RESFD`; kernel
//! `fs/aio.c`, `aio_complete`, and `fs/eventfd.c`, `eventfd_signal_mask`). So a signal here is a
//! read of no bytes, which ends at once.
//!
//! # Safety
//!
//! System calls by number. Requests and events are local variables. The kernel is done with them
//! when a call returns, since a read of no bytes writes nothing later.
#![allow(unsafe_code, reason = "asynchronous I/O has no wrappers")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::pipe2;

/// Maximum requests in flight.
const REQUESTS: libc::c_long = 1;
/// `IOCB_CMD_PREAD`, `IOCB_CMD_PWRITE` and `IOCB_FLAG_RESFD` (linux/aio_abi.h).
const READ: u16 = 0;
const WRITE: u16 = 1;
const SIGNALS: u32 = 1;

/// `struct iocb` (linux/aio_abi.h).
#[derive(Default)]
#[repr(C)]
struct Request {
    data: u64,
    /// Key and flags, in an order that depends on the machine; both are 0.
    key_and_flags: [u32; 2],
    opcode: u16,
    priority: i16,
    file: u32,
    buf: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    signals: u32,
}

/// `struct io_event` (linux/aio_abi.h).
#[derive(Default)]
#[repr(C)]
struct Event {
    data: u64,
    request: u64,
    results: [i64; 2],
}

/// A context for asynchronous reads.
#[derive(Debug)]
pub(super) struct Signals {
    context: libc::c_ulong,
    /// Reading end of a pipe.
    file: OwnedFd,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        let (file, _) = pipe2(OFlag::O_CLOEXEC)?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes the context's number.
        Errno::result(unsafe { libc::syscall(libc::SYS_io_setup, REQUESTS, &raw mut context) })?;
        Ok(Self { context, file })
    }

    /// Signals an event. A full counter is signalled already. A descriptor that is not an eventfd
    /// is left unchanged.
    pub(super) fn raise(&self, event: impl AsFd) {
        if self.submit(READ, event).is_ok() {
            let mut events = [Event::default()];
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            let (from, count) = (events.as_mut_ptr(), REQUESTS);
            let (number, context) = (libc::SYS_io_getevents, self.context);
            // SAFETY: room for that many events. The request ended when it was submitted.
            unsafe { libc::syscall(number, context, 0_i64, count, from, &raw const now) };
        }
    }

    /// Rejects a descriptor that is not an eventfd, without changing it.
    ///
    /// # Errors
    ///
    /// `EINVAL`, as in VFIO.
    pub(super) fn check(&self, event: impl AsFd) -> Result<(), Errno> {
        // The kernel checks the event first, and then refuses the write to the pipe's reading end
        // (`fs/aio.c`, `__io_submit_one`, `aio_write`).
        match self.submit(WRITE, event) {
            Err(Errno::EBADF) => Ok(()),
            Err(errno) => Err(errno),
            Ok(()) => Err(Errno::EINVAL),
        }
    }

    fn submit(&self, opcode: u16, event: impl AsFd) -> Result<(), Errno> {
        let [file, signals] =
            [self.file.as_fd(), event.as_fd()].map(|fd| fd.as_raw_fd().cast_unsigned());
        let mut request = Request { opcode, file, flags: SIGNALS, signals, ..Request::default() };
        let requests = [&raw mut request];
        let (number, context) = (libc::SYS_io_submit, self.context);
        // SAFETY: a list with one request of no bytes.
        let done = unsafe { libc::syscall(number, context, 1_i64, requests.as_ptr()) };
        Errno::result(done).map(drop)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: takes the number of a context that only this value uses.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use nix::sys::eventfd::{EfdFlags, EventFd};

    use super::*;

    #[test]
    fn eventfds_are_signalled_and_nothing_else_is() {
        let signals = Signals::new().unwrap();
        // In blocking mode: a write to the full counter would block.
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).unwrap();
        assert_eq!(signals.check(&event), Ok(()));
        for _ in 0..1000 {
            signals.raise(&event);
        }
        assert_eq!(event.read(), Ok(1000), "a check counts for nothing");
        event.write(u64::MAX - 1).unwrap();
        signals.raise(&event);
        signals.raise(&event);
        assert_eq!(event.read(), Ok(u64::MAX));
        let (reader, writer) = pipe2(OFlag::O_NONBLOCK).unwrap();
        for other in [&reader, &writer] {
            assert_eq!(signals.check(other), Err(Errno::EINVAL));
            signals.raise(other);
        }
        assert_eq!(nix::unistd::read(&reader, &mut [0]), Err(Errno::EAGAIN));
    }

    /// Another writer takes the last room of a counter between a look at it and the signal.
    #[test]
    fn a_counter_that_fills_up_meanwhile_stops_nobody() {
        const ROUNDS: u32 = 20;
        const ROOM: u64 = 1000;
        let (done, all_done) = channel();
        // Left alone when the test fails: they may wait for good.
        let events = [(); 2].map(|()| {
            let ((event, events), done) = (channel::<Arc<EventFd>>(), done.clone());
            std::thread::spawn(move || {
                let signals = Signals::new().unwrap();
                for event in events {
                    (0..ROOM).for_each(|_| signals.raise(&event));
                    done.send(()).unwrap();
                }
            });
            event
        });
        for round in 0..ROUNDS {
            // It blocks, and is full when half of the signals were given.
            let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).unwrap();
            event.write(u64::MAX - 1 - ROOM).unwrap();
            let event = Arc::new(event);
            events.iter().for_each(|of| of.send(Arc::clone(&event)).unwrap());
            for _ in &events {
                let ended = all_done.recv_timeout(Duration::from_secs(20));
                assert_eq!(ended, Ok(()), "round {round}: a signal waits for room");
            }
        }
    }
}
