//! Entries that are dropped before they were polled: of queue pairs that are gone or reset.
//!
//! # Safety
//!
//! Only entries that are the program's are moved; see the safety of `cq`.
#![allow(unsafe_code, reason = "moves entries of a ring that the device writes")]

use uverbs_core::order::{device_memory, fence};
use uverbs_core::provider::CqOps;
use uverbs_core::queues::srq::SrqShared;
use uverbs_mlx5_prm::cqe::{CqeOpcode, MLX5_CQE_OWNER_MASK, OpOwn, mlx5_cqe64};

use super::Cq;
use super::OP_OWN_OFFSET;
use super::tags;
use crate::cqe::Entry;

impl Cq {
    /// Drops the entries of a queue pair, and closes the gaps: older entries move towards the
    /// newest, so that the consumer index jumps over the gap (rdma-core `cq.c:__mlx5_cq_clean`). An
    /// ownership bit belongs to the place, not to the entry. Receives of a shared queue that they
    /// are of are free again.
    pub(super) fn sweep_of(&mut self, uidx: u32, srq: Option<&SrqShared>) {
        let is_there = |op_own| CqeOpcode(OpOwn(op_own).opcode()) != CqeOpcode::INVALID;
        let mut end = self.ci;
        // What comes after this is of other queue pairs: the kernel has confirmed that those to be
        // swept are still.
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
                    // SAFETY: the device completed it, says the entry.
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

    /// Takes the shared receives of completions that nobody polled, whose slots nothing else gives
    /// back while the shared queue lives.
    pub(super) fn give_back_shared(&mut self) {
        self.learn();
        for index in self.user_indexes() {
            if let Some(srq) = self.shared_of(index).and_then(|shared| shared.srq.clone()) {
                self.sweep_of(index, Some(&srq));
            }
        }
    }

    /// Copies one of the program's entries over another.
    fn move_entry(&mut self, from: u32, to: u32) {
        let lead = self.stride() - mlx5_cqe64::SIZE;
        let (source, target) = (self.at(from).wrapping_sub(lead), self.at(to).wrapping_sub(lead));
        // SAFETY: whole entries of the ring, not the same, both the program's.
        unsafe { device_memory::copy(source, target, self.stride()) };
        let (at, owner) = (self.at(to).wrapping_add(OP_OWN_OFFSET), self.turn_of(to));
        // SAFETY: as above; the last byte of the entry.
        let op_own = unsafe { device_memory::load_owner(at) };
        // SAFETY: as above.
        unsafe { device_memory::store_owner(at, op_own & !MLX5_CQE_OWNER_MASK | owner) };
    }
}

/// Whether an entry is of a receive: of a queue that matches tags most are of something else.
fn takes_receive(entry: Entry) -> bool {
    match tags::is_of_tags(entry, entry.opcode()) {
        true => tags::is_of_receive(entry),
        false => entry.is_receive(),
    }
}
