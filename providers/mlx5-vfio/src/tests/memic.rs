//! Device memory of the device in the test, and addresses of operations on it, which do nothing.

use std::ops::Range;

use uverbs_mlx5_prm::cmd::memic::{
    ADD_OPERATION, alloc_memic_in, alloc_memic_out, dealloc_memic_in, device_mem_cap as cap,
    modify_memic_in, modify_memic_out,
};

use super::fake::{MEMORY, State};

/// Number of operations, whose addresses are behind the UARs: a range as long as the memory for
/// each.
const OPERATIONS: u64 = 2;
const ADDRESSES: u64 = 0x2_0000;

/// Address in the BAR of an operation on an allocation.
pub(super) fn addresses(memory: u64, op: u64) -> u64 {
    ADDRESSES + op * (MEMORY.end - MEMORY.start) + memory % (MEMORY.end - MEMORY.start)
}

/// ALLOC_MEMIC: the start of the range.
pub(super) fn alloc(input: &[u8], output: &mut [u8]) {
    let start = alloc_memic_in::RANGE_START_ADDR.get(input);
    alloc_memic_out::MEMIC_START_ADDR.set(output, start);
}

impl State {
    pub(super) fn describe_memory(&self, caps: &mut [u8]) {
        let Range { start, end } = self.memory;
        cap::MEMIC.set(caps, 1);
        cap::MEMIC_BAR_START_ADDR.set(caps, start);
        cap::MEMIC_BAR_SIZE.set(caps, end - start);
        cap::MAX_MEMIC_SIZE.set(caps, end - start);
        cap::LOG_MAX_MEMIC_ADDR_ALIGNMENT.set(caps, 6);
        cap::MEMIC_OPERATIONS.set(caps, (1 << OPERATIONS) - 1);
    }

    pub(super) fn dealloc(&mut self, input: &[u8]) {
        let start = dealloc_memic_in::MEMIC_START_ADDR.get(input);
        if self.operations.iter().any(|(memory, _)| *memory == start) {
            self.failures.push(format!("memory at {start:#x} is freed under its operations"));
        }
    }

    pub(super) fn modify(&mut self, op_mod: u16, input: &[u8], output: &mut [u8]) {
        let memory = modify_memic_in::MEMIC_START_ADDR.get(input);
        let op = modify_memic_in::MEMIC_OPERATION_TYPE.get(input);
        let changed = match op_mod {
            ADD_OPERATION => self.operations.insert((memory, op)),
            _ => self.operations.remove(&(memory, op)),
        };
        if !changed || op >= OPERATIONS {
            self.failures.push(format!("operation {op} is changed twice at {memory:#x}"));
        }
        if op_mod == ADD_OPERATION {
            modify_memic_out::MEMIC_OPERATION_ADDR.set(output, addresses(memory, op));
        }
    }
}
