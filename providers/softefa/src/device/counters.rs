//! Completion counters: the device adds, and writes each count to the program's memory.

use uverbs_kernel_abi::comp_cntr::{
    IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RDMA_READ, IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE,
    IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_SEND,
};
use uverbs_kernel_abi::efa::io::{EFA_IO_RDMA_READ, EFA_IO_RDMA_WRITE};

use super::memory;
use super::objects::Object;
use super::world::World;

/// Largest value of a count.
pub(crate) const MAX_VALUE: u64 = (1 << 48) - 1;
/// Index of the count of successes.
pub(crate) const COMPLETED: usize = 0;
/// Index of the count of failures.
pub(crate) const FAILED: usize = 1;

/// A completion counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter {
    /// Addresses of both counts in the program's memory.
    pub(crate) at: [u64; 2],
    pub(crate) values: [u64; 2],
}

impl Counter {
    /// Sets a count, and writes it.
    pub(crate) fn set(&mut self, entry: usize, value: u64) {
        let value = value & MAX_VALUE;
        self.values[entry] = value;
        // A program that unmapped its counter reads none.
        let _ = memory::write(self.at[entry], &value.to_ne_bytes());
    }

    /// Adds to a count: 0 follows the largest value.
    pub(crate) fn add(&mut self, entry: usize, amount: u64) {
        self.set(entry, self.values[entry].wrapping_add(amount));
    }
}

/// Operation of a send as counters name it.
pub(crate) fn sent(op: u8) -> u32 {
    match op {
        EFA_IO_RDMA_READ => IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RDMA_READ,
        EFA_IO_RDMA_WRITE => IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE,
        _ => IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_SEND,
    }
}

impl World {
    /// Counts an operation of a queue pair, if a counter is attached for it.
    pub(crate) fn count(&mut self, qp: u32, op: u32, entry: usize) {
        let counters = self.qp(qp).map(|qp| qp.counters.as_slice()).unwrap_or_default();
        let found = counters.iter().find(|(ops, _)| ops & op != 0);
        if let Some((_, handle)) = found.copied()
            && let Some(counter) = self.counter_mut(handle)
        {
            counter.add(entry, 1);
        }
    }

    pub(crate) fn counter_mut(&mut self, handle: u32) -> Option<&mut Counter> {
        match &mut self.objects.get_mut(&handle)?.1 {
            Object::Counter(counter) => Some(counter),
            _ => None,
        }
    }
}
