//! A connection driven by one thread: its completions, and its end.

use std::time::{Duration, Instant};

use uverbs::cm::Connection;
use uverbs::{CompletionQueue, QueuePair, WorkCompletion};

use crate::base::error::Error;

/// Interval of checks for the connection's end, which wakes no waiter at the completion queue.
const LOOK: Duration = Duration::from_millis(20);

pub(crate) struct PolledConnection {
    connection: Connection,
    cq: CompletionQueue,
    timeout: Duration,
}

impl PolledConnection {
    pub(crate) fn new(connection: Connection, cq: CompletionQueue, timeout: Duration) -> Self {
        Self { connection, cq, timeout }
    }

    pub(crate) fn queue_pair(&mut self) -> &mut QueuePair {
        self.connection.queue_pair()
    }

    /// Waits for the next completion; `what` names it in errors. `None` if the peer has left.
    pub(crate) fn next(
        &mut self,
        iteration: u64,
        what: &'static str,
    ) -> Result<Option<WorkCompletion>, Error> {
        self.next_within(iteration, what, self.timeout)
    }

    /// [`next`](Self::next) with another limit.
    pub(crate) fn next_within(
        &mut self,
        iteration: u64,
        what: &'static str,
        limit: Duration,
    ) -> Result<Option<WorkCompletion>, Error> {
        let start = Instant::now();
        let mut left = false;
        loop {
            match self.cq.wait(if left { Duration::ZERO } else { LOOK.min(limit) }) {
                Ok(done) => match done.result {
                    Ok(_) => return Ok(Some(done)),
                    Err(_) if self.has_left()? => return Ok(None),
                    Err(failure) => {
                        let what = what.to_owned();
                        return Err(Error::Completion { iteration, what, failure });
                    }
                },
                Err(uverbs::Error::TimedOut { .. }) if left => return Ok(None),
                Err(uverbs::Error::TimedOut { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            // Completions from before the disconnect come first.
            left = self.has_left()?;
            let waited = start.elapsed();
            if waited > limit && !left {
                return Err(Error::Silence { iteration, what, waited });
            }
        }
    }

    fn has_left(&mut self) -> Result<bool, Error> {
        Ok(self.connection.is_closed(Duration::ZERO)?)
    }

    /// Disconnects, and waits until the peer has confirmed it.
    pub(crate) fn part(self) -> Result<(), Error> {
        let parted = self.connection.disconnect(self.timeout);
        Ok(parted.map(drop).map_err(uverbs::Refused::into_error)?)
    }
}
