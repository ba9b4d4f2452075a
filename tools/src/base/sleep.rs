//! Sleep in place of busy polling (`--events`).

use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use uverbs::{CompletionQueue, Error, Notify};

/// Longest sleep, so that Ctrl-C and time limits are noticed.
const NAP: Duration = Duration::from_millis(20);

/// Behaviour of a loop between empty polls.
#[derive(Debug, Default)]
pub(crate) struct Sleep {
    armed: bool,
}

impl Sleep {
    /// Arms these queues; called again, sleeps until one of them has a completion. The caller polls
    /// before each call: completions from before the arm may raise no event.
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
