//! An operation on device memory: addresses at which an access of the processor's is more than one.
//!
//! # Safety
//!
//! They are reached by volatile accesses of bytes within the mapping: the device sees each of them,
//! and a load changes what it reads.
#![allow(unsafe_code, reason = "accesses a mapping of the device's")]

use std::sync::Arc;

use crate::error::{Error, OutOfRange};
use crate::memory::pages::Pages;
use crate::objects::dm::DmCore;
use crate::order::doorbell_memory::DoorbellMemory;
use crate::order::fence::doorbell_flush;

/// What an access does (rdma-core `tests/test_mlx5_dm_ops.py`, `MEMIC_ATOMIC_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DmOp(u8);

impl DmOp {
    /// A store adds its value to the byte.
    pub const INCREMENT: Self = Self(0);
    /// A load answers the byte and sets it to 1.
    pub const TEST_AND_SET: Self = Self(1);

    /// Another one, by its bit in the device's capability `memic_operations`.
    #[must_use]
    pub fn from_raw(bit: u8) -> Self {
        Self(bit)
    }

    /// The bit in the device's capability.
    #[must_use]
    pub fn raw(self) -> u8 {
        self.0
    }
}

/// The addresses of one operation on one piece of device memory.
#[derive(Debug)]
pub struct DmOperation {
    // Unmapped before the memory may be freed.
    map: Pages,
    /// Where they begin in the mapping.
    start: usize,
    dm: Arc<DmCore>,
    op: DmOp,
}

impl DmOperation {
    /// Wraps what the kernel mapped for `op` on `dm`, `start` bytes into `map`.
    ///
    /// # Safety
    ///
    /// The kernel just mapped it there, an address for each byte of `dm`.
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

    /// What it does.
    #[must_use]
    pub fn op(&self) -> DmOp {
        self.op
    }

    /// A store: an increment adds `value` to the byte at `offset`. The device has it when this
    /// returns, so that the next one isn't combined with it.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`].
    pub fn write(&self, offset: usize, value: u8) -> Result<(), Error> {
        let at = self.at(offset)?;
        // SAFETY: within the mapping, says `at`.
        unsafe { at.write_volatile(value) };
        // Linux maps it to be combined (`mlx5_ib_mmap`).
        doorbell_flush(DoorbellMemory::WriteCombining);
        Ok(())
    }

    /// A load: a test-and-set answers the byte at `offset`, which is 1 afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`].
    pub fn read(&self, offset: usize) -> Result<u8, Error> {
        let at = self.at(offset)?;
        // SAFETY: as in `write`.
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
