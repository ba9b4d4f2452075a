//! `poll`, `ppoll`, `select` and `pselect`.
//!
//! # Safety
//!
//! The contracts are those that libc documents for functions of these names.
#![allow(unsafe_code, reason = "takes the place of C functions")]

use std::mem::ManuallyDrop;
use std::ptr::null;

use libc::{
    POLLERR, POLLHUP, POLLIN, POLLOUT, POLLPRI, c_int, fd_set, nfds_t, pollfd, sigset_t, timespec,
    timeval,
};

use crate::rdma::inside;
use crate::real::timed;
use crate::table::{self, Descriptor, Kind};
use crate::{rdma, real};

/// Waits for descriptors, some of which stand for sockets of librdmacm.
fn wait(files: &mut [pollfd], timeout: c_int) -> c_int {
    // Leaked if the thread is cancelled during the wait.
    let mut behind = ManuallyDrop::new(Vec::with_capacity(files.len()));
    let mut is_rdma = false;
    for file in files.iter() {
        let fd = match table::get(file.fd) {
            Some(Descriptor { kind: Kind::Epoll, .. }) | None => file.fd,
            Some(entry) => {
                is_rdma |= entry.kind == Kind::Rdma;
                entry.inner
            }
        };
        behind.push(pollfd { fd, revents: 0, ..*file });
    }
    let (at, count) = (behind.as_mut_ptr(), behind.len() as nfds_t);
    // SAFETY: the list has that many entries and lives for the call.
    let answer = unsafe {
        if is_rdma {
            inside(|| rdma::rpoll(at, count, timeout))
        } else {
            real::poll(at, count, timeout)
        }
    };
    let behind = ManuallyDrop::into_inner(behind);
    for (file, seen) in files.iter_mut().zip(&behind) {
        file.revents = seen.revents;
    }
    answer
}

/// The program's descriptors, if one of them stands for a socket.
///
/// # Safety
///
/// As `poll`.
unsafe fn with_ours<'a>(files: *mut pollfd, count: nfds_t) -> Option<&'a mut [pollfd]> {
    if count == 0 {
        return None;
    }
    // SAFETY: by libc's contract, `files` has `count` entries.
    let files = unsafe { std::slice::from_raw_parts_mut(files, count as usize) };
    files.iter().any(|file| table::get(file.fd).is_some()).then_some(files)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn poll(files: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the arguments are the caller's, by libc's contract.
    unsafe {
        match with_ours(files, count) {
            Some(files) => wait(files, timeout),
            None => real::poll(files, count, timeout),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ppoll(
    files: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the arguments are the caller's, by libc's contract.
    unsafe {
        match with_ours(files, count) {
            Some(files) => timed(timeout, mask, |limit| wait(files, limit)),
            None => real::ppoll(files, count, timeout, mask),
        }
    }
}

/// Poll events of `select`'s three sets: to wait for, and to report. A closed connection is
/// readable and writable, as in Linux (`fs/select.c`: `POLLIN_SET`, `POLLOUT_SET`, `POLLEX_SET`).
const EVENTS: [(i16, i16); 3] =
    [(POLLIN, POLLIN | POLLHUP | POLLERR), (POLLOUT, POLLOUT | POLLERR), (POLLPRI, POLLPRI)];

/// Descriptors of three sets, if one of them stands for a socket. Leaked if the thread is cancelled
/// during the wait.
///
/// # Safety
///
/// As `select`.
unsafe fn members(sets: [*mut fd_set; 3], most: c_int) -> Option<ManuallyDrop<Vec<pollfd>>> {
    let mut files = Vec::new();
    for fd in 0..most.min(libc::FD_SETSIZE as c_int) {
        let mut events = 0;
        for (set, (wanted, _)) in sets.iter().zip(EVENTS) {
            // SAFETY: by libc's contract, null or a set of `FD_SETSIZE`.
            if !set.is_null() && unsafe { libc::FD_ISSET(fd, *set) } {
                events |= wanted;
            }
        }
        if events != 0 {
            files.push(pollfd { fd, events, revents: 0 });
        }
    }
    let is_ours = files.iter().any(|file| table::get(file.fd).is_some());
    is_ours.then(|| ManuallyDrop::new(files))
}

/// Clears what isn't ready, and returns the number of the rest; a negative answer as it is.
///
/// # Safety
///
/// As `select`, for descriptors that [`members`] found.
unsafe fn report(files: &[pollfd], sets: [*mut fd_set; 3], answer: c_int) -> c_int {
    if answer < 0 {
        return answer;
    }
    let mut count = 0;
    for file in files {
        for (set, (wanted, seen)) in sets.iter().zip(EVENTS) {
            if file.events & wanted == 0 {
                continue;
            }
            if file.revents & seen != 0 {
                count += 1;
            } else {
                // SAFETY: the descriptor was found in this set.
                unsafe { libc::FD_CLR(file.fd, *set) };
            }
        }
    }
    count
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn select(
    most: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let sets = [read, write, except];
    // SAFETY: the arguments are the caller's, by libc's contract: null or a valid time.
    unsafe {
        let Some(mut files) = members(sets, most) else {
            return real::select(most, read, write, except, timeout);
        };
        let limit = timeout.as_ref().map(|time| timespec {
            tv_sec: time.tv_sec,
            tv_nsec: time.tv_usec.saturating_mul(1000),
        });
        let limit = limit.as_ref().map_or(null(), |at| at);
        let answer = timed(limit, null(), |limit| wait(&mut files, limit));
        report(&ManuallyDrop::into_inner(files), sets, answer)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pselect(
    most: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let sets = [read, write, except];
    // SAFETY: the arguments are the caller's, by libc's contract.
    unsafe {
        let Some(mut files) = members(sets, most) else {
            return real::pselect(most, read, write, except, timeout, mask);
        };
        let answer = timed(timeout, mask, |limit| wait(&mut files, limit));
        report(&ManuallyDrop::into_inner(files), sets, answer)
    }
}
