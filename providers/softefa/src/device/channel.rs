//! Completion channels and files of asynchronous events: pipes whose reading end the program has.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::pipe2;

/// Bytes of an event: the user handle of a completion queue.
const EVENT: usize = size_of::<u64>();
/// Events that the largest pipe holds (`/proc/sys/fs/pipe-max-size`).
const MOST: usize = (1 << 20) / EVENT;

/// A channel: its pipe, opened to write and to read without waiting. It stays until the device's
/// file is closed, as nothing tells that the program closed its end.
#[derive(Debug)]
pub(crate) struct Channel {
    pipe: File,
    /// Completion queues of the last events: of all that are unread, and of some that were read.
    cqs: VecDeque<u32>,
    /// Device and inode of the pipe, by which a command names it.
    pub(crate) identity: (u64, u64),
}

impl Channel {
    /// Opens a channel. Returns the program's descriptor, and the channel.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`, `EBADF`.
    pub(crate) fn open() -> Result<(u64, Self), Errno> {
        let (theirs, _) = pipe2(OFlag::O_CLOEXEC)?;
        // Opened again: the flags of the program's end stay.
        let path = format!("/proc/self/fd/{}", theirs.as_raw_fd());
        let flags = OFlag::O_NONBLOCK.bits();
        let pipe = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
        let pipe = pipe.map_err(|_| Errno::EMFILE)?;
        let status = pipe.metadata().map_err(|_| Errno::EBADF)?;
        let channel = Self { pipe, cqs: VecDeque::new(), identity: (status.dev(), status.ino()) };
        Ok((theirs.into_raw_fd() as u64, channel))
    }

    /// Reports an event of a completion queue. False if the pipe is full: a program that reads none
    /// gets no more.
    #[must_use]
    pub(crate) fn report(&mut self, cq: u32, user_handle: u64) -> bool {
        let is_written = self.pipe.write_all(&user_handle.to_ne_bytes()).is_ok();
        if is_written {
            if self.cqs.len() == MOST {
                self.cqs.pop_front();
            }
            self.cqs.push_back(cq);
        }
        is_written
    }

    /// Takes back the unread events of a completion queue (kernel
    /// `ib_uverbs_release_ucq`). Returns their number.
    pub(crate) fn retract(&mut self, cq: u32) -> u32 {
        let (mut unread, mut event) = (Vec::new(), [0; EVENT]);
        while self.pipe.read_exact(&mut event).is_ok() {
            unread.push(u64::from_ne_bytes(event));
        }
        let read = self.cqs.len().saturating_sub(unread.len());
        let cqs = std::mem::take(&mut self.cqs).into_iter().skip(read);
        let mut gone = 0;
        for (of, user_handle) in cqs.zip(unread) {
            match of == cq {
                true => gone += 1,
                // The pipe had room for it.
                false => _ = self.report(of, user_handle),
            }
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn unread_events_of_a_queue_are_taken_back() {
        let (theirs, mut channel) = Channel::open().unwrap();
        let mut reader = File::open(format!("/proc/self/fd/{theirs}")).unwrap();
        // Queues 1 and 4 have the same user handle.
        for (cq, user_handle) in [(1, 7), (2, 8), (1, 7), (4, 7), (3, 9)] {
            assert!(channel.report(cq, user_handle));
        }
        let mut event = [0; EVENT];
        reader.read_exact(&mut event).unwrap();
        assert_eq!(u64::from_ne_bytes(event), 7);
        assert_eq!((channel.retract(1), channel.retract(1)), (1, 0));
        for left in [8, 7, 9] {
            reader.read_exact(&mut event).unwrap();
            assert_eq!(u64::from_ne_bytes(event), left);
        }
        // A full pipe, and a program that has gone, stop no one.
        let reported = (0..1 << 16).filter(|event| channel.report(1, *event)).count();
        assert!((1..1 << 16).contains(&reported));
        drop(reader);
        nix::unistd::close(theirs as i32).unwrap();
        assert!(!channel.report(1, 1));
        assert_eq!(channel.retract(1) as usize, reported);
    }
}
