//! Queue pairs that complete to a completion queue. They are asked why a wait ended without a
//! completion.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use uverbs_kernel_abi::qp as abi;

use crate::attr::QpState;
use crate::objects::context::ContextCore;
use crate::queues::shared::QpShared;

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

/// Queue pairs of a completion queue, alive or destroyed, and shared receive queues that complete
/// to it directly.
#[derive(Debug, Default)]
pub(crate) struct Users {
    pairs: Mutex<Vec<UserEntry>>,
    /// Sizes of the queues. The polling side keeps each queue until it handles its destruction.
    queues: Mutex<Vec<(Weak<QpShared>, u32)>>,
}

impl Users {
    /// Adds a queue pair with up to `most` completions at once, and its shared receive queue by
    /// event id and size. `fits`: it was checked to fit the completion queue.
    pub(crate) fn add(&self, user: &Arc<User>, most: u32, srq: Option<(u64, u32)>, fits: bool) {
        let mut users = lock(&self.pairs);
        users.push(UserEntry { user: Arc::downgrade(user), most, fits, srq });
    }

    /// Removes a user to which no work was ever posted.
    pub(crate) fn remove(&self, user: &Arc<User>) {
        let mut users = lock(&self.pairs);
        users.retain(|entry| !std::ptr::eq(entry.user.as_ptr(), Arc::as_ptr(user)));
    }

    /// Drops destroyed users, after the polling side handled their destruction.
    pub(crate) fn forget_gone(&self) {
        let mut users = lock(&self.pairs);
        users.retain(|entry| entry.user.strong_count() > 0);
    }

    /// Adds a shared receive queue of `size` that completes here directly.
    pub(crate) fn add_queue(&self, queue: &Arc<QpShared>, size: u32) {
        let mut queues = lock(&self.queues);
        queues.retain(|(queue, _)| queue.strong_count() > 0);
        queues.push((Arc::downgrade(queue), size));
    }

    /// Living users, and the maximum completions of all together.
    fn alive(&self) -> (Vec<Arc<User>>, u64) {
        let entries = lock(&self.pairs);
        let alive = entries.iter().filter_map(|entry| Some((entry.user.upgrade()?, entry)));
        let (users, entries): (Vec<_>, Vec<_>) = alive.unzip();
        let most = together(entries);
        (users, most)
    }

    /// CQEs to reserve: the largest single user's, of those checked to fit; with `all`, the sum
    /// over all users, including destroyed ones that are not drained yet.
    pub(crate) fn promised(&self, all: bool) -> u64 {
        let entries = lock(&self.pairs);
        let queues = lock(&self.queues);
        let queues = queues.iter().filter(|(queue, _)| queue.strong_count() > 0);
        let queues = queues.map(|(_, size)| u64::from(*size));
        if all {
            return together(entries.iter()) + queues.sum::<u64>();
        }
        let alive = entries.iter().filter(|entry| entry.fits && entry.user.strong_count() > 0);
        let most =
            alive.map(|entry| u64::from(entry.most) + entry.srq.map_or(0, |srq| srq.1.into()));
        most.chain(queues).max().unwrap_or(0)
    }

    /// Explains why no completion arrives at a queue with room for `room`, from the states and
    /// sizes of its queue pairs.
    pub(crate) fn trouble(&self, room: u32) -> Option<String> {
        let (users, most) = self.alive();
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
        let queues = lock(&self.queues);
        if users.is_empty() && queues.iter().all(|(queue, _)| queue.strong_count() == 0) {
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
}

/// Sum of completions of several users. A shared receive queue counts once, however many users
/// bring it.
fn together<'a>(entries: impl IntoIterator<Item = &'a UserEntry>) -> u64 {
    let (mut own, mut shared) = (0, BTreeMap::new());
    for entry in entries {
        own += u64::from(entry.most);
        shared.extend(entry.srq);
    }
    own + shared.into_values().map(u64::from).sum::<u64>()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
