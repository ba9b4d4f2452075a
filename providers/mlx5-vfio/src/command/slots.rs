//! Entries of the command queue: which are free, and tokens.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Error;

/// Free entries.
#[derive(Debug)]
pub(super) struct Slots {
    state: Mutex<State>,
    freed: Condvar,
    /// Entry that is kept for pages: the last one.
    last: u32,
}

#[derive(Debug)]
struct State {
    /// A bit for each free entry.
    free: u32,
    token: u8,
}

/// Entry that a command uses. Dropping it frees the entry.
#[derive(Debug)]
pub(super) struct Slot<'a> {
    of: &'a Slots,
    pub(super) number: u32,
    /// Number of the command in entry and mailboxes; never 0 (`alloc_token` of `cmd.c`).
    pub(super) token: u8,
    lost: bool,
}

impl Slots {
    /// `count`: 2 to 32.
    pub(super) fn new(count: u32) -> Self {
        let free = u32::MAX >> (32 - count);
        let state = Mutex::new(State { free, token: 0 });
        Self { state, freed: Condvar::new(), last: count - 1 }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a free entry; waits for one for `limit` at most.
    pub(super) fn take(&self, for_pages: bool, limit: Duration) -> Result<Slot<'_>, Error> {
        let kept = 1 << self.last;
        let usable = if for_pages { kept } else { !kept };
        let start = Instant::now();
        let mut state = self.state();
        loop {
            if state.free & usable != 0 {
                let number = (state.free & usable).trailing_zeros();
                state.free &= !(1 << number);
                state.token = state.token.checked_add(1).unwrap_or(1);
                return Ok(Slot { of: self, number, token: state.token, lost: false });
            }
            let waited = start.elapsed();
            let Some(left) = limit.checked_sub(waited).filter(|left| !left.is_zero()) else {
                let what = "a free entry of the command queue".to_owned();
                return Err(Error::TimedOut { what, waited });
            };
            let woken = self.freed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Slot<'_> {
    /// Never frees the entry: the device may still own it.
    pub(super) fn lose(mut self) {
        self.lost = true;
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if !self.lost {
            self.of.state().free |= 1 << self.number;
            self.of.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    #[test]
    fn the_last_entry_is_for_pages_alone() {
        let slots = Slots::new(4);
        let taken = [0, 1, 2].map(|_| slots.take(false, SHORT).unwrap());
        assert_eq!(taken.each_ref().map(|slot| slot.number), [0, 1, 2]);
        assert!(matches!(slots.take(false, SHORT), Err(Error::TimedOut { .. })));
        let pages = slots.take(true, SHORT).unwrap();
        assert_eq!(pages.number, 3);
        assert!(slots.take(true, SHORT).is_err());
        let [first, second, _third] = taken;
        drop(second);
        assert_eq!(slots.take(false, SHORT).unwrap().number, 1);
        first.lose();
        let again = slots.take(false, SHORT).unwrap();
        assert_eq!(again.number, 1, "a lost entry is never used again");
    }

    #[test]
    fn a_token_is_never_zero() {
        let slots = Slots::new(32);
        for _ in 0..600 {
            assert_ne!(slots.take(false, SHORT).unwrap().token, 0);
        }
    }

    #[test]
    fn a_freed_entry_wakes_who_waits() {
        let slots = Slots::new(2);
        let first = slots.take(false, SHORT).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| slots.take(false, Duration::from_secs(20)).map(|_| ()));
            std::thread::sleep(SHORT);
            drop(first);
            assert_eq!(waits.join().unwrap(), Ok(()));
        });
    }
}
