//! A wire with faults: loses, duplicates, reorders, corrupts and delays frames, equally for equal
//! seeds.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use super::{Address, Frame, Wire, WireFull};

/// Maximum frames in flight: delayed, held back, or refused by the inner wire.
const BACKLOG: usize = 4096;
/// Maximum delay of a held-back frame that no frame overtakes.
const HOLD_LIMIT: Duration = Duration::from_micros(100);
/// Interval at which a frame refused by the inner wire is offered again.
const RETRY_AFTER: Duration = Duration::from_micros(10);

/// Faults and their probabilities per frame, from 0.0 (never) to 1.0 (always). The default is 0.0
/// for all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Probability that a frame is duplicated; each copy then has its own faults.
    pub duplicate: f64,
    /// Probability that a frame is held back until other frames have overtaken it.
    pub reorder: f64,
    /// Maximum frames that overtake a held-back one; 0 counts as 1.
    pub reorder_depth: u32,
    /// Probability that one bit of a frame flips.
    pub corrupt: f64,
    /// Delay of each frame.
    pub delay: Duration,
    /// Maximum random addition to the delay. It keeps the order: a wire is a queue.
    pub jitter: Duration,
    /// Probability that a frame is marked as congested (ECN, RFC 3168), if its sender obeys marks.
    pub mark: f64,
}

/// Counts of a faulty wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultStats {
    /// Frames taken from the sender.
    pub sent: u64,
    /// Frames lost.
    pub lost: u64,
    /// Frames sent twice.
    pub duplicated: u64,
    /// Copies held back.
    pub held_back: u64,
    /// Copies with a flipped bit.
    pub corrupted: u64,
    /// Frames marked.
    pub marked: u64,
}

/// Changes the faults of a [`Faulty`] wire that an HCA owns, and reads its counts. Clones are the
/// same control.
#[derive(Clone, Debug)]
pub struct FaultControl {
    state: Arc<Mutex<(Faults, FaultStats)>>,
}

impl FaultControl {
    fn lock(&self) -> MutexGuard<'_, (Faults, FaultStats)> {
        // Plain numbers: after a panic elsewhere they are still consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the faults of later frames. Frames in flight keep theirs.
    pub fn set_faults(&self, faults: Faults) {
        self.lock().0 = faults;
    }

    /// Current counts.
    #[must_use]
    pub fn stats(&self) -> FaultStats {
        self.lock().1
    }
}

/// Puts faults on frames sent into another wire. Received frames are unchanged: the other direction
/// can have its own `Faulty`.
///
/// Equal seeds, faults and calls give equal frames at equal times. Each fault draws its random
/// numbers whether it is enabled or not, so that disabling one leaves the others unchanged.
pub struct Faulty<W> {
    inner: W,
    dice: Dice,
    /// Separate random numbers for marks, so that seeds keep their other decisions.
    marking: Dice,
    control: FaultControl,
    now: Duration,
    /// Scheduled frames, by due time and then by order of scheduling.
    scheduled: BTreeMap<(Duration, u64), Frame>,
    next_order: u64,
    last_due: Duration,
    held: VecDeque<Held>,
}

struct Held {
    frame: Frame,
    due: Duration,
    /// Number of frames that must still overtake it.
    overtakers: u32,
}

impl<W: Wire> Faulty<W> {
    /// Creates a faulty wire around `inner`.
    #[must_use]
    pub fn new(inner: W, seed: u64, faults: Faults) -> Faulty<W> {
        Faulty {
            inner,
            dice: Dice::new(seed),
            marking: Dice::new(seed ^ 0xec4 << 32),
            control: FaultControl { state: Arc::new(Mutex::new((faults, FaultStats::default()))) },
            now: Duration::ZERO,
            scheduled: BTreeMap::new(),
            next_order: 0,
            last_due: Duration::ZERO,
            held: VecDeque::new(),
        }
    }

    /// Returns a control that stays valid after the wire is given away.
    #[must_use]
    pub fn control(&self) -> FaultControl {
        self.control.clone()
    }

    fn schedule(&mut self, frame: Frame, due: Duration) {
        // Never before an earlier scheduled frame: only holding back reorders.
        self.last_due = self.last_due.max(due);
        self.scheduled.insert((self.last_due, self.next_order), frame);
        self.next_order += 1;
    }

    /// Schedules the held-back frames for which `free` is true, in the order in which they were
    /// sent.
    fn release(&mut self, free: impl Fn(&Held) -> bool) {
        let mut i = 0;
        while let Some(held) = self.held.get(i) {
            if !free(held) {
                i += 1;
            } else if let Some(held) = self.held.remove(i) {
                self.schedule(held.frame, held.due);
            }
        }
    }

