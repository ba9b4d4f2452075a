//! Model of rdmavt: the kernel's side of the rings, and the work requests of POST_SENDs. Its rings
//! are made in this order: completions, receives.
#![allow(unsafe_code, reason = "shares memory with the provider, as the kernel does")]

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use uverbs_core::Errno;
use uverbs_core::memory::pages::Pages;
use uverbs_kernel_abi::device::ib_uverbs_ex_query_device_resp;
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_rings::testing::{self, Call, SharedMemory};

/// The kernel, as a door.
pub(crate) type Kernel = testing::Kernel<Model>;

/// `struct ib_uverbs_wc`, and `struct ib_uverbs_send_wr`.
const WC: usize = 48;
const WR: usize = 56;
/// Bytes of the two indexes.
const HEAD: usize = 8;
/// Most elements that the kernel has memory for.
const MOST: u32 = 1 << 16;

/// The kernel's side of a ring.
#[derive(Debug)]
pub(crate) struct Queue {
    memory: SharedMemory,
    elements: u32,
    size: usize,
}

impl Queue {
    fn new(entries: u32, size: usize) -> Self {
        let elements = entries + 1;
        let memory = SharedMemory::new(HEAD + elements as usize * size);
        Self { memory, elements, size }
    }

    fn index(&self, word: usize) -> &AtomicU32 {
        let at = self.memory.pages.as_mut_ptr().cast::<u32>().wrapping_add(word);
        // SAFETY: one of the two indexes, aligned, and accessed atomically.
        unsafe { AtomicU32::from_ptr(at) }
    }

    /// An index; one outside of the ring is 0.
    pub(crate) fn load(&self, word: usize) -> u32 {
        let at = self.index(word).load(Ordering::Acquire);
        if at < self.elements { at } else { 0 }
    }

    /// Stores an index, also one that no kernel would.
    pub(crate) fn poke(&self, word: usize, value: u32) {
        self.index(word).store(value, Ordering::Release);
    }

    fn element(&self, at: u32) -> *mut u8 {
        let at = at % self.elements;
        self.memory.pages.as_mut_ptr().wrapping_add(HEAD + at as usize * self.size)
    }

    pub(crate) fn read(&self, at: u32) -> Vec<u8> {
        // SAFETY: an element, and the tests use one thread.
        unsafe { std::slice::from_raw_parts(self.element(at), self.size) }.to_vec()
    }

    fn write(&self, at: u32, bytes: &[u8]) {
        assert!(bytes.len() <= self.size);
        // SAFETY: an element, and the tests use one thread.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.element(at), bytes.len()) };
    }

    /// `rvt_get_rwqe`: the oldest receive.
    fn take(&self) -> Option<Vec<u8>> {
        let tail = self.load(1);
        if tail == self.load(0) {
            return None;
        }
        self.poke(1, (tail + 1) % self.elements);
        Some(self.read(tail))
    }

    /// `rvt_cq_enter`: false if the ring is full.
    fn enter(&self, entry: &[u8; WC]) -> bool {
        let head = self.load(0);
        let next = (head + 1) % self.elements;
        if next == self.load(1) {
            return false;
        }
        self.write(head, entry);
        self.poke(0, next);
        true
    }

    /// `rvt_resize_cq`, `rvt_modify_srq`: a ring of another size, with the elements of this one at
    /// its start.
    fn resized(&self, entries: u32) -> Result<Self, Errno> {
        let count = (self.load(0) + self.elements - self.load(1)) % self.elements;
        if entries < count {
            return Err(Errno::EINVAL);
        }
        let new = Self::new(entries, self.size);
        for at in 0..count {
            new.write(at, &self.read(self.load(1) + at));
        }
        new.poke(0, count);
        Ok(new)
    }
}

