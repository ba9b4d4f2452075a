//! Rings of receives: each takes as many elements as it has SGEs.
//!
//! # Safety
//!
//! Elements of the mapping alone are written, by volatile stores. At most as many receives are
//! outstanding as fit with all their SGEs.
#![allow(unsafe_code, reason = "writes work requests into a ring that the device reads")]

use uverbs_core::order::doorbell_memory::DoorbellMemory;
use uverbs_core::order::fence;
use uverbs_core::queues::token::Token;
use uverbs_core::queues::work::Sge;
use uverbs_kernel_rings::elements::Size;

use crate::ring::Register;
use crate::wqe::{recv_sge, req_id};

/// Mapped parts of a receive queue.
#[derive(Debug)]
struct RecvParts {
    start: *mut [u64; 2],
    doorbell: Register,
    /// Elements less one.
    mask: u32,
}

/// Ring of a receive queue.
#[derive(Debug)]
pub struct RecvRing {
    /// `None` without receives.
    parts: Option<RecvParts>,
    /// Slots: as many as receives fit, a power of two.
    slots: u32,
    /// Position behind the elements of each slot's receive, free running.
    ends: Box<[u32]>,
    /// Index of the next receive to publish, and the position of its first element.
    next: (u32, u32),
}

// SAFETY: the memory may be accessed from any thread; the owner is the only one to write.
unsafe impl Send for RecvRing {}

impl RecvRing {
    /// Ring of `elements`, a power of two, for as many as `receives` receives.
    ///
    /// # Safety
    ///
    /// The elements (`efa_io_rx_desc`) at `start` are valid to write while the ring lives, and
    /// aligned to eight bytes.
    pub(crate) unsafe fn new(
        start: *mut [u64; 2],
        doorbell: Register,
        elements: u32,
        receives: u32,
    ) -> Self {
        let parts = Some(RecvParts { start, doorbell, mask: elements - 1 });
        let slots = receives.next_power_of_two();
        Self { parts, slots, ends: vec![0; slots as usize].into(), next: (0, 0) }
    }

    /// First element, doorbell and number of elements; `None` without receives.
    pub(crate) fn direct(&self) -> Option<(*mut u8, *mut u32, u32)> {
        let RecvParts { start, doorbell, mask } = self.parts.as_ref()?;
        Some((start.cast(), doorbell.address(), mask + 1))
    }

    /// Position behind the elements of the receive at `index`.
    #[inline(always)]
    fn end(&self, index: u32) -> u32 {
        self.ends.get((index & (self.slots - 1)) as usize).copied().unwrap_or_default()
    }
}

// SAFETY: the device goes by the doorbell, and completes a receive after it has taken its elements;
// so the slot table alone limits posts.
unsafe impl uverbs_kernel_rings::RecvRing for RecvRing {
    const TELLS_CONSUMER: bool = false;

    fn none() -> Self {
        Self { parts: None, slots: 1, ends: Box::new([0]), next: (0, 0) }
    }

    fn slots(&self) -> u32 {
        self.slots
    }

    fn free(&self, _: u32) -> u32 {
        self.slots
    }

    #[inline(always)]
    unsafe fn write(&mut self, index: u32, token: u64, list: &[Sge], _: Size) {
        let Some(parts) = &self.parts else { return };
        let token = Token::unpack(token);
        let req_id = req_id(token.user_index, token.index, self.slots.trailing_zeros());
        let (next, position) = self.next;
        let mut at = if index == next { position } else { self.end(index.wrapping_sub(1)) };
        for sge in 0..list.len().max(1) {
            let element = parts.start.wrapping_add((at & parts.mask) as usize);
            // SAFETY: an element of the ring, aligned. It is free, by the contract of `write`.
            unsafe { element.write_volatile(recv_sge(list, sge, req_id)) };
            at = at.wrapping_add(1);
        }
        if let Some(end) = self.ends.get_mut((index & (self.slots - 1)) as usize) {
            *end = at;
        }
    }

    #[inline(always)]
    fn publish(&mut self, _: u32, to: u32) {
        let end = self.end(to.wrapping_sub(1));
        self.next = (to, end);
        if let Some(parts) = &self.parts {
            fence::record_before_doorbell(DoorbellMemory::NonCached);
            parts.doorbell.write(end & 0xffff);
        }
    }

    /// The device restarts at its first element.
    fn reset(&mut self, pi: u32) {
        self.next = (pi, 0);
    }
}
