//! Device memory: the kernel's object, and its mapping.
//!
//! # Safety
//!
//! The memory is freed by its number, once, when nothing refers to it any more: regions over it
//! hold on to it. It is reached by atomic accesses of words within the mapping, since the device
//! reads and writes it at any time.
#![allow(unsafe_code, reason = "device memory is a mapping, and freed by its number")]

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, OutOfRange};
use crate::memory::pages::Pages;
use crate::objects::context::ContextCore;
use crate::order::doorbell_memory::DoorbellMemory;
use crate::order::fence::doorbell_flush;

/// Bytes that are moved at once: the device takes whole words alone (rdma-core
/// `providers/mlx5/verbs.c`, `mlx5_access_dm`).
const WORD: usize = 4;

/// A piece of the device's own memory.
#[derive(Debug)]
pub struct DmCore {
    context: Arc<ContextCore>,
    handle: u32,
    freed: bool,
    /// Dropping it frees nothing.
    imported: bool,
    len: usize,
    /// Where it begins in the mapping.
    start: usize,
    map: Pages,
    /// Where the device's file maps it, once the provider said so.
    offset: Option<u64>,
}

impl DmCore {
    /// Wraps the kernel's `handle`: `len` bytes, `start` bytes into `map`.
    ///
    /// # Safety
    ///
    /// The kernel just made it on this device and mapped it there, and nobody else frees it.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for a mapping that is too short, or not of whole words; the memory is
    /// given back.
    pub unsafe fn new(
        context: Arc<ContextCore>,
        handle: u32,
        len: usize,
        start: usize,
        map: Pages,
    ) -> Result<Self, Error> {
        Self::of(context, handle, (len, start, map), false)
    }

    /// Wraps the memory that another allocated and frees: dropping this does nothing.
    ///
    /// # Safety
    ///
    /// It is mapped there, and whoever allocated it keeps it for as long as this is there.
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

    /// The same, which the device's file maps at `offset`.
    ///
    /// # Safety
    ///
    /// It does: what is there may be exported for other devices to write.
    #[must_use]
    pub unsafe fn mapped_at(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    /// A dma-buf of it, for other devices; it lives on by itself. Since Linux 7.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] where the provider doesn't say what the device's file maps; else as
    /// [`export_dmabuf`](crate::commands::Uverbs::export_dmabuf).
    #[doc(alias = "ibv_dm_export_dmabuf_fd")]
    pub fn export_dmabuf(&self) -> Result<OwnedFd, Error> {
        let Some(offset) = self.offset else {
            let what = "device memory as a dma-buf".to_owned();
            return Err(Error::Unsupported { verb: "dm_export_dmabuf_fd", what });
        };
        self.check_there("dm_export_dmabuf_fd")?;
        // SAFETY: this memory, says `mapped_at`, which devices may write at any time.
        unsafe { self.context.uverbs().export_dmabuf(offset) }
    }

    /// The open device.
    #[must_use]
    pub fn context(&self) -> &Arc<ContextCore> {
        &self.context
    }

    /// The kernel's handle; of freed memory one that nothing has.
    #[must_use]
    pub fn handle(&self) -> u32 {
        if self.freed { u32::MAX } else { self.handle }
    }

    /// Bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "none is empty: the kernel refuses it")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where it is mapped, for programs that write it by themselves. Valid while this lives.
    #[must_use]
    #[doc(alias = "mlx5dv_dm")]
    pub fn as_ptr(&self) -> *mut u8 {
        self.map.as_mut_ptr().wrapping_add(self.start)
    }

    /// Gives it back now, also another's. Once only: a second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, `EBUSY` while a region is over it; the memory then goes on.
    pub fn free(&mut self) -> Result<(), Error> {
        if !self.freed {
            // SAFETY: this object's own, says `new`, or one that its owner lets the caller use;
            // freed here for the first time.
            unsafe { self.context.uverbs().free_dm(self.handle) }?;
            self.freed = true;
        }
        Ok(())
    }

    /// Copies words in.
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
        // Linux maps it to be combined (`mlx5_ib_mmap`): the device is to have it before a doorbell
        // tells of it, also where that is on a page of another type.
        doorbell_flush(DoorbellMemory::WriteCombining);
        Ok(())
    }

    /// Copies words out.
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

    /// Refuses memory that was freed: what is mapped there may be another's.
    fn check_there(&self, verb: &'static str) -> Result<(), Error> {
        if !self.freed {
            return Ok(());
        }
        let why = "its place may be another's by now";
        Err(Error::Invalid { verb, what: "device memory", value: "freed".to_owned(), why })
    }

    /// The words of a range.
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
            // SAFETY: within the mapping, says the check above and that of `new`; it begins with a
            // page, and all offsets are of whole words. It lives as long as `self`, and is reached
            // by atomic accesses alone.
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
