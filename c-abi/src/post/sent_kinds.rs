//! Opcodes of sends whose completions don't tell them: key operations, which the device completes
//! alike, and WQEs of the program's own (rdma-core `wq->wr_data`, `cq.c:handle_good_req`).
//!
//! Only such sends write here. A completion queue looks here from the first of them on.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Outstanding work requests of a send queue whose completions don't tell them, oldest first: index
/// modulo 65536 and `IBV_WC_*`. A ring has half as many places, so of two indexes it
/// shows which is older.
#[derive(Debug, Default)]
pub(crate) struct SentKinds {
    attached: AtomicBool,
    list: Mutex<VecDeque<(u16, u32)>>,
}

/// Whether a work request is at an index or behind it.
fn is_from(index: u16, begin: u16) -> bool {
    index.wrapping_sub(begin) < 1 << 15
}

impl SentKinds {
    fn list(&self) -> MutexGuard<'_, VecDeque<(u16, u32)>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the completion queue looks here; from now on it does.
    pub(crate) fn attach(&self) -> bool {
        self.attached.swap(true, Ordering::Relaxed)
    }

    /// Notes the opcode of the work request at an index, before it is published.
    pub(crate) fn push(&self, index: u16, opcode: u32) {
        self.list().push_back((index, opcode));
    }

    /// Forgets those from an index on: of a batch that is given up.
    pub(crate) fn cut(&self, begin: u16) {
        let mut list = self.list();
        while list.back().is_some_and(|&(index, _)| is_from(index, begin)) {
            list.pop_back();
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        self.list().clear();
    }

    /// The opcode of the send that completed at this index, if it is one of these. Those before it
    /// are over, too.
    fn complete(&self, index: u16) -> Option<u32> {
        let mut list = self.list();
        let mut last = None;
        while list.front().is_some_and(|&(oldest, _)| is_from(index, oldest)) {
            last = list.pop_front();
        }
        last.filter(|(of, _)| *of == index).map(|(_, opcode)| opcode)
    }
}

/// The lists of queue pairs whose sends complete to a queue, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct SentQueues(Mutex<Vec<(u32, Weak<SentKinds>)>>);

impl SentQueues {
    fn lists(&self) -> MutexGuard<'_, Vec<(u32, Weak<SentKinds>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before the queue pair publishes the first. Those that are gone are forgotten.
    pub(crate) fn attach(&self, qpn: u32, kinds: &Arc<SentKinds>) {
        let mut lists = self.lists();
        lists.retain(|(_, kinds)| kinds.strong_count() != 0);
        lists.push((qpn, Arc::downgrade(kinds)));
    }

    /// The opcode of the send of this queue pair that completed at this index, if its completion
    /// doesn't tell.
    #[cold]
    pub(crate) fn complete(&self, qpn: u32, index: Option<u16>) -> Option<u32> {
        let lists = self.lists();
        let kinds =
            lists.iter().filter(|(of, _)| *of == qpn).find_map(|(_, kinds)| kinds.upgrade());
        kinds?.complete(index?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_order_over_the_end_of_all_numbers() {
        let kinds = SentKinds::default();
        let at = |offset: u16| (u16::MAX - 1).wrapping_add(offset);
        for offset in [0, 2, 3, 7] {
            kinds.push(at(offset), 5 + u32::from(offset));
        }
        kinds.cut(at(4));
        assert_eq!(kinds.complete(at(1)), None, "another one; the first is over with it");
        assert_eq!(kinds.complete(at(3)), Some(8), "the second didn't complete");
        assert_eq!(kinds.complete(at(7)), None, "it was never rung");
        assert!(kinds.list().is_empty());
    }
}
