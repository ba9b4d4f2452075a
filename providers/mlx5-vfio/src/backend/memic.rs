//! Device memory, and operations on it, which programs map in BAR 0 (Linux `hw/mlx5/dm.c`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Instant;

use uverbs_core::memory::pages::page_size;
use uverbs_front::backend::device_memory::DeviceMemory;
use uverbs_front::backend::error::{HcaError, Noun};
use uverbs_mlx5_prm::cmd::memic::{
    ADD_OPERATION, REMOVE_OPERATION, alloc_memic_in, alloc_memic_out, dealloc_memic_in,
    device_mem_cap as cap, modify_memic_in, modify_memic_out,
};
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};

use super::Firmware;
use crate::command::SHORT;
use crate::error::Error;
use crate::function::Function;
use crate::transport::{BAR0, check};

/// Unit of lengths and alignments.
const UNIT: u64 = 64;
/// Largest log2 of an alignment in units that this driver asks for.
const MAX_ALIGNMENT: u32 = 32;

/// Device memory, by addresses in BAR 0.
#[derive(Debug, Default)]
pub(crate) struct Memic {
    /// Whole pages of the machine; empty without device memory.
    range: Range<u64>,
    /// Maximum bytes of an allocation.
    pub(super) max_len: u64,
    /// Largest log2 of an alignment, in units of 64 bytes.
    pub(super) max_alignment: u32,
    /// Operations that the device has, a bit each.
    pub(super) operations: u32,
    /// Pages of the allocations: their end by their start.
    taken: BTreeMap<u64, u64>,
    /// Allocations with an operation that the firmware refused to remove.
    held: BTreeSet<u64>,
}

impl Memic {
    /// Reads the capabilities. Without a mappable range of the BAR it has no device memory.
    pub(super) fn of(function: &Function) -> Result<Self, Error> {
        let Some(caps) = function.device().memory_caps(function.caps())? else {
            return Ok(Self::default());
        };
        let (start, len) = (cap::MEMIC_BAR_START_ADDR.get(&caps), cap::MEMIC_BAR_SIZE.get(&caps));
        if len == 0 {
            return Ok(Self::default());
        }
        let transport = function.device().transport();
        let wrong = || Error::answer("the place of device memory", start);
        check(BAR0, start, len, transport.bar_len()).map_err(|_| wrong())?;
        let page = page_size() as u64;
        let begin = start.checked_next_multiple_of(page).ok_or_else(wrong)?;
        let end = (start + len).checked_next_multiple_of(page).ok_or_else(wrong)?;
        // Also the pages that are device memory in a part alone.
        let touched = start / page * page..end;
        if !function.device().bar.take(&touched) {
            return Err(wrong());
        }
        let range = begin..(start + len) / page * page;
        if range.is_empty() || transport.bar_file(range.start, range.end - range.start).is_err() {
            return Ok(Self::default());
        }
        Ok(Self {
            max_len: cap::MAX_MEMIC_SIZE.get(&caps),
            operations: cap::MEMIC_OPERATIONS.get32(&caps),
            max_alignment: cap::LOG_MAX_MEMIC_ADDR_ALIGNMENT.get32(&caps).min(MAX_ALIGNMENT),
            range,
            taken: BTreeMap::new(),
            held: BTreeSet::new(),
        })
    }

    /// First free range of `room` bytes from `at` on.
    fn free(&self, mut at: u64, room: u64) -> Option<Range<u64>> {
        loop {
            let end = at.checked_add(room).filter(|end| *end <= self.range.end)?;
            match self.taken.range(..end).next_back() {
                Some((_, taken)) if *taken > at => at = *taken,
                _ => return Some(at..end),
            }
        }
    }
}

impl Firmware {
    /// Sets the device's memory. For a new device.
    pub(crate) fn set_device_memory(&mut self, memic: Memic) {
        self.memic = memic;
    }

    /// Allocates memory (`mlx5_cmd_alloc_memic`): the firmware searches the pages that the driver
    /// names, and other pages are tried if it finds no room there.
    pub(super) fn take_memory(&mut self, len: u64, align: u32) -> Result<DeviceMemory, HcaError> {
        let page = page_size() as u64;
        let full = HcaError::Limit { what: "device memory", limit: self.memic.max_len };
        let room = len.checked_next_multiple_of(page).ok_or(full)?;
        let (begun, mut at) = (Instant::now(), self.memic.range.start);
        while let Some(pages) = self.memic.free(at, room) {
            match self.alloc_memic(&pages, len, align) {
                Err(Error::Refused { status: CmdStatus::NO_RES_ERR, .. }) => {
                    at = pages.start + page;
                }
                Err(error) => return Err(self.refusal(&error, (Noun::Mkey, 0))),
                Ok(memory) => {
                    self.memic.taken.insert(pages.start, pages.end);
                    return Ok(memory);
                }
            }
            if begun.elapsed() >= self.function.limits().command {
                break;
            }
        }
        Err(full)
    }

