//! Model of rdma_rxe: the kernel's side of the rings.
//!
//! Written after the kernel's `rxe_queue.h` and `rxe_queue.c`, with literal offsets instead of the
//! provider's types. The program's elements are consumed by a private index that this model
//! publishes, and completions the other way round. An index that the model loads is masked.
#![allow(unsafe_code, reason = "shares memory with the provider, as the kernel does")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use uverbs_core::Errno;
use uverbs_core::memory::pages::Pages;
use uverbs_kernel_abi::device::ib_uverbs_ex_query_device_resp;
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_RXE;
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_rings::testing::{self, Call, SharedMemory};
use zerocopy::IntoBytes;

/// The kernel, as a door.
pub(crate) type Kernel = testing::Kernel<Model>;

const MASK: usize = 4;
const PRODUCER: usize = 128;
const CONSUMER: usize = 256;
const DATA: usize = 384;

/// The kernel's side of a ring.
#[derive(Debug)]
pub(crate) struct Queue {
    memory: SharedMemory,
    slots: u32,
    shift: u32,
    /// Index of the kernel's own: producer of a completion queue, consumer of the others.
    own: u32,
}

impl Queue {
    /// `rxe_queue_init`: one slot more than elements, rounded up, and elements of a cache line at
    /// least.
    fn new(elements: u32, bytes: u32) -> Self {
        let slots = (elements + 1).next_power_of_two();
        let shift = bytes.max(64).next_power_of_two().ilog2();
        let size = DATA + ((slots as usize) << shift);
        let queue = Self { memory: SharedMemory::new(size), slots, shift, own: 0 };
        queue.poke(0, shift);
        queue.poke(MASK, slots - 1);
        queue
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset + 4 <= self.memory.pages.len());
        // SAFETY: in the mapping, aligned by the callers' constants, and shared by atomic accesses.
        unsafe { AtomicU32::from_ptr(self.memory.pages.as_mut_ptr().wrapping_add(offset).cast()) }
    }

    /// Writes a value anywhere, as no kernel does.
    pub(crate) fn poke(&self, offset: usize, value: u32) {
        self.word(offset).store(value, Ordering::Release);
    }

    pub(crate) fn poke_producer(&self, value: u32) {
        self.poke(PRODUCER, value);
    }

    pub(crate) fn poke_consumer(&self, value: u32) {
        self.poke(CONSUMER, value);
    }

    /// Producer index as it is in memory.
    pub(crate) fn raw_producer(&self) -> u32 {
        self.word(PRODUCER).load(Ordering::Acquire)
    }

    pub(crate) fn raw_consumer(&self) -> u32 {
        self.word(CONSUMER).load(Ordering::Acquire)
    }

    /// Begins at `index`, as if both sides had come so far.
    pub(crate) fn start_at(&mut self, index: u32) {
        self.own = index & (self.slots - 1);
        self.poke(PRODUCER, self.own);
        self.poke(CONSUMER, self.own);
    }

    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    fn element(&self, index: u32) -> *mut u8 {
        let at = DATA + (((index & (self.slots - 1)) as usize) << self.shift);
        self.memory.pages.as_mut_ptr().wrapping_add(at)
    }

    pub(crate) fn write(&self, index: u32, bytes: &[u8]) {
        assert!(bytes.len() <= 1 << self.shift);
        // SAFETY: an element, and the tests use one thread.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.element(index), bytes.len()) };
    }

    pub(crate) fn read(&self, index: u32) -> Vec<u8> {
        // SAFETY: an element, and the tests use one thread.
        unsafe { std::slice::from_raw_parts(self.element(index), 1 << self.shift) }.to_vec()
    }

    /// `rxe_cq_post`: false for a full queue, which loses the completion.
    pub(crate) fn post(&mut self, bytes: &[u8]) -> bool {
        let consumer = self.raw_consumer();
        if self.own.wrapping_add(1).wrapping_sub(consumer) & (self.slots - 1) == 0 {
            return false;
        }
        self.write(self.own, bytes);
        self.own = (self.own + 1) & (self.slots - 1);
        self.poke(PRODUCER, self.own);
        true
    }

    /// `queue_head`.
    pub(crate) fn head(&self) -> Option<Vec<u8>> {
        let count = self.raw_producer().wrapping_sub(self.own) & (self.slots - 1);
        (count != 0).then(|| self.read(self.own))
    }

    /// `queue_advance_consumer`.
    pub(crate) fn advance(&mut self) {
        self.own = (self.own + 1) & (self.slots - 1);
        self.poke(CONSUMER, self.own);
    }
}

/// Rings of the device, and answers to come.
#[derive(Debug, Default)]
pub(crate) struct Model {
    /// Rings by the offset that they are mapped at.
    queues: HashMap<u64, Arc<Mutex<Queue>>>,
    /// Rings in the order they were made.
    pub(crate) made: Vec<Arc<Mutex<Queue>>>,
    /// Limits that shared receive queues were given.
    pub(crate) limits: Vec<u32>,
    /// Answer to a change of size, if it is refused.
    pub(crate) resize_answer: Option<Errno>,
    /// Offset and value that spoil each ring before it is mapped.
    pub(crate) spoil: Option<(usize, u32)>,
    /// Limit of the device's queues, if it is not the true one.
    pub(crate) boast: Option<u32>,
    /// Capabilities of the device.
    pub(crate) caps: u64,
    offsets: u64,
}

