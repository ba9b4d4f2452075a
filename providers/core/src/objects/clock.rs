//! The device's clock, and what turns it into the time of day.
//!
//! # Safety
//!
//! Both pages are written while they are read: the kernel's page by whoever keeps time, the
//! device's by itself. They are read through atomic accesses within the mapping.
#![allow(unsafe_code, reason = "reads pages that the kernel and the device write")]

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use uverbs_kernel_abi::mlx5::{MLX5_IB_CLOCK_INFO_KERNEL_UPDATING, mlx5_ib_clock_info as Page};

use crate::Errno;
use crate::error::Error;
use crate::memory::pages::Pages;

/// Looks at a page that the kernel is changing, which takes it less than a microsecond.
const TRIES: u32 = 10_000;

/// The pages of a device's clock.
#[derive(Debug)]
pub struct DeviceClock {
    /// The kernel's: `ib_uverbs_clock_info` of `rdma/ib_user_verbs.h`.
    info: Pages,
    /// The device's own counter, and where in the page it is.
    counter: Option<(Pages, usize)>,
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
            let what = "a clock in a page that is too short".to_owned();
            return Err(Error::Unsupported { verb: "query_rt_values", what });
        }
        Ok(Self { info, counter })
    }

    /// How the kernel tells time by this clock now. It is good for [`ClockReading::good_for`]:
    /// read it again before each batch of completions, or now and then. Two loads of a page of
    /// memory, and no system call.
    ///
    /// # Errors
    ///
    /// [`Error::System`] with `EBUSY` if the kernel doesn't get done with changing it.
    #[doc(alias = "mlx5dv_get_clock_info")]
    pub fn read(&self) -> Result<ClockReading, Error> {
        for _ in 0..TRIES {
            // Acquire: the rest is read behind it.
            let sign = self.word(offset_of!(Page, sign)).load(Ordering::Acquire);
            if sign & MLX5_IB_CLOCK_INFO_KERNEL_UPDATING != 0 {
                std::hint::spin_loop();
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
            };
            // The second look at the sign comes after the rest.
            fence(Ordering::Acquire);
            if self.word(offset_of!(Page, sign)).load(Ordering::Relaxed) == sign {
                return Ok(reading);
            }
        }
        Err(Error::System { what: "the kernel's page of clock information", errno: Errno::EBUSY })
    }

    /// The device's clock now, in ticks: as completions have it.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] where the clock can't be mapped: the software HCA in process, whose
    /// pages are memory and don't tick.
    #[doc(alias = "ibv_query_rt_values_ex")]
    pub fn ticks(&self) -> Result<u64, Error> {
        let Some((page, at)) = &self.counter else {
            let what = "a clock that programs can read".to_owned();
            return Err(Error::Unsupported { verb: "query_rt_values", what });
        };
        let half = |offset: usize| {
            let place = page.as_mut_ptr().wrapping_add(at + offset).cast::<u32>();
            // SAFETY: within the mapping and aligned, says `new`. Not by a reference: it is a
            // register.
            u64::from(u32::from_be(unsafe { place.read_volatile() }))
        };
        // Once more if the low half ran over between (rdma-core `verbs.c:mlx5_read_clock`).
        let (high, low, after) = (half(0), half(4), half(0));
        let (high, low) = if high == after { (high, low) } else { (after, half(4)) };
        Ok(high << 32 | low)
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: a field of the page, which `new` found long enough; mapped while this lives, and
        // never written through this.
        unsafe { AtomicU32::from_ptr(self.info.as_mut_ptr().wrapping_add(at).cast()) }
    }

    fn wide(&self, at: usize) -> &AtomicU64 {
        // SAFETY: as above; the fields of eight bytes are aligned.
        unsafe { AtomicU64::from_ptr(self.info.as_mut_ptr().wrapping_add(at).cast()) }
    }
}

/// How a device's clock and the time of day go together, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "mlx5dv_clock_info")]
pub struct ClockReading {
    /// Nanoseconds since 1970, as the kernel reckoned them last.
    pub nanoseconds: u64,
    /// The counter at that moment.
    pub ticks: u64,
    /// What was less than a nanosecond then, before the shift.
    pub fraction: u64,
    /// A tick in nanoseconds, before the shift.
    pub factor: u32,
    /// Bits by which products with the factor are shifted down.
    pub shift: u32,
    /// Bits that the counter has.
    pub mask: u64,
}

impl ClockReading {
    /// Nanoseconds since 1970 at a [timestamp](crate::queues::completion) of the device's.
    ///
    /// What is up to half of the counter's range later than this reading counts as later, the rest
    /// as before it.
    #[must_use]
    #[doc(alias = "mlx5dv_ts_to_ns")]
    #[doc(alias = "ibv_wc_read_completion_wallclock_ns")]
    pub fn nanoseconds(&self, timestamp: u64) -> u64 {
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

    /// The same as a time.
    #[must_use]
    pub fn time_of(&self, timestamp: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.nanoseconds(timestamp))
    }

    /// How long it is good for: half of the counter's range. (The page has a period, too, in units
    /// that depend on the kernel: Linux's mlx5_core has timer ticks where rdma-core reads
    /// nanoseconds.)
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
        }
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
