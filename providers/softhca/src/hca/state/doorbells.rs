//! [`Doorbells`]: UAR pages, and the doorbell records that a store into one may stand for.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::hca::dma::Dma;
use uverbs_front::backend::number::UarNumber;

/// Records looked at in one step without other work: a page may have thousands.
pub(crate) const AT_ONCE: usize = 256;
/// Records looked at beside a doorbell or other work, which waits for them.
pub(crate) const BESIDE_WORK: usize = 64;

/// UAR pages with the queues of one kind, named by `N`, that ring there.
#[derive(Debug)]
pub(crate) struct Doorbells<N> {
    pages: BTreeMap<UarNumber, Page<N>>,
    /// Records of all pages that are still to be looked at.
    due: usize,
    /// Page of the last turn.
    last: Option<UarNumber>,
}

/// Queues of a page.
#[derive(Debug)]
struct Page<N> {
    records: BTreeMap<N, Record>,
    /// Queue of the last look.
    last: Option<N>,
    /// Records still to be looked at.
    due: usize,
}

/// Word of a doorbell record that the queue's doorbell is for.
#[derive(Clone, Copy, Debug)]
struct Record {
    addr: u64,
    /// Word of the last look; `None` before the first, and if it was unreadable.
    seen: Option<u32>,
}

impl<N> Default for Doorbells<N> {
    fn default() -> Self {
        Self { pages: BTreeMap::new(), due: 0, last: None }
    }
}

impl<N: Copy + Ord> Doorbells<N> {
    pub(crate) fn insert(&mut self, uar: UarNumber, queue: N, addr: u64) {
        let empty = || Page { records: BTreeMap::new(), last: None, due: 0 };
        let page = self.pages.entry(uar).or_insert_with(empty);
        page.records.insert(queue, Record { addr, seen: None });
        // Counted: a look may pass it before the last due record.
        if page.due != 0 {
            page.due += 1;
            self.due += 1;
        }
    }

    pub(crate) fn remove(&mut self, uar: UarNumber, queue: N) {
        let Some(page) = self.pages.get_mut(&uar) else { return };
        page.records.remove(&queue);
        self.due -= page.due;
        page.due = page.due.min(page.records.len());
        self.due += page.due;
        if page.records.is_empty() {
            self.pages.remove(&uar);
        }
    }

    /// Makes all records of a page due: a store into it was seen.
    pub(crate) fn ring(&mut self, uar: UarNumber) {
        let Some(page) = self.pages.get_mut(&uar) else { return };
        self.due += page.records.len() - page.due;
        page.due = page.records.len();
    }

    /// True if records are due.
    pub(crate) fn is_due(&self) -> bool {
        self.due != 0
    }

    /// True if records of a page are due.
    pub(crate) fn is_due_on(&self, uar: UarNumber) -> bool {
        self.pages.get(&uar).is_some_and(|page| page.due != 0)
    }

    /// Next page with due records, in turn.
    pub(crate) fn next_due(&mut self) -> Option<UarNumber> {
        if self.due == 0 {
            return None;
        }
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.pages.range((after, Bound::Unbounded));
        let mut in_turn = behind.chain(&self.pages).filter(|(_, page)| page.due != 0);
        self.last = in_turn.next().map(|(&uar, _)| uar);
        self.last
    }

    /// Looks at up to `most` due records of a page, in turn. Adds the queues whose records changed,
    /// or are unreadable, to `changed`.
    pub(crate) fn look(
        &mut self,
        uar: UarNumber,
        most: usize,
        dma: &dyn Dma,
        changed: &mut Vec<N>,
    ) {
        let Some(page) = self.pages.get_mut(&uar) else { return };
        let mut left = page.due.min(most);
        page.due -= left;
        self.due -= left;
        let after = page.last.map_or(Bound::Unbounded, Bound::Excluded);
        for from in [after, Bound::Unbounded] {
            for (&queue, record) in page.records.range_mut((from, Bound::Unbounded)).take(left) {
                left -= 1;
                page.last = Some(queue);
                let word = dma.load_u32(record.addr).ok();
                if word.is_none() || word != record.seen {
                    record.seen = word;
                    changed.push(queue);
                }
            }
        }
    }

