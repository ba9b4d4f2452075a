//! Events of a door, and its event file.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};
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

/// Unread events, in order. The event file is readable while there are any.
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

    /// Event file.
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

    /// Removes the events of an id.
    pub(super) fn take_of(&mut self, owner: IdNumber) -> Vec<Queued> {
        let (of, others): (Vec<_>, Vec<_>) =
            self.events.drain(..).partition(|queued| queued.owner == owner);
        self.events = others.into();
        self.ring();
        of
    }

    /// Number of unread requests to a listener.
    pub(super) fn requests_of(&self, listener: IdNumber) -> usize {
        let of = |queued: &&Queued| queued.owner == listener && queued.request.is_some();
        self.events.iter().filter(of).count()
    }

    /// Makes the event file readable or not, by the queue.
    fn ring(&self) {
        // An eventfd is readable while its count isn't 0. Both calls can fail only if the count is
        // 0 or at its maximum already.
        let _ = match self.events.is_empty() {
            true => self.bell.read().map(drop),
            false => self.bell.write(1).map(drop),
        };
    }
}
