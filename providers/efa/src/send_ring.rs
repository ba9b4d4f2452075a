//! Rings of sends, in the device's memory (LLQ). Work requests are built in the program's memory,
//! and copied when they are rung.
//!
//! # Safety
//!
//! The copy goes to elements of the mapping alone, by whole blocks of 64 bytes.
#![allow(unsafe_code, reason = "copies work requests to the device's memory")]

use std::ops::Range;

use uverbs_core::order::doorbell_memory::DoorbellMemory;
use uverbs_core::order::{fence, mmio};
use uverbs_core::queues::slots::SlotTable;
use uverbs_core::queues::token::{Token, is_before};
use uverbs_core::queues::work::PostError;
use uverbs_kernel_rings::{KeptAh, Post, dropped};

use crate::Ah;
use crate::direct::Direct;
use crate::ring::Register;
use crate::wqe::{self, Block, Checked, Rules, To, WQE};

const _: () = assert!(size_of::<Block>() == mmio::BLOCK);

/// Mapped parts of a send queue.
#[derive(Debug)]
pub(crate) struct SendParts {
    /// First block in the device's memory.
    pub(crate) device: *mut Block,
    pub(crate) doorbell: Register,
    /// Elements: a power of two, at most 2^16.
    pub(crate) elements: u32,
    /// Blocks of an element: 1 or 2.
    pub(crate) blocks: usize,
    /// Elements that a doorbell may announce.
    pub(crate) batch: u32,
    pub(crate) rules: Rules,
}

/// Ring of a send queue.
#[derive(Debug)]
pub struct SendRing {
    parts: SendParts,
    /// Bits of an element's index.
    bits: u32,
    mask: u32,
    /// The ring as the program builds it.
    built: Box<[Block]>,
    /// Address handle of each slot's work request: the device goes by its number until the work
    /// request completes. A free slot keeps it for the next work request, unless the program
    /// dropped it.
    handles: Box<[Option<KeptAh>]>,
    drops: Drops,
    /// Index of the element that the device reads first after a reset.
    base: u32,
}

/// Search for dropped handles in free slots, in the order in which they come free.
#[derive(Clone, Copy, Debug)]
struct Drops {
    /// Number of dropped handles when the search began.
    seen: u32,
    /// Turn of the next slot.
    next: u32,
    /// Turn behind the last slot that may keep a handle of that time.
    end: u32,
}

/// Slots that a doorbell looks at.
const MOST_LOOKS: u32 = 64;

// SAFETY: the memory may be accessed from any thread; the owner is the only one to write.
unsafe impl Send for SendRing {}

impl SendRing {
    /// # Safety
    ///
    /// The elements at `device` are valid to write while the ring lives, and aligned to 64 bytes.
    pub(crate) unsafe fn new(parts: SendParts) -> Self {
        let blocks = parts.elements as usize * parts.blocks;
        let handles = (0..parts.elements).map(|_| None).collect();
        let drops = Drops { seen: dropped(), next: 0, end: 0 };
        let (bits, mask) = (parts.elements.trailing_zeros(), parts.elements - 1);
        let built = vec![Block([0; 8]); blocks].into();
        Self { parts, bits, mask, built, handles, drops, base: 0 }
    }

    pub(crate) fn direct(&self) -> Direct {
        let SendParts { device, doorbell, elements, blocks, batch, .. } = self.parts;
        let entry_size = (blocks * WQE) as u32;
        let (buffer, doorbell) = (device.cast(), doorbell.address());
        Direct { buffer, entry_size, entries: elements, doorbell, batch }
    }

    /// Keeps the address handle of a slot's work request. Changes nothing if the slot keeps this
    /// handle already.
    #[inline(always)]
    fn keep(&mut self, slot: u32, ah: &Ah) {
        if let Some(kept) = self.handles.get_mut((slot & self.mask) as usize)
            && !kept.as_ref().is_some_and(|kept| kept.is_of(ah))
        {
            *kept = Some(ah.keep());
        }
    }

    /// Releases dropped handles in free slots, at most [`MOST_LOOKS`] in a call. The search waits
    /// for slots in flight. A further drop starts a new search once all free slots were looked at.
    #[cold]
    #[inline(never)]
    fn release_dropped(&mut self, slots: &SlotTable, end: u32, seen: u32) {
        let units = slots.units();
        let free = slots.retired().wrapping_add(units);
        let drops = &mut self.drops;
        if seen != drops.seen && (drops.next == drops.end || !is_before(drops.next, free)) {
            *drops = Drops { seen, next: end, end: end.wrapping_add(units) };
        }
        // Posts took the turns before, and their slots keep other handles now.
        if is_before(drops.next, end) {
            drops.next = end;
        }
        for _ in 0..MOST_LOOKS {
            if !is_before(drops.next, drops.end) {
                drops.next = drops.end;
                return;
            }
            if !is_before(drops.next, free) {
                return;
            }
            if let Some(kept) = self.handles.get_mut(slots.place(drops.next) as usize)
                && kept.as_ref().is_some_and(KeptAh::is_dropped)
            {
                *kept = None;
            }
            drops.next = drops.next.wrapping_add(1);
        }
    }

