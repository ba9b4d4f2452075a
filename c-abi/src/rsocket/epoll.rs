//! Epoll sets of sockets and files (`repoll_*`, rdma-core 65).
//!
//! A wait looks at all members, as `rpoll` does, and needs no thread. Events are level-triggered:
//! `EPOLLET` and `EPOLLEXCLUSIVE` are ignored, as in C's library.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use libc::{
    EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLIN, EPOLLONESHOT, EPOLLOUT,
    EPOLLPRI, POLLIN, epoll_event, pollfd,
};
use nix::sys::eventfd::{EfdFlags, EventFd};
use uverbs_core::Errno;

use super::done;
use super::poll::poll;
use crate::base::answer::minus_one;

/// Events that a program can wait for. Poll and epoll share their bits (`EPOLLIN` is `POLLIN`).
const WAITED: u32 = (EPOLLIN | EPOLLOUT | EPOLLPRI) as u32;
/// Poll's event for a number without an open file.
const CLOSED: i16 = libc::POLLNVAL;

/// A member of a set, as the program added it.
#[derive(Clone, Copy)]
struct Member {
    events: u32,
    data: u64,
    /// A one-shot event was reported (`EPOLLONESHOT`); the member waits for `EPOLL_CTL_MOD`.
    is_spent: bool,
}

/// A set. Its number is an eventfd, which is readable while waiting threads must look at the
/// members again: redis changes members for each message.
struct Set {
    changed: EventFd,
    members: Mutex<BTreeMap<RawFd, Member>>,
    /// Threads that wait, changed with `members` locked. A thread that was cancelled in a wait
    /// stays counted: then changes write to the eventfd in vain.
    waits: AtomicU32,
}

static SETS: RwLock<Option<HashMap<RawFd, Arc<Set>>>> = RwLock::new(None);

fn set_of(number: c_int) -> Result<Arc<Set>, Errno> {
    let sets = SETS.read().unwrap_or_else(PoisonError::into_inner);
    sets.as_ref().and_then(|sets| sets.get(&number)).cloned().ok_or(Errno::EINVAL)
}

/// Closes the set with this number. Returns false if the number is not a set.
pub(super) fn close(number: c_int) -> bool {
    let mut sets = SETS.write().unwrap_or_else(PoisonError::into_inner);
    let removed = sets.as_mut().and_then(|sets| sets.remove(&number));
    if let Some(set) = &removed {
        set.wake();
    }
    removed.is_some()
}

/// Removes a closed number from all sets (epoll(7)).
pub(super) fn forget(number: c_int) {
    let sets = SETS.read().unwrap_or_else(PoisonError::into_inner);
    for set in sets.iter().flat_map(HashMap::values) {
        set.members().remove(&number);
    }
}

impl Set {
    fn members(&self) -> MutexGuard<'_, BTreeMap<RawFd, Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the waiting threads look at the members again.
    fn wake(&self) {
        // A full counter refuses the write, but is readable, too.
        let _ = self.changed.write(1);
    }

    /// Begins a wait, and returns the files that it watches: the set's eventfd and its members.
    fn begin(&self) -> Vec<pollfd> {
        let own = self.changed.as_fd().as_raw_fd();
        let mut files = vec![pollfd { fd: own, events: POLLIN, revents: 0 }];
        let members = self.members();
        self.waits.fetch_add(1, Ordering::Relaxed);
        for (&fd, member) in members.iter().filter(|(_, member)| !member.is_spent) {
            files.push(pollfd { fd, events: (member.events & WAITED) as i16, revents: 0 });
        }
        files
    }

    /// Ends a wait, and returns the events to report, of members that are still in the set with
    /// this interest.
    fn end(&self, files: &[pollfd], most: usize) -> Vec<epoll_event> {
        if files[0].revents != 0 {
            let _ = self.changed.read();
        }
        let mut members = self.members();
        self.waits.fetch_sub(1, Ordering::Relaxed);
        let mut found = Vec::new();
        for file in files[1..].iter().filter(|file| file.revents != 0) {
            if file.revents & CLOSED != 0 {
                // A closed file leaves its set (epoll(7)).
                members.remove(&file.fd);
                continue;
            }
            let Some(member) = members.get_mut(&file.fd).filter(|member| !member.is_spent) else {
                continue;
            };
            if found.len() == most {
                break;
            }
            member.is_spent = member.events & EPOLLONESHOT as u32 != 0;
            found.push(epoll_event { events: file.revents as u16 as u32, u64: member.data });
        }
        found
    }
}

