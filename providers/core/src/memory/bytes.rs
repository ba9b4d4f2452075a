//! Bytes that the program owns, registered for the device to read.
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

/// An `Arc<[u8]>` that is registered, to be sent or written to peers where it stands. Any number of
/// handles may be posted; the completions give nothing back.
///
/// Cheap to clone. It is deregistered when the last handle is gone and no post of it is
/// outstanding.
#[derive(Clone)]
pub struct RegisteredBytes {
    memory: Arc<Registered>,
    bytes: Arc<[u8]>,
    start: usize,
    len: usize,
}

impl RegisteredBytes {
    /// All of `bytes`, registered as `region`.
    ///
    /// # Safety
    ///
    /// The region was just made to cover these bytes at their own address, with no right to write.
    #[must_use]
    pub unsafe fn new(bytes: Arc<[u8]>, region: MrCore) -> Self {
        let (own, len) = (Arc::clone(&bytes), bytes.len());
        Self { memory: Registered::bytes(bytes, region), bytes: own, start: 0, len }
    }

    /// A handle to some of its bytes alone; what is not there is left out.
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
        self.memory.lkey
    }

    /// The bytes that were registered, of which this may be a part.
    #[must_use]
    pub fn whole(&self) -> &Arc<[u8]> {
        &self.bytes
    }
}

impl Deref for RegisteredBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // PANIC: none; `part` cuts.
        &self.bytes[self.start..self.start + self.len]
    }
}

// SAFETY: registered without write rights, and bytes in a shared `Arc` are never written; the
// `Held` keeps memory and region.
unsafe impl Source for RegisteredBytes {
    fn domain(&self) -> u64 {
        self.memory.domain
    }

    fn first(&self) -> Sge {
        // Posts refuse what is longer than a message.
        let len = u32::try_from(self.len).unwrap_or(u32::MAX);
        let addr = self.as_ptr().expose_provenance() as u64;
        Sge { addr, len, lkey: self.memory.lkey }
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