/// Fields of a work request or completion, by offset.
#[derive(Clone, Debug)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Bytes {
    pub(crate) fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.0[at..][..4].try_into().unwrap())
    }

    pub(crate) fn long(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.0[at..][..8].try_into().unwrap())
    }

    pub(crate) fn id(&self) -> u64 {
        self.long(0)
    }
}

/// A send that the kernel took: its work request, and its SGEs.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) wr: Bytes,
    pub(crate) sges: Vec<(u64, u32, u32)>,
}

/// Rings of the device: a mapping's offset is its place in this list, in pages of 64 KiB.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) made: Vec<Queue>,
    /// Offsets that were mapped: each is mapped once.
    mapped: Mutex<Vec<u64>>,
    /// Sends that were taken, oldest first.
    pub(crate) sent: VecDeque<Sent>,
    /// Work requests of each command.
    pub(crate) commands: Vec<u32>,
    /// Answers to the next commands: work requests to take before the errno.
    pub(crate) refusals: VecDeque<(u32, Errno)>,
}

impl Model {
    fn make(&mut self, entries: u32, size: usize) -> Result<u64, Errno> {
        if entries > MOST {
            return Err(Errno::ENOMEM);
        }
        Ok(self.place(Queue::new(entries, size)))
    }

    fn place(&mut self, queue: Queue) -> u64 {
        self.made.push(queue);
        (self.made.len() as u64) << 16
    }

    pub(crate) fn take_recv(&mut self) -> Option<Bytes> {
        self.made.last().expect("receives").take().map(Bytes)
    }

    pub(crate) fn take_send(&mut self) -> Option<Sent> {
        self.sent.pop_front()
    }

