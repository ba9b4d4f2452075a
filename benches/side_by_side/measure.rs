//! Time, and statistics over many measurements.
//!
//! # Safety
//!
//! Reads the time stamp counter, flushes a cache line of memory that the caller owns, and asks the
//! system for a processor.
#![allow(
    unsafe_code,
    reason = "time stamp counter, cache flush and processor affinity have no safe names"
)]

use std::time::{Duration, Instant};

/// A clock that counts in ticks, and the cost of reading it.
#[derive(Debug)]
pub(crate) struct Clock {
    ticks_per_ns: f64,
    /// Ticks between a start and a stop with nothing between them.
    overhead: u64,
}

#[cfg(target_arch = "x86_64")]
mod ticks {
    use std::arch::x86_64::{__rdtscp, _mm_clflush, _mm_lfence, _mm_mfence, _rdtsc};

    #[inline(always)]
    pub(super) fn start() -> u64 {
        // SAFETY: in every x86-64 processor, as the next instructions. Earlier instructions are
        // done, and no later one has begun.
        unsafe { _mm_mfence() };
        // SAFETY: as above.
        unsafe { _mm_lfence() };
        // SAFETY: as above.
        let now = unsafe { _rdtsc() };
        // SAFETY: as above.
        unsafe { _mm_lfence() };
        now
    }

    #[inline(always)]
    pub(super) fn stop() -> u64 {
        let mut aux = 0;
        // SAFETY: in every x86-64 processor of the last fifteen years; it waits for earlier
        // instructions.
        let now = unsafe { __rdtscp(&mut aux) };
        // SAFETY: as in `start`.
        unsafe { _mm_lfence() };
        now
    }

    pub(super) fn flush(line: *const u8) {
        // SAFETY: the caller's memory; only the cache's state changes.
        unsafe { _mm_clflush(line) };
    }

    pub(super) fn settle() {
        // SAFETY: a fence.
        unsafe { _mm_mfence() };
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod ticks {
    use std::sync::OnceLock;
    use std::time::Instant;

    pub(super) fn start() -> u64 {
        static BEGIN: OnceLock<Instant> = OnceLock::new();
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        BEGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }

    pub(super) fn stop() -> u64 {
        start()
    }

    pub(super) fn flush(_: *const u8) {}

    pub(super) fn settle() {}
}

/// This processor has an instruction that flushes a cache line.
pub(crate) const CAN_FLUSH: bool = cfg!(target_arch = "x86_64");

impl Clock {
    pub(crate) fn new() -> Self {
        let (began, first) = (Instant::now(), ticks::start());
        while began.elapsed() < Duration::from_millis(100) {}
        let (ticks, time) = (ticks::stop() - first, began.elapsed());
        let mut empty: Vec<u64> = (0..1001)
            .map(|_| {
                let start = ticks::start();
                ticks::stop() - start
            })
            .collect();
        empty.sort_unstable();
        Self { ticks_per_ns: ticks as f64 / time.as_nanos() as f64, overhead: empty[500] }
    }

    /// Returns the ticks that `work` takes, without the cost of reading the clock.
    #[inline(always)]
    pub(crate) fn time(&self, work: impl FnOnce()) -> u64 {
        let start = ticks::start();
        work();
        (ticks::stop() - start).saturating_sub(self.overhead)
    }

    pub(crate) fn ns(&self, ticks: u64) -> f64 {
        ticks as f64 / self.ticks_per_ns
    }
}

/// Puts 64-byte lines out of all caches.
pub(crate) fn make_cold(lines: impl Iterator<Item = *const u8>) {
    lines.for_each(ticks::flush);
    ticks::settle();
}

/// Pins the process to its current processor, so that caches and time stamps belong to one core.
pub(crate) fn pin() -> Option<usize> {
    // SAFETY: no arguments.
    let here = unsafe { libc::sched_getcpu() };
    let here = usize::try_from(here).ok()?;
    // SAFETY: a set of processors is plain bits, and all zero is the empty one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: a set of the size that CPU_SET knows; a number out of it is ignored.
    unsafe { libc::CPU_SET(here, &mut set) };
    // SAFETY: this process, and a set that lives over the call.
    let failed = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) };
    (failed == 0).then_some(here)
}

/// Nanoseconds per operation of many blocks: the middle, and how far it spreads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) p5: f64,
    pub(crate) median: f64,
    pub(crate) p95: f64,
}

impl Spread {
    pub(crate) fn of(mut blocks: Vec<f64>) -> Self {
        blocks.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| blocks[((blocks.len() - 1) as f64 * part).round() as usize];
        Self { p5: at(0.05), median: at(0.5), p95: at(0.95) }
    }
}
