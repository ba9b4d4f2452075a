//! The kernel's part: a door that makes queues, and the other side of them.
//!
//! Written after the kernel's `rxe_queue.h` and `rxe_queue.c`, with numbers of its own and not the
//! provider's types: what the program produces, this consumes by a private index that it publishes,
//! and the other way round; an index that it loads is masked.
#![allow(unsafe_code, reason = "shares memory with the provider, as the kernel does")]

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::memfd::{MFdFlags, memfd_create};
use uverbs_core::Errno;
use uverbs_core::commands::Uverbs;
use uverbs_core::doors::UverbsDoor;
use uverbs_core::doors::words::parse;
use uverbs_core::memory::pages::Pages;
use uverbs_core::objects::context::ContextCore;
use uverbs_kernel_abi::device::ib_uverbs_ex_query_device_resp;
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_RXE;
use uverbs_kernel_abi::objects::*;
use zerocopy::{FromZeros, IntoBytes};

const MASK: usize = 4;
const PRODUCER: usize = 128;
const CONSUMER: usize = 256;
const DATA: usize = 384;

/// The kernel's side of a queue.
#[derive(Debug)]
pub(crate) struct Queue {
    file: File,
    memory: Pages,
    slots: u32,
    shift: u32,
    /// The index that is the kernel's own: producer of a completion queue, consumer of the others.
    own: u32,
}

impl Queue {
    /// `rxe_queue_init`: one slot more than elements, rounded up, and elements of a cache line at
    /// least.
    fn new(elements: u32, bytes: u32) -> Self {
        let slots = (elements + 1).next_power_of_two();
        let shift = bytes.max(64).next_power_of_two().ilog2();
        let size = DATA + ((slots as usize) << shift);
        let file = File::from(memfd_create(c"queue", MFdFlags::MFD_CLOEXEC).unwrap());
        file.set_len(size.next_multiple_of(4096) as u64).unwrap();
        let memory = Pages::shared(file.as_fd(), size, 0).unwrap();
        let queue = Self { file, memory, slots, shift, own: 0 };
        queue.poke(0, shift);
        queue.poke(MASK, slots - 1);
        queue
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset + 4 <= self.memory.len());
        // SAFETY: in the mapping, aligned by the callers' constants, and shared by atomic accesses.
        unsafe { AtomicU32::from_ptr(self.memory.as_mut_ptr().wrapping_add(offset).cast()) }
    }

    /// Writes whatever is wanted wherever it is wanted: what no kernel does.
    pub(crate) fn poke(&self, offset: usize, value: u32) {
        self.word(offset).store(value, Ordering::Release);
    }

    pub(crate) fn poke_producer(&self, value: u32) {
        self.poke(PRODUCER, value);
    }

    pub(crate) fn poke_consumer(&self, value: u32) {
        self.poke(CONSUMER, value);
    }

    /// The program's index, as it stands there.
    pub(crate) fn raw_producer(&self) -> u32 {
        self.word(PRODUCER).load(Ordering::Acquire)
    }

    pub(crate) fn raw_consumer(&self) -> u32 {
        self.word(CONSUMER).load(Ordering::Acquire)
    }

    /// Both sides have done so much before.
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
        self.memory.as_mut_ptr().wrapping_add(at)
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

    /// `rxe_cq_post`: false for a queue that is full, whose completion is lost.
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

/// What the kernel was asked, and what it shall answer.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// By the offset that they are mapped at.
    queues: HashMap<u64, Arc<Mutex<Queue>>>,
    /// Queues in the order they were made.
    pub(crate) made: Vec<Arc<Mutex<Queue>>>,
    /// Doorbells.
    pub(crate) kicks: u32,
    /// States that queue pairs were brought to.
    pub(crate) states: Vec<u8>,
    /// Destroyed objects: object, handle.
    pub(crate) destroyed: Vec<(u16, u64)>,
    /// What doorbells are answered with, one after the other; then success.
    pub(crate) kick_answers: Vec<Errno>,
    pub(crate) refuse_mmap: bool,
    /// Limits that shared receive queues were given.
    pub(crate) limits: Vec<u32>,
    /// What a change of size is answered with, if not by doing it.
    pub(crate) resize_answer: Option<Errno>,
    /// Spoils each queue before it is mapped.
    pub(crate) spoil: Option<(usize, u32)>,
    /// What the device says that its queues have at most, if not what they have.
    pub(crate) boast: Option<u32>,
    /// What the device says that it can.
    pub(crate) caps: u64,
    next: u64,
}

/// The kernel, as a door.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    state: Mutex<State>,
}

