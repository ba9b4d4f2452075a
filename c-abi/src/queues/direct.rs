//! Rings that programs with their own data path may ask for.

use std::sync::atomic::{AtomicBool, Ordering};

use uverbs::provider::AnyCq;
use uverbs_efa::direct::{self, Direct};

use crate::post::recv_side::RecvSide;
use crate::post::send::SendSide;

/// Ring of a completion queue. It stays the same, so that no lock is needed to describe it.
pub(crate) struct DirectCq {
    ring: Option<Direct>,
    /// True once the program has asked for the ring.
    is_taken: AtomicBool,
}

impl DirectCq {
    pub(crate) fn of(cq: &AnyCq) -> Self {
        let ring = if let AnyCq::Efa(cq) = cq { direct::completions(cq) } else { None };
        Self { ring, is_taken: AtomicBool::new(false) }
    }

    /// Gives the program the ring; `None` of other providers, and of several rings.
    pub(crate) fn take(&self) -> Option<Direct> {
        self.is_taken.fetch_or(self.ring.is_some(), Ordering::Relaxed);
        self.ring
    }

    /// Returns true if the program takes the completions itself.
    pub(crate) fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::Relaxed)
    }
}

/// Rings of a queue pair, which stay the same; `recv` without receives is `None`.
pub(crate) struct DirectQp {
    pub(crate) send: Direct,
    pub(crate) recv: Option<Direct>,
}

impl DirectQp {
    pub(crate) fn of(send: &SendSide, recv: &RecvSide) -> Option<Self> {
        let (SendSide::Efa(side), RecvSide::Efa(rq)) = (send, recv) else { return None };
        Some(Self { send: direct::sends(&side.sq), recv: direct::receives(rq) })
    }
}
