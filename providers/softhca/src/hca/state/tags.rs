//! Tag list of a tag-matching SRQ, and its work requests and messages (rdma-core
//! `Documentation/tag_matching.md`; `qp.c`, `mlx5_post_srq_ops`).
//!
//! Software and device both count unexpected messages. A tag that is added while the counts differ
//! waits until software's count has caught up: an unexpected message may match it.

use std::collections::VecDeque;

use uverbs_mlx5_prm::data::MLX5_INVALID_LKEY;
use uverbs_mlx5_prm::tag::{TmFlags, TmOpcode};
use uverbs_mlx5_prm::wqe::{Segment as Seg, WqeView};

use crate::hca::state::keys::Segment;
use crate::hca::state::receive::Landing;

/// An entry of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tagged {
    /// Index of the entry, by which software knows it.
    pub(crate) place: u16,
    pub(crate) tag: u64,
    /// Bits of the tag that are compared.
    pub(crate) mask: u64,
    /// Destination of a message; None for an empty buffer.
    pub(crate) buffer: Option<Segment>,
    waits: bool,
}

/// Operation of a work request on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Adds a tag at the index that the previous change announced; `next` is the index of the next
    /// tag.
    Append {
        next: u16,
        tag: u64,
        mask: u64,
        buffer: Option<Segment>,
    },
    Remove {
        place: u16,
    },
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TagChange {
    pub(crate) change: Change,
    /// Software's count of unexpected messages, if the WQE has one.
    pub(crate) count: Option<u16>,
    /// A CQE completes the change.
    pub(crate) signaled: bool,
}

/// Reason why a change is an error of its queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TagFault {
    Full,
    /// An index that is outside of the list, or in use.
    Place,
}

/// Work of a tag-matching SRQ on a queue pair: from a WQE, or added by the device.
#[derive(Debug)]
pub(crate) enum TagWork {
    Change(TagChange),
    /// Fetches the data that a message announced.
    Fetch {
        place: u16,
        landing: Landing,
    },
    /// Tells the peer that the data is fetched.
    Fin,
}

#[derive(Debug)]
pub(crate) struct TagList {
    log_places: u8,
    entries: VecDeque<Tagged>,
    /// Index of the next tag to add.
    next: u16,
    /// Number of unexpected messages, modulo 2^16, by the device's count and by software's.
    came: u16,
    known: u16,
}

impl TagList {
    pub(crate) fn new(log_places: u8) -> TagList {
        let entries = VecDeque::new();
        TagList { log_places, entries, next: 0, came: 0, known: 0 }
    }

    /// Applies a change. False if the tag to remove is gone already, which is no error.
    pub(crate) fn apply(&mut self, asked: &TagChange) -> Result<bool, TagFault> {
        let places = 1usize << self.log_places;
        if let Change::Append { next, .. } = asked.change {
            if self.entries.len() + 1 >= places {
                return Err(TagFault::Full);
            }
            let taken = self.entries.iter().any(|entry| entry.place == self.next);
            if taken || usize::from(next) >= places {
                return Err(TagFault::Place);
            }
        }
        if let Some(count) = asked.count {
            self.known = count;
        }
        let in_step = self.known == self.came;
        if in_step {
            self.entries.iter_mut().for_each(|entry| entry.waits = false);
        }
        match asked.change {
            Change::Append { next, tag, mask, buffer } => {
                let entry = Tagged { place: self.next, tag, mask, buffer, waits: !in_step };
                self.entries.push_back(entry);
                self.next = next;
                Ok(true)
            }
            Change::Remove { place } => {
                let at = self.entries.iter().position(|entry| entry.place == place);
                Ok(at.and_then(|at| self.entries.remove(at)).is_some())
            }
            Change::Nothing => Ok(true),
        }
    }

    /// First entry that matches a message's tag (ibv_post_srq_ops(3): `TMH.tag & entry.mask ==
    /// entry.tag`).
    pub(crate) fn find(&self, tag: u64) -> Option<Tagged> {
        let matches = |entry: &&Tagged| !entry.waits && tag & entry.mask == entry.tag;
        self.entries.iter().find(matches).copied()
    }

    /// Removes the entry that a message took.
    pub(crate) fn take(&mut self, place: u16) {
        self.entries.retain(|entry| entry.place != place);
    }

    /// Counts an unexpected message.
    pub(crate) fn miss(&mut self) {
        self.came = self.came.wrapping_add(1);
    }

    /// Index of the next tag, software's count, the device's count.
    pub(crate) fn counters(&self) -> (u16, u16, u16) {
        (self.next, self.known, self.came)
    }
}