    /// Sends all due frames, as far as the inner wire takes them.
    fn pump(&mut self) {
        while let Some(first) = self.scheduled.first_entry()
            && first.key().0 <= self.now
        {
            let (key, frame) = first.remove_entry();
            if let Err(WireFull(frame)) = self.inner.transmit(frame) {
                self.scheduled.insert(key, frame);
                return;
            }
        }
    }

    fn copy(&mut self, mut frame: Frame, faults: &Faults, stats: &mut FaultStats) {
        let corrupt = self.dice.chance(faults.corrupt);
        let bit = self.dice.below(frame.bytes.len() as u64 * 8) as usize;
        let hold = self.dice.chance(faults.reorder);
        let overtakers = 1 + self.dice.below(u64::from(faults.reorder_depth.max(1))) as u32;
        let jitter_max = u64::try_from(faults.jitter.as_nanos()).unwrap_or(u64::MAX);
        let jitter = Duration::from_nanos(self.dice.below(jitter_max.saturating_add(1)));

        if corrupt && let Some(byte) = frame.bytes.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
            stats.corrupted += 1;
        }
        let due = self.now.saturating_add(faults.delay).saturating_add(jitter);
        if hold {
            stats.held_back += 1;
            self.held.push_back(Held { frame, due, overtakers });
            return;
        }
        self.schedule(frame, due);
        for held in &mut self.held {
            held.overtakers = held.overtakers.saturating_sub(1);
        }
        self.release(|held| held.overtakers == 0);
    }
}

impl<W: Wire> Wire for Faulty<W> {
    fn transmit(&mut self, mut frame: Frame) -> Result<(), WireFull> {
        self.pump();
        // Tested before any random number is drawn: offering again must not change later frames.
        if self.scheduled.len() + self.held.len() >= BACKLOG {
            return Err(WireFull(frame));
        }
        let (faults, mut stats) = *self.control.lock();
        stats.sent += 1;
        let marked = self.marking.chance(faults.mark) && frame.route.mark();
        stats.marked += u64::from(marked);
        let lost = self.dice.chance(faults.loss);
        let twice = self.dice.chance(faults.duplicate);
        if lost {
            stats.lost += 1;
        } else {
            if twice {
                stats.duplicated += 1;
                self.copy(frame.clone(), &faults, &mut stats);
            }
            self.copy(frame, &faults, &mut stats);
        }
        self.control.lock().1 = stats;
        self.pump();
        Ok(())
    }

    fn receive(&mut self) -> Option<Frame> {
        self.pump();
        self.inner.receive()
    }

    fn is_paused(&self) -> bool {
        self.inner.is_paused()
    }

    // Faults apply to packets only.
    fn flood(&mut self, frame: &[u8]) {
        self.inner.flood(frame);
    }

    fn hear(&mut self) -> Option<Vec<u8>> {
        self.inner.hear()
    }

    fn next_event(&self) -> Option<Duration> {
        let scheduled = self.scheduled.first_key_value().map(|((due, _), _)| {
            // Due frames are left only if the inner wire was full.
            if *due > self.now { *due } else { self.now.saturating_add(RETRY_AFTER) }
        });
        let held = self.held.iter().map(|held| held.due.saturating_add(HOLD_LIMIT)).min();
        scheduled.into_iter().chain(held).chain(self.inner.next_event()).min()
    }

    fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
        self.inner.advance(now);
        let now = self.now;
        self.release(|held| held.due.saturating_add(HOLD_LIMIT) <= now);
        self.pump();
    }

    // Frames delayed here wake by `next_event`.
    fn set_waker(&mut self, waker: Waker) -> bool {
        self.inner.set_waker(waker)
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    fn arm(&mut self) {
        self.inner.arm();
    }

    fn set_addresses(&mut self, addresses: &[Address]) {
        self.inner.set_addresses(addresses);
    }

    fn next_left(&mut self) -> Option<Address> {
        self.inner.next_left()
    }

    fn needs_icrc(&self) -> bool {
        true
    }
}

impl<W: fmt::Debug> fmt::Debug for Faulty<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (faults, stats) = *self.control.lock();
        f.debug_struct("Faulty")
            .field("inner", &self.inner)
            .field("faults", &faults)
            .field("stats", &stats)
            .field("scheduled", &self.scheduled.len())
            .field("held", &self.held.len())
            .finish_non_exhaustive()
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, and works with any seed.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 for 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        // 53 bits fill the mantissa. The value is always below 1.0, so 1.0 is certain and 0.0
        // impossible.
        ((self.next() >> 11) as f64) / ((1u64 << 53) as f64) < probability
    }
}

#[cfg(test)]
#[path = "faulty_tests.rs"]
mod tests;
