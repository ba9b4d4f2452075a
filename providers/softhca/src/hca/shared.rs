//! What all queues of a device share, apart from the queue pairs themselves.

use super::config::HcaConfig;
use super::counters::Sets;
use super::cq::CqTable;
use super::dma::Dma;
use super::error::HcaEvent;
use super::ethernet::Outgoing;
use super::mkey::KeyTable;
use super::port::Port;
use super::srq::SrqTable;
use super::stats::HcaStats;
use std::collections::{HashSet, VecDeque};
use std::time::Duration;

/// One field each, so that a queue pair and any of these can be borrowed at the same time.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: HcaConfig,
    pub(super) dma: Box<dyn Dma>,
    pub(super) keys: KeyTable,
    pub(super) cqs: CqTable,
    pub(super) srqs: SrqTable,
    pub(super) port: Port,
    pub(super) events: Events,
    /// Ethernet frames that left their queues and wait to be delivered, in the same turn.
    pub(super) frames: Vec<Outgoing>,
    pub(super) stats: HcaStats,
    pub(super) counters: Sets,
    pub(super) now: Duration,
    /// Dynamic connections begun. It never starts anew: a target knows by it which of two is the later one.
    pub(super) connections: u32,
}

/// Async events not yet taken. Each is queued once, so their number is bounded by the objects.
#[derive(Debug, Default)]
pub(super) struct Events {
    queue: VecDeque<HcaEvent>,
    waiting: HashSet<HcaEvent>,
}

impl Events {
    pub(super) fn push(&mut self, event: HcaEvent, stats: &mut HcaStats) {
        if self.waiting.insert(event) {
            stats.events += 1;
            self.queue.push_back(event);
        }
    }

    pub(super) fn pop(&mut self) -> Option<HcaEvent> {
        let event = self.queue.pop_front()?;
        self.waiting.remove(&event);
        Some(event)
    }

    /// Forgets the events of an object that is gone.
    pub(super) fn forget(&mut self, of: impl Fn(&HcaEvent) -> bool) {
        self.queue.retain(|event| !of(event));
        self.waiting.retain(|event| !of(event));
    }
}
