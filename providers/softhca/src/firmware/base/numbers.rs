//! Allocation of object numbers.

use std::collections::BTreeSet;

/// Allocates the lowest free number of a range. UAR pages, whose number is an offset in the BAR, so
/// never run out by reuse.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    first: u32,
    end: u32,
    /// Every number from here on is free.
    fresh: u32,
    returned: BTreeSet<u32>,
}

impl Numbers {
    /// Numbers from `first` to `end - 1`.
    pub(crate) const fn new(first: u32, end: u32) -> Self {
        Self { first, end, fresh: first, returned: BTreeSet::new() }
    }

    pub(crate) fn take(&mut self) -> Option<u32> {
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

    /// Allocates `count` numbers in a row that were never used, and returns the first, a multiple
    /// of `count`. `count` must be a power of two.
    pub(crate) fn take_row(&mut self, count: u32) -> Option<u32> {
        let first = self.fresh.checked_next_multiple_of(count)?;
        let end = first.checked_add(count).filter(|end| *end <= self.end)?;
        self.returned.extend(self.fresh..first);
        self.fresh = end;
        Some(first)
    }

    pub(crate) fn is_taken(&self, number: u32) -> bool {
        (self.first..self.fresh).contains(&number) && !self.returned.contains(&number)
    }

    /// Frees `number`. False if it is not in use.
    pub(crate) fn give_back(&mut self, number: u32) -> bool {
        self.is_taken(number) && self.returned.insert(number)
    }
}

#[cfg(test)]
mod tests {
    use super::Numbers;

    #[test]
    fn rows_are_whole_and_leave_no_gaps() {
        let mut numbers = Numbers::new(1, 17);
        assert_eq!(
            (numbers.take(), numbers.take_row(4), numbers.take_row(8)),
            (Some(1), Some(4), Some(8))
        );
        assert_eq!(numbers.take_row(4), None, "16 is the last");
        assert_eq!(
            (numbers.take(), numbers.take(), numbers.take(), numbers.take()),
            (Some(2), Some(3), Some(16), None)
        );
        assert!(numbers.is_taken(7) && numbers.give_back(7) && !numbers.is_taken(7));
        assert_eq!(numbers.take(), Some(7));
    }

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
