//! Areas: memory that programs have and the device reaches, each with one mapping for the device.
//!
//! A program has another mapping of the area's file, and commands name memory by the address in it.
//! An area lives as long as that mapping. Its owner unmaps it after the area's objects and keys
//! were destroyed, or after the device refused to destroy them. After the device's first failure,
//! and after it refused to destroy an object or a key, areas stay mapped for the device until it is
//! reset.
//!
//! A program's memory outside of areas is a umem: it is mapped while a key or a queue uses it.
//!
//! # Safety
//!
//! A umem is named by its address. The caller's contract keeps it valid.
#![allow(unsafe_code, reason = "a program's memory is given to a device")]

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};

use uverbs_core::memory::pages::{Pages, page_size};

use crate::dma::{Dma, PAGE};
use crate::error::Error;
use crate::memory::Memory;
use crate::transport::Purpose;

/// Offset in these units is equal in both address spaces, so that a region may have large pages.
const UNIT: u64 = 2 << 20;

/// An area, as the device reaches it.
#[derive(Debug)]
pub(crate) struct Area {
    /// Start of the addresses that the area has taken.
    taken: u64,
    pub(crate) iova: u64,
    pub(crate) memory: Arc<Memory>,
}

/// Ends an area with the program's mapping.
#[derive(Debug)]
struct End {
    dma: Weak<Dma>,
    address: u64,
}

impl Dma {
    /// Allocates an area of at least `len` zeroed bytes.
    pub(crate) fn area(self: &Arc<Self>, len: usize) -> Result<Pages, Error> {
        let too_long = || Error::Limit {
            what: "bytes of an area",
            value: len as u64,
            limit: self.limit as u64,
        };
        let len = len.max(1).checked_next_multiple_of(page_size().max(PAGE));
        let len = len.filter(|len| *len <= self.limit).ok_or_else(too_long)?;
        let memory = Arc::new(Memory::new(len)?);
        let pages = Pages::shared(memory.file(), len, 0);
        let pages = pages.map_err(|errno| Error::System { what: "mmap", errno })?;
        let address = pages.as_ptr().expose_provenance() as u64;
        let mut state = self.state();
        let taken = state.taken.take(self.transport.iova_ranges(), len as u64 + UNIT)?;
        let iova = taken + address % UNIT;
        let mapped = self.transport.map(iova, &memory);
        mapped.inspect_err(|_| state.taken.give_back(taken))?;
        state.areas.insert(address, Area { taken, iova, memory });
        drop(state);
        // Its state is behind a lock, whole at each end of a call.
        Ok(pages.keeping(AssertUnwindSafe(End { dma: Arc::downgrade(self), address })))
    }

    /// Address for the device of `len` bytes at `address` in this process. `None` if no area has
    /// all of them.
    pub(crate) fn translate(&self, address: u64, len: u64) -> Option<u64> {
        let state = self.state();
        let (start, area) = state.areas.range(..=address).next_back()?;
        let offset = address - start;
        let end = offset.checked_add(len)?;
        (end <= area.memory.len() as u64).then_some(area.iova + offset)
    }
}

/// A umem: memory of the program's own that the device reaches (`struct ib_umem`).
#[derive(Debug)]
pub(crate) struct Umem {
    taken: u64,
    /// Whole pages, as the device reaches them.
    iova: u64,
    len: u64,
    /// Address for the device of the first byte.
    pub(crate) at: u64,
}

impl Dma {
    /// Lets the device reach `len` bytes at `address` of this process, by an IOMMU in whole pages.
    ///
    /// # Safety
    ///
    /// Until [`Dma::unmap_umem`], the memory stays the process's, and only accesses that allow for
    /// stores by a device reach it. A record stays mapped.
    pub(crate) unsafe fn map_umem(
        &self,
        address: u64,
        len: u64,
        purpose: Purpose,
    ) -> Result<Umem, Error> {
        let page = page_size().max(PAGE) as u64;
        let inside = address % page;
        let start = address - inside;
        let limit = Error::Limit { what: "bytes of a region", value: len, limit: u64::MAX / 2 };
        let used = address..address.saturating_add(len);
        let len = len.checked_add(inside).and_then(|len| len.checked_next_multiple_of(page));
        let len = len.filter(|len| *len <= u64::MAX / 2 && start.checked_add(*len).is_some());
        let len = len.ok_or(limit)?;
        let ranges = self.transport.iova_ranges();
        let taken = self.state().taken.take(ranges, len + UNIT)?;
        let iova = taken + start % UNIT;
        // SAFETY: the caller's.
        let mapped = unsafe { self.transport.map_process(iova, start..start + len, used, purpose) };
        mapped.inspect_err(|_| self.state().taken.give_back(taken))?;
        Ok(Umem { taken, iova, len, at: iova + inside })
    }

    /// Ends the device's access. The IOMMU, or the thread that answers a server, refuses what the
    /// device does later. After an error the device may still reach the memory.
    pub(crate) fn unmap_umem(&self, umem: &Umem) -> Result<(), Error> {
        self.transport.unmap(umem.iova, umem.len)?;
        self.state().taken.give_back(umem.taken);
        Ok(())
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let Some(dma) = self.dma.upgrade() else { return };
        let mut state = dma.state();
        // After `release` there are no areas.
        let Some(area) = state.areas.remove(&self.address) else { return };
        let len = area.memory.len() as u64;
        if dma.keeps() || dma.transport.unmap(area.iova, len).is_err() {
            state.kept.push(area);
        } else {
            state.taken.give_back(area.taken);
        }
    }
}
