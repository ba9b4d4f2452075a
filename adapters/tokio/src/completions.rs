//! Completions: a channel that tokio watches, and the queues that report to it.
//!
//! # Safety
//!
//! One call, which hands the channel's file to tokio.
#![allow(unsafe_code, reason = "hands a file to tokio by its number")]

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::unix::AsyncFd;
use tokio::sync::Notify as Bell;
use uverbs::provider::Provider;
use uverbs::{Any, CompletionChannel, CompletionQueue, Context, Error, Notify, WorkCompletion};

use crate::watch::{system, watch};

/// The channel's file, as tokio wants it.
#[derive(Debug)]
struct File(CompletionChannel);

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// A completion channel that tokio watches. A cheap handle.
///
/// Any number of queues report to it, and any number of tasks wait for them: the first task woken
/// reads the file, and wakes the others for their events.
#[derive(Clone, Debug)]
pub struct Channel {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    file: AsyncFd<File>,
    /// Task to wake for each queue, by the queue's event id.
    bells: Mutex<HashMap<u64, Arc<Bell>>>,
}

impl Channel {
    /// Opens a channel on the current runtime.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EMFILE`; [`Error::System`] where tokio can't watch it.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime, and in a runtime without I/O.
    pub fn new<P: Provider>(context: &Context<P>) -> Result<Self, Error> {
        let file = File(context.create_comp_channel()?);
        // SAFETY: a channel has one file, and keeps it open.
        let file = unsafe { watch(file, "watching a completion channel") }?;
        Ok(Self { shared: Arc::new(Shared { file, bells: Mutex::default() }) })
    }

    /// The channel to build queues with
    /// ([`CompletionQueueBuilder::channel`](uverbs::CompletionQueueBuilder::channel)).
    ///
    /// The channel. This adapter takes its events; a program that takes events, too, loses
    /// wake-ups.
    #[must_use]
    pub fn inner(&self) -> &CompletionChannel {
        &self.shared.file.get_ref().0
    }

    /// The completions of a queue that was built with this channel.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a queue that reports to another channel, or to none.
    pub fn completions<P: Provider>(
        &self,
        cq: CompletionQueue<P>,
    ) -> Result<Completions<P>, Error> {
        self.shared.check(&cq)?;
        self.shared.bells().insert(cq.event_id(), Arc::new(Bell::new()));
        Ok(Completions { cq, shared: Arc::clone(&self.shared) })
    }
}

impl Shared {
    fn bells(&self) -> MutexGuard<'_, HashMap<u64, Arc<Bell>>> {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses a queue of another channel.
    fn check<P: Provider>(&self, cq: &CompletionQueue<P>) -> Result<(), Error> {
        let reports = cq.channel();
        let fd = |channel: &CompletionChannel| channel.as_fd().as_raw_fd();
        if reports.as_ref().map(fd) == Some(fd(&self.file.get_ref().0)) {
            return Ok(());
        }
        let whose = if reports.is_some() { "another channel" } else { "no channel" };
        Err(Error::Invalid {
            verb: "completions",
            what: "completion queue",
            value: format!("reports to {whose}"),
            why: "it is built with the channel that its task waits at",
        })
    }

    /// The bell of a queue. Programs can swap the queues of two tasks, or swap another one in.
    fn bell<P: Provider>(&self, cq: &CompletionQueue<P>) -> Result<Arc<Bell>, Error> {
        if let Some(bell) = self.bells().get(&cq.event_id()) {
            return Ok(Arc::clone(bell));
        }
        self.check(cq)?;
        Ok(Arc::clone(self.bells().entry(cq.event_id()).or_default()))
    }

    /// Until the queue is named that this bell is for, by this task's reading or another's.
    async fn wait(&self, bell: &Bell) -> Result<(), Error> {
        loop {
            tokio::select! {
                biased;
                () = bell.notified() => return Ok(()),
                read = self.dispatch() => read?,
            }
        }
    }

    /// Waits until the file is readable, reads all events, and wakes the tasks that they name.
    /// After an error the file stays readable, so the other tasks see the error, too.
    async fn dispatch(&self) -> Result<(), Error> {
        let mut ready = self.file.readable().await.map_err(|error| system("epoll", &error))?;
        while let Some(event) = ready.get_inner().0.try_next()? {
            if let Some(bell) = self.bells().get(&event.cq) {
                // `Notify` keeps the permit if no task waits now.
                bell.notify_one();
            }
        }
        ready.clear_ready();
        Ok(())
    }
}

/// The completions of a queue: its one polling side, and a wait for tasks.
#[derive(Debug)]
pub struct Completions<P: Provider = Any> {
    cq: CompletionQueue<P>,
    shared: Arc<Shared>,
}

impl<P: Provider> Completions<P> {
    /// The next completion.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceGone`], after the completions that came before; [`Error::Unmatched`] if
    /// completions were dropped; [`Error::Invalid`] for a queue of another channel that was swapped
    /// in by [`queue`](Self::queue); what arming or reading the channel's file gives.
    pub async fn next(&mut self) -> Result<WorkCompletion, Error> {
        let mut one = [WorkCompletion::default()];
        self.fill(&mut one).await?;
        let [completion] = one;
        Ok(completion)
    }

    /// Waits for at least one completion, fills `to` from the front, and returns the count. 0 only
    /// for an empty slice.
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next).
    pub async fn fill(&mut self, to: &mut [WorkCompletion]) -> Result<usize, Error> {
        if to.is_empty() {
            return Ok(0);
        }
        let mut gone = None;
        // The queue's bell, while the queue is armed.
        let mut armed: Option<Arc<Bell>> = None;
        loop {
            // No await point between this poll and the return, so cancelling loses no completions.
            let count = self.cq.poll_into(to);
            if count != 0 {
                return Ok(count);
            }
            self.cq.check()?;
            if let Some(error) = gone {
                return Err(error);
            }
            // A completion that arrived before arming may raise no event, so the queue is polled
            // once more.
            gone = match armed.take() {
                Some(bell) => self.shared.wait(&bell).await.err(),
                None => {
                    armed = Some(self.shared.bell(&self.cq)?);
                    self.cq.arm(Notify::Any).err()
                }
            };
        }
    }

    /// The queue itself: to poll it without waiting, to reclaim buffers, to make queue pairs.
    pub fn queue(&mut self) -> &mut CompletionQueue<P> {
        &mut self.cq
    }
}

impl<P: Provider> Drop for Completions<P> {
    fn drop(&mut self) {
        self.shared.bells().remove(&self.cq.event_id());
    }
}