impl Model {
    /// `rxe_queue_resize`: a new ring, which begins with the elements that were not taken from the
    /// old one, the last that was made.
    fn resize(&mut self, max_wr: u32, to: u64) -> Result<(), Errno> {
        if let Some(errno) = self.resize_answer {
            return Err(errno);
        }
        let old = Arc::clone(self.made.last().expect("a shared receive queue"));
        let old = old.lock().unwrap();
        let info = self.make(max_wr, 1 << old.shift);
        let new = self.made.last().expect("just made").lock().unwrap();
        let count = old.raw_producer().wrapping_sub(old.own) & (old.slots - 1);
        for at in 0..count {
            new.write(at, &old.read(old.own + at));
        }
        new.poke_producer(count);
        let to = std::ptr::with_exposed_provenance_mut::<[u32; 4]>(to as usize);
        // SAFETY: the address in the command, of a local of the provider.
        unsafe { to.write_unaligned(info) };
        Ok(())
    }

    /// Makes a ring, and tells where to map it: `mminfo`.
    fn make(&mut self, elements: u32, bytes: u32) -> [u32; 4] {
        // `refuse_more` refused a program that believes in other limits.
        assert!(elements <= MOST_ELEMENTS);
        let queue = Queue::new(elements, bytes);
        if let Some((offset, value)) = self.spoil {
            queue.poke(offset, value);
        }
        let size = queue.memory.pages.len() as u32;
        self.offsets += 1;
        let offset = self.offsets << 20;
        let queue = Arc::new(Mutex::new(queue));
        self.made.push(Arc::clone(&queue));
        self.queues.insert(offset, queue);
        [offset as u32, (offset >> 32) as u32, size, 0]
    }
}

/// Most elements that the device has: more than it tells.
const MOST_ELEMENTS: u32 = 0x8000;

/// Refuses a program that believes in other limits.
fn refuse_more(wanted: &[u32]) -> Result<(), Errno> {
    let fits = wanted.iter().all(|wanted| *wanted <= MOST_ELEMENTS);
    if fits { Ok(()) } else { Err(Errno::EINVAL) }
}

impl testing::Model for Model {
    const DRIVER: u32 = RDMA_DRIVER_RXE;
    const VECTORS: u32 = 2;
    const CONTEXT_ANSWER: usize = 0;

    fn device(&self, device: &mut ib_uverbs_ex_query_device_resp) {
        device.device_cap_flags_ex = self.caps;
        device.base.max_qp_wr = 0x4000;
        device.base.max_cqe = self.boast.unwrap_or(0x7fff);
        device.base.max_sge = 32;
        device.base.max_srq_wr = self.boast.unwrap_or(0x1000);
        device.base.max_srq_sge = 27;
    }

    fn create_cq(&mut self, call: &Call, entries: u32) -> Result<(), Errno> {
        refuse_more(&[entries])?;
        let info = self.make(entries, 64);
        call.answer(UVERBS_ATTR_UHW_OUT, info.as_bytes());
        Ok(())
    }

    fn create_qp(&mut self, call: &Call, cap: [u32; 5]) -> Result<(), Errno> {
        let [send_wr, recv_wr, send_sge, recv_sge, inline] = cap;
        refuse_more(&cap)?;
        // `rxe_qp_init_req`: lists and inline data share their room.
        let room = (send_sge * 16).max(inline);
        let shared = call.find(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE).is_some();
        let recv = match shared {
            true => [0; 4],
            false => self.make(recv_wr, 40 + recv_sge * 16),
        };
        let send = self.make(send_wr, 208 + room);
        let slots = |of: usize| self.made[self.made.len() - of].lock().unwrap().slots;
        let receives = if shared { 0 } else { slots(2) - 1 };
        let granted = [slots(1) - 1, receives, room / 16, recv_sge, room];
        call.answer(UVERBS_ATTR_CREATE_QP_RESP_CAP, granted.as_bytes());
        call.answer(UVERBS_ATTR_UHW_OUT, [recv, send].as_bytes());
        Ok(())
    }

    fn create_srq(&mut self, call: &Call, max_wr: u32, max_sge: u32) -> Result<(), Errno> {
        refuse_more(&[max_wr, max_sge])?;
        let info = self.make(max_wr, 40 + max_sge * 16);
        let mut answered = [0; 24];
        answered[..16].copy_from_slice(info.as_bytes());
        answered[16] = 5;
        call.answer(UVERBS_ATTR_UHW_OUT, &answered);
        Ok(())
    }

    fn modify_srq(&mut self, call: &Call, fields: [u32; 4]) -> Result<(), Errno> {
        let [_, mask, max_wr, limit] = fields;
        let to = u64::from_ne_bytes(call.read(UVERBS_ATTR_UHW_IN)[..8].try_into().unwrap());
        if mask & 2 != 0 {
            self.limits.push(limit);
        }
        if mask & 1 != 0 {
            self.resize(max_wr, to)?;
        }
        Ok(())
    }

    /// `rxe_mmap` gives no more than there is.
    fn map(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        let queue = self.queues.get(&offset).ok_or(Errno::EINVAL)?.lock().unwrap();
        if len > queue.memory.pages.len() {
            return Err(Errno::EINVAL);
        }
        queue.memory.map(len)
    }
}
