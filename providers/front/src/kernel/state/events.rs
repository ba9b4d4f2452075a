//! Event files: completion channels and async event files
//! (`drivers/infiniband/core/uverbs_main.c`).
//!
//! A file is a pair of connected SEQPACKET sockets, one of which belongs to the client. As with the
//! kernel's file, `read` returns one whole event, it can be polled and made non-blocking, it is
//! never writable (`ib_uverbs_event_poll`), and a descriptor passed back is identified by its
//! inode. Unread events can be taken back when their object is destroyed, as the kernel does
//! (`ib_uverbs_release_ucq`, `ib_uverbs_release_uevent`).

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::SndBuf;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, recv, send, setsockopt, socketpair,
};
use nix::unistd::close;
use uverbs_kernel_abi::event::{ib_uverbs_async_event_desc, ib_uverbs_comp_event_desc};
use uverbs_kernel_abi::objects::{UVERBS_OBJECT_ASYNC_EVENT, UVERBS_OBJECT_COMP_CHANNEL};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::kernel::user::{dup_if_same, fd_identity};

/// Events kept while the socket is full; more are lost. Each object has few outstanding events, so
/// only a client that never reads reaches this limit.
const BACKLOG: usize = 1 << 16;
/// Bytes that fill the client's direction, whose buffer is set to the system's smallest. A socket
/// is writable while less than a quarter of its buffer is used (`unix_writable`).
const FILLING: [u8; 2048] = [0; 2048];

#[derive(Debug)]
struct EventFile {
    kind: u16,
    ours: OwnedFd,
    /// Descriptor number of the client's end. The client may have closed and reused it.
    user_fd: RawFd,
    identity: (u64, u64),
    backlog: VecDeque<Vec<u8>>,
}

impl EventFile {
    fn push(&mut self, event: &[u8]) {
        if self.backlog.len() < BACKLOG {
            self.backlog.push_back(event.to_vec());
        }
        self.flush();
    }

    fn flush(&mut self) {
        while let Some(event) = self.backlog.front() {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            match send(self.ours.as_raw_fd(), event, flags) {
                // The socket is full: the next event or retry sends it.
                Err(Errno::EAGAIN | Errno::ENOBUFS) => return,
                Err(Errno::EINTR) => {}
                // Sent; or the client closed its end and wants no more.
                _ => drop(self.backlog.pop_front()),
            }
        }
    }

    /// True if the client has closed all its descriptors of the file.
    fn is_closed(&self) -> bool {
        let mut files = [PollFd::new(self.ours.as_fd(), PollFlags::empty())];
        poll(&mut files, PollTimeout::ZERO)
            .is_ok_and(|_| files[0].revents().is_some_and(|seen| seen.contains(PollFlags::POLLHUP)))
    }

    /// Takes back the unread events for which `doomed` is true. Returns their number.
    fn retract(&mut self, doomed: impl Fn(&[u8]) -> bool) -> u32 {
        let mut events = VecDeque::new();
        if let Some(theirs) = dup_if_same(self.user_fd, self.identity) {
            let mut bytes = [0; size_of::<ib_uverbs_async_event_desc>()];
            loop {
                match recv(theirs.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
                    Ok(len) if len > 0 => events.push_back(bytes[..len].to_vec()),
                    Err(Errno::EINTR) => {}
                    _ => break,
                }
            }
        }
        events.append(&mut self.backlog);
        let before = events.len();
        events.retain(|event| !doomed(event));
        let gone = before - events.len();
        self.backlog = events;
        self.flush();
        u32::try_from(gone).unwrap_or(u32::MAX)
    }
}

impl Drop for EventFile {
    fn drop(&mut self) {
        // With unread bytes here, the client would get a reset in place of an end of file.
        let _ = recv(self.ours.as_raw_fd(), &mut [0], MsgFlags::MSG_DONTWAIT);
    }
}

/// The event files of one open device file.
#[derive(Debug, Default)]
pub(crate) struct EventFiles {
    files: BTreeMap<u32, EventFile>,
    next: u32,
    /// Async event file of objects that name none (`default_async_file`).
    default_async: Option<u32>,
}