    /// Completes a work request in the ring `of`, of queue pair 0x11.
    pub(crate) fn complete_in(&self, of: usize, id: u64, words: &[(usize, u32)]) -> bool {
        let mut entry = [0; WC];
        entry[..8].copy_from_slice(&id.to_ne_bytes());
        entry[28..32].copy_from_slice(&0x11u32.to_ne_bytes());
        for (at, word) in words {
            entry[*at..*at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        self.made[of].enter(&entry)
    }

    /// Completes a work request: status, opcode, bytes.
    pub(crate) fn complete(&self, id: u64, status: u32, opcode: u32, bytes: u32) -> bool {
        self.complete_in(0, id, &[(8, status), (12, opcode), (20, bytes)])
    }

    /// Stores a byte of the mapping, as no kernel would.
    pub(crate) fn spoil(&self, queue: usize, at: u16, value: u8) {
        let memory = &self.made[queue % self.made.len()].memory.pages;
        let at = usize::from(at) % memory.len();
        // SAFETY: within the mapping, and the tests use one thread.
        unsafe { memory.as_mut_ptr().wrapping_add(at).write_volatile(value) };
    }
}

impl testing::Model for Model {
    const DRIVER: u32 = 15;
    const VECTORS: u32 = 1;
    const CONTEXT_ANSWER: usize = 0;

    fn device(&self, device: &mut ib_uverbs_ex_query_device_resp) {
        device.base.max_qp_wr = 0x3fff;
        device.base.max_cqe = 0x2_ffff;
        device.base.max_sge = 0x60;
        device.base.max_srq_wr = 0x1_ffff;
        device.base.max_srq_sge = 255;
    }

    fn create_cq(&mut self, call: &Call, entries: u32) -> Result<(), Errno> {
        let offset = self.make(entries, WC)?;
        call.answer(UVERBS_ATTR_CREATE_CQ_RESP_CQE, &entries.to_ne_bytes());
        call.answer(UVERBS_ATTR_UHW_OUT, &offset.to_ne_bytes());
        Ok(())
    }

    fn create_qp(&mut self, call: &Call, cap: [u32; 5]) -> Result<(), Errno> {
        let offset = self.make(cap[1], 16 + 16 * cap[3] as usize)?;
        call.answer(UVERBS_ATTR_CREATE_QP_RESP_CAP, &call.read(UVERBS_ATTR_CREATE_QP_CAP));
        call.answer(UVERBS_ATTR_UHW_OUT, &offset.to_ne_bytes());
        Ok(())
    }

    fn create_srq(&mut self, call: &Call, max_wr: u32, max_sge: u32) -> Result<(), Errno> {
        let offset = self.make(max_wr, 16 + 16 * max_sge as usize)?;
        call.answer(UVERBS_ATTR_UHW_OUT, &offset.to_ne_bytes());
        Ok(())
    }

    fn resize_cq(&mut self, call: &Call, entries: u32) -> Result<(), Errno> {
        let new = self.made[0].resized(entries)?;
        let offset = self.place(new);
        // The tests complete in the first ring.
        let last = self.made.len() - 1;
        self.made.swap(0, last);
        self.mapped.lock().unwrap().retain(|mapped| *mapped != 1 << 16);
        call.answer(UVERBS_ATTR_CORE_OUT, &entries.to_ne_bytes());
        call.answer(UVERBS_ATTR_UHW_OUT, &(1u64 << 16).to_ne_bytes());
        let _ = offset;
        Ok(())
    }

    fn modify_srq(&mut self, call: &Call, fields: [u32; 4]) -> Result<(), Errno> {
        let new = self.made.last().expect("receives").resized(fields[2])?;
        let offset = self.place(new);
        let to = u64::from_ne_bytes(call.read(UVERBS_ATTR_UHW_IN)[..8].try_into().unwrap());
        let to = std::ptr::with_exposed_provenance_mut::<u64>(to as usize);
        // SAFETY: the address in the command, of a local of the provider.
        unsafe { to.write_unaligned(offset) };
        Ok(())
    }

    /// `ib_uverbs_post_send`, `rvt_post_send`.
    fn post_send(&mut self, call: &Call) -> Result<(), Errno> {
        let [_, _, _, count, sges, size] = call.words(UVERBS_ATTR_CORE_IN);
        let request = call.read(UVERBS_ATTR_CORE_IN);
        let (count, sges, size) = (count as usize, sges as usize, size as usize);
        assert_eq!((size, request.len()), (WR, 24 + count * WR + sges * 16));
        self.commands.push(count as u32);
        let refusal = self.refusals.pop_front();
        let mut lists = Bytes(request[24 + count * WR..].to_vec());
        for at in 0..count {
            if let Some((taken, errno)) = refusal
                && taken as usize == at
            {
                call.answer(UVERBS_ATTR_CORE_OUT, &(at as u32 + 1).to_ne_bytes());
                return Err(errno);
            }
            let wr = Bytes(request[24 + at * WR..][..WR].to_vec());
            let list = lists.0.drain(..wr.word(8) as usize * 16).collect::<Vec<_>>();
            let list = list.chunks(16).map(|sge| {
                let sge = Bytes(sge.to_vec());
                (sge.long(0), sge.word(8), sge.word(12))
            });
            self.sent.push_back(Sent { wr, sges: list.collect() });
        }
        assert!(lists.0.is_empty(), "SGEs of no work request");
        call.answer(UVERBS_ATTR_CORE_OUT, &[0; 4]);
        match refusal {
            // The kernel looked at none.
            Some((u32::MAX, errno)) => {
                self.sent.truncate(self.sent.len() - count);
                Err(errno)
            }
            _ => Ok(()),
        }
    }

    /// `rvt_mmap`: each offset once, and no more than the ring's length.
    fn map(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        let at = usize::try_from(offset >> 16).unwrap().checked_sub(1).ok_or(Errno::EINVAL)?;
        let queue = self.made.get(at).ok_or(Errno::EINVAL)?;
        let mut mapped = self.mapped.lock().unwrap();
        if len > queue.memory.pages.len() || mapped.contains(&offset) {
            return Err(Errno::EINVAL);
        }
        mapped.push(offset);
        queue.memory.map(len)
    }
}
