//! Dropping of unpolled CQEs of queue pairs that were destroyed or reset.
//!
//! # Safety
//!
//! Only entries that software owns are moved; see the safety section of `cq`.
#![allow(unsafe_code, reason = "moves entries of a ring that the device writes")]

use uverbs_core::order::{device_memory, fence};
use uverbs_core::provider::CqOps;
use uverbs_core::queues::srq::SrqShared;
use uverbs_mlx5_prm::cqe::{CqeOpcode, MLX5_CQE_OWNER_MASK, OpOwn, mlx5_cqe64};

use super::Cq;
use super::OP_OWN_OFFSET;
use super::tags;
use crate::cqe::OwnedCqe;

impl Cq {
    /// Drops the CQEs of a queue pair, and closes the gaps: older CQEs move toward the newest, and
    /// the consumer index skips the gap (rdma-core `cq.c:__mlx5_cq_clean`). The ownership bit
    /// belongs to the place and is not moved. Receives of a shared receive queue among them become
    /// free.
    pub(super) fn sweep_of(&mut self, uidx: u32, srq: Option<&SrqShared>) {
        let is_there = |op_own| CqeOpcode(OpOwn(op_own).opcode()) != CqeOpcode::INVALID;
        let mut end = self.ci;
        // Later CQEs belong to other queue pairs: the kernel confirmed that this one has stopped.
        while end.wrapping_sub(self.ci) < self.size && self.owned(end).is_some_and(is_there) {
            self.expand(end);
            end = end.wrapping_add(1);
        }
        fence::cqe_owner_before_body();
        let mut freed = 0;
        let mut index = end;
        while index != self.ci {
            index = index.wrapping_sub(1);
            let entry = self.entry(index);
            if entry.uidx() == uidx {
                freed += 1;
                if let Some(srq) = srq
                    && takes_receive(entry)
                {
                    // SAFETY: the device completed it, as the entry says.
                    drop(unsafe { srq.take(entry.wqe_counter().into()) });
                }
            } else if freed != 0 {
                self.move_entry(index, index.wrapping_add(freed));
            }
        }
        if freed != 0 {
            self.seek(self.ci.wrapping_add(freed));
            self.publish();
        }
    }

    /// Takes the shared receives of unpolled completions. Otherwise their slots would stay occupied
    /// while the shared receive queue lives.
    pub(super) fn give_back_shared(&mut self) {
        self.learn();
        for index in self.user_indexes() {
            if let Some(srq) = self.shared_of(index).and_then(|shared| shared.srq.clone()) {
                self.sweep_of(index, Some(&srq));
            }
        }
    }

    /// Copies one entry that software owns over another.
    fn move_entry(&mut self, from: u32, to: u32) {
        let lead = self.stride() - mlx5_cqe64::SIZE;
        let (source, target) = (self.at(from).wrapping_sub(lead), self.at(to).wrapping_sub(lead));
        // SAFETY: two different whole entries of the ring, both owned by software.
        unsafe { device_memory::copy(source, target, self.stride()) };
        let (at, owner) = (self.at(to).wrapping_add(OP_OWN_OFFSET), self.turn_of(to));
        // SAFETY: as above; the last byte of the entry.
        let op_own = unsafe { device_memory::load_owner(at) };
        // SAFETY: as above; the last byte of the entry.
        unsafe { device_memory::store_owner(at, op_own & !MLX5_CQE_OWNER_MASK | owner) };
    }
}

/// True if the CQE completes a receive. On a tag-matching queue most do not.
fn takes_receive(entry: OwnedCqe) -> bool {
    match tags::is_of_tags(entry, entry.opcode()) {
        true => tags::is_of_receive(entry),
        false => entry.is_receive(),
    }
}
