//! Waiting for a completion: asleep where the queue has a channel, else polling.

use std::time::{Duration, Instant};

use uverbs_core::error::Error;
use uverbs_core::provider::Notify;
use uverbs_core::queues::completion::Status;

use crate::provider::Provider;
use crate::{CompletionQueue, WorkCompletion};

impl<P: Provider> CompletionQueue<P> {
    /// Waits until there is a completion, for `timeout` at most.
    ///
    /// A queue with a [channel](crate::CompletionQueueBuilder::channel) sleeps: the thread arms the
    /// queue, polls once more, and sleeps on the channel's file until the event comes. A queue
    /// without a channel is polled until a completion comes, which is faster and takes a processor,
    /// yielded between [polls](Self::poll).
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`], which names the cause if it can be found: a queue pair in ERR, or more
    /// work requests than this queue has room for. [`Error::DeviceGone`] as soon as the device is
    /// found to be gone: no work request completes any more, and those in flight come back by
    /// [`QueuePair::destroy`](crate::QueuePair::destroy) and [`reclaim`](Self::reclaim). A
    /// completion with an error that the unbinding of a driver caused is returned as `DeviceGone`,
    /// too; its frame goes back to its slab. [`Error::Unmatched`] if completions were dropped
    /// ([`check`](Self::check)).
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// # let mut cq = context.create_cq(256)?;
    /// # let mut qp = context.queue_pair(&pd, &cq).build()?;
    /// # qp.prepare(&Default::default())?;
    /// # qp.connect_to_self()?;
    /// use std::time::Duration;
    ///
    /// qp.post_recv(1, pd.slab(64, 1)?.take().expect("it is new"))?;
    /// qp.post_send_inline(2, b"to myself")?;
    /// for _ in 0..2 {
    ///     let done = cq.wait(Duration::from_secs(20))?;
    ///     println!("{}: {:?}", done.id, done.result?);
    /// }
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    pub fn wait(&mut self, timeout: Duration) -> Result<WorkCompletion, Error> {
        let mut one = [WorkCompletion::default()];
        // Read when something is waited for.
        let mut started = None;
        let (mut look, mut gone) = (LOOK, false);
        // Events there had been when it was armed.
        let mut armed = None;
        loop {
            if self.poll_into(&mut one) == 1 {
                let [completion] = one;
                if completion.result.is_err_and(|failure| half_gone(failure.status)) {
                    self.there()?;
                }
                return Ok(completion);
            }
            self.check()?;
            if gone {
                // Only now: what the device had written before it went was polled first.
                return Err(Error::DeviceGone { verb: "poll_cq" });
            }
            let waited = started.get_or_insert_with(Instant::now).elapsed();
            if waited >= timeout {
                let why = self.core.trouble();
                return Err(Error::TimedOut { verb: "poll_cq", waited, why });
            }
            if self.core.channel().is_some() {
                match self.doze(&mut armed, timeout.saturating_sub(waited)) {
                    Ok(()) => {}
                    Err(_) if self.core.context().uverbs().is_gone() => gone = true,
                    Err(error) => return Err(error),
                }
                continue;
            }
            if waited >= look {
                gone = self.core.context().uverbs().is_gone();
                look = waited + LOOK;
            }
            if !self.core.is_held() {
                std::thread::yield_now();
            }
        }
    }

    /// Arms the queue, or if that was the last thing done sleeps until the event. The caller polls
    /// after each.
    fn doze(&mut self, armed: &mut Option<u32>, left: Duration) -> Result<(), Error> {
        match armed.take() {
            // A timeout is for the caller to find.
            Some(seen) => self.core.sleep(seen, left).map(drop),
            None => {
                *armed = Some(self.core.events());
                self.arm(Notify::Any)
            }
        }
    }

    /// A failed work request may be the device's going.
    #[cold]
    fn there(&self) -> Result<(), Error> {
        if self.core.context().uverbs().is_gone() {
            return Err(Error::DeviceGone { verb: "poll_cq" });
        }
        Ok(())
    }
}

/// Interval at which a polling wait checks that the device still exists.
const LOOK: Duration = Duration::from_millis(20);

/// True for failures that a removed device may report for valid work: the kernel destroys memory
/// regions and queues one after the other (`uverbs_destroy_ufile_hw`), and the device then finds a
/// queue without its memory.
fn half_gone(status: Status) -> bool {
    matches!(
        status,
        Status::LocalProtection
            | Status::LocalQpOperation
            | Status::RemoteOperation
            | Status::RemoteAccess
    )
}
