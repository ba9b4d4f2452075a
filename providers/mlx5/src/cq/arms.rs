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

/// State to arm a completion queue while another thread polls it. The C library also reads the
/// consumer index without its lock (rdma-core `cq.c:mlx5_arm_cq`).
pub(super) struct Arms {
    pub(super) record: *mut u32,
    /// Doorbell register of completion queues.
    pub(super) register: *mut u64,
    pub(super) core: Arc<CqCore>,
}

// SAFETY: `core` keeps the memory behind the pointers; all accesses to the record are atomic, and
// any thread may store eight bytes to the register.
unsafe impl Send for Arms {}
// SAFETY: `core` keeps the memory behind the pointers; all accesses to the record are atomic, and
// any thread may store eight bytes to the register.
unsafe impl Sync for Arms {}

impl Arms {
    /// The published consumer index.
    pub(super) fn published(&self) -> u32 {
        let at = self.record.wrapping_add(MLX5_CQ_SET_CI);
        // SAFETY: a word of the record, which `core` keeps and which is aligned.
        u32::from_be(unsafe { AtomicU32::from_ptr(at) }.load(Ordering::Relaxed))
    }

    /// Arms the CQ at the published consumer index.
    pub(super) fn arm(&self, notify: Notify) -> Result<(), Error> {
        let events = self.core.events_to_arm()?;
        let word = word(events, self.published(), notify);
        // SAFETY: both are valid while `core` lives, by the contract of `Cq::new`.
        unsafe { doorbell::arm(self.record, self.register, word, self.core.cqn()) };
        Ok(())
    }
}

/// Word that arms the CQ for completions from this consumer index on. Its sequence number
/// acknowledges the last event: the device ignores an arm with the sequence number of an earlier
/// event (rdma-core `cq.c:mlx5_cq_event`).
#[inline]
pub(super) fn word(events: u32, consumer: u32, notify: Notify) -> CqArm {
    CqArm(0)
        .with_sn(events as u8 & 3)
        .with_solicited(notify == Notify::Solicited)
        .with_ci(consumer & CI_MASK)
}
