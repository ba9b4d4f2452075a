//! The events of one door, and the file that tells of them.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};
use uverbs_kernel_abi::rdma_cm::rdma_ucm_event_resp;

use super::id::IdNumber;

/// One event that nobody has read.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    /// The id that it happened to; of a request the listener.
    pub(super) owner: IdNumber,
    /// The id of a request.
    pub(super) request: Option<IdNumber>,
    pub(super) event: rdma_ucm_event_resp,
}

/// Events that nobody has read, in order. The file is readable while there are some.
#[derive(Debug)]
pub(super) struct EventQueue {
    events: VecDeque<Queued>,
    bell: Arc<EventFd>,
}

impl EventQueue {
    pub(super) fn new() -> nix::Result<Self> {
        let bell = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(Self { events: VecDeque::new(), bell: Arc::new(bell) })
    }

    /// The file that tells of events.
    pub(super) fn bell(&self) -> Arc<EventFd> {
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
        self.ring();
        event
    }

    /// Takes out the events of an id.
    pub(super) fn take_of(&mut self, owner: IdNumber) -> Vec<Queued> {
        let (of, others): (Vec<_>, Vec<_>) =
            self.events.drain(..).partition(|queued| queued.owner == owner);
        self.events = others.into();
        self.ring();
        of
    }

    /// Requests to a listener that nobody has read.
    pub(super) fn requests_of(&self, listener: IdNumber) -> usize {
        let of = |queued: &&Queued| queued.owner == listener && queued.request.is_some();
        self.events.iter().filter(of).count()
    }

    /// Brings the file in line with the queue.
    fn ring(&self) {
        // An eventfd is readable while its count isn't 0. Neither call can fail but for a count
        // that is 0 or full already.
        let _ = match self.events.is_empty() {
            true => self.bell.read().map(drop),
            false => self.bell.write(1).map(drop),
        };
    }
}
