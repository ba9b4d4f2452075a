//! Thread that tells a sleeping server of the next store into a doorbell page.
//!
//! The server has no power over the pages: it asks for their protection, and this thread lifts it
//! at the first store, whether the server reads its messages or not.

use std::os::fd::AsFd;
use std::sync::Arc;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use uverbs_core::thread;
use uverbs_front::watch::Watch;

use super::reader::Line;
use crate::error::Error;

/// Starts the thread, which ends with the connection.
pub(super) fn start(line: Arc<Line>, watch: Arc<Watch>) -> Result<(), Error> {
    let started = thread::start("uverbs-bells", move || {
        while wait(&line, &watch) {
            watch.release();
            line.look(true);
        }
        watch.end();
    });
    started.map_err(Error::system("starting a thread"))
}

/// Waits for a store; false at the end of the connection.
fn wait(line: &Line, watch: &Watch) -> bool {
    loop {
        let mut fds =
            [line.ended.as_fd(), watch.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) => {
                let [ended, stored] = fds.map(|fd| fd.any().unwrap_or(true));
                if ended || stored {
                    return !ended;
                }
            }
            Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}
