//! The kernel's part: a door that makes queues, and the other side of them.
#![allow(unsafe_code, reason = "shares memory with the provider, as the kernel does")]

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::memfd::{MFdFlags, memfd_create};
use uverbs_core::Errno;
use uverbs_core::commands::Uverbs;
use uverbs_core::doors::UverbsDoor;
use uverbs_core::doors::words::parse;
use uverbs_core::memory::pages::Pages;
use uverbs_core::objects::context::ContextCore;
use uverbs_kernel_abi::device::ib_uverbs_ex_query_device_resp;
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_SIW;
use uverbs_kernel_abi::objects::*;
use zerocopy::{FromZeros, IntoBytes};

const SQE: usize = 120;
const RQE: usize = 112;
const CQE: usize = 32;
/// Elements that there is memory for.
const MOST: u32 = 1 << 16;
/// Where the flags of a work request are, and of a completion.
const WQE_FLAGS: usize = 8;
const CQE_FLAGS: usize = 8;

/// The kernel's side of a queue.
#[derive(Debug)]
pub(crate) struct Queue {
    key: u64,
    file: File,
    memory: Pages,
    elements: u32,
    size: usize,
    /// Free running: the kernel's own index.
    at: u32,
}

impl Queue {
    fn new(key: u64, elements: u32, size: usize, more: usize) -> Self {
        let elements = elements.next_power_of_two();
        let len = elements as usize * size + more;
        let file = File::from(memfd_create(c"queue", MFdFlags::MFD_CLOEXEC).unwrap());
        file.set_len(len.next_multiple_of(4096) as u64).unwrap();
        let memory = Pages::shared(file.as_fd(), len, 0).unwrap();
        Self { key, file, memory, elements, size, at: 0 }
    }

    fn element(&self, index: u32) -> *mut u8 {
        let at = (index & (self.elements - 1)) as usize * self.size;
        self.memory.as_mut_ptr().wrapping_add(at)
    }

    fn flags(&self, index: u32, at: usize) -> &AtomicU8 {
        // SAFETY: a byte of an element, shared by atomic accesses.
        unsafe { AtomicU8::from_ptr(self.element(index).wrapping_add(at)) }
    }

