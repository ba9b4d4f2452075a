//! Exposed memory: registered memory that a peer can access. It is never lent as a slice, because
//! the peer reads and writes it without the compiler's knowledge.
#![allow(unsafe_code, reason = "reads and writes a raw mapping that others write too")]
//!
//! # Safety
//!
//! Each access is an atomic load or store of a byte or a word within the mapping, and no reference
//! to the bytes is ever made. To the memory model, a peer is a thread with the same kind of
//! accesses, of other sizes. The language leaves racing atomic accesses of different sizes to the
//! same bytes undefined; the machine defines them (each is single-copy atomic), also for a device
//! on a bus. This file relies on the machine, as every verbs program does.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::error::OutOfRange;
use crate::memory::mapping::Mapping;
use crate::memory::registered::{Held, Registered};
use crate::objects::mr::MrCore;
use crate::queues::work::{Remote, Sge};

/// Registered memory that a peer may read, write or change by atomics, as its access rights say.
///
/// The program copies data in and out. A copy is one access for each word or byte: while a peer
/// writes, it may return a mix of new and old bytes. An aligned word ([`load`](Self::load),
/// [`store`](Self::store)) is one access.
///
/// Cloning is cheap. The memory is deregistered and freed once the last handle is dropped and no
/// post of a [`part`](Self::part) is outstanding.
#[derive(Clone)]
pub struct ExposedMemory {
    memory: Arc<Registered>,
    len: usize,
}

/// Part of exposed memory, as the argument of a post: to send from, read into, or receive into.
/// Program and peers may read and write it at any time.
#[derive(Clone, Debug)]
pub struct ExposedPart {
    memory: ExposedMemory,
    offset: usize,
    len: u32,
}

impl ExposedPart {
    /// Exposed memory that contains the part.
    #[must_use]
    pub fn memory(&self) -> &ExposedMemory {
        &self.memory
    }

    #[inline(always)]
    pub(crate) fn sge(&self) -> Sge {
        self.memory.sge(self.offset, self.len)
    }

    #[inline(always)]
    pub(crate) fn domain(&self) -> u64 {
        self.memory.memory.domain
    }

    pub(crate) fn registered(&self) -> &Arc<Registered> {
        &self.memory.memory
    }

    #[inline(always)]
    pub(crate) fn into_held(self) -> Held {
        Held::exposed(self.memory.memory)
    }
}

impl ExposedMemory {
    /// `len` bytes of `memory`, registered as `region`.
    ///
    /// # Safety
    ///
    /// `region` covers exactly this memory at its virtual address. All other accesses to the memory
    /// are atomic.
    ///
    /// # Panics
    ///
    /// If the memory is shorter than `len`; the caller allocated it.
    #[must_use]
    #[doc(hidden)]
    pub unsafe fn new(memory: Mapping, region: MrCore, len: usize) -> Self {
        assert!(len <= memory.len());
        Self { memory: Registered::new(memory, region, 0, 0), len }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Remote key, which the peer needs together with [`addr`](Self::addr).
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.memory.rkey
    }

