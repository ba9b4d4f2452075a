//! Device memory: which pieces are given out (Linux `hw/mlx5/dm.c`).

use std::collections::BTreeMap;
use std::sync::Arc;

use uverbs_mlx5_prm::cmd::memic::{
    alloc_memic_in, alloc_memic_out, dealloc_memic_in, device_mem_cap,
};
use uverbs_mlx5_prm::cmd::opcode::CmdStatus;

use super::Firmware;
use super::call::{Call, Refusal};
use crate::board::bar::DEVICE_MEMORY as IN_BAR;
use crate::board::memory::DeviceMemory;
use crate::board::profile::DEVICE_MEMORY_LEN as LEN;

/// Granularity of lengths, and the greatest alignment, in such units (Linux
/// `MLX5_MEMIC_BASE_SIZE`).
const UNIT: u64 = 64;
const LOG_MAX_ALIGNMENT: u64 = 6;

/// Pieces that were given out, and the bytes behind all of them.
#[derive(Debug)]
pub(super) struct Memic {
    memory: Arc<DeviceMemory>,
    /// Length of each piece, by its place in the BAR.
    taken: BTreeMap<u64, u64>,
}

impl Memic {
    pub(super) fn new(memory: Arc<DeviceMemory>) -> Self {
        Self { memory, taken: BTreeMap::new() }
    }

    /// Takes all pieces back.
    pub(super) fn clear(&mut self) {
        self.taken.clear();
        self.memory.clear(0, LEN);
    }

    /// Whether the whole range lies in one piece.
    pub(super) fn holds(&self, start: u64, len: u64) -> bool {
        let piece = self.taken.range(..=start).next_back();
        piece.zip(start.checked_add(len)).is_some_and(|((at, size), end)| end <= at + size)
    }

    fn overlaps(&self, start: u64, len: u64) -> bool {
        self.taken.range(..start + len).next_back().is_some_and(|(at, size)| at + size > start)
    }
}

pub(super) fn capabilities(cap: &mut [u8]) {
    device_mem_cap::MEMIC.set(cap, 1);
    device_mem_cap::LOG_MIN_MEMIC_ALLOC_SIZE.set(cap, UNIT.ilog2().into());
    device_mem_cap::LOG_MAX_MEMIC_ADDR_ALIGNMENT.set(cap, LOG_MAX_ALIGNMENT);
    device_mem_cap::MEMIC_BAR_START_ADDR.set(cap, IN_BAR);
    device_mem_cap::MEMIC_BAR_SIZE.set(cap, LEN);
    device_mem_cap::MAX_MEMIC_SIZE.set(cap, LEN);
}

impl Firmware {
    /// ALLOC_MEMIC: the driver names a range to search, and tries the next page if it is full.
    pub(super) fn alloc_memic(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let start = alloc_memic_in::RANGE_START_ADDR.get(call.input);
        let range = alloc_memic_in::RANGE_SIZE.get(call.input);
        let len = alloc_memic_in::MEMIC_SIZE.get(call.input);
        let alignment = alloc_memic_in::LOG_MEMIC_ADDR_ALIGNMENT.get(call.input);
        if len == 0 || !len.is_multiple_of(UNIT) || len > range || alignment > LOG_MAX_ALIGNMENT {
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
        self.memic.taken.insert(start, len);
        alloc_memic_out::MEMIC_START_ADDR.set(call.output, start);
        Ok(())
    }

    pub(super) fn dealloc_memic(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let start = dealloc_memic_in::MEMIC_START_ADDR.get(call.input);
        let len = dealloc_memic_in::MEMIC_SIZE.get(call.input);
        if self.memic.taken.get(&start) != Some(&len) {
            return Err(Refusal::resource("no such piece of device memory"));
        }
        if self.mkeys.values().any(|mkey| mkey.is_of_device_memory(start, len)) {
            return Err(Refusal::new(CmdStatus::RES_BUSY, "memory keys use it"));
        }
        self.memic.taken.remove(&start);
        Ok(())
    }
}
