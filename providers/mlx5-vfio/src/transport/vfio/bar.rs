//! BAR 0, mapped: registers and doorbells by single stores and loads.
//!
//! VFIO maps it uncached, so each access is a transaction, in order.
//!
//! # Safety
//!
//! Each access lies within the mapping and is aligned; both are checked.
#![allow(unsafe_code, reason = "registers are reached by raw address")]

use std::fs::File;
use std::os::fd::AsFd;

use uverbs_core::memory::pages::Pages;
use uverbs_core::order::doorbell_memory::DoorbellMemory;
use uverbs_core::order::{fence, mmio};

use crate::error::Error;
use crate::transport::{BAR0, check};

/// A mapped BAR.
#[derive(Debug)]
pub(super) struct Bar {
    pages: Pages,
    len: u64,
}

impl Bar {
    /// Maps `len` bytes at `offset` of the device.
    pub(super) fn map(device: &File, len: u64, offset: u64) -> Result<Self, Error> {
        let size = usize::try_from(len).map_err(|_| Error::answer("the size of BAR 0", len))?;
        let pages = Pages::shared(device.as_fd(), size, offset);
        let pages = pages.map_err(|errno| Error::System { what: "mmap of BAR 0", errno })?;
        Ok(Self { pages, len })
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Address of `size` bytes at `offset`, which is a multiple of `size`.
    fn at(&self, offset: u64, size: u64) -> Result<*mut u8, Error> {
        check(BAR0, offset, size, self.len)?;
        if !offset.is_multiple_of(size) {
            return Err(Error::Range { what: BAR0, at: offset, len: size, limit: self.len });
        }
        Ok(self.pages.as_mut_ptr().wrapping_add(offset as usize))
    }

    /// Reads a register.
    pub(super) fn read(&self, offset: u64) -> Result<u32, Error> {
        let at = self.at(offset, 4)?.cast::<u32>();
        // SAFETY: within the mapping and aligned.
        Ok(u32::from_be(unsafe { at.read_volatile() }))
    }

    /// Writes a register, after all earlier stores to DMA memory.
    pub(super) fn write(&self, offset: u64, value: u32) -> Result<(), Error> {
        let at = self.at(offset, 4)?.cast::<u32>();
        fence::record_before_doorbell(DoorbellMemory::NonCached);
        // SAFETY: within the mapping and aligned.
        unsafe { at.write_volatile(value.to_be()) };
        Ok(())
    }

    /// Writes a doorbell, after all earlier stores to DMA memory.
    pub(super) fn ring(&self, offset: u64, value: u64) -> Result<(), Error> {
        let at = self.at(offset, 8)?.cast::<u64>();
        fence::record_before_doorbell(DoorbellMemory::NonCached);
        // SAFETY: within the mapping and aligned.
        unsafe { mmio::write64_be(at, value) };
        Ok(())
    }
}
