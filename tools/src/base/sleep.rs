//! Sleeping where polls find nothing (`--events`).

use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use uverbs::{CompletionQueue, Error, Notify};

/// No sleep is longer: in between, Ctrl-C and time limits are looked after.
const NAP: Duration = Duration::from_millis(20);

/// Strategy of a loop between polls that find nothing.
#[derive(Debug, Default)]
pub(crate) struct Sleep {
    armed: bool,
}

impl Sleep {
    /// Arms these queues, and called again sleeps until one of them has something. They are polled
    /// before each call: what completes before a queue is armed may raise no event.
    pub(crate) fn idle<'q>(
        &mut self,
        queues: impl IntoIterator<Item = &'q mut CompletionQueue>,
    ) -> Result<(), Error> {
        self.armed = !self.armed;
        let mut queues = queues.into_iter();
        if self.armed {
            return queues.try_for_each(|queue| queue.arm(Notify::Any));
        }
        let channels: Vec<_> = queues.filter_map(|queue| queue.channel()).collect();
        let mut files: Vec<_> = channels
            .iter()
            .map(|channel| PollFd::new(channel.as_fd(), PollFlags::POLLIN))
            .collect();
        let nap = PollTimeout::try_from(NAP).unwrap_or(PollTimeout::ZERO);
        match poll(&mut files, nap) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => {
                let errno = uverbs::Errno::of(&errno.into());
                return Err(Error::System { what: "poll", errno });
            }
        }
        for channel in channels {
            while channel.try_next()?.is_some() {}
        }
        Ok(())
    }
}
