//! Queue pairs that complete to a completion queue. They are asked why a wait ended without a
//! completion.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use uverbs_kernel_abi::qp as abi;

use crate::attr::QpState;
use crate::objects::context::ContextCore;

/// A queue pair as its completion queues know it. The queue pair owns this.
#[derive(Debug)]
pub(crate) struct User {
    /// Open device of the queue pair.
    pub(crate) context: Arc<ContextCore>,
    /// The kernel's handle.
    pub(crate) handle: u32,
    /// The queue pair's number.
    pub(crate) qpn: u32,
}

impl User {
    /// State of the queue pair. Queries the kernel.
    fn state(&self) -> Option<QpState> {
        let answer = self.context.uverbs().query_qp(self.handle, abi::IB_QP_STATE);
        Some(QpState::from_raw(answer.ok()?.qp_state.into()))
    }
}

/// A user, and its maximum completions at one time.
#[derive(Debug)]
struct UserEntry {
    user: Weak<User>,
    most: u32,
    /// True if it was checked to fit the queue.
    fits: bool,
    /// Number and size of the shared receive queue whose completions it brings here too. The number
    /// is the event id: kernel handles are reused, and CQEs of a destroyed queue's queue pairs
    /// still count.
    srq: Option<(u64, u32)>,
}

/// Queue pairs of a completion queue, and receive queues that complete to it directly. A destroyed
/// one stays until the polling side reads the message of its destruction.
#[derive(Debug, Default)]
pub(crate) struct Users(Mutex<Known>);

/// Users by their user indexes, each of which is unique until that message is read.
#[derive(Debug, Default)]
struct Known {
    pairs: BTreeMap<u32, UserEntry>,
    /// Sizes of the receive queues.
    queues: BTreeMap<u32, u32>,
    /// Sum of the completions of all, except the shared receive queues'.
    own: u64,
    /// Size and number of users of the shared receive queues in `pairs`, by event id.
    srqs: BTreeMap<u64, (u32, u32)>,
}

impl Known {
    fn forget(&mut self, index: u32) {
        self.own -= u64::from(self.queues.remove(&index).unwrap_or(0));
        let Some(entry) = self.pairs.remove(&index) else { return };
        self.own -= u64::from(entry.most);
        let srq = entry.srq.map(|(id, _)| self.srqs.entry(id));
        if let Some(Entry::Occupied(mut srq)) = srq {
            srq.get_mut().1 -= 1;
            if srq.get().1 == 0 {
                srq.remove();
            }
        }
    }

    /// Sum of the completions of all. A shared receive queue counts once, however many users bring
    /// it.
    fn together(&self) -> u64 {
        self.own + self.srqs.values().map(|(size, _)| u64::from(*size)).sum::<u64>()
    }
}

impl Users {
    /// Adds a queue pair with up to `most` completions at once, and its shared receive queue by
    /// event id and size. `fits`: it was checked to fit the completion queue.
    pub(crate) fn add(
        &self,
        index: u32,
        user: &Arc<User>,
        most: u32,
        srq: Option<(u64, u32)>,
        fits: bool,
    ) {
        let mut known = self.lock();
        known.forget(index);
        known.own += u64::from(most);
        if let Some((id, size)) = srq {
            known.srqs.entry(id).or_insert((size, 0)).1 += 1;
        }
        known.pairs.insert(index, UserEntry { user: Arc::downgrade(user), most, fits, srq });
    }

    /// Adds a receive queue of `size` that completes here directly.
    pub(crate) fn add_queue(&self, index: u32, size: u32) {
        let mut known = self.lock();
        known.forget(index);
        known.own += u64::from(size);
        known.queues.insert(index, size);
    }

    /// Removes a user to which no work was ever posted, or whose destruction the polling side
    /// handles.
    pub(crate) fn forget(&self, index: u32) {
        self.lock().forget(index);
    }

    /// CQEs to reserve: the largest single user's, of those checked to fit; with `all`, the sum
    /// over all users, including destroyed ones that are not drained yet.
    pub(crate) fn promised(&self, all: bool) -> u64 {
        let known = self.lock();
        if all {
            return known.together();
        }
        let pairs = known.pairs.values();
        let alive = pairs.filter(|entry| entry.fits && entry.user.strong_count() > 0);
        let most =
            alive.map(|entry| u64::from(entry.most) + entry.srq.map_or(0, |srq| srq.1.into()));
        let queues = known.queues.values().map(|size| u64::from(*size));
        most.chain(queues).max().unwrap_or(0)
    }

    /// Explains why no completion arrives at a queue with room for `room`, from the states and
    /// sizes of its queue pairs.
    pub(crate) fn trouble(&self, room: u32) -> Option<String> {
        // Queried without the lock.
        let (users, queues, most) = {
            let known = self.lock();
            let users = known.pairs.values().filter_map(|entry| entry.user.upgrade());
            (users.collect::<Vec<_>>(), known.queues.len(), known.together())
        };
        let states: Vec<_> = users.iter().map(|user| (user.qpn, user.state())).collect();
        let of = |wanted: &dyn Fn(QpState) -> bool| {
            let states = states.iter().filter(|(_, state)| state.is_some_and(wanted));
            states.map(|(qpn, _)| format!("{qpn:#x}")).collect::<Vec<_>>().join(", ")
        };
        let mut said = Vec::new();
        for (state, list) in [
            ("in ERR", of(&|state| state == QpState::Error)),
            ("not connected", of(&|state| matches!(state, QpState::Reset | QpState::Init))),
        ] {
            if !list.is_empty() {
                said.push(format!("{state}: queue pair {list}"));
            }
        }
        if most > u64::from(room) {
            said.push(format!(
                "its queue pairs allow {most} outstanding work requests, but the completion queue \
                 has room for {room}: it may have overrun"
            ));
        }
        if users.is_empty() && queues == 0 {
            said.push("no queue pair completes here".to_owned());
        }
        let ready = of(&|state| state == QpState::ReadyToSend);
        if said.is_empty() && !ready.is_empty() {
            said.push(format!(
                "no work request was posted, or the peer has not answered: has it posted the \
                 receive, or sent? Ready: queue pair {ready}"
            ));
        }
        (!said.is_empty()).then(|| said.join("; "))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