impl EventFiles {
    /// Opens an event file. Returns its internal number; [`EventFiles::fd`] is the client's
    /// descriptor.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub(crate) fn open(&mut self, kind: u16) -> Result<u32, Errno> {
        // Drops files that the client has closed.
        self.files.retain(|_, file| !file.is_closed());
        let flags = SockFlag::SOCK_CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        setsockopt(&theirs, SndBuf, &0)?;
        send(theirs.as_raw_fd(), &FILLING, MsgFlags::MSG_DONTWAIT)?;
        let identity = fd_identity(theirs.as_raw_fd()).ok_or(Errno::EBADF)?;
        let file = EventFile {
            kind,
            ours,
            user_fd: theirs.into_raw_fd(),
            identity,
            backlog: VecDeque::new(),
        };
        let number = self.next;
        self.next += 1;
        self.files.insert(number, file);
        Ok(number)
    }

    /// Client's descriptor of a file.
    pub(crate) fn fd(&self, number: u32) -> Option<RawFd> {
        self.files.get(&number).map(|file| file.user_fd)
    }

    /// Commits a file after its command succeeded (`rdma_alloc_commit_uobject`).
    pub(crate) fn commit(&mut self, number: u32) {
        let is_async = |file: &EventFile| file.kind == UVERBS_OBJECT_ASYNC_EVENT;
        // The first async file is the default (`ib_uverbs_init_async_event_file`).
        if self.default_async.is_none() && self.files.get(&number).is_some_and(is_async) {
            self.default_async = Some(number);
        }
    }

    /// Closes a file whose command failed.
    pub(crate) fn abandon(&mut self, number: u32) {
        if let Some(file) = self.files.remove(&number) {
            // The client never learnt the number, so it was not reused.
            let _ = close(file.user_fd);
        }
    }

    /// The file behind a descriptor that the client passed (`lookup_get_fd_uobject`).
    ///
    /// # Errors
    ///
    /// `EINVAL` for an invalid descriptor number, `EBADF` for another kind of file.
    pub(crate) fn lookup(&self, fd: i64, kind: u16) -> Result<u32, Errno> {
        let fd = RawFd::try_from(fd).map_err(|_| Errno::EINVAL)?;
        let identity = fd_identity(fd).ok_or(Errno::EBADF)?;
        self.files
            .iter()
            .find(|(_, file)| file.identity == identity && file.kind == kind)
            .map(|(number, _)| *number)
            .ok_or(Errno::EBADF)
    }

    /// The given file, or the default (`ib_uverbs_get_async_event`).
    pub(crate) fn async_file(&self, given: Option<u32>) -> Option<u32> {
        given.or(self.default_async)
    }

    /// Reports an event. False if the file does not exist.
    pub(crate) fn report<T: IntoBytes + Immutable>(
        &mut self,
        number: Option<u32>,
        event: &T,
    ) -> bool {
        let file = number.and_then(|number| self.files.get_mut(&number));
        file.map(|file| file.push(event.as_bytes())).is_some()
    }

    /// Reports an event of a port or of the whole device to every async file.
    pub(crate) fn report_all(&mut self, element: u64, event_type: u32) {
        let event = async_event(element, event_type);
        for file in self.files.values_mut() {
            if file.kind == UVERBS_OBJECT_ASYNC_EVENT {
                file.push(event.as_bytes());
            }
        }
    }

    /// Ends completion channels after removal of the device: a waiting reader gets end of file (the
    /// kernel returns EIO, `uverbs_completion_event_file_destroy_uobj`).
    pub(crate) fn hang_up(&mut self) {
        for file in self.files.values_mut().filter(|file| file.kind == UVERBS_OBJECT_COMP_CHANNEL) {
            file.flush();
            let _ = nix::sys::socket::shutdown(
                file.ours.as_raw_fd(),
                nix::sys::socket::Shutdown::Write,
            );
        }
    }

    /// Retries events that did not fit their sockets.
    pub(crate) fn flush(&mut self) {
        for file in self.files.values_mut() {
            file.flush();
        }
    }

    /// True if an event waits for room.
    pub(crate) fn has_backlog(&self) -> bool {
        self.files.values().any(|file| !file.backlog.is_empty())
    }

    /// Takes back unread completion events of a CQ.
    pub(crate) fn retract_completions(&mut self, number: Option<u32>, user_handle: u64) -> u32 {
        self.retract(number, |event| {
            ib_uverbs_comp_event_desc::read_from_bytes(event)
                .is_ok_and(|event| event.cq_handle == user_handle)
        })
    }

    /// Takes back unread async events of an object. `types` are the event types of its kind.
    pub(crate) fn retract_async(
        &mut self,
        number: Option<u32>,
        user_handle: u64,
        types: &[u32],
    ) -> u32 {
        self.retract(number, |event| {
            ib_uverbs_async_event_desc::read_from_bytes(event).is_ok_and(|event| {
                event.element == user_handle && types.contains(&event.event_type)
            })
        })
    }

    fn retract(&mut self, number: Option<u32>, doomed: impl Fn(&[u8]) -> bool) -> u32 {
        let file = number.and_then(|number| self.files.get_mut(&number));
        file.map_or(0, |file| file.retract(doomed))
    }
}

