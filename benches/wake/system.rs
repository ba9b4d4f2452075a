//! Processors, their time, and percentiles.
//!
//! # Safety
//!
//! Two system calls that fill or read a local value.
#![allow(unsafe_code, reason = "affinity and resource usage have no safe names")]

use std::time::Duration;

/// Binds the process to its first `count` processors.
pub(crate) fn pin_to(count: usize) -> Option<()> {
    // SAFETY: a set is plain numbers.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: this process, and a set that lives over the call.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&allowed), &raw mut allowed) } != 0 {
        return None;
    }
    // SAFETY: the number is below the size of the set.
    let is_set = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &allowed) };
    let chosen = (0..libc::CPU_SETSIZE as usize).filter(is_set).take(count).collect::<Vec<_>>();
    if chosen.len() < count {
        return None;
    }
    // SAFETY: the number is below the size of the set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in chosen {
        // SAFETY: the number is below the size of the set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: this process, and a set that lives over the call.
    let failed = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    (failed == 0).then_some(())
}

/// Usage of the process so far: processor time, and how often a thread of it went to sleep.
pub(crate) fn usage() -> (Duration, f64) {
    // SAFETY: a usage is plain numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a usage that lives over the call.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let of = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    (of(usage.ru_utime) + of(usage.ru_stime), usage.ru_nvcsw as f64)
}

/// Percentiles, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl Spread {
    /// Figures of at least one time.
    pub(crate) fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e6;
        Self { p50: at(50), p99: at(99) }
    }
}
