//! A send queue that counts.
//!
//! # Safety
//!
//! As in `provider.rs`; no other code relies on the counts.
#![allow(unsafe_code, reason = "hands on a queue's unsafe methods")]

use uverbs::raw::Rekey;
use uverbs::{Errno, Mlx5, PostError};
use uverbs_core::memory::registered::Held;
use uverbs_core::provider::{Provider, SendOps};
use uverbs_core::queues::work::{Data, Destination, SendOp, Wr};

/// A send queue that counts.
#[derive(Debug)]
pub(crate) struct CountingSq {
    below: <Mlx5 as Provider>::Sq,
    pub(crate) posted: u64,
    pub(crate) rung: u64,
}

impl CountingSq {
    pub(crate) fn new(below: <Mlx5 as Provider>::Sq) -> Self {
        Self { below, posted: 0, rung: 0 }
    }
}

/// A tentative position. It counts the work requests written but not rung: a cursor that is dropped
/// takes its count with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    below: <<Mlx5 as Provider>::Sq as SendOps>::Cursor,
    written: u64,
}

// SAFETY: slots, buffers and doorbells are the queue's below.
unsafe impl SendOps for CountingSq {
    type Cursor = Cursor;
    type Ah = <Mlx5 as Provider>::Ah;

    fn begin(&mut self) -> Cursor {
        Cursor { below: self.below.begin(), written: 0 }
    }

    unsafe fn post(
        &mut self,
        at: &mut Cursor,
        wr: Wr,
        op: SendOp,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        // SAFETY: the caller's promise, and the cursor came from the queue below.
        let slot = unsafe { self.below.post(&mut at.below, wr, op, data) }?;
        at.written += 1;
        Ok(slot)
    }

    unsafe fn stay(&mut self) {
        // SAFETY: guaranteed by the contract of `stay`.
        unsafe { self.below.stay() };
    }

    fn leave(&mut self) {
        self.below.leave();
    }

    unsafe fn ring(&mut self, at: Cursor) {
        // SAFETY: guaranteed by the contract of `stay`.
        unsafe { self.below.ring(at.below) };
        if at.written > 0 {
            (self.posted, self.rung) = (self.posted + at.written, self.rung + 1);
        }
    }

    unsafe fn post_to(
        &mut self,
        at: &mut Cursor,
        wr: Wr,
        op: SendOp,
        to: Destination<'_, Self::Ah>,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        // SAFETY: the caller's promise, and the cursor came from the queue below.
        let slot = unsafe { self.below.post_to(&mut at.below, wr, op, to, data) }?;
        at.written += 1;
        Ok(slot)
    }

    unsafe fn rekey(&mut self, at: &mut Cursor, wr: Wr, op: &Rekey) -> Result<u32, PostError> {
        // SAFETY: the caller's promise, and the cursor came from the queue below.
        let slot = unsafe { self.below.rekey(&mut at.below, wr, op) }?;
        at.written += 1;
        Ok(slot)
    }

    unsafe fn own(&mut self, at: &Cursor, slot: u32, held: Held) {
        // SAFETY: the caller's promise, and the cursor came from the queue below.
        unsafe { self.below.own(&at.below, slot, held) }
    }

    fn doorbell_error(&self) -> Option<Errno> {
        self.below.doorbell_error()
    }

    fn enable(&mut self, on: bool) {
        self.below.enable(on);
    }

    unsafe fn reset(&mut self) {
        // SAFETY: the caller's promise, and the cursor came from the queue below.
        unsafe { self.below.reset() }
    }
}
