//! Completion channels and files of asynchronous events: pipes whose reading end the program has.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::pipe2;

/// Bytes of an event: the user handle of a completion queue.
const EVENT: usize = size_of::<u64>();

/// A channel: both ends of its pipe, neither of which waits.
#[derive(Debug)]
pub(crate) struct Channel {
    sink: File,
    source: File,
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
        let (theirs, sink) = pipe2(OFlag::O_CLOEXEC)?;
        fcntl(&sink, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        // Opened again: the flags of the program's end stay.
        let path = format!("/proc/self/fd/{}", theirs.as_raw_fd());
        let flags = OFlag::O_NONBLOCK.bits();
        let source = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let source = source.map_err(|_| Errno::EMFILE)?;
        let sink = File::from(sink);
        let status = sink.metadata().map_err(|_| Errno::EBADF)?;
        let channel = Self { sink, source, identity: (status.dev(), status.ino()) };
        Ok((theirs.into_raw_fd() as u64, channel))
    }

    /// Reports an event. A program that reads none loses them when the pipe is full.
    pub(crate) fn report(&mut self, user_handle: u64) {
        let _ = self.sink.write_all(&user_handle.to_ne_bytes());
    }

    /// Takes back the unread events of a completion queue (kernel
    /// `ib_uverbs_release_ucq`). Returns their number.
    pub(crate) fn retract(&mut self, user_handle: u64) -> u32 {
        let (mut kept, mut gone, mut event) = (Vec::new(), 0, [0; EVENT]);
        while self.source.read_exact(&mut event).is_ok() {
            match u64::from_ne_bytes(event) == user_handle {
                true => gone += 1,
                false => kept.push(u64::from_ne_bytes(event)),
            }
        }
        kept.into_iter().for_each(|event| self.report(event));
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
        for event in [1, 2, 1, 3] {
            channel.report(event);
        }
        let mut event = [0; EVENT];
        reader.read_exact(&mut event).unwrap();
        assert_eq!(u64::from_ne_bytes(event), 1);
        assert_eq!((channel.retract(1), channel.retract(1)), (1, 0));
        for left in [2, 3] {
            reader.read_exact(&mut event).unwrap();
            assert_eq!(u64::from_ne_bytes(event), left);
        }
        // A full pipe, and a program that has gone, stop no one.
        (0..1 << 16).for_each(|event| channel.report(event));
        drop(reader);
        nix::unistd::close(theirs as i32).unwrap();
        channel.report(1);
    }
}
