//! Compressed CQEs: several similar completions of one queue pair arrive as a whole CQE, the title,
//! which has their number, and arrays of eight short CQEs (PRM "CQE compression"; Linux
//! `en_rx.c:mlx5e_decompress_cqes_start`, DPDK `mlx5_rx.c`). The title is in the place of the first
//! completion, the first array is in the next place, and each further array is in the place of its
//! first completion. The places between hold stale CQEs of an earlier turn.
//!
//! This file expands them in place, so that other code sees only whole CQEs, each with the
//! ownership bit of its turn.
//!
//! # Safety
//!
//! Software owns the entries from the title to its last completion until the consumer index passes
//! them.
#![allow(unsafe_code, reason = "writes out entries of a ring that the device wrote")]

use uverbs_core::order::{device_memory, fence};
use uverbs_mlx5_prm::cqe::{
    CqeOpcode, MINI_CQES, MLX5_CQE_COMPRESSED, MLX5_CQE_OWNER_MASK, OpOwn, SopDropQpn, mlx5_cqe64,
    mlx5_mini_cqe8,
};
use zerocopy::{FromBytes, IntoBytes};

use super::{Cq, OP_OWN_OFFSET};

type Array = [mlx5_mini_cqe8; MINI_CQES];

impl Cq {
    /// Expands the entry at `index`, which software owns, if it is a title. Returns true if it was
    /// one.
    #[cold]
    pub(super) fn expand(&self, index: u32) -> bool {
        if !self.special.as_ref().is_some_and(|special| special.all) {
            return false;
        }
        // The ownership bit was just checked.
        fence::cqe_owner_before_body();
        let mut title = self.entry(index).copy();
        if title.op_own & MLX5_CQE_COMPRESSED != MLX5_CQE_COMPRESSED {
            return false;
        }
        let count = title.byte_cnt.get();
        let ahead = index.wrapping_sub(self.ci);
        title.op_own &= !(MLX5_CQE_COMPRESSED | MLX5_CQE_OWNER_MASK);
        if count < 2 || count > self.size - ahead.min(self.size) {
            // A count that no device writes. The entry becomes one of an unknown opcode.
            title.op_own = OpOwn(title.op_own).with_opcode(CqeOpcode::NO_PACKET.0).0;
            self.put(index, &title);
            return true;
        }
        let first = title.wqe_counter.get();
        let mut array = Array::default();
        for place in 0..count {
            let within = place as usize % MINI_CQES;
            if within == 0 {
                array = self.array(index.wrapping_add(place.max(1)));
            }
            let mini = &array[within];
            title.byte_cnt = mini.byte_cnt;
            if title.opcode() == CqeOpcode::REQ {
                let (counter, opcode) = mini.send();
                title.wqe_counter.set(counter);
                title.sop_drop_qpn.set(SopDropQpn(title.sop_drop_qpn.get()).with_sop(opcode).0);
            } else {
                title.wqe_counter.set(first.wrapping_add(place as u16));
            }
            self.put(index.wrapping_add(place), &title);
        }
        true
    }

    /// The short CQEs in the place of a whole one.
    fn array(&self, index: u32) -> Array {
        let entry = self.entry(index).copy();
        Array::read_from_bytes(entry.as_bytes()).unwrap_or_default()
    }

    /// Writes a CQE, with the ownership bit of its place.
    fn put(&self, index: u32, entry: &mlx5_cqe64) {
        let bytes = entry.as_bytes();
        // SAFETY: an entry of the ring that software owns.
        unsafe { device_memory::copy(bytes.as_ptr(), self.at(index), OP_OWN_OFFSET) };
        let at = self.at(index).wrapping_add(OP_OWN_OFFSET);
        // SAFETY: the last byte of an entry that software owns.
        unsafe { device_memory::store_owner(at, entry.op_own | self.turn_of(index)) };
    }
}
