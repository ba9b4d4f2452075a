//! Memory of a simulated host, for tests and fuzzers.
#![cfg_attr(fuzzing, allow(dead_code, reason = "fuzzers use some of it"))]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Dma, DmaFault};
use crate::wire::Span;

/// Host memory: words at simulated bus addresses.
#[derive(Clone, Debug)]
pub(crate) struct Arena {
    words: Arc<[AtomicU64]>,
    /// Range of missing addresses: start, end.
    hole: Arc<[AtomicU64; 2]>,
    /// Number of stores, and of accesses to missing addresses.
    counts: Arc<[AtomicU64; 2]>,
}

/// The first bus address.
pub(super) const BASE: u64 = 0x10_0000;

impl Arena {
    pub(crate) fn new(len: usize) -> Arena {
        let words = (0..len.div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
        Arena { words, hole: Arc::default(), counts: Arc::default() }
    }

    /// Sets the range of missing addresses. Returns the previous range.
    pub(crate) fn set_hole(&self, bytes: [u64; 2]) -> [u64; 2] {
        [0, 1].map(|at| self.hole[at].swap(bytes[at], Ordering::Relaxed))
    }

    fn is_missing(&self, addr: u64, len: u64) -> bool {
        let [from, to] = [0, 1].map(|at| self.hole[at].load(Ordering::Relaxed));
        addr < to && addr.saturating_add(len) > from
    }

    fn reach(&self, addr: u64, len: usize) -> Result<(), DmaFault> {
        let len = len as u64;
        if self.is_missing(addr, len) { Err(DmaFault { addr, len }) } else { Ok(()) }
    }

    pub(crate) fn stores(&self) -> u64 {
        self.counts[0].load(Ordering::Relaxed)
    }

    pub(crate) fn page_faults(&self) -> u64 {
        self.counts[1].load(Ordering::Relaxed)
    }

    pub(crate) fn base(&self) -> u64 {
        BASE
    }

    pub(crate) fn bytes(&self, addr: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.read(addr, &mut bytes).unwrap();
        bytes
    }

    fn word(&self, addr: u64, len: u64) -> Result<&AtomicU64, DmaFault> {
        let fault = DmaFault { addr, len };
        if !addr.is_multiple_of(len) {
            return Err(fault);
        }
        let at = addr.checked_sub(BASE).ok_or(fault)? / 8;
        self.words.get(at as usize).ok_or(fault)
    }

    /// Replaces `data.len()` bytes of one word by `data`.
    fn splice(&self, addr: u64, data: &[u8]) -> Result<(), DmaFault> {
        let word = self.word(addr & !7, 8)?;
        let at = (addr & 7) as usize;
        let mut bytes = word.load(Ordering::Acquire).to_ne_bytes();
        bytes[at..at + data.len()].copy_from_slice(data);
        word.store(u64::from_ne_bytes(bytes), Ordering::Release);
        Ok(())
    }
}

impl Dma for Arena {
    fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), DmaFault> {
        self.reach(addr, buf.len())?;
        let mut done = 0;
        while done < buf.len() {
            let from = addr + done as u64;
            let bytes = self.word(from & !7, 8)?.load(Ordering::Acquire).to_ne_bytes();
            let at = (from & 7) as usize;
            let run = (8 - at).min(buf.len() - done);
            buf[done..done + run].copy_from_slice(&bytes[at..at + run]);
            done += run;
        }
        Ok(())
    }

    fn write(&self, addr: u64, data: &[u8]) -> Result<(), DmaFault> {
        self.reach(addr, data.len())?;
        self.counts[0].fetch_add(1, Ordering::Relaxed);
        let mut done = 0;
        while done < data.len() {
            let to = addr + done as u64;
            let run = (8 - (to & 7) as usize).min(data.len() - done);
            self.splice(to, &data[done..done + run])?;
            done += run;
        }
        Ok(())
    }

    fn in_process(&self, addr: u64, len: u64) -> Option<Span> {
        let at = addr.checked_sub(BASE)?;
        let inside = at.checked_add(len)? <= self.words.len() as u64 * 8;
        let addr = self.words.as_ptr().expose_provenance() as u64 + at;
        inside.then_some(Span { addr, len })
    }

    fn load_u32(&self, addr: u64) -> Result<u32, DmaFault> {
        self.word(addr, 4)?;
        let mut bytes = [0; 4];
        self.read(addr, &mut bytes)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    fn store_u32(&self, addr: u64, value: u32) -> Result<(), DmaFault> {
        self.word(addr, 4)?;
        self.splice(addr, &value.to_ne_bytes())
    }

    fn store_u8(&self, addr: u64, value: u8) -> Result<(), DmaFault> {
        self.splice(addr, &[value])
    }

    fn fetch_update_u64(
        &self,
        addr: u64,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, DmaFault> {
        self.reach(addr, 8)?;
        self.counts[0].fetch_add(1, Ordering::Relaxed);
        let word = self.word(addr, 8)?;
        let old = word.load(Ordering::Acquire);
        word.store(update(old), Ordering::Release);
        Ok(old)
    }

    fn fault_in(&self, addr: u64, len: u64, _: bool) -> Result<(), DmaFault> {
        if self.is_missing(addr, len) {
            self.set_hole([0; 2]);
            self.counts[1].fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}
