//! Numbers of objects.

use std::collections::BTreeSet;

/// Hands out numbers of a range, the lowest free one first, so that UAR pages (whose number is an
/// offset in the BAR) don't run out however long a driver stays.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    first: u32,
    end: u32,
    /// All numbers from here on are free.
    fresh: u32,
    returned: BTreeSet<u32>,
}

impl Numbers {
    /// Numbers from `first` to `end - 1`.
    pub(super) const fn new(first: u32, end: u32) -> Self {
        Self { first, end, fresh: first, returned: BTreeSet::new() }
    }

    pub(super) fn take(&mut self) -> Option<u32> {
        if let Some(number) = self.returned.pop_first() {
            return Some(number);
        }
        let number = self.fresh;
        if number >= self.end {
            return None;
        }
        self.fresh = number + 1;
        Some(number)
    }

    pub(super) fn is_taken(&self, number: u32) -> bool {
        (self.first..self.fresh).contains(&number) && !self.returned.contains(&number)
    }

    /// Whether `number` was taken.
    pub(super) fn give_back(&mut self, number: u32) -> bool {
        self.is_taken(number) && self.returned.insert(number)
    }
}

#[cfg(test)]
mod tests {
    use super::Numbers;

    #[test]
    fn numbers_are_used_again_and_end() {
        let mut numbers = Numbers::new(4, 6);
        assert_eq!((numbers.take(), numbers.take(), numbers.take()), (Some(4), Some(5), None));
        assert!(!numbers.give_back(3) && !numbers.give_back(6));
        assert!(numbers.give_back(4) && !numbers.give_back(4));
        assert!(!numbers.is_taken(4) && numbers.is_taken(5));
        assert_eq!((numbers.take(), numbers.take()), (Some(4), None));
    }
}
