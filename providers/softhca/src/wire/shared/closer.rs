//! Closes descriptors of a peer's choosing.
//!
//! The last close of a file may wait: for a file server that doesn't answer, for data that a socket
//! lingers over. So files that a peer sent, and sockets in which such may lie unread, are closed by
//! a thread that nobody waits for.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{SyncSender, sync_channel};

use uverbs_core::thread;

/// Descriptors that wait to be closed. What is more stays open until the process ends: a peer that
/// sends so many uses up descriptors, and not time.
const WAITING: usize = 64;

#[derive(Clone, Debug)]
pub(super) struct Closer {
    /// The thread; none where the system has no more. It ends when the last clone does.
    thread: Option<SyncSender<OwnedFd>>,
}

impl Closer {
    pub(super) fn new() -> Self {
        let (sender, receiver) = sync_channel::<OwnedFd>(WAITING);
        let run = move || receiver.into_iter().for_each(drop);
        let started = thread::start("softhca-close", run);
        Self { thread: started.ok().map(|()| sender) }
    }

    pub(super) fn close(&mut self, fd: impl Into<OwnedFd>) {
        let fd = fd.into();
        let left = match &self.thread {
            Some(closer) => closer.try_send(fd).err().map(|error| match error {
                std::sync::mpsc::TrySendError::Full(fd)
                | std::sync::mpsc::TrySendError::Disconnected(fd) => fd,
            }),
            None => Some(fd),
        };
        std::mem::forget(left);
    }
}
