//! The queue pairs that complete to a completion queue: who is asked when nothing comes.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::attr::QpState;
use crate::objects::cq::CqCore;
use crate::objects::qp::QpCore;

/// Queue pairs of a completion queue, alive or not.
#[derive(Debug, Default)]
pub(crate) struct Users(Mutex<Vec<Weak<QpCore>>>);

impl Users {
    /// One more. Those that are gone are dropped when the list would have to grow.
    pub(crate) fn add(&self, queue_pair: &Arc<QpCore>) {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if users.len() == users.capacity() {
            users.retain(|user| user.strong_count() > 0);
        }
        users.push(Arc::downgrade(queue_pair));
    }

    fn alive(&self) -> Vec<Arc<QpCore>> {
        let users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        users.iter().filter_map(Weak::upgrade).collect()
    }
}

impl CqCore {
    /// Why no completion comes, if its queue pairs or their sizes tell. Asks the kernel for each
    /// queue pair's state: for a wait that was in vain.
    #[cold]
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let users = self.users().alive();
        let failed: Vec<_> = users.iter().filter(|user| is_failed(user)).map(qpn).collect();
        let room = u64::from(self.capacity());
        let most: u64 = users.iter().map(|user| self.load(user)).sum();
        let mut said = Vec::new();
        if !failed.is_empty() {
            said.push(format!("in ERR: queue pair {}", failed.join(", ")));
        }
        if most > room {
            said.push(format!(
                "its queue pairs may have {most} work requests outstanding and the completion queue has room for {room}: \
                 it overran if they had"
            ));
        }
        if users.is_empty() {
            said.push("no queue pair completes here".to_owned());
        }
        (!said.is_empty()).then(|| said.join("; "))
    }

    /// Completions that may come of a queue pair at once.
    fn load(&self, queue_pair: &QpCore) -> u64 {
        let here = |cq: &CqCore| std::ptr::eq(cq, self);
        let sends = if here(queue_pair.send_cq()) { queue_pair.cap().max_send_wr } else { 0 };
        let receives = if here(queue_pair.recv_cq()) { queue_pair.cap().max_recv_wr } else { 0 };
        u64::from(sends) + u64::from(receives)
    }
}

fn is_failed(queue_pair: &Arc<QpCore>) -> bool {
    queue_pair.query().is_ok_and(|attr| attr.state == QpState::Error)
}

fn qpn(queue_pair: &Arc<QpCore>) -> String {
    format!("{:#x}", queue_pair.qpn())
}
