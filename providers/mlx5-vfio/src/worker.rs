//! The driver's thread of a function: events, requests for pages, health.
//!
//! It blocks all signals ([`uverbs_core::thread`]), and ends before the function is closed.
//!
//! A vfio-user server has the file of the interrupt's eventfd, and may change flags and counter at
//! any time. So the thread never reads the eventfd: an edge-triggered epoll(7) reports each signal
//! once (kernel `fs/eventfd.c`, `eventfd_signal_mask`, wakes for a full counter, too).

use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;

use crate::device::{Device, Pump};
use crate::eq::EventQueue;
use crate::error::Error;
use crate::registers::{self, Health};

/// Looks at a health counter that stands still before the device counts as failed (`MAX_MISSES` of
/// Linux's `core/health.c`).
const MAX_MISSES: u32 = 3;
/// Numbers of the eventfds in epoll's answers.
const INTERRUPT: u64 = 0;
const STOP: u64 = 1;
const WAKE: u64 = 2;

/// Handle of the thread.
#[derive(Debug)]
pub(crate) struct Worker {
    stop: Arc<EventFd>,
    /// Gets the event queue when the thread ends.
    ended: Mutex<Receiver<EventQueue>>,
}

fn event() -> Result<EventFd, Error> {
    let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
    EventFd::from_flags(flags).map_err(Error::nix("eventfd"))
}

impl Worker {
    /// Starts the thread. `interrupt` is signaled at an event.
    pub(crate) fn start(
        device: Arc<Device>,
        eq: EventQueue,
        interrupt: EventFd,
    ) -> Result<Self, Error> {
        let stop = Arc::new(event()?);
        let waker = Arc::new(event()?);
        let signals = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(Error::nix("epoll"))?;
        let edge = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
        let added = signals.add(&interrupt, EpollEvent::new(edge, INTERRUPT));
        added
            .and_then(|()| signals.add(&*stop, EpollEvent::new(EpollFlags::EPOLLIN, STOP)))
            .and_then(|()| signals.add(&*waker, EpollEvent::new(edge, WAKE)))
            .map_err(Error::nix("EPOLL_CTL_ADD"))?;
        device.set_waker(Arc::clone(&waker));
        let (gives, ended) = channel();
        let stopped = Arc::clone(&stop);
        uverbs_core::thread::start("uverbs-mlx5", move || {
            // Watched as long as they are open.
            let _watched = (interrupt, stopped, waker);
            let eq = Arc::new(Mutex::new(eq));
            let pump: Arc<dyn Pump> = eq.clone();
            device.set_driver(Arc::downgrade(&pump));
            drop(pump);
            if let Err(error) = serve(&device, &eq, &signals) {
                device.fail(error);
            }
            if device.failure().is_some()
                && let Some(tick) = device.tick()
            {
                tick.failed();
                // Programs get their memory back from a device that is removed.
                if device.is_silent() {
                    tick.ended();
                }
            }
            // Before the queue, whose receiver may close the device.
            drop(device);
            // This thread alone uses it.
            if let Some(eq) = Arc::into_inner(eq) {
                let _ = gives.send(eq.into_inner().unwrap_or_else(PoisonError::into_inner));
            }
        })
        .map_err(Error::system("starting the driver's thread"))?;
        Ok(Self { stop, ended: Mutex::new(ended) })
    }

    /// Creates the eventfd of interrupts.
    pub(crate) fn interrupt() -> Result<EventFd, Error> {
        event()
    }

    /// Ends the thread, and returns its event queue; `None` if it does not end within `limit`.
    pub(crate) fn stop(self, limit: Duration) -> Option<EventQueue> {
        let _ = self.stop.write(1);
        let ended = self.ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        ended.recv_timeout(limit).ok()
    }
}

impl Pump for Mutex<EventQueue> {
    fn pump(&self, device: &Device) -> Result<(), Error> {
        // The caller may handle an event, whose command waits.
        match self.try_lock() {
            Ok(mut eq) => eq.pump(device, false),
            Err(_) => Ok(()),
        }
    }
}

/// Serves events until the thread is to stop, or the device fails.
fn serve(device: &Device, eq: &Mutex<EventQueue>, signals: &Epoll) -> Result<(), Error> {
    let period = device.limits().health;
    let mut pulse = Pulse::default();
    let mut due = Instant::now();
    let mut nap = Duration::MAX;
    while device.failure().is_none() {
        let left = due.saturating_duration_since(Instant::now()).min(nap);
        // epoll_wait(2) itself counts in milliseconds.
        let mut ready = [PollFd::new(signals.0.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut ready, Some(TimeSpec::from_duration(left)), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::nix("ppoll")(errno)),
        }
        let mut signaled = [EpollEvent::empty(); 3];
        // Before the queue is read, so that a later event signals again.
        let count = match signals.wait(&mut signaled, EpollTimeout::ZERO) {
            Err(Errno::EINTR) => 0,
            count => count.map_err(Error::nix("epoll_wait"))?,
        };
        if signaled[..count].iter().any(|event| event.data() == STOP) {
            return Ok(());
        }
        let interrupted = signaled[..count].iter().any(|event| event.data() == INTERRUPT);
        let looks = due <= Instant::now();
        // A lost interrupt delays an event until the next look at the health.
        let mut queue = eq.lock().unwrap_or_else(PoisonError::into_inner);
        queue.pump(device, interrupted || looks)?;
        // It is pumped while a turn of work waits for a command.
        drop(queue);
        nap = device.tick().and_then(|tick| tick.tick()).unwrap_or(Duration::MAX);
        if looks {
            pulse.feel(registers::health(device.transport())?)?;
            due = Instant::now() + period;
        }
    }
    Ok(())
}

/// Health counter, which moves while the firmware runs.
#[derive(Debug, Default)]
struct Pulse {
    counter: Option<u32>,
    misses: u32,
}

impl Pulse {
    /// Compares with the last look (`poll_health`).
    fn feel(&mut self, health: Health) -> Result<(), Error> {
        if health.syndrome != 0 {
            return Err(Error::answer("its health syndrome", health.syndrome));
        }
        self.misses = if self.counter == Some(health.counter) { self.misses + 1 } else { 0 };
        self.counter = Some(health.counter);
        match self.misses < MAX_MISSES {
            true => Ok(()),
            false => Err(Error::answer("its health counter in three looks", health.counter)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_looks_at_one_number_are_a_failure() {
        let mut pulse = Pulse::default();
        let mut feel = |counter, syndrome| pulse.feel(Health { counter, syndrome });
        for counter in [5, 5, 5, 6, 6, 6] {
            assert_eq!(feel(counter, 0), Ok(()));
        }
        assert!(feel(6, 0).is_err());
        assert!(feel(7, 1).is_err());
        assert_eq!(feel(8, 0), Ok(()));
    }
}
