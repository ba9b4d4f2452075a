//! `rpoll` and `rselect`: waiting for several sockets and files.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLPRI, fd_set, nfds_t, pollfd, timeval};
use uverbs_core::Errno;

use super::socket::find;
use crate::base::answer::{last_errno, minus_one};
use crate::base::cancel;

/// Time of busy polling before the thread sleeps (`polling_time`).
const SPIN: Duration = Duration::from_micros(10);
/// Maximum sleep (`wake_up_interval`): another thread may have consumed the notification of an
/// event.
const DOZE: Duration = Duration::from_millis(500);

/// Passes over sockets after which busy ones are looked at with their files, too: a process that
/// ended is noticed by these alone.
const GLANCES: u32 = 64;

/// Polls files without waiting. Returns the number of ready files, or -1.
pub(super) fn glance(files: &mut [pollfd]) -> c_int {
    // SAFETY: so many entries, which live for the call.
    unsafe { libc::poll(files.as_mut_ptr(), files.len() as nfds_t, 0) }
}

/// Waits for sockets and files. A cancellation point.
///
/// # Safety
///
/// The caller holds no lock and no value that needs dropping: the thread may end here.
pub(super) unsafe fn poll(files: &mut [pollfd], limit: Option<Duration>) -> Result<c_int, Errno> {
    // Leaked if the thread is cancelled during the wait.
    let mut lists = ManuallyDrop::new(Lists::default());
    // SAFETY: by the contract of `poll`.
    let answer = unsafe { poll_with(&mut lists, files, limit) };
    drop(ManuallyDrop::into_inner(lists));
    answer
}

/// Entry that poll(2) ignores.
const NONE: pollfd = pollfd { fd: -1, events: 0, revents: 0 };

/// Lists of one call of `poll`.
#[derive(Default)]
struct Lists {
    /// File to poll for each of the program's descriptors.
    watched: Vec<pollfd>,
    is_socket: Vec<bool>,
}

impl Lists {
    /// Fills in the files of idle sockets, and asks with one system call which became readable.
    fn ask(&mut self, files: &[pollfd]) {
        self.watched.clear();
        let idle = |file: &pollfd| find(file.fd)?.idle(file.events);
        self.watched.extend(files.iter().map(|file| idle(file).unwrap_or(NONE)));
        if self.watched.iter().any(|file| file.fd >= 0) && glance(&mut self.watched) < 0 {
            self.watched.fill(NONE);
        }
    }
}

/// # Safety
///
/// As [`poll`].
unsafe fn poll_with(
    lists: &mut Lists,
    files: &mut [pollfd],
    limit: Option<Duration>,
) -> Result<c_int, Errno> {
    static PASSES: AtomicU32 = AtomicU32::new(0);
    let start = Instant::now();
    // SAFETY: by the contract of `poll`. poll(2) is a cancellation point, also when it does not
    // wait.
    unsafe { cancel::point() };
    // After a long sleep all sockets are looked at.
    let mut is_long = false;
    loop {
        match is_long {
            true => lists.watched.splice(.., files.iter().map(|_| NONE)).for_each(drop),
            false => lists.ask(files),
        }
        let Lists { watched, is_socket } = lists;
        is_socket.clear();
        let spent = start.elapsed();
        // Arming and draining costs system calls. Busy sockets are armed only before a sleep.
        let arms = spent >= SPIN || PASSES.fetch_add(1, Ordering::Relaxed).is_multiple_of(GLANCES);
        let mut count = 0;
        for (file, watched) in files.iter_mut().zip(watched.iter_mut()) {
            // Looked up each time, and released before the wait: another thread may close it.
            let socket = find(file.fd);
            is_socket.push(socket.is_some());
            let Some(socket) = socket else {
                *watched = pollfd { revents: 0, ..*file };
                continue;
            };
            if watched.fd >= 0 && watched.revents == 0 {
                file.revents = 0;
                continue;
            }
            let is_busy = watched.fd < 0 && !arms;
            let glanced = if is_busy { socket.glance(file.events) } else { None };
            (file.revents, *watched) = match glanced {
                Some(events) => (events, NONE),
                None => socket.look(file.events),
            };
            count += c_int::from(file.revents != 0);
        }
        let sockets_alone = is_socket.iter().all(|is| *is);
        let left = limit.map_or(DOZE, |limit| limit.saturating_sub(spent).min(DOZE));
        let now = count > 0 || left.is_zero();
        if now && sockets_alone {
            return Ok(count);
        }
        let spins = !now && spent < SPIN;
        let doze = left.as_micros().div_ceil(1000) as c_int;
        let seen = match now || spins {
            true => glance(watched),
            // SAFETY: by the contract of `poll`; the list has that many entries.
            false => unsafe { cancel::poll(watched.as_mut_ptr(), watched.len(), doze) },
        };
        is_long = seen == 0 && !now && !spins;
        if seen < 0 {
            return Err(last_errno());
        }
        for ((file, is_socket), seen) in files.iter_mut().zip(&*is_socket).zip(&*watched) {
            if !is_socket {
                file.revents = seen.revents;
                count += c_int::from(seen.revents != 0);
            }
        }
        if now || count > 0 {
            return Ok(count);
        }
        if spins {
            std::thread::yield_now();
        }
    }
}

