//! Sleeping where polls find nothing (`--events`).

use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use uverbs::{CompletionQueue, Error, Notify};

/// No sleep is longer: in between, Ctrl-C and time limits are looked after.
const NAP: Duration = Duration::from_millis(20);

/// What a loop does between polls that find nothing.
#[derive(Debug, Default)]
pub(crate) struct Sleep {
    armed: bool,
}

impl Sleep {
    /// Arms these queues, and called again sleeps until one of them has something. They are polled
    /// before each call: what completes before a queue is armed may raise no event.
    pub(crate) fn idle<const N: usize>(
        &mut self,
        queues: [&mut CompletionQueue; N],
    ) -> Result<(), Error> {
        self.armed = !self.armed;
        if self.armed {
            return queues.into_iter().try_for_each(|queue| queue.arm(Notify::Any));
        }
        let channels = queues.map(|queue| queue.channel());
        let channels: Vec<_> = channels.iter().flatten().collect();
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
