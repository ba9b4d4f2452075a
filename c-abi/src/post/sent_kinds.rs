//! Opcodes of sends whose CQEs lack them: key operations, which a ConnectX completes with one
//! opcode, and raw WQEs (rdma-core `wq->wr_data`, `cq.c:handle_good_req`).
//!
//! Only these sends are recorded. The first of them makes the completion queue look here.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Outstanding work requests of a send queue whose CQEs lack the opcode, oldest first: index modulo
/// 65536 and `IBV_WC_*`. A ring has at most 32768 entries, so the order of two indexes is defined.
#[derive(Debug, Default)]
pub(crate) struct SentKinds {
    attached: AtomicBool,
    list: Mutex<VecDeque<(u16, u32)>>,
}

/// Tests that `index` equals `begin` or comes after it, modulo 65536.
fn is_from(index: u16, begin: u16) -> bool {
    index.wrapping_sub(begin) < 1 << 15
}

impl SentKinds {
    fn list(&self) -> MutexGuard<'_, VecDeque<(u16, u32)>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the list as known to the completion queue. Returns true if it was marked before.
    pub(crate) fn attach(&self) -> bool {
        self.attached.swap(true, Ordering::Relaxed)
    }

    /// Records the opcode of the work request at `index`, before the doorbell.
    pub(crate) fn push(&self, index: u16, opcode: u32) {
        self.list().push_back((index, opcode));
    }

    /// Removes the entries from `begin` on; called when a batch is discarded.
    pub(crate) fn cut(&self, begin: u16) {
        let mut list = self.list();
        while list.back().is_some_and(|&(index, _)| is_from(index, begin)) {
            list.pop_back();
        }
    }

    /// Removes all entries.
    pub(crate) fn clear(&self) {
        self.list().clear();
    }

    /// Returns the recorded opcode of the completed send at `index`, if any. Removes it and all
    /// older entries.
    fn complete(&self, index: u16) -> Option<u32> {
        let mut list = self.list();
        let mut last = None;
        while list.front().is_some_and(|&(oldest, _)| is_from(index, oldest)) {
            last = list.pop_front();
        }
        last.filter(|(of, _)| *of == index).map(|(_, opcode)| opcode)
    }
}

/// Lists of the queue pairs whose sends complete to a completion queue, by QP number.
#[derive(Debug, Default)]
pub(crate) struct SentQueues(Mutex<Vec<(u32, Weak<SentKinds>)>>);

impl SentQueues {
    fn lists(&self) -> MutexGuard<'_, Vec<(u32, Weak<SentKinds>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a queue pair's list. Called before the doorbell of its first entry. Drops the lists of
    /// destroyed queue pairs.
    pub(crate) fn attach(&self, qpn: u32, kinds: &Arc<SentKinds>) {
        let mut lists = self.lists();
        lists.retain(|(_, kinds)| kinds.strong_count() != 0);
        lists.push((qpn, Arc::downgrade(kinds)));
    }

    /// Returns the recorded opcode of the completed send of queue pair `qpn` at `index`, if any.
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
