//! The kernel's side of the lab's rings, after the kernel's `rdmavt`.
#![allow(unsafe_code, reason = "shares memory with the provider, as the kernel does")]

use std::sync::atomic::{AtomicU32, Ordering};

use uverbs_core::Errno;
use uverbs_core::memory::pages::Pages;
use uverbs_kernel_abi::device::ib_uverbs_ex_query_device_resp;
use uverbs_kernel_abi::objects::*;
use zerocopy::IntoBytes;

use super::driver::{HEAD, ID, WC, WQE};
use crate::testing::{self, Call, SharedMemory};

/// The kernel, as a door.
pub(super) type Kernel = testing::Kernel<Model>;

/// The kernel's side of a ring.
#[derive(Debug)]
pub(crate) struct Queue {
    memory: SharedMemory,
    elements: u32,
    size: usize,
}

impl Queue {
    fn new(elements: u32, size: usize) -> Self {
        let elements = elements + 1;
        let memory = SharedMemory::new(HEAD + elements as usize * size);
        Self { memory, elements, size }
    }

    fn index(&self, word: usize) -> &AtomicU32 {
        let at = self.memory.pages.as_mut_ptr().cast::<u32>().wrapping_add(word);
        // SAFETY: one of the two indexes, aligned, and accessed atomically.
        unsafe { AtomicU32::from_ptr(at) }
    }

    fn load(&self, word: usize) -> u32 {
        self.index(word).load(Ordering::Acquire)
    }

    /// Stores an index, also one that no kernel would.
    pub(super) fn poke(&self, word: usize, value: u32) {
        self.index(word).store(value, Ordering::Release);
    }

    fn element(&self, at: u32) -> *mut u8 {
        let at = at % self.elements;
        self.memory.pages.as_mut_ptr().wrapping_add(HEAD + at as usize * self.size)
    }

    fn read(&self, at: u32) -> Vec<u8> {
        // SAFETY: an element, and the tests use one thread.
        unsafe { std::slice::from_raw_parts(self.element(at), self.size) }.to_vec()
    }

    fn write(&self, at: u32, bytes: &[u8]) {
        assert!(bytes.len() <= self.size);
        // SAFETY: an element, and the tests use one thread.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.element(at), bytes.len()) };
    }

    /// Takes the oldest work request: its token.
    pub(super) fn take(&self) -> Option<u64> {
        let tail = self.load(1);
        if tail == self.load(0) {
            return None;
        }
        self.poke(1, (tail + 1) % self.elements);
        Some(u64::from_ne_bytes(self.read(tail)[..8].try_into().unwrap()))
    }

    /// Completes a work request. False if the ring is full.
    pub(super) fn complete(&self, token: u64, status: u32, bytes: u32) -> bool {
        let head = self.load(0);
        let next = (head + 1) % self.elements;
        if next == self.load(1) {
            return false;
        }
        let mut entry = [0; WC];
        entry[..8].copy_from_slice(&token.to_ne_bytes());
        entry[8..12].copy_from_slice(&status.to_ne_bytes());
        entry[20..24].copy_from_slice(&bytes.to_ne_bytes());
        entry[28..32].copy_from_slice(&0x11u32.to_ne_bytes());
        self.write(head, &entry);
        self.poke(0, next);
        true
    }

    /// A ring of another size, with the elements that are in this one.
    fn resized(&self, elements: u32, copies: usize) -> Self {
        let new = Self::new(elements, self.size);
        let count = (self.load(0) + self.elements - self.load(1)) % self.elements;
        for at in 0..count {
            new.write(at, &self.read(self.load(1) + at)[..copies]);
        }
        new.poke(0, count);
        new
    }
}

/// Rings of the device: a mapping's offset is its place in this list, in pages of 64 KiB.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(super) made: Vec<Queue>,
    /// Answer to a change of size, if it is refused.
    pub(super) resize_answer: Option<Errno>,
}

impl Model {
    fn make(&mut self, queue: Queue) -> u64 {
        self.made.push(queue);
        (self.made.len() as u64) << 16
    }

    /// Completions: the ring that was made first, or the last one after a resize.
    fn resize(&mut self, of: usize, elements: u32) -> Result<u64, Errno> {
        if let Some(errno) = self.resize_answer {
            return Err(errno);
        }
        let new = self.made[of].resized(elements, self.made[of].size);
        Ok(self.make(new))
    }
}

impl testing::Model for Model {
    const DRIVER: u32 = ID;
    const VECTORS: u32 = 2;
    const CONTEXT_ANSWER: usize = 8;

    fn device(&self, device: &mut ib_uverbs_ex_query_device_resp) {
        device.base.max_qp_wr = 100;
        device.base.max_cqe = 200;
        device.base.max_sge = 60;
        device.base.max_srq_wr = 50;
        device.base.max_srq_sge = 60;
    }

    fn create_cq(&mut self, call: &Call, entries: u32) -> Result<(), Errno> {
        let offset = self.make(Queue::new(entries, WC));
        call.answer(UVERBS_ATTR_UHW_OUT, offset.as_bytes());
        Ok(())
    }

    fn create_qp(&mut self, call: &Call, cap: [u32; 5]) -> Result<(), Errno> {
        let offsets = [cap[0], cap[1]].map(|elements| self.make(Queue::new(elements, WQE)));
        call.answer(UVERBS_ATTR_CREATE_QP_RESP_CAP, cap.as_bytes());
        call.answer(UVERBS_ATTR_UHW_OUT, offsets.as_bytes());
        Ok(())
    }

    fn create_srq(&mut self, call: &Call, max_wr: u32, _: u32) -> Result<(), Errno> {
        let offset = self.make(Queue::new(max_wr, WQE));
        call.answer(UVERBS_ATTR_UHW_OUT, offset.as_bytes());
        Ok(())
    }

    fn resize_cq(&mut self, call: &Call, entries: u32) -> Result<(), Errno> {
        let offset = self.resize(0, entries)?;
        call.answer(UVERBS_ATTR_UHW_OUT, offset.as_bytes());
        Ok(())
    }

    fn modify_srq(&mut self, call: &Call, fields: [u32; 4]) -> Result<(), Errno> {
        let offset = self.resize(1, fields[2])?;
        let to = u64::from_ne_bytes(call.read(UVERBS_ATTR_UHW_IN)[..8].try_into().unwrap());
        let to = std::ptr::with_exposed_provenance_mut::<u64>(to as usize);
        // SAFETY: the address in the command, of a local of the provider.
        unsafe { to.write_unaligned(offset) };
        Ok(())
    }

    fn map(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        let at = usize::try_from(offset >> 16).unwrap().checked_sub(1).ok_or(Errno::EINVAL)?;
        let queue = self.made.get(at).ok_or(Errno::EINVAL)?;
        if len > queue.memory.pages.len() {
            return Err(Errno::EINVAL);
        }
        queue.memory.map(len)
    }
}
