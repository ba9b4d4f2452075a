//! `poll` and `select`.
//!
//! # Safety
//!
//! The contracts are those that libc documents for functions of these names.
#![allow(unsafe_code, reason = "takes the place of C functions")]

use std::mem::ManuallyDrop;

use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLPRI, c_int, fd_set, nfds_t, pollfd, timeval};

use crate::rdma::inside;
use crate::table::{self, Entry, Kind};
use crate::{rdma, real};

/// Waits for descriptors, some of which stand for sockets of librdmacm.
fn wait(files: &mut [pollfd], timeout: c_int) -> c_int {
    // Leaked if the thread is cancelled during the wait.
    let mut behind = ManuallyDrop::new(Vec::with_capacity(files.len()));
    let mut is_rdma = false;
    for file in files.iter() {
        let fd = match table::get(file.fd) {
            Some(Entry { kind: Kind::Epoll, .. }) | None => file.fd,
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

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn poll(files: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let ours = match count {
        0 => &mut [],
        // SAFETY: by libc's contract, `files` has `count` entries.
        _ => unsafe { std::slice::from_raw_parts_mut(files, count as usize) },
    };
    if ours.iter().any(|file| table::get(file.fd).is_some()) {
        return wait(ours, timeout);
    }
    // SAFETY: the arguments are the caller's, by libc's contract.
    unsafe { real::poll(files, count, timeout) }
}

/// Poll events of `select`'s three sets: to wait for, and to report. A closed connection is
/// readable and writable, as in Linux (`fs/select.c`: `POLLIN_SET`, `POLLOUT_SET`, `POLLEX_SET`).
const EVENTS: [(i16, i16); 3] =
    [(POLLIN, POLLIN | POLLHUP | POLLERR), (POLLOUT, POLLOUT | POLLERR), (POLLPRI, POLLPRI)];

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn select(
    most: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let sets = [read, write, except];
    let mut files = ManuallyDrop::new(Vec::new());
    let range = 0..most.min(libc::FD_SETSIZE as c_int);
    for fd in range {
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
    if !files.iter().any(|file| table::get(file.fd).is_some()) {
        drop(ManuallyDrop::into_inner(files));
        // SAFETY: the arguments are the caller's, by libc's contract.
        return unsafe { real::select(most, read, write, except, timeout) };
    }
    // SAFETY: by libc's contract, null or a valid time.
    let milliseconds = unsafe { timeout.as_ref() }.map_or(-1, |time| {
        let spent = time.tv_sec.saturating_mul(1000).saturating_add((time.tv_usec + 999) / 1000);
        spent.clamp(0, c_int::MAX.into()) as c_int
    });
    let answer = wait(&mut files, milliseconds);
    let files = ManuallyDrop::into_inner(files);
    if answer < 0 {
        return answer;
    }
    let mut count = 0;
    for file in &files {
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
