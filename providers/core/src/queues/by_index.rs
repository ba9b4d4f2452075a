//! Table by user index.

/// Entries by user index, as many places as the indexes span, or twice as many. User indexes are
/// handed out smallest first, so the queues of one completion queue have neighbouring ones: a
/// completion queue for each of N queue pairs needs N places in all.
#[derive(Debug)]
pub struct ByIndex<T> {
    /// User index of the first place.
    first: u32,
    /// Number of entries.
    used: u32,
    places: Box<[Option<T>]>,
}

impl<T> Default for ByIndex<T> {
    fn default() -> Self {
        Self { first: 0, used: 0, places: Box::default() }
    }
}

impl<T> ByIndex<T> {
    /// Entry of a user index.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, index: u32) -> Option<&T> {
        self.places.get(index.wrapping_sub(self.first) as usize)?.as_ref()
    }

    /// Entry of a user index, to change.
    #[inline(always)]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.places.get_mut(index.wrapping_sub(self.first) as usize)?.as_mut()
    }

    /// Number of places, at most twice what the indexes span.
    #[inline(always)]
    #[must_use]
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.used as usize
    }

    /// True without entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Entry of a user index. `make` makes a missing one.
    pub fn get_or_insert_with(&mut self, index: u32, make: impl FnOnce() -> T) -> &mut T {
        if index.wrapping_sub(self.first) as usize >= self.places.len() {
            self.grow(index);
        }
        let place = &mut self.places[(index - self.first) as usize];
        self.used += u32::from(place.is_none());
        place.get_or_insert_with(make)
    }

    /// Adds a place for an index outside the table, and as many more as there are, so that a row of
    /// new indexes moves each entry once on average.
    #[cold]
    fn grow(&mut self, index: u32) {
        let old = std::mem::take(&mut self.places).into_vec();
        let count = old.len() as u32;
        if count == 0 {
            self.first = index;
        }
        let (first, end) = match index.checked_sub(self.first) {
            Some(at) => (self.first, self.first + (at + 1).max(2 * count)),
            None => (index.min(self.first.saturating_sub(count)), self.first + count),
        };
        let mut places = Vec::with_capacity((end - first) as usize);
        places.resize_with((self.first - first) as usize, || None);
        places.extend(old);
        places.resize_with((end - first) as usize, || None);
        (self.first, self.places) = (first, places.into());
    }

    /// Removes the entry of a user index, and all places with the last one.
    pub fn remove(&mut self, index: u32) -> Option<T> {
        let entry = self.places.get_mut(index.wrapping_sub(self.first) as usize)?.take()?;
        self.used -= 1;
        if self.used == 0 {
            self.places = Box::default();
        }
        Some(entry)
    }

    /// Entries with their user indexes, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let indexes = self.first..;
        indexes.zip(&self.places).filter_map(|(index, place)| Some((index, place.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_as_many_as_indexes_span() {
        let mut table = ByIndex::default();
        assert_eq!(table.get(0), None::<&u32>);
        for index in [1_000_000, 1_000_003, 999_999, 999_990] {
            *table.get_or_insert_with(index, || 0) += index;
        }
        assert_eq!(table.get_or_insert_with(1_000_003, || 0), &1_000_003);
        let entries: Vec<_> = table.iter().map(|(index, entry)| (index, *entry)).collect();
        let all = [999_990, 999_999, 1_000_000, 1_000_003];
        assert_eq!(entries, all.map(|index| (index, index)));
        assert!((14..=28).contains(&table.places()), "{}", table.places());
        assert_eq!((table.get(999_989), table.get(1_000_004), table.get(0)), (None, None, None));
        assert_eq!(table.get_mut(999_990), Some(&mut 999_990));
        assert_eq!((table.remove(1_000_003), table.remove(1_000_003)), (Some(1_000_003), None));
        assert_eq!(table.remove(7), None);
        for index in [999_990, 1_000_000, 999_999] {
            assert_eq!(table.remove(index), Some(index));
        }
        // Empty, so it starts anew anywhere.
        assert_eq!((table.places(), table.len(), table.iter().count()), (0, 0, 0));
        assert_eq!(*table.get_or_insert_with(5, || 6), 6);
        assert_eq!(table.places(), 1);
    }

    #[test]
    fn indexes_that_fall_take_linear_time() {
        let mut table = ByIndex::default();
        (0..1 << 20).rev().for_each(|index| *table.get_or_insert_with(index, || index) = index);
        assert_eq!((table.len(), table.get(17)), (1 << 20, Some(&17)));
    }
}