    /// The kernel's handle of the region.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.memory.handle()
    }

    /// Address of the first byte, for the peer.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.memory.base.expose_provenance() as u64
    }

    /// Remote address and key of the byte at `offset`. The peer's request checks the range.
    #[must_use]
    pub fn remote(&self, offset: usize) -> Remote {
        Remote { addr: self.addr().wrapping_add(offset as u64), rkey: self.rkey() }
    }

    /// SGE of `len` bytes from `offset`, for raw posts.
    #[must_use]
    pub fn sge(&self, offset: usize, len: u32) -> Sge {
        Sge { addr: self.addr().wrapping_add(offset as u64), len, lkey: self.memory.lkey() }
    }

    /// Part of `len` bytes from `offset`, for posts. It keeps the memory registered.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`].
    pub fn part(&self, offset: usize, len: usize) -> Result<ExposedPart, OutOfRange> {
        self.check(offset, len)?;
        // Posts reject lengths above the maximum message.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        Ok(ExposedPart { memory: self.clone(), offset, len })
    }

    /// Copies from the memory to `to`.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`]; then no byte is copied.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), OutOfRange> {
        self.check(offset, to.len())?;
        #[cfg(feature = "adversary")]
        if crate::order::adversary::load_bytes(self.memory.base.wrapping_add(offset), to) {
            return Ok(());
        }
        let ends = offset.next_multiple_of(8).saturating_sub(offset).min(to.len());
        let (head, rest) = to.split_at_mut(ends);
        let (words, tail) = rest.as_chunks_mut::<8>();
        for (index, byte) in head.iter_mut().enumerate() {
            *byte = self.byte(offset + index).load(Ordering::Relaxed);
        }
        let at = offset + ends;
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.aligned(at + index * 8).load(Ordering::Relaxed).to_ne_bytes();
        }
        let at = at + words.len() * 8;
        for (index, byte) in tail.iter_mut().enumerate() {
            *byte = self.byte(at + index).load(Ordering::Relaxed);
        }
        Ok(())
    }

    /// Copies `from` to the memory.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`]; then no byte is copied.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), OutOfRange> {
        self.check(offset, from.len())?;
        #[cfg(feature = "adversary")]
        if crate::order::adversary::store(self.memory.base.wrapping_add(offset), from) {
            return Ok(());
        }
        let ends = offset.next_multiple_of(8).saturating_sub(offset).min(from.len());
        let (head, rest) = from.split_at(ends);
        let (words, tail) = rest.as_chunks::<8>();
        for (index, byte) in head.iter().enumerate() {
            self.byte(offset + index).store(*byte, Ordering::Relaxed);
        }
        let at = offset + ends;
        for (index, word) in words.iter().enumerate() {
            self.aligned(at + index * 8).store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        let at = at + words.len() * 8;
        for (index, byte) in tail.iter().enumerate() {
            self.byte(at + index).store(*byte, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Loads an aligned word, in host byte order. After it the program sees what the same peer
    /// wrote in earlier messages.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`], also if `offset` is not a multiple of 8.
    pub fn load(&self, offset: usize) -> Result<u64, OutOfRange> {
        let word = self.word(offset)?;
        #[cfg(feature = "adversary")]
        if let Some(value) = crate::order::adversary::load_acquire(word.as_ptr()) {
            return Ok(value);
        }
        Ok(word.load(Ordering::Acquire))
    }

    /// Stores an aligned word, in host byte order.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`], also if `offset` is not a multiple of 8.
    pub fn store(&self, offset: usize, value: u64) -> Result<(), OutOfRange> {
        let word = self.word(offset)?;
        #[cfg(feature = "adversary")]
        if crate::order::adversary::store_release(word.as_ptr(), value) {
            return Ok(());
        }
        word.store(value, Ordering::Release);
        Ok(())
    }

    pub(crate) fn registered(&self) -> &Arc<Registered> {
        &self.memory
    }

    fn check(&self, offset: usize, wanted: usize) -> Result<(), OutOfRange> {
        if offset <= self.len && wanted <= self.len - offset {
            Ok(())
        } else {
            Err(OutOfRange { offset, wanted, len: self.len })
        }
    }

    /// PANIC: never; callers checked the range.
    fn byte(&self, offset: usize) -> &AtomicU8 {
        debug_assert!(offset < self.len);
        let pointer = self.memory.base.wrapping_add(offset);
        // SAFETY: within the mapping (callers checked), which lives as long as `self`; atomics may
        // be shared with writers.
        unsafe { AtomicU8::from_ptr(pointer) }
    }

    fn word(&self, offset: usize) -> Result<&AtomicU64, OutOfRange> {
        self.check(offset, 8)?;
        if !offset.is_multiple_of(8) {
            return Err(OutOfRange { offset, wanted: 8, len: self.len });
        }
        Ok(self.aligned(offset))
    }

    /// PANIC: never; callers checked the range, and that `offset` is a multiple of 8.
    fn aligned(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8) && offset + 8 <= self.len);
        let pointer = self.memory.base.wrapping_add(offset).cast::<u64>();
        // SAFETY: within the mapping and aligned (callers checked, and the mapping is
        // page-aligned); it lives as long as `self`.
        unsafe { AtomicU64::from_ptr(pointer) }
    }
}

impl fmt::Debug for ExposedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExposedMemory")
            .field("addr", &format_args!("{:#x}", self.addr()))
            .field("len", &self.len)
            .field("rkey", &format_args!("{:#x}", self.rkey()))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn exposed(len: usize) -> ExposedMemory {
        let (_, pd) = testing::domain();
        // SAFETY: the test's door creates no region, so no device writes the memory.
        let region = unsafe { MrCore::new(pd, 1, 0x100, 0x101) };
        // SAFETY: only this test accesses the memory.
        unsafe { ExposedMemory::new(Mapping::new(len).unwrap(), region, len) }
    }

    #[test]
    fn copies_in_and_out_within_the_range_only() {
        let memory = exposed(100);
        memory.write(90, &[1; 10]).unwrap();
        let mut bytes = [0; 11];
        memory.read(89, &mut bytes).unwrap();
        assert_eq!(bytes, [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(
            memory.write(91, &[2; 10]),
            Err(OutOfRange { offset: 91, wanted: 10, len: 100 })
        );
        assert!(memory.read(usize::MAX, &mut bytes).is_err());
        assert!(memory.read(101, &mut []).is_err());
        assert!(memory.read(100, &mut []).is_ok());
    }

    #[test]
    fn every_start_and_length_is_copied_whole() {
        let memory = exposed(64);
        for offset in 0..20 {
            for len in 0..40 {
                memory.write(0, &[0xee; 64]).unwrap();
                let bytes: Vec<u8> = (0..len).map(|byte| byte as u8 + 1).collect();
                memory.write(offset, &bytes).unwrap();
                let mut back = vec![0; len];
                memory.read(offset, &mut back).unwrap();
                assert_eq!(back, bytes, "{offset}, {len}");
                let mut all = [0; 64];
                memory.read(0, &mut all).unwrap();
                let outside = all[..offset].iter().chain(&all[offset + len..]);
                assert!(outside.copied().all(|byte| byte == 0xee), "{offset}, {len}");
            }
        }
    }

    #[test]
    fn words_are_aligned_and_in_host_order() {
        let memory = exposed(24);
        memory.store(8, 0x0102_0304_0506_0708).unwrap();
        let mut bytes = [0; 8];
        memory.read(8, &mut bytes).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), 0x0102_0304_0506_0708);
        assert_eq!(memory.load(8), Ok(0x0102_0304_0506_0708));
        assert!(memory.load(4).is_err());
        assert!(memory.load(24).is_err());
    }

    #[test]
    fn a_place_is_named_by_address_and_key() {
        let memory = exposed(24);
        let Remote { addr, rkey } = memory.remote(8);
        assert_eq!((addr, rkey), (memory.addr() + 8, 0x101));
    }
}