/// Decodes the change of a WQE. None if its segments do not fit.
pub(crate) fn parse(view: &WqeView<'_>) -> Option<TagWork> {
    let mut segments = view.segments();
    let Some(Seg::TagMatching(tm)) = segments.next() else { return None };
    let flags = TmFlags(tm.flags);
    let change = match TmOpcode(tm.opcode).op() {
        TmOpcode::NOP => Change::Nothing,
        TmOpcode::REMOVE => Change::Remove { place: tm.index.get() },
        TmOpcode::APPEND => {
            let buffer = match segments.next() {
                Some(Seg::Data(data)) if data.lkey.get() == MLX5_INVALID_LKEY => None,
                Some(Seg::Data(data)) => Some(Segment::from(data)),
                _ => return None,
            };
            let (tag, mask) = (tm.append_tag.get(), tm.append_mask.get());
            Change::Append { next: tm.index.get(), tag, mask, buffer }
        }
        _ => return None,
    };
    let count = flags.sw_cnt().then(|| tm.sw_cnt.get());
    let change = TagChange { change, count, signaled: flags.cqe_req() };
    segments.next().is_none().then_some(TagWork::Change(change))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(next: u16, tag: u64, mask: u64) -> TagChange {
        let change = Change::Append { next, tag, mask, buffer: None };
        TagChange { change, count: None, signaled: false }
    }

    fn sync(count: u16) -> TagChange {
        TagChange { change: Change::Nothing, count: Some(count), signaled: false }
    }

    fn place(list: &TagList, tag: u64) -> Option<u16> {
        list.find(tag).map(|entry| entry.place)
    }

    #[test]
    fn the_first_that_matches_is_found() {
        let mut list = TagList::new(3);
        for (next, tag, mask) in [(5, 0x10, 0xf0), (2, 0x12, 0xff), (7, 0, 0)] {
            assert_eq!(list.apply(&append(next, tag, mask)), Ok(true));
        }
        assert_eq!((place(&list, 0x12), place(&list, 0x22)), (Some(0), Some(2)));
        list.take(0);
        assert_eq!(place(&list, 0x12), Some(5));
        assert_eq!(place(&list, 0x112), Some(5), "any bits but those of the mask");
        let mut odd = TagList::new(3);
        odd.apply(&append(1, 0x110, 0xf0)).unwrap();
        assert_eq!((place(&odd, 0x110), place(&odd, 0x10)), (None, None), "a bit beside its mask");
        list.take(2);
        assert_eq!((place(&list, 0x12), place(&list, 0x13)), (Some(5), None));
        let remove = |place| TagChange { change: Change::Remove { place }, ..sync(0) };
        assert_eq!(list.apply(&remove(5)), Ok(true));
        assert_eq!(list.apply(&remove(5)), Ok(false), "twice");
        assert_eq!(list.apply(&remove(0xffff)), Ok(false));
        assert_eq!(list.counters(), (7, 0, 0));
    }

    #[test]
    fn new_tags_wait_while_a_message_is_unknown() {
        let mut list = TagList::new(3);
        list.apply(&append(1, 1, u64::MAX)).unwrap();
        list.miss();
        list.apply(&append(2, 2, u64::MAX)).unwrap();
        assert_eq!((place(&list, 1), place(&list, 2)), (Some(0), None), "the old one is in use");
        list.apply(&sync(7)).unwrap();
        assert_eq!(place(&list, 2), None, "not the device's count");
        list.apply(&sync(1)).unwrap();
        assert_eq!(place(&list, 2), Some(1));
        list.miss();
        let change = append(3, 3, u64::MAX);
        list.apply(&TagChange { count: Some(2), ..change }).unwrap();
        assert_eq!(place(&list, 3), Some(2), "in step with the same work request");
        (2..=0xffff).for_each(|_| list.miss());
        assert_eq!(list.counters().2, 0, "modulo 2^16");
    }

    #[test]
    fn a_list_is_full_and_its_places_are_its_own() {
        let mut list = TagList::new(2);
        assert_eq!(list.apply(&append(4, 0, 0)), Err(TagFault::Place), "no such place");
        for next in [1, 2, 3] {
            assert_eq!(list.apply(&append(next, 0, 0)), Ok(true));
        }
        assert_eq!(list.apply(&append(0, 0, 0)), Err(TagFault::Full));
        list.take(1);
        assert_eq!(list.apply(&append(0, 0, 0)), Ok(true));
        list.take(3);
        assert_eq!(list.apply(&append(1, 0, 0)), Err(TagFault::Place), "place 0 is taken");
    }
}
