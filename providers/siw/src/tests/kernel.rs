//! Model of siw: the kernel's side of the rings. Its rings are made in this order: completions,
//! sends, receives.
#![allow(unsafe_code, reason = "shares memory with the provider, as the kernel does")]

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use uverbs_core::Errno;
use uverbs_core::memory::pages::Pages;
use uverbs_kernel_abi::device::ib_uverbs_ex_query_device_resp;
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_SIW;
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_rings::testing::{self, Call, SharedMemory};

/// The kernel, as a door.
pub(crate) type Kernel = testing::Kernel<Model>;

const SQE: usize = 120;
const RQE: usize = 112;
const CQE: usize = 32;
/// Most elements that the kernel has memory for.
const MOST: u32 = 1 << 16;
/// Offset of the flags of a work request, and of a completion.
const WQE_FLAGS: usize = 8;
const CQE_FLAGS: usize = 8;

/// The kernel's side of a ring.
#[derive(Debug)]
pub(crate) struct Queue {
    key: u64,
    memory: SharedMemory,
    elements: u32,
    size: usize,
    /// Index of the kernel's own, free running.
    at: u32,
}

impl Queue {
    fn new(key: u64, elements: u32, size: usize, more: usize) -> Self {
        let elements = elements.next_power_of_two();
        let len = elements as usize * size + more;
        Self { key, memory: SharedMemory::new(len), elements, size, at: 0 }
    }

    fn element(&self, index: u32) -> *mut u8 {
        let at = (index & (self.elements - 1)) as usize * self.size;
        self.memory.pages.as_mut_ptr().wrapping_add(at)
    }

    fn flags(&self, index: u32, at: usize) -> &AtomicU8 {
        // SAFETY: a byte of an element, shared by atomic accesses.
        unsafe { AtomicU8::from_ptr(self.element(index).wrapping_add(at)) }
    }

    /// Flags behind the elements, which ask for an event.
    fn control(&self) -> &AtomicU32 {
        let at = self.memory.pages.as_mut_ptr().wrapping_add(self.elements as usize * self.size);
        // SAFETY: in the mapping, aligned, and shared by atomic accesses.
        unsafe { AtomicU32::from_ptr(at.cast()) }
    }

    /// `siw_activate_tx`, `siw_rqe_get`: a copy of the next element, which is free then.
    fn take(&mut self) -> Option<Vec<u8>> {
        if self.flags(self.at, WQE_FLAGS).load(Ordering::Acquire) & 1 == 0 {
            return None;
        }
        // SAFETY: an element, and the tests use one thread.
        let copy = unsafe { std::slice::from_raw_parts(self.element(self.at), self.size) }.to_vec();
        self.flags(self.at, WQE_FLAGS).store(0, Ordering::SeqCst);
        self.at += 1;
        Some(copy)
    }

    /// `siw_sqe_complete`, `siw_rqe_complete`: false for a queue that is full.
    fn complete(&mut self, entry: &[u8; CQE]) -> bool {
        if self.flags(self.at, CQE_FLAGS).load(Ordering::Acquire) != 0 {
            return false;
        }
        let to = self.element(self.at);
        for (at, byte) in entry.iter().enumerate().filter(|(at, _)| *at != CQE_FLAGS) {
            // SAFETY: an element, and the tests use one thread.
            unsafe { to.wrapping_add(at).write(*byte) };
        }
        self.flags(self.at, CQE_FLAGS).store(1, Ordering::Release);
        self.at += 1;
        true
    }
}

/// Rings of the device.
#[derive(Debug, Default)]
pub(crate) struct Model {
    /// Rings in the order they were made.
    made: Vec<Queue>,
}

impl Model {
    /// Makes a ring. Its key is the first page behind the last ring's
    /// (`rdma_user_mmap_entry_insert_range`).
    fn make(&mut self, elements: u32, size: usize, more: usize) -> Result<(u64, u32), Errno> {
        if elements > MOST {
            return Err(Errno::ENOMEM);
        }
        let behind =
            |last: &Queue| last.key + last.memory.pages.len().next_multiple_of(4096) as u64;
        let key = self.made.last().map_or(0, behind);
        self.made.push(Queue::new(key, elements, size, more));
        Ok((key, self.made.last().expect("just made").elements))
    }

    /// Key of the last ring.
    pub(crate) fn last_key(&self) -> Option<u64> {
        self.made.last().map(|queue| queue.key)
    }
}

