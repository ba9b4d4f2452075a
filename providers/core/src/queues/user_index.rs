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
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let word = used.iter().position(|&word| word != u64::MAX).unwrap_or(used.len());
        if word >= 1 << 18 {
            let (what, limit) = ("queue pairs and receive queues", 1 << 24);
            return Err(Error::Limit { verb, what, value: limit + 1, limit });
        }
        if word == used.len() {
            used.push(0);
        }
        let bit = used[word].trailing_ones();
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
}
