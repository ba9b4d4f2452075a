//! Model of the device and its driver: rings and registers in memory, by numbers and not by the
//! provider's types. It takes work requests in turn, and completes them in any order.
#![allow(unsafe_code, reason = "shares memory with the provider, as the device does")]

use uverbs_core::Errno;
use uverbs_core::memory::pages::Pages;
use uverbs_kernel_abi::device::ib_uverbs_ex_query_device_resp;
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_rings::testing::{self, Call, SharedMemory};

/// The kernel, as a door.
pub(crate) type Kernel = testing::Kernel<Model>;

/// Rings of a completion queue.
pub(crate) const SUB_CQS: u32 = 2;
/// Most elements that the kernel has memory for.
const MOST: u32 = 1 << 16;
/// Bytes of an entry, of a receive's SGE, and in front of the send queue.
const CQE: usize = 32;
const SGE: usize = 16;
const LLQ_OFFSET: usize = 64;
/// Number of the queue pair.
const QPN: u16 = 0x11;

/// Send and receive queue that was made last.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    /// Place of the ring among the mappings; its register is the next one.
    at: usize,
    elements: u32,
    size: usize,
    taken: u16,
}

/// Memory of the device: a mapping's offset is its place in this list, in pages of 64 KiB.
#[derive(Debug)]
pub(crate) struct Model {
    made: Vec<SharedMemory>,
    send: Queue,
    recv: Queue,
    /// Entries of each ring of the completion queue, and those written to each.
    entries: u32,
    written: [u32; SUB_CQS as usize],
    /// Numbers of requests that were taken: of sends, of receives.
    pub(crate) at_work: [Vec<u16>; 2],
    /// Capabilities of the device.
    pub(crate) caps: u32,
    /// Flags of the last completion queue, and of the last queue pair with its service level.
    pub(crate) cq_flags: u32,
    pub(crate) qp_flags: u32,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            made: Vec::new(),
            send: Queue::default(),
            recv: Queue::default(),
            entries: 0,
            written: Default::default(),
            at_work: Default::default(),
            caps: 0x27,
            cq_flags: 0,
            qp_flags: 0,
        }
    }
}

impl Model {
    fn make(&mut self, len: usize) -> u64 {
        self.made.push(SharedMemory::new(len.next_multiple_of(4096)));
        (self.made.len() as u64) << 16
    }

    fn read<const N: usize>(&self, part: usize, at: usize) -> [u8; N] {
        let memory = &self.made[part].pages;
        assert!(at + N <= memory.len());
        std::array::from_fn(|byte| {
            // SAFETY: within the mapping, and the tests use one thread.
            unsafe { memory.as_mut_ptr().wrapping_add(at + byte).read_volatile() }
        })
    }

    /// Stores a byte of a mapping, also one that no device would.
    pub(crate) fn spoil(&self, part: usize, at: usize, value: u8) {
        let memory = &self.made[part % self.made.len()].pages;
        let at = at % memory.len();
        // SAFETY: within the mapping, and the tests use one thread.
        unsafe { memory.as_mut_ptr().wrapping_add(at).write_volatile(value) };
    }

    /// Takes the next element that a queue's doorbell announced.
    fn next(&self, mut queue: Queue) -> Option<(Queue, usize)> {
        let announced = u16::from_le_bytes(self.read(queue.at + 1, 0));
        if announced == queue.taken {
            return None;
        }
        let at = u32::from(queue.taken) % queue.elements;
        queue.taken = queue.taken.wrapping_add(1);
        Some((queue, at as usize * queue.size))
    }

    /// Takes what the doorbells announced.
    pub(crate) fn take(&mut self) {
        while let Some((queue, at)) = self.next(self.send) {
            self.send = queue;
            let id = u16::from_le_bytes(self.read(queue.at, LLQ_OFFSET + at));
            self.at_work[0].push(id);
        }
        while let Some((queue, at)) = self.next(self.recv) {
            self.recv = queue;
            let [_, _, _, _, _, _, _, _, low, high, _, _, _, _, _, control] =
                self.read::<SGE>(queue.at, at);
            // A first SGE has the number.
            if control & 0x40 != 0 {
                self.at_work[1].push(u16::from_le_bytes([low, high]));
            }
        }
    }

    /// Writes an entry: number, status, flags without phase, length.
    pub(crate) fn complete(&mut self, ring: usize, id: u16, (status, flags, len): (u8, u8, u8)) {
        let ring = ring % self.written.len();
        let index = self.written[ring];
        self.written[ring] += 1;
        let phase = u8::from((index / self.entries).is_multiple_of(2));
        let at = (ring as u32 * self.entries + index % self.entries) as usize * CQE;
        let [low, high] = id.to_le_bytes();
        let [qpn, qpn_high] = QPN.to_le_bytes();
        let entry = [low, high, status, flags & !1 | phase, qpn, qpn_high, len, 0];
        for (byte, value) in entry.into_iter().enumerate() {
            self.spoil(0, at + byte, value);
        }
    }

