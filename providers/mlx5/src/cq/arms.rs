//! Arming a completion queue.
//!
//! # Safety
//!
//! Record and register are kept by the queue's core. The record's words are accessed atomically.
#![allow(unsafe_code, reason = "stores to a doorbell record and to a register")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use uverbs_core::error::Error;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::provider::Notify;
use uverbs_mlx5_prm::doorbell::{CI_MASK, CqArm, MLX5_CQ_SET_CI};

use crate::send::doorbell;

/// What arming takes beside a poller, which may poll meanwhile: C's library reads the consumer
/// index without its lock, too (rdma-core `cq.c:mlx5_arm_cq`).
pub(super) struct Arms {
    pub(super) record: *mut u32,
    /// The doorbell of completion queues.
    pub(super) register: *mut u64,
    pub(super) core: Arc<CqCore>,
}

// SAFETY: what the pointers go to `core` keeps; all accesses to the record are atomic, and the
// register takes eight bytes at once from any thread.
unsafe impl Send for Arms {}
// SAFETY: as above.
unsafe impl Sync for Arms {}

impl Arms {
    /// The consumer index that the device knows.
    pub(super) fn published(&self) -> u32 {
        let at = self.record.wrapping_add(MLX5_CQ_SET_CI);
        // SAFETY: a word of the record, which `core` keeps and which is aligned.
        u32::from_be(unsafe { AtomicU32::from_ptr(at) }.load(Ordering::Relaxed))
    }

    /// Asks for an event of what completes from what the device knows on.
    pub(super) fn arm(&self, notify: Notify) -> Result<(), Error> {
        let events = self.core.events_to_arm()?;
        let word = word(events, self.published(), notify);
        // SAFETY: both are valid while `core` lives, as the queue was promised.
        unsafe { doorbell::arm(self.record, self.register, word, self.core.cqn()) };
        Ok(())
    }
}

/// What asks for an event of what completes from this consumer index on. The sequence number tells
/// the device that the last event was heard: it ignores an arm with that of one it has raised
/// (rdma-core `cq.c:mlx5_cq_event`).
#[inline]
pub(super) fn word(events: u32, consumer: u32, notify: Notify) -> CqArm {
    CqArm(0)
        .with_sn(events as u8 & 3)
        .with_solicited(notify == Notify::Solicited)
        .with_ci(consumer & CI_MASK)
}