    /// Runs ALLOC_MEMIC for an allocation in whole pages.
    fn alloc_memic(&self, pages: &Range<u64>, len: u64, align: u32) -> Result<DeviceMemory, Error> {
        let mut input = [0; alloc_memic_in::SIZE];
        alloc_memic_in::RANGE_START_ADDR.set(&mut input, pages.start);
        alloc_memic_in::RANGE_SIZE.set(&mut input, pages.end - pages.start);
        alloc_memic_in::MEMIC_SIZE.set(&mut input, len);
        alloc_memic_in::LOG_MEMIC_ADDR_ALIGNMENT.set(&mut input, align.into());
        let outlen = alloc_memic_out::SIZE;
        let output = self.function.command(CmdOpcode::ALLOC_MEMIC, 0, &input, outlen)?;
        let start = alloc_memic_out::MEMIC_START_ADDR.get(&output);
        let is_inside = start >= pages.start
            && start.checked_add(len).is_some_and(|end| end <= pages.end)
            && start.is_multiple_of(UNIT << align);
        let device = self.function.device();
        if !is_inside {
            return Err(device.fail(Error::answer("the address of device memory", start)));
        }
        let (file, offset) = device
            .transport()
            .bar_file(pages.start, pages.end - pages.start)
            .inspect_err(|_| _ = self.dealloc_memic(start, len))?;
        Ok(DeviceMemory { start, file, offset })
    }

    fn dealloc_memic(&self, start: u64, len: u64) -> Result<(), Error> {
        let mut input = [0; dealloc_memic_in::SIZE];
        dealloc_memic_in::MEMIC_START_ADDR.set(&mut input, start);
        dealloc_memic_in::MEMIC_SIZE.set(&mut input, len);
        self.function.command(CmdOpcode::DEALLOC_MEMIC, 0, &input, SHORT).map(drop)
    }

    /// Adds an operation to an allocation (`mlx5_cmd_alloc_memic_op`).
    pub(super) fn take_operation(
        &mut self,
        start: u64,
        len: u64,
        op: u8,
    ) -> Result<DeviceMemory, HcaError> {
        let added = self.alloc_operation(start, len, op);
        added.map_err(|error| self.refusal(&error, (Noun::Mkey, 0)))
    }

    /// Runs MODIFY_MEMIC for addresses in pages of BAR 0 that have no other use.
    fn alloc_operation(&mut self, memory: u64, len: u64, op: u8) -> Result<DeviceMemory, Error> {
        let page = page_size() as u64;
        let output = self.modify_memic(ADD_OPERATION, memory, op)?;
        let start = modify_memic_out::MEMIC_OPERATION_ADDR.get(&output);
        let (begin, room) = (start / page * page, len.next_multiple_of(page));
        let device = self.function.device();
        if check(BAR0, begin, room, device.transport().bar_len()).is_err() {
            let wrong = Error::answer("the address of an operation on device memory", start);
            return Err(device.fail(wrong));
        }
        let unsupported =
            || Error::Unsupported { what: "mapped operations on device memory".to_owned() };
        // Linux accepts any address (`add_dm_mmap_entry`): used pages do not fail the device.
        if !device.bar.take(&(begin..begin + room)) {
            self.drop_operation(memory, op);
            return Err(unsupported());
        }
        // Programs map as many pages as the memory has, as in Linux. A server offers a file only
        // for pages whose accesses it need not see.
        let fits = check(BAR0, start - begin, len, room);
        let part = fits.and_then(|()| device.transport().bar_file(begin, room));
        let (file, offset) = part.map_err(|error| {
            self.dealloc_operation(memory, op, start);
            match error {
                Error::Range { .. } => unsupported(),
                error => error,
            }
        })?;
        Ok(DeviceMemory { start, file, offset })
    }

    fn modify_memic(&self, op_mod: u16, memory: u64, op: u8) -> Result<Vec<u8>, Error> {
        let mut input = [0; modify_memic_in::SIZE];
        modify_memic_in::MEMIC_OPERATION_TYPE.set(&mut input, op.into());
        modify_memic_in::MEMIC_START_ADDR.set(&mut input, memory);
        let outlen = modify_memic_out::SIZE;
        self.function.command(CmdOpcode::MODIFY_MEMIC, op_mod, &input, outlen)
    }

    /// Removes an operation (`mlx5_cmd_dealloc_memic_op`). The pages of one that the firmware keeps
    /// stay in use.
    pub(super) fn dealloc_operation(&mut self, memory: u64, op: u8, start: u64) {
        if self.drop_operation(memory, op) {
            let page = page_size() as u64;
            self.function.device().bar.give(start / page * page);
        }
    }

    /// Runs MODIFY_MEMIC. False if the firmware keeps the operation: its memory is never freed.
    fn drop_operation(&mut self, memory: u64, op: u8) -> bool {
        let is_removed = self.modify_memic(REMOVE_OPERATION, memory, op).is_ok();
        if !is_removed {
            self.memic.held.insert(memory);
        }
        is_removed
    }

    /// Frees an allocation. It stays taken until the function is reset if the firmware keeps it, or
    /// an operation on it.
    pub(super) fn give_memory(&mut self, start: u64, len: u64) {
        if !self.memic.held.contains(&start) && self.dealloc_memic(start, len).is_ok() {
            self.memic.taken.remove(&(start / page_size() as u64 * page_size() as u64));
        }
    }
}
