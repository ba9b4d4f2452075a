//! Queue of async events for the front.

use std::collections::{HashSet, VecDeque};

use crate::hca::stats::HcaStats;
use uverbs_front::backend::error::HcaEvent;

/// Async events that the front has yet to take. Each is queued once, so the objects limit their
/// number.
#[derive(Debug, Default)]
pub(crate) struct Events {
    queue: VecDeque<HcaEvent>,
    waiting: HashSet<HcaEvent>,
}

impl Events {
    pub(crate) fn push(&mut self, event: HcaEvent, stats: &mut HcaStats) {
        if self.waiting.insert(event) {
            stats.events += 1;
            self.queue.push_back(event);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<HcaEvent> {
        let event = self.queue.pop_front()?;
        self.waiting.remove(&event);
        Some(event)
    }

    /// Removes the events of a destroyed object.
    pub(crate) fn forget(&mut self, of: impl Fn(&HcaEvent) -> bool) {
        self.queue.retain(|event| !of(event));
        self.waiting.retain(|event| !of(event));
    }
}