    /// Completes one of the requests at work, as a device does; `recv` chooses the queue.
    pub(crate) fn finish(&mut self, recv: bool, which: u8, status: u8) {
        let at_work = &mut self.at_work[usize::from(recv)];
        if at_work.is_empty() {
            return;
        }
        let id = at_work.swap_remove(usize::from(which) % at_work.len());
        let (flags, len) = if recv { (2 << 1, 40) } else { (1 << 1, 0) };
        self.complete(usize::from(which), id, (status, flags, len));
    }
}

/// Answers by words, each with its offset, if the program wants the driver's part.
fn answer<const N: usize>(call: &Call, words: &[(usize, u64)]) {
    if call.find(UVERBS_ATTR_UHW_OUT).is_none() {
        return;
    }
    let mut bytes = [0; N];
    for (at, word) in words {
        let len = (N - at).min(8);
        bytes[*at..at + len].copy_from_slice(&word.to_le_bytes()[..len]);
    }
    call.answer(UVERBS_ATTR_UHW_OUT, &bytes);
}

impl testing::Model for Model {
    const DRIVER: u32 = 17;
    const VECTORS: u32 = 1;
    const CONTEXT_ANSWER: usize = 0;

    fn device(&self, device: &mut ib_uverbs_ex_query_device_resp) {
        device.base.max_cqe = MOST;
        device.base.max_sge_rd = 1;
    }

    /// GET_CONTEXT, QUERY_DEVICE, CREATE_AH (`efa_ibv_alloc_ucontext_resp`,
    /// `efa_ibv_ex_query_device_resp`, `efa_ibv_create_ah_resp`).
    fn answer(&self, call: &Call, number: Option<u32>) {
        match number {
            None => answer::<24>(
                call,
                &[(4, 3), (8, u64::from(SUB_CQS) | 32 << 16 | (1 << 17) << 32), (16, 4 | 16 << 16)],
            ),
            Some(1) => answer::<24>(
                call,
                &[
                    (4, 4096 | 32768 << 32),
                    (12, 2 | 2 << 16 | (1 << 30) << 32),
                    (20, self.caps.into()),
                ],
            ),
            Some(5) => answer::<8>(call, &[(4, 9)]),
            Some(_) => {}
        }
    }

    /// `efa_ibv_create_cq_resp`.
    fn create_cq(&mut self, call: &Call, entries: u32) -> Result<(), Errno> {
        if entries > MOST {
            return Err(Errno::ENOMEM);
        }
        let [_, _, rings_and_flags] = call.words(UVERBS_ATTR_UHW_IN);
        self.cq_flags = rings_and_flags >> 16;
        let len = (SUB_CQS * entries) as usize * CQE;
        self.entries = entries;
        let [ring, register] = [self.make(len), self.make(4)];
        call.answer(UVERBS_ATTR_CREATE_CQ_RESP_CQE, &entries.to_ne_bytes());
        let len = len.next_multiple_of(4096) as u64;
        answer::<40>(call, &[(0, 1), (8, ring), (16, len), (32, register)]);
        Ok(())
    }

    /// `efa_ibv_create_qp_resp`.
    fn create_qp(&mut self, call: &Call, cap: [u32; 5]) -> Result<(), Errno> {
        let [_, rq_bytes, sq_bytes, _, flags] = call.words(UVERBS_ATTR_UHW_IN);
        self.qp_flags = flags;
        if sq_bytes > MOST * 64 || rq_bytes > MOST * 16 || cap[0] == 0 {
            return Err(Errno::ENOMEM);
        }
        let (elements, at) = (cap[0], self.made.len());
        self.send = Queue { at, elements, size: (sq_bytes / elements) as usize, taken: 0 };
        let elements = rq_bytes / SGE as u32;
        self.recv = Queue { at: at + 2, elements, size: SGE, taken: 0 };
        let lens = [sq_bytes as usize + LLQ_OFFSET, 4, rq_bytes as usize, 4];
        let [llq, sq, rq, rq_register] = lens.map(|len| self.make(len));
        call.answer(UVERBS_ATTR_CREATE_QP_RESP_CAP, &call.read(UVERBS_ATTR_CREATE_QP_CAP));
        let rq_len = (rq_bytes as u64).next_multiple_of(4096);
        let keys = [(16, rq), (24, rq_len), (32, rq_register), (40, sq), (48, llq)];
        answer::<64>(call, &[&[(8, (LLQ_OFFSET as u64) << 32)], &keys[..]].concat());
        Ok(())
    }

    fn create_srq(&mut self, _: &Call, _: u32, _: u32) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn map(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        let at = (offset >> 16).checked_sub(1).ok_or(Errno::EINVAL)?;
        let memory = self.made.get(at as usize).filter(|memory| memory.pages.len() == len);
        memory.ok_or(Errno::EINVAL)?.map(len)
    }
}
