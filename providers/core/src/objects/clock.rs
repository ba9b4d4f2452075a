//! The device's clock, and its conversion to the time of day.
//!
//! # Safety
//!
//! Both pages change while they are read: the kernel's timekeeping writes one, the device the
//! other. They are read by atomic accesses within the mapping.
#![allow(unsafe_code, reason = "reads pages that the kernel and the device write")]

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crossbeam_utils::Backoff;
use uverbs_kernel_abi::mlx5::{MLX5_IB_CLOCK_INFO_KERNEL_UPDATING, mlx5_ib_clock_info as Page};

use crate::Errno;
use crate::error::Error;
use crate::memory::pages::Pages;

/// Maximum reads of a page that the kernel is changing; a change takes less than a microsecond.
const TRIES: u32 = 10_000;

/// Mapped pages of a device's clock.
#[derive(Debug)]
pub struct DeviceClock {
    /// Page of the kernel: `ib_uverbs_clock_info` of `rdma/ib_user_verbs.h`.
    info: Pages,
    /// Page of the device's counter, and the counter's offset in it.
    counter: Option<(Pages, usize)>,
    real_time: bool,
}

impl DeviceClock {
    /// Wraps the mapped pages.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for pages that are too short.
    pub fn new(info: Pages, counter: Option<(Pages, usize)>) -> Result<Self, Error> {
        let ends = counter
            .as_ref()
            .map(|(page, at)| (at.is_multiple_of(4), page.len().checked_sub(8) >= Some(*at)));
        if info.len() < size_of::<Page>() || ends.is_some_and(|ends| ends != (true, true)) {
            let what = "a clock page that is too short".to_owned();
            return Err(Error::Unsupported { verb: "query_rt_values", what });
        }
        Ok(Self { info, counter, real_time: false })
    }

    /// The clock of a device whose timestamps are seconds and nanoseconds since 1970
    /// ([`ClockReading::real_time`]).
    #[must_use]
    pub fn in_real_time(self, real_time: bool) -> Self {
        Self { real_time, ..self }
    }

    /// Reads how the kernel currently converts this clock to time. A reading is valid for
    /// [`ClockReading::good_for`]: read again before each batch of completions, or now and then.
    /// Takes two loads from the page and no system call.
    ///
    /// # Errors
    ///
    /// [`Error::System`] with `EBUSY` if the kernel does not finish changing the page.
    #[doc(alias = "mlx5dv_get_clock_info")]
    pub fn read(&self) -> Result<ClockReading, Error> {
        let backoff = Backoff::new();
        for _ in 0..TRIES {
            // Acquire: the other fields are loaded after the sign.
            let sign = self.word(offset_of!(Page, sign)).load(Ordering::Acquire);
            if sign & MLX5_IB_CLOCK_INFO_KERNEL_UPDATING != 0 {
                backoff.snooze();
                continue;
            }
            let wide = |at| self.wide(at).load(Ordering::Relaxed);
            let narrow = |at| self.word(at).load(Ordering::Relaxed);
            let reading = ClockReading {
                nanoseconds: wide(offset_of!(Page, nsec)),
                ticks: wide(offset_of!(Page, cycles)),
                fraction: wide(offset_of!(Page, frac)),
                factor: narrow(offset_of!(Page, mult)),
                shift: narrow(offset_of!(Page, shift)).min(63),
                mask: wide(offset_of!(Page, mask)),
                real_time: self.real_time,
            };
            // The sign is checked again after all fields are loaded.
            fence(Ordering::Acquire);
            if self.word(offset_of!(Page, sign)).load(Ordering::Relaxed) == sign {
                return Ok(reading);
            }
        }
        Err(Error::System { what: "reading the kernel's clock page", errno: Errno::EBUSY })
    }

    /// Current clock of the device in ticks, the unit of completion timestamps.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the clock cannot be mapped: on the in-process software HCA, whose
    /// pages are plain memory and do not tick.
    #[doc(alias = "ibv_query_rt_values_ex")]
    pub fn ticks(&self) -> Result<u64, Error> {
        let Some((page, at)) = &self.counter else {
            let what = "reading the clock from user space".to_owned();
            return Err(Error::Unsupported { verb: "query_rt_values", what });
        };
        let half = |offset: usize| {
            let place = page.as_mut_ptr().wrapping_add(at + offset).cast::<u32>();
            // SAFETY: within the mapping and aligned, checked by `new`. A pointer read and no
            // reference: the word is a device register.
            u64::from(u32::from_be(unsafe { place.read_volatile() }))
        };
        // Reads again if the low half wrapped in between (rdma-core `verbs.c:mlx5_read_clock`).
        let (high, low, after) = (half(0), half(4), half(0));
        let (high, low) = if high == after { (high, low) } else { (after, half(4)) };
        Ok(high << 32 | low)
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: a field of the page, whose length `new` checked; mapped while this lives, and
        // never written through this pointer.
        unsafe { AtomicU32::from_ptr(self.info.as_mut_ptr().wrapping_add(at).cast()) }
    }

    fn wide(&self, at: usize) -> &AtomicU64 {
        // SAFETY: a field of the page, as in `word`; eight-byte fields are aligned.
        unsafe { AtomicU64::from_ptr(self.info.as_mut_ptr().wrapping_add(at).cast()) }
    }
}

