//! Positions and values of a plan's bytes.

use super::plan::Plan;
use super::work::{Kind, SLOT, Work};
use crate::hca::testing::pattern;
use uverbs_front::backend::context::Service;

/// Offsets in the buffers: local bytes of work requests, their remote bytes, the counters of
/// atomics, and the buffers of receives.
const NEAR: u64 = 0x1000;
const FAR: u64 = 0x10_0000;
const COUNTERS: u64 = 0x20_0000;
const RECEIVES: u64 = 0x30_0000;

pub(super) fn near_of(n: usize) -> u64 {
    NEAR + n as u64 * SLOT
}

pub(super) fn far_of(n: usize) -> u64 {
    FAR + n as u64 * SLOT
}

pub(super) fn receive_of(n: usize) -> u64 {
    RECEIVES + n as u64 * SLOT
}

/// Offset of the counter at the peer; each direction of a connection has one.
pub(super) fn counter_of(work: &Work) -> u64 {
    COUNTERS + (work.connection * 2 + work.from) as u64 * 8
}

impl Plan {
    pub(super) fn service(&self, n: usize) -> Service {
        self.connections[self.works[n].connection].service
    }

    pub(super) fn host(&self, work: &Work, end: usize) -> usize {
        self.connections[work.connection].hosts[end]
    }

    /// Bytes of a work's message.
    pub(super) fn bytes(&self, n: usize) -> Vec<u8> {
        if let Some(read) = self.relayed(n) {
            let mut bytes = self.bytes(read);
            bytes.truncate(self.works[n].len as usize);
            return bytes;
        }
        let mut bytes = pattern(self.works[n].len as usize, self.seed << 16 | n as u64);
        // Unwritten memory is 0.
        bytes.iter_mut().for_each(|byte| *byte |= 1);
        bytes
    }

    /// Operands of an atomic: what it adds, or compares and stores. A compare matches if all
    /// atomics before it were executed once. ATOMIC WRITE only stores.
    pub(super) fn operands(&self, n: usize) -> (u64, u64) {
        let before = self.counter_before(n);
        match self.works[n].kind {
            Kind::CompareSwap | Kind::AtomicWrite => (before + 1000, before),
            _ => (n as u64 + 1, 0),
        }
    }

    /// Value of a work's counter if all atomics of its direction before it were executed once.
    pub(super) fn counter_before(&self, n: usize) -> u64 {
        let own = &self.works[n];
        let same = |work: &Work| {
            (work.connection, work.from) == (own.connection, own.from) && work.kind.is_atomic()
        };
        let before = self.works[..n].iter().enumerate().filter(|(_, work)| same(work));
        let add = |(n, work): (usize, &Work)| match work.kind {
            Kind::CompareSwap | Kind::AtomicWrite => 1000,
            _ => n as u64 + 1,
        };
        before.map(add).sum()
    }
}
