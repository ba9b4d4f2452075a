//! Access to a PCI function: configuration space, BAR 0, DMA mappings, interrupts, reset.
//!
//! Firmware numbers and offsets come from the device, so each access checks its range.
//!
//! # Safety
//!
//! The one unsafe method has its contract there.
#![allow(unsafe_code, reason = "a program's memory is given to a device")]

pub mod vfio;
pub mod vfio_user;

use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use uverbs_front::watch::Watch;

use crate::error::Error;
use crate::memory::Memory;

/// Purpose of a umem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Bytes that the device loads.
    Read,
    /// Bytes that the device loads and stores.
    Write,
    /// A doorbell record: aligned words, which the device loads as wholes.
    Record,
}

impl Purpose {
    /// True if the device may store.
    pub(crate) fn is_writable(self) -> bool {
        self != Self::Read
    }
}

/// A PCI function that this process owns.
///
/// Registers of BAR 0 are big-endian (PRM "Initialization Segment"); values here are in host order.
pub trait Transport: Send + Sync + fmt::Debug {
    /// Name as the user gave it.
    fn name(&self) -> &str;

    /// Bytes of BAR 0.
    fn bar_len(&self) -> u64;

    /// Addresses that the device may use, in ascending order.
    fn iova_ranges(&self) -> &[RangeInclusive<u64>];

    /// Reads configuration space.
    ///
    /// # Errors
    ///
    /// [`Error::Range`], or the transport's error.
    fn config_read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Error>;

    /// Writes configuration space.
    ///
    /// # Errors
    ///
    /// [`Error::Range`], or the transport's error.
    fn config_write(&self, offset: u64, bytes: &[u8]) -> Result<(), Error>;

    /// Reads a register of 4 bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Range`], or the transport's error.
    fn bar_read(&self, offset: u64) -> Result<u32, Error>;

    /// Writes a register of 4 bytes. Earlier stores to DMA memory are visible to the device first.
    ///
    /// # Errors
    ///
    /// [`Error::Range`], or the transport's error.
    fn bar_write(&self, offset: u64, value: u32) -> Result<(), Error>;

    /// Writes a doorbell of 8 bytes, as [`Transport::bar_write`].
    ///
    /// # Errors
    ///
    /// [`Error::Range`], or the transport's error.
    fn ring(&self, offset: u64, value: u64) -> Result<(), Error>;

    /// Writes a doorbell as [`Transport::ring`], but never waits: a word that can't be written now
    /// is written by [`Transport::flush`], or before the next access. A later word of the same
    /// queue, with the same low half, stands for earlier ones.
    ///
    /// # Errors
    ///
    /// [`Error::Range`], or the transport's error.
    fn ring_soon(&self, offset: u64, value: u64) -> Result<(), Error> {
        self.ring(offset, value)
    }

    /// Writes the doorbells that [`Transport::ring_soon`] kept, as far as that takes no wait. False
    /// if some are left.
    ///
    /// # Errors
    ///
    /// The transport's error.
    fn flush(&self) -> Result<bool, Error> {
        Ok(true)
    }

    /// True if the device is a process of this machine: its doorbell pages are memory, and it may
    /// need a poller's processor.
    fn is_software(&self) -> bool {
        false
    }

    /// Watch over the doorbell pages that programs map, if the device sleeps until a store.
    fn watch(&self) -> Option<Arc<Watch>> {
        None
    }

    /// File by which programs map `len` bytes at `at` of BAR 0, and their offset in it. All are
    /// multiples of the machine's page.
    ///
    /// # Errors
    ///
    /// [`Error::Range`], [`Error::Unsupported`], or the transport's error.
    fn bar_file(&self, at: u64, len: u64) -> Result<(Arc<OwnedFd>, u64), Error> {
        let _ = (at, len);
        Err(Error::Unsupported { what: format!("{}: mapped doorbells", self.name()) })
    }

    /// Lets the device access all of `memory` from address `iova` on.
    ///
    /// # Errors
    ///
    /// The transport's error. Then nothing is mapped.
    fn map(&self, iova: u64, memory: &Memory) -> Result<(), Error>;

    /// Lets the device access the bytes `used` of this process, which lie in the whole pages
    /// `pages`; the first page is at address `iova` for the device. A transport that sees each
    /// access keeps to `used`; an IOMMU maps pages. Stores are refused unless `purpose` has them.
    ///
    /// # Errors
    ///
    /// The transport's error. Then nothing is mapped.
    ///
    /// # Safety
    ///
    /// Until the mapping ends, the memory stays the process's, and only accesses that allow for
    /// stores by a device reach it. A record stays mapped.
    unsafe fn map_process(
        &self,
        iova: u64,
        pages: Range<u64>,
        used: Range<u64>,
        purpose: Purpose,
    ) -> Result<(), Error>;

    /// Ends a mapping of `len` bytes. Afterwards the device can't access the memory.
    ///
    /// # Errors
    ///
    /// The transport's error. Then the memory may still be mapped.
    fn unmap(&self, iova: u64, len: u64) -> Result<(), Error>;

    /// Signals `event` at MSI-X vector 0. Other vectors signal nothing.
    ///
    /// # Errors
    ///
    /// The transport's error.
    fn interrupt(&self, event: BorrowedFd<'_>) -> Result<(), Error>;

    /// Resets the function. Afterwards it has no objects, and makes no DMA.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`], or the transport's error.
    fn reset(&self) -> Result<(), Error>;

    /// True if the device's side has ended, and makes no DMA: a vfio-user server resets a function
    /// whose connection it closes, and its process has no access to the memory after its end.
    fn is_gone(&self) -> bool {
        false
    }
}

/// Checks that an access lies in a region.
pub(crate) fn check(what: &'static str, at: u64, len: u64, limit: u64) -> Result<(), Error> {
    match at.checked_add(len) {
        Some(end) if end <= limit => Ok(()),
        _ => Err(Error::Range { what, at, len, limit }),
    }
}

/// Names of the regions in errors.
pub(crate) const BAR0: &str = "BAR 0";
pub(crate) const CONFIG: &str = "configuration space";