/// Waits for up to `most` events of the set; empty after `limit`. A cancellation point.
///
/// # Safety
///
/// The caller holds no lock and no value that needs dropping: the thread may end here.
unsafe fn wait(
    number: c_int,
    most: usize,
    limit: Option<Duration>,
) -> Result<Vec<epoll_event>, Errno> {
    let start = Instant::now();
    loop {
        // The thread may be cancelled here, so it holds neither a reference to the set nor a list
        // to drop. Closing the set meanwhile wakes it by the eventfd.
        let mut files = ManuallyDrop::new(set_of(number)?.begin());
        let left = limit.map(|limit| limit.saturating_sub(start.elapsed()));
        // SAFETY: by the contract of `wait`.
        let seen = unsafe { poll(&mut files, left) };
        let mut files = ManuallyDrop::into_inner(files);
        if seen.is_err() {
            files.iter_mut().for_each(|file| file.revents = 0);
        }
        let found = set_of(number)?.end(&files, most);
        seen?;
        if !found.is_empty() || left.is_some_and(|left| left.is_zero()) {
            return Ok(found);
        }
    }
}

fn create(flags: c_int) -> Result<c_int, Errno> {
    if flags & !EPOLL_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    let flags = if flags == 0 { EfdFlags::empty() } else { EfdFlags::EFD_CLOEXEC };
    let changed = EventFd::from_flags(flags | EfdFlags::EFD_NONBLOCK);
    let changed = changed.map_err(|errno| Errno::from_raw(errno as i32))?;
    let number = changed.as_fd().as_raw_fd();
    let set = Arc::new(Set { changed, members: Mutex::default(), waits: AtomicU32::new(0) });
    let mut sets = SETS.write().unwrap_or_else(PoisonError::into_inner);
    sets.get_or_insert_default().insert(number, set);
    Ok(number)
}

fn control(number: c_int, what: c_int, fd: c_int, event: Option<epoll_event>) -> Result<(), Errno> {
    if fd < 0 {
        return Err(Errno::EBADF);
    }
    if fd == number {
        return Err(Errno::EINVAL);
    }
    let set = set_of(number)?;
    let mut members = set.members();
    let member =
        event.map(|event| Member { events: event.events, data: event.u64, is_spent: false });
    match (what, members.contains_key(&fd)) {
        (EPOLL_CTL_ADD, true) => return Err(Errno::EEXIST),
        (EPOLL_CTL_MOD | EPOLL_CTL_DEL, false) => return Err(Errno::ENOENT),
        (EPOLL_CTL_ADD | EPOLL_CTL_MOD, _) => {
            members.insert(fd, member.ok_or(Errno::EFAULT)?);
        }
        (EPOLL_CTL_DEL, true) => {
            members.remove(&fd);
        }
        _ => return Err(Errno::EINVAL),
    }
    if set.waits.load(Ordering::Relaxed) > 0 {
        set.wake();
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn repoll_create(flags: c_int) -> c_int {
    create(flags).unwrap_or_else(minus_one)
}

pub(crate) unsafe extern "C" fn repoll_ctl(
    number: c_int,
    what: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: C's contract: null, or an event.
    let event = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
    done(control(number, what, fd, event))
}

pub(crate) unsafe extern "C-unwind" fn repoll_wait(
    number: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    let limit = u64::try_from(timeout).ok().map(Duration::from_millis);
    let Some(most) = usize::try_from(most).ok().filter(|most| *most > 0) else {
        return minus_one(Errno::EINVAL);
    };
    // SAFETY: there are numbers alone.
    match unsafe { wait(number, most, limit) } {
        Ok(found) => {
            // SAFETY: C's contract: room for `most` events.
            unsafe { events.copy_from_nonoverlapping(found.as_ptr(), found.len()) };
            found.len() as c_int
        }
        Err(errno) => minus_one(errno),
    }
}