/// Waits until a call on a socket can proceed, since the call itself is not cancelable. The call
/// then returns at once, unless another thread was faster or only a part fits.
///
/// # Safety
///
/// As [`poll`].
pub(super) unsafe fn before(number: c_int, events: i16, flags: c_int) {
    if find(number).is_some_and(|socket| socket.may_wait(flags)) {
        let mut file = pollfd { fd: number, events, revents: 0 };
        // SAFETY: by the contract of `poll`. A stream's wait continues after a signal. The call
        // itself reports all other errors.
        while unsafe { poll(std::slice::from_mut(&mut file), None) } == Err(Errno::EINTR) {}
    }
}

pub(crate) unsafe extern "C-unwind" fn rpoll(
    files: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
) -> c_int {
    let limit = u64::try_from(timeout).ok().map(Duration::from_millis);
    let files: &mut [pollfd] = match count {
        0 => &mut [],
        // SAFETY: C's contract: so many entries.
        _ => unsafe { std::slice::from_raw_parts_mut(files, count as usize) },
    };
    // SAFETY: there is a slice alone.
    unsafe { poll(files, limit) }.unwrap_or_else(minus_one)
}

/// A set of `select` or null, and the events that its members wait for.
type Set = (*mut fd_set, i16);

/// # Safety
///
/// C's contract; the set has room for `number`.
unsafe fn has((set, _): Set, number: c_int) -> bool {
    // SAFETY: by the contract of `has`.
    !set.is_null() && unsafe { libc::FD_ISSET(number, set) }
}

pub(crate) unsafe extern "C-unwind" fn rselect(
    most: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    if !(0..=libc::FD_SETSIZE as c_int).contains(&most) {
        return minus_one(Errno::EINVAL);
    }
    let sets = [(read, POLLIN), (write, POLLOUT), (except, POLLPRI)];
    // Leaked if the thread is cancelled during the wait.
    let mut files = ManuallyDrop::new(Vec::new());
    for fd in 0..most {
        // SAFETY: by C's contract.
        let wanted = sets.iter().filter(|set| unsafe { has(**set, fd) });
        let events = wanted.fold(0, |events, (_, event)| events | event);
        if events != 0 {
            files.push(pollfd { fd, events, revents: 0 });
        }
    }
    // SAFETY: by C's contract; it may be null.
    let limit = unsafe { timeout.as_ref() }.map(|time| {
        let seconds = Duration::from_secs(time.tv_sec.max(0) as u64);
        seconds + Duration::from_micros(time.tv_usec.max(0) as u64)
    });
    // SAFETY: a cancellation here leaves no value undropped and no lock held.
    let seen = unsafe { poll(&mut files, limit) };
    let files = ManuallyDrop::into_inner(files);
    if let Err(errno) = seen {
        return minus_one(errno);
    }
    let mut count = 0;
    for (set, event) in sets {
        for file in files.iter().filter(|file| file.events & event != 0) {
            // A closed connection is readable and writable.
            let ended = if event == POLLPRI { 0 } else { POLLERR | POLLHUP };
            if file.revents & (event | ended) != 0 {
                count += 1;
            } else {
                // SAFETY: C's contract: it was found in the set.
                unsafe { libc::FD_CLR(file.fd, set) };
            }
        }
    }
    count
}