    /// Forgets what a record had: its queue starts anew.
    pub(crate) fn forget(&mut self, uar: UarNumber, queue: N) {
        let record = self.pages.get_mut(&uar).and_then(|page| page.records.get_mut(&queue));
        if let Some(record) = record {
            record.seen = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hca::arena::Arena;
    use uverbs_front::backend::number::Qpn;

    const UAR: UarNumber = UarNumber(3);

    fn look(doorbells: &mut Doorbells<Qpn>, arena: &Arena) -> Vec<u32> {
        let mut changed = Vec::new();
        doorbells.look(UAR, AT_ONCE, arena, &mut changed);
        changed.into_iter().map(|qpn| qpn.0).collect()
    }

    #[test]
    fn each_record_has_its_turn_after_each_store() {
        let arena = Arena::new(8 * 600);
        let memory = arena.base();
        let mut doorbells = Doorbells::default();
        for qpn in 0..600 {
            doorbells.insert(UAR, Qpn(qpn), memory + 8 * u64::from(qpn));
        }
        doorbells.ring(UAR);
        assert_eq!(look(&mut doorbells, &arena), (0..256).collect::<Vec<_>>());
        // A store during the looks makes all due, from the next one on.
        doorbells.ring(UAR);
        assert_eq!(look(&mut doorbells, &arena), (256..512).collect::<Vec<_>>());
        assert_eq!(look(&mut doorbells, &arena), (512..600).collect::<Vec<_>>());
        assert_eq!((doorbells.next_due(), doorbells.is_due()), (Some(UAR), true));
        arena.store_u32(memory + 8 * 599, 1).unwrap();
        doorbells.ring(UAR);
        let late: Vec<u32> = (0..3).flat_map(|_| look(&mut doorbells, &arena)).collect();
        assert_eq!(late, [599]);
        assert_eq!((doorbells.next_due(), doorbells.is_due()), (None, false));
    }

    #[test]
    fn a_new_record_takes_no_others_turn() {
        let arena = Arena::new(8 * 601);
        let mut doorbells = Doorbells::default();
        let insert = |doorbells: &mut Doorbells<Qpn>, qpn: u32| {
            doorbells.insert(UAR, Qpn(qpn), arena.base() + 8 * u64::from(qpn));
        };
        (0..600).for_each(|qpn| insert(&mut doorbells, qpn));
        doorbells.ring(UAR);
        look(&mut doorbells, &arena);
        doorbells.ring(UAR);
        let mut seen = look(&mut doorbells, &arena);
        insert(&mut doorbells, 600);
        arena.store_u32(arena.base() + 8 * 255, 1).unwrap();
        while doorbells.is_due() {
            seen.extend(look(&mut doorbells, &arena));
        }
        assert!(seen.contains(&255), "{seen:?}");
    }

    #[test]
    fn pages_have_turns() {
        let mut doorbells = Doorbells::default();
        for uar in [UarNumber(1), UarNumber(5)] {
            doorbells.insert(uar, Qpn(uar.0), 0);
            doorbells.ring(uar);
        }
        let turns: Vec<_> = (0..3).filter_map(|_| doorbells.next_due()).collect();
        assert_eq!(turns, [UarNumber(1), UarNumber(5), UarNumber(1)]);
    }

    #[test]
    fn a_record_is_taken_again_if_unreadable_or_forgotten() {
        let arena = Arena::new(8 * 600);
        let memory = arena.base();
        let mut doorbells = Doorbells::default();
        doorbells.insert(UAR, Qpn(1), memory);
        doorbells.insert(UAR, Qpn(2), !7);
        let mut looks = |forget: bool| {
            if forget {
                doorbells.forget(UAR, Qpn(1));
            }
            doorbells.ring(UAR);
            look(&mut doorbells, &arena)
        };
        assert_eq!(looks(false), [1, 2]);
        assert_eq!(looks(false), [2]);
        assert_eq!(looks(true), [1, 2]);
        doorbells.ring(UAR);
        doorbells.remove(UAR, Qpn(1));
        doorbells.remove(UAR, Qpn(2));
        assert!(!doorbells.is_due());
    }
}