/// An event as read from an async file.
pub(crate) fn async_event(element: u64, event_type: u32) -> ib_uverbs_async_event_desc {
    ib_uverbs_async_event_desc { element, event_type, reserved: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(fd: RawFd) -> Option<Vec<u8>> {
        let mut bytes = [0; 64];
        let len = recv(fd, &mut bytes, MsgFlags::MSG_DONTWAIT).ok()?;
        Some(bytes[..len].to_vec())
    }

    #[test]
    fn one_event_a_read_and_unread_ones_can_be_taken_back() {
        let mut files = EventFiles::default();
        let number = files.open(UVERBS_OBJECT_ASYNC_EVENT).unwrap();
        files.commit(number);
        let fd = files.fd(number).unwrap();
        for element in [1, 2, 1, 3] {
            assert!(files.report(files.async_file(None), &async_event(element, 5)));
        }
        assert_eq!(read(fd).unwrap(), async_event(1, 5).as_bytes());
        // A port event with the same number stays.
        files.report_all(1, 9);
        assert_eq!(files.retract_async(Some(number), 1, &[5]), 1);
        let left = std::iter::from_fn(|| read(fd)).collect::<Vec<_>>();
        let expected = [(2, 5), (3, 5), (1, 9)]
            .map(|(element, kind)| async_event(element, kind).as_bytes().to_vec());
        assert_eq!(left, expected);
        close(fd).unwrap();
        // The client closed its end, which is harmless.
        assert!(files.report(Some(number), &async_event(1, 5)));
        assert_eq!(files.retract_async(Some(number), 1, &[5]), 0);
    }

    #[test]
    fn an_event_file_is_readable_for_events_and_never_writable() {
        let mut files = EventFiles::default();
        let number = files.open(UVERBS_OBJECT_COMP_CHANNEL).unwrap();
        let fd = files.fd(number).unwrap();
        let theirs = dup_if_same(fd, fd_identity(fd).unwrap()).unwrap();
        let seen = || {
            let mut asked = [PollFd::new(theirs.as_fd(), PollFlags::POLLIN | PollFlags::POLLOUT)];
            poll(&mut asked, PollTimeout::ZERO).unwrap();
            asked[0].revents().unwrap()
        };
        assert_eq!(seen(), PollFlags::empty());
        files.report(Some(number), &ib_uverbs_comp_event_desc { cq_handle: 1 });
        assert_eq!(seen(), PollFlags::POLLIN);
        assert!(read(fd).is_some());
        assert_eq!(seen(), PollFlags::empty());
        files.hang_up();
        assert!(seen().contains(PollFlags::POLLIN) && read(fd).unwrap().is_empty());
        // Its end without a device.
        drop(files);
        assert!(read(fd).unwrap().is_empty());
        close(fd).unwrap();
    }

    #[test]
    fn a_full_socket_loses_nothing() {
        let mut files = EventFiles::default();
        let number = files.open(UVERBS_OBJECT_ASYNC_EVENT).unwrap();
        let fd = files.fd(number).unwrap();
        for element in 0..5000 {
            files.report(Some(number), &async_event(element, 0));
        }
        let mut next = 0;
        while next < 5000 {
            match read(fd) {
                Some(bytes) => {
                    assert_eq!(bytes, async_event(next, 0).as_bytes());
                    next += 1;
                }
                None => files.flush(),
            }
        }
        close(fd).unwrap();
    }

    #[test]
    fn closed_files_are_forgotten() {
        let mut files = EventFiles::default();
        for _ in 0..3 {
            let number = files.open(UVERBS_OBJECT_ASYNC_EVENT).unwrap();
            files.commit(number);
            assert!(files.report(Some(number), &async_event(1, 1)));
            assert_eq!(files.files.len(), 1);
            close(files.fd(number).unwrap()).unwrap();
        }
        assert_eq!(files.default_async, Some(0));
    }

    #[test]
    fn descriptors_are_known_by_their_file() {
        let mut files = EventFiles::default();
        let number = files.open(UVERBS_OBJECT_ASYNC_EVENT).unwrap();
        let fd = i64::from(files.fd(number).unwrap());
        assert_eq!(files.lookup(fd, UVERBS_OBJECT_ASYNC_EVENT), Ok(number));
        assert_eq!(files.lookup(fd, 2), Err(Errno::EBADF));
        assert_eq!(files.lookup(-1, UVERBS_OBJECT_ASYNC_EVENT), Err(Errno::EBADF));
        assert_eq!(files.lookup(1 << 40, UVERBS_OBJECT_ASYNC_EVENT), Err(Errno::EINVAL));
        files.abandon(number);
        assert!(files.lookup(fd, UVERBS_OBJECT_ASYNC_EVENT).is_err());
    }
}
