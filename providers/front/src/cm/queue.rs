//! Events of a door, and its event file.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::time::TimeSpec;
use nix::sys::timer::TimerSetTimeFlags;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags};
use uverbs_kernel_abi::rdma_cm::rdma_ucm_event_resp;

use super::id::IdNumber;

/// An unread event.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    /// Id of the event; for a request the listener.
    pub(super) owner: IdNumber,
    /// Id of a request.
    pub(super) request: Option<IdNumber>,
    pub(super) event: rdma_ucm_event_resp,
}

/// Event file: readable while there are events, and never writable, as the kernel's (`ucma_poll`).
///
/// It is a timer: an eventfd would be writable, and a pair of sockets takes two descriptors for
/// each connection of rsocket.
pub type Bell = TimerFd;

/// Unread events, in order.
#[derive(Debug)]
pub(super) struct EventQueue {
    events: VecDeque<Queued>,
    bell: Arc<Bell>,
}

impl EventQueue {
    pub(super) fn new() -> nix::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let bell = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        Ok(Self { events: VecDeque::new(), bell: Arc::new(bell) })
    }

    /// Event file.
    pub(super) fn bell(&self) -> Arc<Bell> {
        Arc::clone(&self.bell)
    }

    pub(super) fn is_told_by(&self, fd: i32) -> bool {
        self.bell.as_fd().as_raw_fd() == fd
    }

    pub(super) fn push(&mut self, event: Queued) {
        self.events.push_back(event);
        self.ring();
    }

    pub(super) fn pop(&mut self) -> Option<Queued> {
        let event = self.events.pop_front();
        self.fall_silent();
        event
    }

    /// Removes the events of an id.
    pub(super) fn take_of(&mut self, owner: IdNumber) -> Vec<Queued> {
        let (of, others): (Vec<_>, Vec<_>) =
            self.events.drain(..).partition(|queued| queued.owner == owner);
        self.events = others.into();
        self.fall_silent();
        of
    }

    /// Number of unread requests to a listener.
    pub(super) fn requests_of(&self, listener: IdNumber) -> usize {
        let of = |queued: &&Queued| queued.owner == listener && queued.request.is_some();
        self.events.iter().filter(of).count()
    }

    /// Makes the event file readable. A waiter by edge is woken for each event.
    fn ring(&self) {
        let soon = Expiration::OneShot(TimeSpec::from_duration(Duration::from_nanos(1)));
        // Fails only for values out of range.
        let _ = self.bell.set(soon, TimerSetTimeFlags::empty());
        // The timer expires within microseconds. A program may look right after the command.
        let mut files = [PollFd::new(self.bell.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut files, PollTimeout::from(10_u8));
    }

    /// Makes the event file unreadable if there are no more events.
    fn fall_silent(&self) {
        if self.events.is_empty() {
            let _ = self.bell.unset();
        }
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    #[test]
    fn the_event_file_is_readable_for_events_and_never_writable() {
        let mut queue = EventQueue::new().unwrap();
        let bell = queue.bell();
        let seen = || {
            let mut files = [PollFd::new(bell.as_fd(), PollFlags::POLLIN | PollFlags::POLLOUT)];
            poll(&mut files, PollTimeout::ZERO).unwrap();
            files[0].revents().unwrap()
        };
        let event = rdma_ucm_event_resp::new_zeroed();
        let queued = Queued { owner: 1, request: None, event };
        assert_eq!(seen(), PollFlags::empty());
        for _ in 0..2 {
            queue.push(queued.clone());
            assert_eq!(seen(), PollFlags::POLLIN);
        }
        queue.pop();
        assert_eq!(seen(), PollFlags::POLLIN);
        queue.pop();
        assert_eq!(seen(), PollFlags::empty());
    }
}