/// A work request as the kernel read it.
#[derive(Debug)]
pub(crate) struct Taken(pub(crate) Vec<u8>);

impl Taken {
    pub(crate) fn id(&self) -> u64 {
        u64::from_ne_bytes(self.0[..8].try_into().unwrap())
    }

    pub(crate) fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.0[at..][..4].try_into().unwrap())
    }

    pub(crate) fn long(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.0[at..][..8].try_into().unwrap())
    }
}

impl Model {
    pub(crate) fn take_send(&mut self) -> Option<Taken> {
        self.made[1].take().map(Taken)
    }

    pub(crate) fn take_recv(&mut self) -> Option<Taken> {
        self.made[2].take().map(Taken)
    }

    pub(crate) fn complete(&mut self, id: u64, opcode: u8, status: u16, bytes: u32) -> bool {
        let mut entry = [0; CQE];
        entry[..8].copy_from_slice(&id.to_ne_bytes());
        entry[9] = opcode;
        entry[10..12].copy_from_slice(&status.to_ne_bytes());
        entry[12..16].copy_from_slice(&bytes.to_ne_bytes());
        entry[24..32].copy_from_slice(&0x11u64.to_ne_bytes());
        self.made[0].complete(&entry)
    }

    /// Stores a byte of an element, as no kernel would.
    pub(crate) fn spoil(&self, queue: usize, index: u8, at: u8, value: u8) {
        let queue = &self.made[queue % self.made.len()];
        let at = usize::from(at) % queue.size;
        queue.flags(index.into(), at).store(value, Ordering::Release);
    }

    /// Flags by which the program arms the queue.
    pub(crate) fn armed(&self) -> u32 {
        self.made[0].control().load(Ordering::SeqCst)
    }
}

impl testing::Model for Model {
    const DRIVER: u32 = RDMA_DRIVER_SIW;
    const VECTORS: u32 = 1;
    const CONTEXT_ANSWER: usize = 8;

    fn device(&self, device: &mut ib_uverbs_ex_query_device_resp) {
        device.base.max_qp_wr = 0x8000;
        device.base.max_cqe = 0x32_0000;
        device.base.max_sge = 6;
        device.base.max_srq_wr = 0x5_0000;
        device.base.max_srq_sge = 6;
    }

    fn create_cq(&mut self, call: &Call, entries: u32) -> Result<(), Errno> {
        let (key, entries) = self.make(entries, CQE, 8)?;
        let mut answered = [0; 16];
        answered[4..8].copy_from_slice(&entries.to_ne_bytes());
        answered[8..].copy_from_slice(&key.to_ne_bytes());
        call.answer(UVERBS_ATTR_UHW_OUT, &answered);
        Ok(())
    }

    fn create_qp(&mut self, call: &Call, cap: [u32; 5]) -> Result<(), Errno> {
        let (sq_key, sends) = self.make(cap[0], SQE, 0)?;
        let (rq_key, recvs) = self.make(cap[1], RQE, 0)?;
        call.answer(UVERBS_ATTR_CREATE_QP_RESP_CAP, &call.read(UVERBS_ATTR_CREATE_QP_CAP));
        let mut answered = [0; 32];
        answered[4..8].copy_from_slice(&sends.to_ne_bytes());
        answered[8..12].copy_from_slice(&recvs.to_ne_bytes());
        answered[16..24].copy_from_slice(&sq_key.to_ne_bytes());
        answered[24..].copy_from_slice(&rq_key.to_ne_bytes());
        call.answer(UVERBS_ATTR_UHW_OUT, &answered);
        Ok(())
    }

    fn create_srq(&mut self, call: &Call, max_wr: u32, _: u32) -> Result<(), Errno> {
        let (key, elements) = self.make(max_wr, RQE, 0)?;
        let mut answered = [0; 16];
        answered[..4].copy_from_slice(&elements.to_ne_bytes());
        answered[8..].copy_from_slice(&key.to_ne_bytes());
        call.answer(UVERBS_ATTR_UHW_OUT, &answered);
        Ok(())
    }

    /// `siw_mmap` maps exactly the ring's length.
    fn map(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        let queue = self.made.iter().find(|queue| queue.key == offset).ok_or(Errno::EINVAL)?;
        if len.next_multiple_of(4096) != queue.memory.pages.len().next_multiple_of(4096) {
            return Err(Errno::EINVAL);
        }
        queue.memory.map(len)
    }
}
