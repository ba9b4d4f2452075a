//! Device memory: the kernel object, and its mapping.
//!
//! # Safety
//!
//! The memory is freed by its handle, once, when no region refers to it: regions over it hold a
//! reference. It is accessed by atomic accesses of words within the mapping, since the device reads
//! and writes it at any time.
#![allow(unsafe_code, reason = "device memory is a mapping, and freed by its number")]

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, OutOfRange};
use crate::memory::pages::Pages;
use crate::objects::context::ContextCore;
use crate::order::doorbell_memory::DoorbellMemory;
use crate::order::fence::doorbell_flush;

/// Unit of access in bytes: the device accepts whole words only (rdma-core
/// `providers/mlx5/verbs.c`, `mlx5_access_dm`).
const WORD: usize = 4;

/// A range of the device's on-chip memory.
#[derive(Debug)]
pub struct DmCore {
    context: Arc<ContextCore>,
    handle: u32,
    freed: bool,
    /// Imported: dropping it does not free the memory.
    imported: bool,
    len: usize,
    /// Offset of the memory in the mapping.
    start: usize,
    map: Pages,
    /// Offset at which the device's file maps it, if the provider set it.
    offset: Option<u64>,
}

impl DmCore {
    /// Wraps the kernel's `handle`: `len` bytes, `start` bytes into `map`.
    ///
    /// # Safety
    ///
    /// The kernel has just allocated it on this device and mapped it there. Only this object frees
    /// it.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for a mapping that is too short, or not of whole words; the memory is
    /// then freed.
    pub unsafe fn new(
        context: Arc<ContextCore>,
        handle: u32,
        len: usize,
        start: usize,
        map: Pages,
    ) -> Result<Self, Error> {
        Self::of(context, handle, (len, start, map), false)
    }

    /// Wraps memory that other code allocated and frees: dropping this does nothing.
    ///
    /// # Safety
    ///
    /// It is mapped there, and its owner keeps it allocated while this lives.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub unsafe fn imported(
        context: Arc<ContextCore>,
        handle: u32,
        len: usize,
        start: usize,
        map: Pages,
    ) -> Result<Self, Error> {
        Self::of(context, handle, (len, start, map), true)
    }

    fn of(
        context: Arc<ContextCore>,
        handle: u32,
        (len, start, map): (usize, usize, Pages),
        imported: bool,
    ) -> Result<Self, Error> {
        let fits = start.checked_add(len).is_some_and(|end| end <= map.len());
        let mapped = map.len();
        let core = Self { context, handle, freed: false, imported, len, start, map, offset: None };
        if fits && start.is_multiple_of(WORD) {
            return Ok(core);
        }
        let what = format!("{len} bytes at {start} of a mapping of {mapped}");
        Err(Error::Unsupported { verb: "alloc_dm", what })
    }

    /// Sets the offset at which the device's file maps the memory.
    ///
    /// # Safety
    ///
    /// `offset` maps this memory and no other: the range may be exported for other devices to
    /// write.
    #[must_use]
    pub unsafe fn mapped_at(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    /// Exports the memory as a dma-buf for other devices, which stays valid after this is dropped.
    /// Since Linux 7.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the provider set no offset by [`mapped_at`](Self::mapped_at); else
    /// as [`export_dmabuf`](crate::commands::Uverbs::export_dmabuf).
    #[doc(alias = "ibv_dm_export_dmabuf_fd")]
    pub fn export_dmabuf(&self) -> Result<OwnedFd, Error> {
        let Some(offset) = self.offset else {
            let what = "device memory as a dma-buf".to_owned();
            return Err(Error::Unsupported { verb: "dm_export_dmabuf_fd", what });
        };
        self.check_there("dm_export_dmabuf_fd")?;
        // SAFETY: the offset is this memory's by the contract of `mapped_at`, and devices may write
        // it at any time.
        unsafe { self.context.uverbs().export_dmabuf(offset) }
    }

    /// The open device.
    #[must_use]
    pub fn context(&self) -> &Arc<ContextCore> {
        &self.context
    }

    /// Kernel handle; after a free, a handle that names no object.
    #[must_use]
    pub fn handle(&self) -> u32 {
        if self.freed { u32::MAX } else { self.handle }
    }

    /// Number of bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "none is empty: the kernel refuses it")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Address of the mapping, for programs that access it directly. Valid while this lives.
    #[must_use]
    #[doc(alias = "mlx5dv_dm")]
    pub fn as_ptr(&self) -> *mut u8 {
        self.map.as_mut_ptr().wrapping_add(self.start)
    }

    /// Frees the memory now, also imported memory. A second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, `EBUSY` while a region is over it; the memory then stays valid.
    pub fn free(&mut self) -> Result<(), Error> {
        if !self.freed {
            // SAFETY: this object's handle by the contract of `new`, or an imported one that its
            // owner lets the caller use; freed here for the first time.
            unsafe { self.context.uverbs().free_dm(self.handle) }?;
            self.freed = true;
        }
        Ok(())
    }

    /// Copies words into the memory.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`]; [`Error::Invalid`] unless offset and length are whole words.
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<(), Error> {
        let words = self.words("memcpy_to_dm", offset, data.len())?;
        for (word, bytes) in words.zip(data.chunks_exact(WORD)) {
            let value = bytes.try_into().map_or(0, u32::from_ne_bytes);
            word.store(value, Ordering::Relaxed);
        }
        // Linux maps it write-combining (`mlx5_ib_mmap`). The words must reach the device before a
        // doorbell announces them, even on a doorbell page of another type.
        doorbell_flush(DoorbellMemory::WriteCombining);
        Ok(())
    }

    /// Copies words out of the memory.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn read(&self, offset: usize, data: &mut [u8]) -> Result<(), Error> {
        let words = self.words("memcpy_from_dm", offset, data.len())?;
        for (word, bytes) in words.zip(data.chunks_exact_mut(WORD)) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        Ok(())
    }

    /// Rejects freed memory: its addresses may map other memory.
    fn check_there(&self, verb: &'static str) -> Result<(), Error> {
        if !self.freed {
            return Ok(());
        }
        let why = "freed memory may belong to another allocation";
        Err(Error::Invalid { verb, what: "device memory", value: "freed".to_owned(), why })
    }

    /// Words of a range.
    fn words(
        &self,
        verb: &'static str,
        offset: usize,
        len: usize,
    ) -> Result<impl Iterator<Item = &AtomicU32>, Error> {
        self.check_there(verb)?;
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(OutOfRange { offset, wanted: len, len: self.len }.into());
        }
        for (what, value) in [("offset", offset), ("length", len)] {
            if !value.is_multiple_of(WORD) {
                let why = "device memory is read and written in words of 4 bytes";
                return Err(Error::Invalid { verb, what, value: value.to_string(), why });
            }
        }
        let first = self.as_ptr().wrapping_add(offset).cast::<u32>();
        Ok((0..len / WORD).map(move |index| {
            // SAFETY: within the mapping, by the check above and the check in `new`; the mapping is
            // page aligned, and all offsets are whole words. It lives as long as `self`, and is
            // accessed atomically only.
            unsafe { AtomicU32::from_ptr(first.wrapping_add(index)) }
        }))
    }
}

impl Drop for DmCore {
    fn drop(&mut self) {
        if !self.imported {
            let _ = self.free();
        }
    }
}
