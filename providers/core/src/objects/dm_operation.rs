//! Operations on device memory: mapped addresses at which a load or store also modifies the memory.
//!
//! # Safety
//!
//! The addresses are accessed by volatile byte accesses within the mapping: the device sees each
//! access, and a load changes the byte.
#![allow(unsafe_code, reason = "accesses a mapping of the device's")]

use std::sync::Arc;

use crate::error::{Error, OutOfRange};
use crate::memory::pages::Pages;
use crate::objects::dm::DmCore;
use crate::order::doorbell_memory::DoorbellMemory;
use crate::order::fence::doorbell_flush;

/// Operation that an access performs (rdma-core `tests/test_mlx5_dm_ops.py`, `MEMIC_ATOMIC_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DmOp(u8);

impl DmOp {
    /// A store adds its value to the byte.
    pub const INCREMENT: Self = Self(0);
    /// A load returns the byte and sets it to 1.
    pub const TEST_AND_SET: Self = Self(1);

    /// Any operation, by its bit in the device's capability `memic_operations`.
    #[must_use]
    pub fn from_raw(bit: u8) -> Self {
        Self(bit)
    }

    /// Bit in the device's capability.
    #[must_use]
    pub fn raw(self) -> u8 {
        self.0
    }
}

/// Addresses of one operation on one range of device memory.
#[derive(Debug)]
pub struct DmOperation {
    // Unmapped before the memory may be freed.
    map: Pages,
    /// Offset of the addresses in the mapping.
    start: usize,
    dm: Arc<DmCore>,
    op: DmOp,
}

impl DmOperation {
    /// Wraps the mapping that the kernel made for `op` on `dm`, `start` bytes into `map`.
    ///
    /// # Safety
    ///
    /// The kernel has just mapped it there, with one address per byte of `dm`.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for a mapping that is too short.
    pub unsafe fn new(dm: Arc<DmCore>, op: DmOp, start: usize, map: Pages) -> Result<Self, Error> {
        if start.checked_add(dm.len()).is_some_and(|end| end <= map.len()) {
            return Ok(Self { map, start, dm, op });
        }
        let what = format!("{} addresses at {start} of a mapping of {}", dm.len(), map.len());
        Err(Error::Unsupported { verb: "dm_map_op_addr", what })
    }

    /// Operation that an access performs.
    #[must_use]
    pub fn op(&self) -> DmOp {
        self.op
    }

    /// Stores `value`: an increment adds it to the byte at `offset`. The device has it on return,
    /// so that the next store is not combined with it.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`].
    pub fn write(&self, offset: usize, value: u8) -> Result<(), Error> {
        let at = self.at(offset)?;
        // SAFETY: within the mapping, checked by `at`.
        unsafe { at.write_volatile(value) };
        // Linux maps it write-combining (`mlx5_ib_mmap`).
        doorbell_flush(DoorbellMemory::WriteCombining);
        Ok(())
    }

    /// Loads the byte at `offset`: a test-and-set returns the byte and leaves 1.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`].
    pub fn read(&self, offset: usize) -> Result<u8, Error> {
        let at = self.at(offset)?;
        // SAFETY: within the mapping, checked by `at`.
        Ok(unsafe { at.read_volatile() })
    }

    fn at(&self, offset: usize) -> Result<*mut u8, Error> {
        let len = self.dm.len();
        match offset < len {
            true => Ok(self.map.as_mut_ptr().wrapping_add(self.start + offset)),
            false => Err(OutOfRange { offset, wanted: 1, len }.into()),
        }
    }
}
