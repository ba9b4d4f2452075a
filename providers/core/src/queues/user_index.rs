//! User indexes: numbers by which completions name queues.

use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Error;

/// Hands out user indexes: 24 bits, the smallest free one first, so that lookup tables stay short.
#[derive(Clone, Debug, Default)]
pub struct UserIndexes {
    used: Arc<Mutex<Vec<u64>>>,
}

impl UserIndexes {
    /// Takes a free index, for `verb`.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] when 2^24 are in use.
    pub fn take(&self, verb: &'static str) -> Result<UserIndex, Error> {
        self.take_where(verb, 0, 1)
    }

    /// Takes the smallest free index whose remainder of a division by `modulus` is `class`.
    /// `modulus` is a power of two, at most 64.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    pub fn take_where(
        &self,
        verb: &'static str,
        class: u32,
        modulus: u32,
    ) -> Result<UserIndex, Error> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let bits = (0..64u64).filter(|bit| bit % u64::from(modulus) == u64::from(class));
        let other = !bits.fold(0, |mask, bit| mask | 1 << bit);
        let word = used.iter().position(|&word| word | other != u64::MAX).unwrap_or(used.len());
        if word >= 1 << 18 {
            let (what, limit) = ("queue pairs and receive queues", 1 << 24);
            return Err(Error::Limit { verb, what, value: limit + 1, limit });
        }
        if word == used.len() {
            used.push(0);
        }
        let bit = (used[word] | other).trailing_ones();
        used[word] |= 1 << bit;
        drop(used);
        Ok(UserIndex { value: word as u32 * 64 + bit, owner: self.clone() })
    }
}

/// A user index in use. Dropping it frees the number.
#[derive(Debug)]
pub struct UserIndex {
    value: u32,
    owner: UserIndexes,
}

impl UserIndex {
    /// The number.
    #[inline]
    #[must_use]
    pub fn value(&self) -> u32 {
        self.value
    }
}

impl Drop for UserIndex {
    fn drop(&mut self) {
        let mut used = self.owner.used.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(word) = used.get_mut((self.value / 64) as usize) {
            *word &= !(1 << (self.value % 64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_indexes_are_short_and_come_back() {
        let indexes = UserIndexes::default();
        let mut taken: Vec<_> = (0..130).map(|_| indexes.take("create_qp").unwrap()).collect();
        let mut values: Vec<_> = taken.iter().map(UserIndex::value).collect();
        values.sort_unstable();
        values.dedup();
        assert_eq!((values.len(), values[129]), (130, 129));
        let freed = taken.swap_remove(64).value();
        assert_eq!(indexes.take("create_qp").unwrap().value(), freed);
    }

    #[test]
    fn user_indexes_of_a_class_leave_the_others() {
        let indexes = UserIndexes::default();
        let of = |class| indexes.take_where("create_qp", class, 4).unwrap();
        let taken: Vec<_> = (0..20).map(|_| of(3)).collect();
        assert!(taken.iter().map(UserIndex::value).eq((0..20).map(|index| 4 * index + 3)));
        assert_eq!((of(1).value(), indexes.take("create_qp").unwrap().value()), (1, 0));
    }
}