    /// What is behind the elements: the flags that ask for an event.
    fn control(&self) -> &AtomicU32 {
        let at = self.memory.as_mut_ptr().wrapping_add(self.elements as usize * self.size);
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

#[derive(Debug, Default)]
pub(crate) struct State {
    /// In the order they were made.
    made: Vec<Queue>,
    pub(crate) kicks: u32,
    /// What doorbells are answered with, one after the other; then success.
    pub(crate) kick_answers: Vec<Errno>,
    /// Requests to register memory: first address, and the driver's part.
    pub(crate) registered: Vec<(u64, usize, usize)>,
    /// Changes of queue pairs that came.
    pub(crate) modified: u32,
    handles: u64,
}

impl State {
    /// Its key is the first page behind the last queue's (`rdma_user_mmap_entry_insert_range`).
    fn make(&mut self, elements: u32, size: usize, more: usize) -> Result<(u64, u32), Errno> {
        if elements > MOST {
            return Err(Errno::ENOMEM);
        }
        let behind = |last: &Queue| last.key + last.memory.len().next_multiple_of(4096) as u64;
        let key = self.made.last().map_or(0, behind);
        self.made.push(Queue::new(key, elements, size, more));
        Ok((key, self.made.last().expect("just made").elements))
    }

    /// Of what was made, the key that came last.
    pub(crate) fn last_key(&self) -> Option<u64> {
        self.made.last().map(|queue| queue.key)
    }
}

/// The kernel, as a door. Its queues are made in this order: completions, sends, receives.
#[derive(Debug, Default)]
pub(crate) struct Kernel(Mutex<State>);

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

impl Kernel {
    pub(crate) fn core(self: &Arc<Self>) -> Arc<ContextCore> {
        ContextCore::new(Uverbs::new(Arc::clone(self) as _, RDMA_DRIVER_SIW))
    }

    /// Also after a test panicked: what it made is still to be destroyed.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take_send(&self) -> Option<Taken> {
        self.state().made[1].take().map(Taken)
    }

    pub(crate) fn take_recv(&self) -> Option<Taken> {
        self.state().made[2].take().map(Taken)
    }

    pub(crate) fn complete(&self, id: u64, opcode: u8, status: u16, bytes: u32) -> bool {
        let mut entry = [0; CQE];
        entry[..8].copy_from_slice(&id.to_ne_bytes());
        entry[9] = opcode;
        entry[10..12].copy_from_slice(&status.to_ne_bytes());
        entry[12..16].copy_from_slice(&bytes.to_ne_bytes());
        entry[24..32].copy_from_slice(&0x11u64.to_ne_bytes());
        self.state().made[0].complete(&entry)
    }

    /// Stores a byte of an element, as no kernel would. Its queues are numbered as they were made.
    pub(crate) fn spoil(&self, queue: usize, index: u8, at: u8, value: u8) {
        let state = self.state();
        let queue = &state.made[queue % state.made.len()];
        let at = usize::from(at) % queue.size;
        queue.flags(index.into(), at).store(value, Ordering::Release);
    }

    /// What the program wants events of.
    pub(crate) fn armed(&self) -> u32 {
        self.state().made[0].control().load(Ordering::SeqCst)
    }
}

// SAFETY: no device is behind it, and mappings are of files that are as long as they say.
unsafe impl UverbsDoor for Kernel {
    unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno> {
        let (header, attrs) = parse(command).ok_or(Errno::EINVAL)?;
        let (object, method) = (header.object_id, header.method_id);
        assert_eq!(header.driver_id, RDMA_DRIVER_SIW);
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
                answer(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, &1u32.to_ne_bytes());
                // It insists on room for its answer.
                answer(UVERBS_ATTR_UHW_OUT, &[0; 8]);
            }
            (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE) => {
                // The numbers of `enum ib_uverbs_write_cmds`.
                match word(&read(UVERBS_ATTR_WRITE_CMD), 0) & 0xff {
                    1 => {
                        let mut device = ib_uverbs_ex_query_device_resp::new_zeroed();
                        device.base.max_qp_wr = 0x8000;
                        device.base.max_cqe = 0x32_0000;
                        device.base.max_sge = 6;
                        device.base.max_srq_wr = 0x5_0000;
                        device.base.max_srq_sge = 6;
                        answer(UVERBS_ATTR_CORE_OUT, device.as_bytes());
                    }
                    3 => answer(UVERBS_ATTR_CORE_OUT, &1u32.to_ne_bytes()),
                    9 => {
                        let start = read(UVERBS_ATTR_CORE_IN)[8..16].try_into().unwrap();
                        let room = |id| find(id).map_or(0, |attr| attr.len.into());
                        let (uhw_in, uhw_out) =
                            (room(UVERBS_ATTR_UHW_IN), room(UVERBS_ATTR_UHW_OUT));
                        state.registered.push((u64::from_ne_bytes(start), uhw_in, uhw_out));
                    }
                    26 => state.modified += 1,
                    28 => {
                        state.kicks += 1;
                        if !state.kick_answers.is_empty() {
                            return Err(state.kick_answers.remove(0));
                        }
                    }
                    other => panic!("write command {other}"),
                }
            }
            (UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE) => {
                new_handle = Some(UVERBS_ATTR_CREATE_CQ_HANDLE);
                let entries = word(&read(UVERBS_ATTR_CREATE_CQ_CQE), 0);
                let (key, entries) = state.make(entries, CQE, 8)?;
                let mut answered = [0; 16];
                answered[4..8].copy_from_slice(&entries.to_ne_bytes());
                answered[8..].copy_from_slice(&key.to_ne_bytes());
                answer(UVERBS_ATTR_UHW_OUT, &answered);
            }
            (UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE) => {
                new_handle = Some(UVERBS_ATTR_CREATE_QP_HANDLE);
                let cap = read(UVERBS_ATTR_CREATE_QP_CAP);
                let (sq_key, sends) = state.make(word(&cap, 0), SQE, 0)?;
                let (rq_key, recvs) = state.make(word(&cap, 4), RQE, 0)?;
                answer(UVERBS_ATTR_CREATE_QP_RESP_CAP, &cap);
                answer(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &0x11u32.to_ne_bytes());
                let mut answered = [0; 32];
                answered[4..8].copy_from_slice(&sends.to_ne_bytes());
                answered[8..12].copy_from_slice(&recvs.to_ne_bytes());
                answered[16..24].copy_from_slice(&sq_key.to_ne_bytes());
                answered[24..].copy_from_slice(&rq_key.to_ne_bytes());
                answer(UVERBS_ATTR_UHW_OUT, &answered);
            }
            (UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE) => {
                new_handle = Some(UVERBS_ATTR_CREATE_SRQ_HANDLE);
                let max_wr = word(&read(UVERBS_ATTR_CREATE_SRQ_MAX_WR), 0);
                let (key, elements) = state.make(max_wr, RQE, 0)?;
                let mut answered = [0; 16];
                answered[..4].copy_from_slice(&elements.to_ne_bytes());
                answered[8..].copy_from_slice(&key.to_ne_bytes());
                answer(UVERBS_ATTR_UHW_OUT, &answered);
            }
            _ => {}
        }
        if let Some(id) = new_handle {
            state.handles += 1;
            let at = attrs.iter().position(|attr| attr.attr_id == id).unwrap();
            // Header of three words, attributes of two, of which the second is the data.
            command[3 + 2 * at + 1] = state.handles;
        }
        Ok(())
    }

    fn mmap(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        let state = self.state();
        let queue = state.made.iter().find(|queue| queue.key == offset).ok_or(Errno::EINVAL)?;
        // `siw_mmap` gives what there is, no more and no less.
        if len.next_multiple_of(4096) != queue.memory.len().next_multiple_of(4096) {
            return Err(Errno::EINVAL);
        }
        Pages::shared(queue.file.as_fd(), len, 0)
    }
}
