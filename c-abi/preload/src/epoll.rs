//! `epoll_create`, `epoll_ctl`, `epoll_wait`, `epoll_pwait` and `epoll_pwait2`.
//!
//! Files stay in the system's epoll. When the first socket of librdmacm is added, an epoll of
//! librdmacm is created, too (`repoll_create`, rdma-core 65). It holds the sockets, and the
//! system's epoll as one more file. Older versions of librdmacm lack it: adding a socket then fails
//! with `EPERM`, as the descriptor of `/dev/null` does.
//!
//! # Safety
//!
//! The contracts are those that libc documents for functions of these names.
#![allow(unsafe_code, reason = "takes the place of C functions")]

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use libc::{EPOLL_CTL_ADD, EPOLLIN, c_int, epoll_event, sigset_t, timespec};

use crate::rdma::inside;
use crate::real::{masked, timed};
use crate::table::{self, Descriptor, Kind};
use crate::{rdma, real};

/// Marker in librdmacm's epoll for the system's epoll. Its address is unique: no program uses it as
/// event data.
static SYSTEMS: u8 = 0;

fn systems() -> u64 {
    (&raw const SYSTEMS).expose_provenance() as u64
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: the argument is the caller's, by libc's contract.
    unsafe { real::epoll_create(size) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: the argument is the caller's, by libc's contract.
    unsafe { real::epoll_create1(flags) }
}

/// librdmacm's epoll of this descriptor, created at first use.
fn beside(epoll: c_int) -> Option<c_int> {
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    match table::get(epoll) {
        Some(Descriptor { kind: Kind::Epoll, inner }) => return Some(inner),
        Some(_) => return None,
        None => {}
    }
    let mut event = epoll_event { events: EPOLLIN as u32, u64: systems() };
    // SAFETY: files that are open, and an event that lives for the call.
    unsafe {
        let made = inside(|| rdma::repoll_create(libc::EPOLL_CLOEXEC));
        if made < 0 {
            return None;
        }
        let is_known = rdma::repoll_ctl(made, EPOLL_CTL_ADD, epoll, &raw mut event) == 0
            && table::insert(epoll, Descriptor::new(Kind::Epoll, made)).is_ok();
        if !is_known {
            rdma::rclose(made);
        }
        is_known.then_some(made)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_ctl(
    epoll: c_int,
    what: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the arguments are the caller's, by libc's contract.
    unsafe {
        match table::get(fd) {
            Some(Descriptor { kind: Kind::Rdma, inner }) => match beside(epoll) {
                Some(ours) => rdma::repoll_ctl(ours, what, inner, event),
                None => real::epoll_ctl(epoll, what, fd, event),
            },
            Some(Descriptor { kind: Kind::Epoll, .. }) | None => {
                real::epoll_ctl(epoll, what, fd, event)
            }
            Some(Descriptor { inner, .. }) => real::epoll_ctl(epoll, what, inner, event),
        }
    }
}

/// librdmacm's epoll of this descriptor, if a wait for `most` events needs it.
fn librdmacms(epoll: c_int, most: c_int) -> Option<c_int> {
    match table::get(epoll) {
        Some(Descriptor { kind: Kind::Epoll, inner }) if most > 0 => Some(inner),
        _ => None,
    }
}

/// Waits for sockets of librdmacm and for the system's epoll, which is a member of librdmacm's.
///
/// # Safety
///
/// As `epoll_wait`.
unsafe fn wait_for_both(
    (epoll, ours): (c_int, c_int),
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    let end =
        u64::try_from(timeout).ok().map(|limit| Instant::now() + Duration::from_millis(limit));
    loop {
        let left = end.map_or(-1, |end| {
            let left = end.saturating_duration_since(Instant::now());
            left.as_micros().div_ceil(1000).min(c_int::MAX as u128) as c_int
        });
        // SAFETY: by the contract of `wait_for_both`: room for `most` events.
        unsafe {
            let mut count = inside(|| rdma::repoll_wait(ours, events, most, left));
            if count <= 0 {
                return count;
            }
            // Read by value: an event is packed on x86-64.
            let data = |at: c_int| (*events.offset(at as isize)).u64;
            let Some(systems) = (0..count).find(|at| data(*at) == systems()) else {
                return count;
            };
            count -= 1;
            *events.offset(systems as isize) = *events.offset(count as isize);
            let more = real::epoll_wait(epoll, events.offset(count as isize), most - count, 0);
            count += more.max(0);
            // Another thread may have taken the event first.
            if count > 0 || left == 0 {
                return count;
            }
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the arguments are the caller's, by libc's contract.
    unsafe {
        match librdmacms(epoll, most) {
            Some(ours) => wait_for_both((epoll, ours), events, most, timeout),
            None => real::epoll_wait(epoll, events, most, timeout),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the arguments are the caller's, by libc's contract.
    unsafe {
        match librdmacms(epoll, most) {
            Some(ours) => masked(mask, || wait_for_both((epoll, ours), events, most, timeout)),
            None => real::epoll_pwait(epoll, events, most, timeout, mask),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the arguments are the caller's, by libc's contract.
    unsafe {
        match librdmacms(epoll, most) {
            Some(ours) => {
                timed(timeout, mask, |limit| wait_for_both((epoll, ours), events, most, limit))
            }
            None => real::epoll_pwait2(epoll, events, most, timeout, mask),
        }
    }
}
