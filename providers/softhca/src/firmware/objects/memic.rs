//! Device memory: allocations, and operations on them (Linux `hw/mlx5/dm.c`).
//!
//! An operation has a separate range of the BAR, as long as device memory: a store there adds to
//! the byte at the same offset, a load returns the byte and sets it to 1. Each allocation has the
//! operations that the driver requested (MODIFY_MEMIC); for others stores are lost and loads return
//! 0.

use std::collections::BTreeMap;
use std::sync::Arc;

use uverbs_mlx5_prm::cmd::memic::{
    ADD_OPERATION, REMOVE_OPERATION, alloc_memic_in, alloc_memic_out, dealloc_memic_in,
    modify_memic_in, modify_memic_out,
};
use uverbs_mlx5_prm::cmd::opcode::CmdStatus;

use crate::board::bar::{DEVICE_MEMORY as IN_BAR, OPERATION_COUNT, OPERATIONS};
use crate::board::capabilities::{
    DEVICE_MEMORY_LEN as LEN, DEVICE_MEMORY_UNIT as UNIT, LOG_MAX_DEVICE_MEMORY_ALIGNMENT,
};
use crate::board::memory::DeviceMemory;
use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};

/// `memic_operation_type` (rdma-core `tests/test_mlx5_dm_ops.py`, `MEMIC_ATOMIC_*`): bit numbers in
/// `memic_operations` and in an allocation's operations.
const INCREMENT: u64 = 0;
const TEST_AND_SET: u64 = 1;

/// Allocations, and the bytes behind all of them.
#[derive(Debug)]
pub(crate) struct Memic {
    memory: Arc<DeviceMemory>,
    /// Allocations by offset in device memory.
    taken: BTreeMap<u64, Allocation>,
}

#[derive(Debug)]
struct Allocation {
    len: u64,
    /// Operations with an address, a bit each.
    operations: u64,
}

impl Memic {
    pub(crate) fn new(memory: Arc<DeviceMemory>) -> Self {
        Self { memory, taken: BTreeMap::new() }
    }

    /// Frees all memory.
    pub(crate) fn clear(&mut self) {
        self.taken.clear();
        self.memory.clear(0, LEN);
    }

    /// True if the whole range is in one allocation.
    pub(crate) fn holds(&self, start: u64, len: u64) -> bool {
        self.allocation(start, len).is_some()
    }

    /// Finds the allocation that contains the whole range.
    fn allocation(&self, start: u64, len: u64) -> Option<&Allocation> {
        let (at, allocation) = self.taken.range(..=start).next_back()?;
        start.checked_add(len).filter(|end| *end <= at + allocation.len).map(|_| allocation)
    }

    fn overlaps(&self, start: u64, len: u64) -> bool {
        let last = self.taken.range(..start + len).next_back();
        last.is_some_and(|(at, allocation)| at + allocation.len > start)
    }

    /// Offset in device memory of the byte behind an operation's address, if the memory has that
    /// operation.
    fn operand(&self, bar: u64, len: usize, operation: u64) -> Option<u64> {
        let offset = bar.checked_sub(OPERATIONS + operation * LEN).filter(|at| *at < LEN)?;
        let allocation = self.allocation(IN_BAR + offset, len as u64)?;
        (len == 1 && allocation.operations >> operation & 1 != 0).then_some(offset)
    }
}

fn is_operation(bar: u64) -> bool {
    (OPERATIONS..IN_BAR).contains(&bar)
}

const NO_MEMORY: Refusal = Refusal::resource("no such device memory");

impl Firmware {
    /// ALLOC_MEMIC: the driver names a range to search, and tries the next page if it is full.
    pub(crate) fn alloc_memic(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let start = alloc_memic_in::RANGE_START_ADDR.get(call.input);
        let range = alloc_memic_in::RANGE_SIZE.get(call.input);
        let len = alloc_memic_in::MEMIC_SIZE.get(call.input);
        let alignment = alloc_memic_in::LOG_MEMIC_ADDR_ALIGNMENT.get32(call.input);
        if len == 0
            || !len.is_multiple_of(UNIT)
            || len > range
            || alignment > LOG_MAX_DEVICE_MEMORY_ALIGNMENT
        {
            return Err(Refusal::param("memic_size"));
        }
        let end = start.checked_add(range).ok_or(Refusal::param("range_start_addr"))?;
        if start < IN_BAR || end > IN_BAR + LEN {
            return Err(Refusal::param("no device memory there"));
        }
        if self.memic.overlaps(start, len) || !start.is_multiple_of(UNIT << alignment) {
            return Err(Refusal::new(CmdStatus::NO_RES_ERR, "no room in this range"));
        }
        self.memic.memory.clear(start - IN_BAR, len);
        self.memic.taken.insert(start, Allocation { len, operations: 0 });
        alloc_memic_out::MEMIC_START_ADDR.set(call.output, start);
        Ok(())
    }

    pub(crate) fn dealloc_memic(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let start = dealloc_memic_in::MEMIC_START_ADDR.get(call.input);
        let len = dealloc_memic_in::MEMIC_SIZE.get(call.input);
        let allocation = self.memic.taken.get(&start).filter(|allocation| allocation.len == len);
        let allocation = allocation.ok_or(NO_MEMORY)?;
        if allocation.operations != 0 {
            return Err(Refusal::new(CmdStatus::RES_BUSY, "operations on it have addresses"));
        }
        if self.mkeys.values().any(|mkey| mkey.is_of_device_memory(start, len)) {
            return Err(Refusal::new(CmdStatus::RES_BUSY, "memory keys use it"));
        }
        self.memic.taken.remove(&start);
        Ok(())
    }

    /// MODIFY_MEMIC: adds or removes an operation of an allocation.
    pub(crate) fn modify_memic(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let start = modify_memic_in::MEMIC_START_ADDR.get(call.input);
        let operation = modify_memic_in::MEMIC_OPERATION_TYPE.get(call.input);
        if operation >= OPERATION_COUNT {
            return Err(Refusal::param("memic_operation_type"));
        }
        let allocation = self.memic.taken.get_mut(&start).ok_or(NO_MEMORY)?;
        let has = allocation.operations >> operation & 1 != 0;
        match (call.op_mod, has) {
            (ADD_OPERATION, false) => {
                let address = OPERATIONS + operation * LEN + (start - IN_BAR);
                modify_memic_out::MEMIC_OPERATION_ADDR.set(call.output, address);
            }
            (REMOVE_OPERATION, true) => {}
            (ADD_OPERATION, true) => {
                return Err(Refusal::resource("the memory has this operation"));
            }
            (REMOVE_OPERATION, false) => {
                return Err(Refusal::resource("the memory lacks this operation"));
            }
            _ => return Err(Refusal::param("op_mod")),
        }
        allocation.operations ^= 1 << operation;
        Ok(())
    }

    /// Executes a processor's load from an operation's address. False for another address.
    pub(crate) fn load_operation(&self, bar: u64, data: &mut [u8]) -> bool {
        if !is_operation(bar) {
            return false;
        }
        data.fill(0);
        if let Some(at) = self.memic.operand(bar, data.len(), TEST_AND_SET) {
            data[0] = self.memic.memory.change(at, |_| 1).unwrap_or(0);
        }
        true
    }

    /// Executes a processor's store to an operation's address. False for another address.
    pub(crate) fn store_operation(&self, bar: u64, data: &[u8]) -> bool {
        if is_operation(bar)
            && let Some(at) = self.memic.operand(bar, data.len(), INCREMENT)
        {
            self.memic.memory.change(at, |old| old.wrapping_add(data[0]));
        }
        is_operation(bar)
    }
}