impl Kernel {
    pub(crate) fn core(self: &Arc<Self>) -> Arc<ContextCore> {
        ContextCore::new(Uverbs::new(Arc::clone(self) as _, RDMA_DRIVER_RXE))
    }

    /// Also after a test panicked: what it made is still to be destroyed.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// `rxe_queue_resize`: a new queue, which begins with what was not taken from the old one. The
    /// old one is the last that was made.
    fn resize(&mut self, _handle: u32, max_wr: u32, to: u64) -> Result<(), Errno> {
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
        // SAFETY: where the command says, a local of the provider's.
        unsafe { to.write_unaligned(info) };
        Ok(())
    }

    /// Makes a queue, and says where to map it: `mminfo`.
    fn make(&mut self, elements: u32, bytes: u32) -> [u32; 4] {
        // A program that believes in other limits is refused before (`refuse_more`).
        assert!(elements <= MOST_ELEMENTS);
        let queue = Queue::new(elements, bytes);
        if let Some((offset, value)) = self.spoil {
            queue.poke(offset, value);
        }
        let size = queue.memory.len() as u32;
        let offset = self.number() << 20;
        let queue = Arc::new(Mutex::new(queue));
        self.made.push(Arc::clone(&queue));
        self.queues.insert(offset, queue);
        [offset as u32, (offset >> 32) as u32, size, 0]
    }
}

/// More than what the device says that it has.
const MOST_ELEMENTS: u32 = 0x8000;

/// What a program asks for that believes in other limits.
fn refuse_more(wanted: &[u32]) -> Result<(), Errno> {
    let fits = wanted.iter().all(|wanted| *wanted <= MOST_ELEMENTS);
    if fits { Ok(()) } else { Err(Errno::EINVAL) }
}

