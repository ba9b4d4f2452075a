//! Compressed entries: several completions of one queue pair that differ in little come as one
//! whole entry, the title, which says how many they are, and arrays of eight short ones (PRM "CQE
//! compression"; Linux `en_rx.c:mlx5e_decompress_cqes_start`, DPDK `mlx5_rx.c`). The title stands
//! where the first of them would, the first array behind it, each further array where the first of
//! its completions would. Places that the device left out have entries of a turn before.
//!
//! Here they are written out where they stand, so that all else sees whole entries, each with the
//! ownership bit of its turn.
//!
//! # Safety
//!
//! The entries between the title and the last of its completions are the program's until the
//! consumer index passes them.
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
    /// Whether the entry at `index`, which is the program's, was a title: it is written out, with
    /// all that it stands for.
    #[cold]
    pub(super) fn expand(&self, index: u32) -> bool {
        if !self.special.as_ref().is_some_and(|special| special.all) {
            return false;
        }
        // The entry was seen to be the program's.
        fence::cqe_owner_before_body();
        let mut title = self.entry(index).copy();
        if title.op_own & MLX5_CQE_COMPRESSED != MLX5_CQE_COMPRESSED {
            return false;
        }
        let count = title.byte_cnt.get();
        let ahead = index.wrapping_sub(self.ci);
        title.op_own &= !(MLX5_CQE_COMPRESSED | MLX5_CQE_OWNER_MASK);
        if count < 2 || count > self.size - ahead.min(self.size) {
            // No device says so. It becomes one that nobody knows.
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

    /// The short entries that stand in place of a whole one.
    fn array(&self, index: u32) -> Array {
        let entry = self.entry(index).copy();
        Array::read_from_bytes(entry.as_bytes()).unwrap_or_default()
    }

    /// Writes an entry, with the ownership bit of its place.
    fn put(&self, index: u32, entry: &mlx5_cqe64) {
        let bytes = entry.as_bytes();
        // SAFETY: an entry of the ring that is the program's.
        unsafe { device_memory::copy(bytes.as_ptr(), self.at(index), OP_OWN_OFFSET) };
        let at = self.at(index).wrapping_add(OP_OWN_OFFSET);
        // SAFETY: as above; its last byte.
        unsafe { device_memory::store_owner(at, entry.op_own | self.turn_of(index)) };
    }
}
