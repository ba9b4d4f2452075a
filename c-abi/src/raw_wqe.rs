//! WQEs that a program composes itself: `mlx5dv_wr_raw_wqe`, and how their completions are told
//! from others (rdma-core `qp.c:mlx5_wr_raw_wqe`, `cq.c`).
//!
//! # Safety
//!
//! C's contract: posts are made between `wr_start` and its end, by that thread; the WQE is as long
//! as its control segment says, and names what the device may use.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::collections::VecDeque;
use std::ffi::c_void;
use std::slice::from_raw_parts;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use uverbs_core::Errno;
use uverbs_mlx5::wqe_len;

use crate::extended::{Ex, of};

/// Where a send queue's raw WQEs are that haven't completed, oldest first, by their indexes modulo
/// 65536. A ring has half as many places, so of two indexes it shows which is older.
#[derive(Debug, Default)]
pub(crate) struct RawWqes(Mutex<VecDeque<u16>>);

/// Whether a work request is at an index or behind it.
fn is_from(index: u16, begin: u16) -> bool {
    index.wrapping_sub(begin) < 1 << 15
}

impl RawWqes {
    fn list(&self) -> MutexGuard<'_, VecDeque<u16>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets those from an index on: of a batch that is given up.
    pub(crate) fn cut(&self, begin: u16) {
        let mut list = self.list();
        while list.back().is_some_and(|&index| is_from(index, begin)) {
            list.pop_back();
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        self.list().clear();
    }

    /// Whether the send that completed at this index is one. Those before it are over, too.
    fn complete(&self, index: u16) -> bool {
        let mut list = self.list();
        let mut last = None;
        while list.front().is_some_and(|&oldest| is_from(index, oldest)) {
            last = list.pop_front();
        }
        last == Some(index)
    }
}

/// The lists of queue pairs whose sends complete to a queue, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct RawQueues {
    /// Whether there are any. Each poll looks here.
    any: AtomicBool,
    lists: Mutex<Vec<(u32, Weak<RawWqes>)>>,
}

impl RawQueues {
    fn lists(&self) -> MutexGuard<'_, Vec<(u32, Weak<RawWqes>)>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before the queue pair posts. Those that are gone are forgotten.
    pub(crate) fn attach(&self, qpn: u32, list: &Arc<RawWqes>) {
        let mut lists = self.lists();
        lists.retain(|(_, list)| list.strong_count() != 0);
        lists.push((qpn, Arc::downgrade(list)));
        self.any.store(true, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn is_any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Whether a send of this queue pair that completed at this index is a raw WQE.
    #[cold]
    pub(crate) fn complete(&self, qpn: u32, index: Option<u16>) -> bool {
        let Some(index) = index else { return false };
        let lists = self.lists();
        let mut of_it = lists.iter().filter(|(of, _)| *of == qpn);
        of_it.find_map(|(_, list)| list.upgrade()).is_some_and(|list| list.complete(index))
    }
}

pub(crate) unsafe extern "C" fn wr_raw_wqe(ex: Ex, wqe: *const c_void) {
    // SAFETY: C's contract.
    let Some((qp, side, _)) = (unsafe { of(ex) }) else { return };
    let Some(list) = qp.raw_wqes() else { return side.build.refuse(Errno::EOPNOTSUPP) };
    // SAFETY: C's contract: a control segment, at any address, and as much as that says.
    let wqe = unsafe { from_raw_parts(wqe.cast(), wqe_len(wqe.cast::<[u8; 8]>().read())) };
    // SAFETY: C's contract; the program wrote the member before.
    let id = unsafe { (*qp.c()).wr_id };
    side.post(|sq, at| {
        // SAFETY: C's contract; the cursor is of this queue's last `start`.
        let index = unsafe { sq.post_wqe(at, id, wqe) }?;
        list.list().push_back(index);
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_order_over_the_end_of_all_numbers() {
        let list = RawWqes::default();
        let at = |offset: u16| (u16::MAX - 1).wrapping_add(offset);
        list.list().extend([0, 2, 3, 7].map(at));
        list.cut(at(4));
        assert!(!list.complete(at(1)), "another one; the first is over with it");
        assert!(list.complete(at(3)), "the second didn't complete");
        assert!(!list.complete(at(7)), "it was never rung");
        assert!(list.list().is_empty());
    }
}