// SAFETY: no device is behind it, and mappings are of files that are as long as they say.
unsafe impl UverbsDoor for Kernel {
    unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno> {
        let (header, attrs) = parse(command).ok_or(Errno::EINVAL)?;
        let (object, method) = (header.object_id, header.method_id);
        assert_eq!(header.driver_id, RDMA_DRIVER_RXE);
        let attrs: Vec<_> = attrs.collect();
        let find = |id: u16| attrs.iter().find(|attr| attr.attr_id == id);
        let answer = |id: u16, bytes: &[u8]| {
            let attr = find(id).expect("room for an answer");
            assert!(usize::from(attr.len) >= bytes.len());
            let to = std::ptr::with_exposed_provenance_mut::<u8>(attr.data as usize);
            // SAFETY: an output that the command borrows, and it is long enough.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        };
        let read = |id: u16| {
            let attr = find(id).expect("an input");
            if attr.len <= 8 {
                return attr.data.to_ne_bytes().to_vec();
            }
            let from = std::ptr::with_exposed_provenance::<u8>(attr.data as usize);
            // SAFETY: an input that the command borrows.
            unsafe { std::slice::from_raw_parts(from, attr.len.into()) }.to_vec()
        };
        let word =
            |bytes: &[u8], at: usize| u32::from_ne_bytes(bytes[at..][..4].try_into().unwrap());
        let mut state = self.state();
        let mut new_handle = None;
        match (object, method) {
            (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT) => {
                answer(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, &2u32.to_ne_bytes());
            }
            (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE) => {
                // The numbers of `enum ib_uverbs_write_cmds`.
                match word(&read(UVERBS_ATTR_WRITE_CMD), 0) & 0xff {
                    1 => {
                        let mut device = ib_uverbs_ex_query_device_resp::new_zeroed();
                        device.base.max_qp_wr = 0x4000;
                        device.device_cap_flags_ex = state.caps;
                        device.base.max_cqe = state.boast.unwrap_or(0x7fff);
                        device.base.max_sge = 32;
                        device.base.max_srq_wr = state.boast.unwrap_or(0x1000);
                        device.base.max_srq_sge = 27;
                        answer(UVERBS_ATTR_CORE_OUT, device.as_bytes());
                    }
                    3 => answer(UVERBS_ATTR_CORE_OUT, &1u32.to_ne_bytes()),
                    // Handle and keys.
                    9 => answer(UVERBS_ATTR_CORE_OUT, [7u32, 0x1100, 0x1100].as_bytes()),
                    // `qp_state` of `struct ib_uverbs_modify_qp`.
                    26 => state.states.push(read(UVERBS_ATTR_CORE_IN)[96]),
                    28 => {
                        let request = read(UVERBS_ATTR_CORE_IN);
                        // No work requests, no lists, and a size that the kernel accepts.
                        assert_eq!((word(&request, 12), word(&request, 16)), (0, 0));
                        assert!(word(&request, 20) >= 56);
                        state.kicks += 1;
                        if !state.kick_answers.is_empty() {
                            return Err(state.kick_answers.remove(0));
                        }
                    }
                    33 => {
                        let request = read(UVERBS_ATTR_CORE_IN);
                        let [handle, mask, max_wr, limit]: [u32; 4] =
                            std::array::from_fn(|at| word(&request, 4 * at));
                        let to =
                            u64::from_ne_bytes(read(UVERBS_ATTR_UHW_IN)[..8].try_into().unwrap());
                        if mask & 2 != 0 {
                            state.limits.push(limit);
                        }
                        if mask & 1 != 0 {
                            state.resize(handle, max_wr, to)?;
                        }
                    }
                    other => panic!("write command {other}"),
                }
            }
            (UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE) => {
                new_handle = Some(UVERBS_ATTR_CREATE_CQ_HANDLE);
                let entries = word(&read(UVERBS_ATTR_CREATE_CQ_CQE), 0);
                refuse_more(&[entries])?;
                let info = state.make(entries, 64);
                answer(UVERBS_ATTR_UHW_OUT, info.as_bytes());
            }
            (UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE) => {
                new_handle = Some(UVERBS_ATTR_CREATE_QP_HANDLE);
                let cap = read(UVERBS_ATTR_CREATE_QP_CAP);
                let [send_wr, recv_wr, send_sge, recv_sge, inline]: [u32; 5] =
                    std::array::from_fn(|at| word(&cap, 4 * at));
                refuse_more(&[send_wr, recv_wr, send_sge, recv_sge, inline])?;
                // `rxe_qp_init_req`: lists and inline data share their room.
                let room = (send_sge * 16).max(inline);
                let shared = find(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE).is_some();
                let recv = match shared {
                    true => [0; 4],
                    false => state.make(recv_wr, 40 + recv_sge * 16),
                };
                let send = state.make(send_wr, 208 + room);
                let slots = |of: usize| state.made[state.made.len() - of].lock().unwrap().slots;
                let receives = if shared { 0 } else { slots(2) - 1 };
                let granted = [slots(1) - 1, receives, room / 16, recv_sge, room];
                answer(UVERBS_ATTR_CREATE_QP_RESP_CAP, granted.as_bytes());
                answer(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &0x11u32.to_ne_bytes());
                answer(UVERBS_ATTR_UHW_OUT, [recv, send].as_bytes());
            }
            (UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE) => {
                new_handle = Some(UVERBS_ATTR_CREATE_SRQ_HANDLE);
                let max_wr = word(&read(UVERBS_ATTR_CREATE_SRQ_MAX_WR), 0);
                let max_sge = word(&read(UVERBS_ATTR_CREATE_SRQ_MAX_SGE), 0);
                refuse_more(&[max_wr, max_sge])?;
                let info = state.make(max_wr, 40 + max_sge * 16);
                answer(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, &max_wr.to_ne_bytes());
                answer(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, &max_sge.to_ne_bytes());
                let mut answered = [0; 24];
                answered[..16].copy_from_slice(info.as_bytes());
                answered[16] = 5;
                answer(UVERBS_ATTR_UHW_OUT, &answered);
            }
            (UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY) => {
                let handle = find(UVERBS_ATTR_DESTROY_SRQ_HANDLE).unwrap().data;
                state.destroyed.push((object, handle));
            }
            (UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY) => {
                let handle = find(UVERBS_ATTR_DESTROY_CQ_HANDLE).unwrap().data;
                state.destroyed.push((object, handle));
            }
            (UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY) => {
                let handle = find(UVERBS_ATTR_DESTROY_QP_HANDLE).unwrap().data;
                state.destroyed.push((object, handle));
            }
            _ => {}
        }
        if let Some(id) = new_handle {
            let at = attrs.iter().position(|attr| attr.attr_id == id).unwrap();
            // Header of three words, attributes of two, of which the second is the data.
            command[3 + 2 * at + 1] = state.number();
        }
        Ok(())
    }

    fn mmap(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        let state = self.state();
        if state.refuse_mmap {
            return Err(Errno::EAGAIN);
        }
        let queue = state.queues.get(&offset).ok_or(Errno::EINVAL)?.lock().unwrap();
        // `rxe_mmap` gives no more than there is.
        if len > queue.memory.len() {
            return Err(Errno::EINVAL);
        }
        Pages::shared(queue.file.as_fd(), len, 0)
    }
}