/// Relation of a device's clock to the time of day at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "mlx5dv_clock_info")]
pub struct ClockReading {
    /// Nanoseconds since 1970 at the kernel's last update.
    pub nanoseconds: u64,
    /// Counter at the last update.
    pub ticks: u64,
    /// Fraction of a nanosecond at the last update, before the shift.
    pub fraction: u64,
    /// Nanoseconds per tick, before the shift.
    pub factor: u32,
    /// Right shift of products with `factor`.
    pub shift: u32,
    /// Mask of the counter's bits.
    pub mask: u64,
    /// True if a timestamp is seconds since 1970 in its high half, and nanoseconds in its low one.
    /// The fields above are then of another clock.
    pub real_time: bool,
}

impl ClockReading {
    /// Converts a device [timestamp](crate::queues::completion) to nanoseconds since 1970.
    ///
    /// A timestamp up to half the counter's range after this reading counts as later, any other as
    /// earlier.
    #[must_use]
    #[doc(alias = "mlx5dv_ts_to_ns")]
    #[doc(alias = "ibv_wc_read_completion_wallclock_ns")]
    pub fn nanoseconds(&self, timestamp: u64) -> u64 {
        if self.real_time {
            // Kernel `en/ptp.h`, `REAL_TIME_TO_NS`.
            let (seconds, rest) = (timestamp >> 32, timestamp & u64::from(u32::MAX));
            return (seconds * 1_000_000_000).saturating_add(rest);
        }
        let after = timestamp.wrapping_sub(self.ticks) & self.mask;
        let scaled = |ticks: u64| u128::from(ticks) * u128::from(self.factor);
        let fraction = u128::from(self.fraction);
        if after <= self.mask / 2 {
            let passed = (scaled(after) + fraction) >> self.shift;
            return self.nanoseconds.wrapping_add(passed as u64);
        }
        let before = self.ticks.wrapping_sub(timestamp) & self.mask;
        let passed = scaled(before).saturating_sub(fraction) >> self.shift;
        self.nanoseconds.wrapping_sub(passed as u64)
    }

    /// Converts a device timestamp to a `SystemTime`.
    #[must_use]
    pub fn time_of(&self, timestamp: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.nanoseconds(timestamp))
    }

    /// Time for which the reading is valid: half of the counter's range. (The page also has a
    /// period, in units that depend on the kernel: Linux's mlx5_core writes timer ticks where
    /// rdma-core reads nanoseconds.)
    #[must_use]
    pub fn good_for(&self) -> Duration {
        let range = (u128::from(self.mask / 2) * u128::from(self.factor)) >> self.shift;
        Duration::from_nanos(u64::try_from(range).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A counter of 41 bits, at 156.25 MHz: 6.4 ns a tick.
    fn reading() -> ClockReading {
        ClockReading {
            nanoseconds: 1_000_000_000,
            ticks: 500,
            fraction: 0,
            factor: 64 << 18,
            shift: 18,
            mask: (1 << 41) - 1,
            real_time: false,
        }
    }

    #[test]
    fn seconds_and_nanoseconds_are_the_time_of_day() {
        let reading = ClockReading { real_time: true, ..reading() };
        assert_eq!(reading.nanoseconds(3 << 32 | 999_999_999), 3_999_999_999);
        assert_eq!(reading.time_of(7 << 32), UNIX_EPOCH + Duration::from_secs(7));
        // Whatever a device writes there.
        assert!(reading.nanoseconds(u64::MAX) > reading.nanoseconds(u64::MAX - 1));
    }

    #[test]
    fn ticks_are_told_before_and_after() {
        let reading = ClockReading { factor: (64 << 20) / 10, shift: 20, ..reading() };
        assert_eq!(reading.nanoseconds(500), 1_000_000_000);
        // 6.4 ns, of which the factor keeps a little less.
        assert_eq!(reading.nanoseconds(500 + 1_000_000), 1_000_000_000 + 6_399_999);
        assert_eq!(reading.nanoseconds(0), 1_000_000_000 - 3_199);
        // 2^40 ticks of 6.4 ns: nearly two hours.
        assert_eq!(reading.good_for().as_secs(), 7036);
        // Over the counter's end.
        assert_eq!(reading.nanoseconds((1 << 41) - 500), 1_000_000_000 - 6_399);
        let late = ClockReading { ticks: (1 << 41) - 100, ..reading };
        assert_eq!(late.nanoseconds(900), 1_000_000_000 + 6_399);
    }

    #[test]
    fn fractions_count() {
        let half = ClockReading { fraction: 1 << 17, ..reading() };
        let odd = ClockReading { factor: (1 << 17) + 1, ..half };
        // One tick is half a nanosecond, and half a one was left over.
        assert_eq!(odd.nanoseconds(501), 1_000_000_001);
        assert_eq!(ClockReading { fraction: 0, ..odd }.nanoseconds(501), 1_000_000_000);
    }

    #[test]
    fn a_page_that_is_being_changed_is_not_read_for_ever() {
        let page = Pages::anonymous(4096).unwrap();
        let sign = page.as_mut_ptr().cast::<u32>();
        let clock = DeviceClock::new(page, None).unwrap();
        assert!(clock.read().is_ok());
        // SAFETY: within the mapping, which the clock keeps; nothing else accesses it now.
        unsafe { sign.write_volatile(1) };
        let error = clock.read().unwrap_err();
        assert_eq!(error.errno(), Some(Errno::EBUSY));
        assert!(clock.ticks().is_err());
    }

    #[test]
    fn a_counter_outside_of_its_page_is_refused() {
        for at in [4092, 4096, 2] {
            let pages = || Pages::anonymous(4096).unwrap();
            assert!(DeviceClock::new(pages(), Some((pages(), at))).is_err(), "{at}");
        }
    }
}
