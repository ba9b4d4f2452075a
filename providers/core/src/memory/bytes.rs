//! Bytes of the program, registered for the device to read.
//!
//! # Safety
//!
//! The bytes are in an `Arc`. Each handle here holds a reference, so they are never written or
//! freed.
#![allow(unsafe_code, reason = "says that a device may read them")]

use std::fmt;
use std::ops::{Bound, Deref, RangeBounds};
use std::sync::Arc;

use crate::memory::post::Source;
use crate::memory::registered::{Held, Registered};
use crate::objects::mr::MrCore;
use crate::queues::work::Sge;

/// A registered `Arc<[u8]>`, sent or written to peers without a copy. Many posts may use it at a
/// time; their completions return no buffer.
///
/// Cloning is cheap. The bytes are deregistered once the last handle is dropped and no post of them
/// is outstanding.
#[derive(Clone)]
pub struct RegisteredBytes {
    memory: Arc<Registered>,
    bytes: Arc<[u8]>,
    start: usize,
    len: usize,
}

impl RegisteredBytes {
    /// Registers all of `bytes` as `region`.
    ///
    /// # Safety
    ///
    /// The region was just created over exactly these bytes at their own address, without write
    /// rights.
    #[must_use]
    pub unsafe fn new(bytes: Arc<[u8]>, region: MrCore) -> Self {
        let (own, len) = (Arc::clone(&bytes), bytes.len());
        Self { memory: Registered::bytes(bytes, region), bytes: own, start: 0, len }
    }

    /// Handle of a part of the bytes; the range is cut to the bytes that exist.
    #[must_use]
    pub fn part(&self, range: impl RangeBounds<usize>) -> Self {
        let start = match range.start_bound() {
            Bound::Included(at) => *at,
            Bound::Excluded(at) => at.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(at) => at.saturating_add(1),
            Bound::Excluded(at) => *at,
            Bound::Unbounded => self.len,
        };
        let (start, end) = (start.min(self.len), end.min(self.len));
        Self { start: self.start + start, len: end.saturating_sub(start), ..self.clone() }
    }

    /// The local key, for raw posts.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.memory.lkey()
    }

    /// The registered bytes, of which this may be a part.
    #[must_use]
    pub fn whole(&self) -> &Arc<[u8]> {
        &self.bytes
    }
}

impl Deref for RegisteredBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // PANIC: never; `part` cut the range.
        &self.bytes[self.start..self.start + self.len]
    }
}

// SAFETY: the region has no write rights, and bytes in a shared `Arc` are never written; the `Held`
// keeps memory and region.
unsafe impl Source for RegisteredBytes {
    fn domain(&self) -> u64 {
        self.memory.domain
    }

    fn first(&self) -> Sge {
        // Posts reject lengths above the maximum message.
        let len = u32::try_from(self.len).unwrap_or(u32::MAX);
        let addr = self.as_ptr().expose_provenance() as u64;
        Sge { addr, len, lkey: self.memory.lkey() }
    }

    fn hold(self) -> Held {
        Held::exposed(self.memory)
    }
}

impl fmt::Debug for RegisteredBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredBytes")
            .field("start", &self.start)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