    /// Position in the device's order.
    #[inline(always)]
    fn position(&self, index: u32) -> u32 {
        index.wrapping_sub(self.base)
    }

    /// Index of the element at a position.
    #[inline(always)]
    fn index(&self, position: u32) -> usize {
        (position & self.mask) as usize
    }

    /// Blocks of elements.
    #[inline(always)]
    fn blocks(&self, elements: Range<usize>) -> Range<usize> {
        elements.start * self.parts.blocks..elements.end * self.parts.blocks
    }

    /// Copies `count` elements from a position on to the device.
    #[inline(always)]
    fn copy(&self, position: u32, count: u32) {
        let (first, count) = (self.index(position), count as usize);
        let ahead = count.min(self.parts.elements as usize - first);
        self.copy_run(first..first + ahead);
        if ahead != count {
            self.copy_run(0..count - ahead);
        }
    }

    /// Copies elements that are in a row.
    #[inline(always)]
    fn copy_run(&self, elements: Range<usize>) {
        let blocks = self.blocks(elements);
        let first = self.parts.device.wrapping_add(blocks.start);
        for (ahead, block) in self.built.get(blocks).unwrap_or_default().iter().enumerate() {
            let to = first.wrapping_add(ahead).cast();
            // SAFETY: both are blocks of their rings, and in different memory. Six words are
            // copied singly: the head, and an SGE or the peer's memory.
            unsafe { mmio::copy_block::<6>(to, block.0.as_ptr()) };
        }
    }
}

// SAFETY: the device goes by the doorbell, and completes a work request after it has taken the
// element; so the slot table alone limits posts.
unsafe impl uverbs_kernel_rings::SendRing for SendRing {
    type Ah = Ah;
    type Checked = Checked;

    fn slots(&self) -> u32 {
        self.parts.elements
    }

    fn free(&self, _: u32) -> u32 {
        self.slots()
    }

    #[inline(always)]
    fn check(&self, post: &Post<'_, Ah>) -> Result<Checked, PostError> {
        // Queue pair numbers have 16 bits.
        let is_addressed = post.to.as_ref().is_some_and(|to| to.peer[0] <= u16::MAX.into());
        if !is_addressed {
            return Err(PostError::BadOperation);
        }
        wqe::check(&post.op, post.wr.flags, &post.data, &self.parts.rules)
    }

    #[inline(always)]
    unsafe fn write(&mut self, post: &Post<'_, Ah>, token: u64, checked: Checked) {
        let Some(to) = &post.to else { return };
        let position = self.position(post.index);
        let phase = (position >> self.bits & 1) as u8;
        let [qpn, qkey] = to.peer;
        let ah = to.ah;
        let to = To { ah: ah.number() as u16, qpn: qpn as u16, qkey: qkey as u32 };
        let token = Token::unpack(token);
        self.keep(token.index, ah);
        let req_id = wqe::req_id(token.user_index, token.index, self.bits);
        let first = self.index(position);
        let element = self.blocks(first..first + 1);
        if let Some(element) = self.built.get_mut(element) {
            wqe::write_send(element, req_id, phase, checked, to, &post.data);
        }
    }

    /// Copies the elements, and rings for each batch that the device takes at once. A doorbell is
    /// preceded by a fence, so that the copy is with the device (rdma-core
    /// `verbs.c:efa_sq_ring_doorbell`).
    #[inline(always)]
    fn publish(&mut self, from: u32, to: u32) -> bool {
        let (mut at, end) = (self.position(from), self.position(to));
        while at != end {
            let count = end.wrapping_sub(at).min(self.parts.batch);
            self.copy(at, count);
            at = at.wrapping_add(count);
            fence::record_before_doorbell(DoorbellMemory::WriteCombining);
            self.parts.doorbell.write(at & 0xffff);
        }
        false
    }

    #[inline(always)]
    fn tidy(&mut self, slots: &SlotTable, end: u32) {
        let seen = dropped();
        if seen != self.drops.seen || self.drops.next != self.drops.end {
            self.release_dropped(slots, end, seen);
        }
    }

    /// The device restarts at its first element, with the phase of a new queue.
    fn reset(&mut self, pi: u32) {
        self.handles.fill(None);
        self.drops = Drops { seen: dropped(), next: 0, end: 0 };
        self.base = pi;
    }
}
