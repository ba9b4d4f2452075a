//! Completion queues.
//!
//! The device writes the last byte of a CQE last. It holds opcode and ownership bit, and the bit
//! changes with every turn around the ring. A new ring is filled with the bit that the first turn
//! does not expect, so the bit alone tells the owner.
//!
//! # Safety
//!
//! A [`Cq`] is the only poller, and keeps the memory behind its pointers. Software owns an entry
//! from the load of its ownership bit (a fence orders the other loads after it) until the consumer
//! index passes it. The entry names its queue pair by user index, and the table keeps its queue
//! pairs alive. The pointer to the last queue pair is dropped with its place in the table. The
//! device is trusted that a completion names a completed work request; taking its slot is sound
//! because that work request was published.
#![allow(
    unsafe_code,
    reason = "reads entries that the device writes, and takes slots that it names"
)]

mod arms;
mod compressed;
mod known;
pub(crate) mod resize;
pub(crate) mod scattered;
mod slow;
mod sweep;
mod tags;
mod take;

use std::fmt;
use std::hint::assert_unchecked;
use std::sync::Arc;

use uverbs_core::error::Error;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::order::device_memory;
use uverbs_core::order::fence;
use uverbs_core::order::prefetch::prefetch;
use uverbs_core::provider::{Armer, CqOps, Notify, Polled, Sink, Usual};
use uverbs_core::queues::by_index::ByIndex;
use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::slots::Taken;
use uverbs_mlx5_prm::cqe::{CqeOpcode, MLX5_CQE_OWNER_MASK, OpOwn, mlx5_cqe64};
use uverbs_mlx5_prm::doorbell::{CI_MASK, MLX5_CQ_SET_CI};

use crate::cqe::{Cqe, OwnedCqe, RawUidx};
use crate::send::doorbell;

use self::arms::Arms;
use self::known::{Known, Special};
use self::resize::{Resizing, resize};
use self::take::{take_recv, take_send, take_shared};

/// Last byte of entries in a new ring: no opcode, and the ownership bit that the first turn does
/// not expect. rdma-core writes 0xf0 and checks the opcode of every entry; with the bit set no
/// check is needed.
pub(crate) const UNWRITTEN: u8 = CqeOpcode::INVALID.0 << 4 | MLX5_CQE_OWNER_MASK;

const OP_OWN_OFFSET: usize = mlx5_cqe64::OP_OWN_OFFSET;

/// Maximum queue pairs whose polling state stays in the first-level cache unprefetched.
const FEW: usize = 256;
/// Prefetch distance in CQEs: memory latency, at a few nanoseconds a CQE.
const FAR: u32 = 24;
/// Prefetch distance in the ring in bytes: eight CQEs of 64 bytes.
const AHEAD: usize = 8 * mlx5_cqe64::SIZE;

/// Highest rotated last byte of a success, whose opcodes are the lowest.
const LAST_SUCCESS: u8 = CqeOpcode::RESP_SEND_INV.0 << 3 | 0b111;
/// The ownership bit in the rotated byte.
const NOT_MINE: u8 = MLX5_CQE_OWNER_MASK.rotate_right(1);

/// The poller of a completion queue.
// Not `CachePadded`: this divides fields among lines, and has no neighbours to part.
#[repr(C, align(64))]
pub struct Cq {
    // First cache line: fields that each poll reads.
    /// The 64 used bytes of the next CQE.
    next: *mut u8,
    /// End of the ring, at the same offset in an entry as `start`: here `next` wraps to `start`.
    end: *mut u8,
    /// Consumer index, free running. Its low 24 bits are published.
    ci: u32,
    /// The consumer index that was published last.
    published: u32,
    /// Size of an entry in bytes.
    stride: u32,
    /// Ownership bit of software's entries in this turn around the ring.
    turn: u8,
    /// User index of the last completion's queue pair, in memory order.
    last_uidx: RawUidx,
    last: *const QpShared,
    record: *mut u32,
    // Second cache line: fields used less often.
    /// The 64 used bytes of the first entry.
    start: *mut u8,
    /// Number of entries, a power of two.
    size: u32,
    strays: u32,
    core: Arc<CqCore>,
    /// Queue pairs by user index.
    table: ByIndex<Known>,
    /// Doorbell register that arms it.
    arm: *mut u64,
    /// State for resizing; `None` in tests of a bare ring.
    resizing: Option<Box<Resizing>>,
    /// Second table, of queue pairs whose completions need more work, if any.
    special: Option<Box<Special>>,
}

const _: () = assert!(std::mem::offset_of!(Cq, start) <= 64);
// The API's fields behind it start a cache line, too.
const _: () = assert!(size_of::<Cq>() <= 128);

// SAFETY: `start`, `record` and `arm` point to memory that `core` keeps, `last` points into
// `table`; this is the only poller.
unsafe impl Send for Cq {}

/// Parts of a completion queue.
pub(crate) struct CqParts {
    /// First byte of the ring.
    pub(crate) start: *mut u8,
    /// Number of entries, a power of two.
    pub(crate) entries: u32,
    /// Log2 of an entry's size: 6 or 7.
    pub(crate) shift: u32,
    pub(crate) record: *mut u32,
    /// Doorbell register of completion queues, on a non-cached page.
    pub(crate) arm: *mut u64,
    /// Kernel object, which keeps ring, record and page.
    pub(crate) core: Arc<CqCore>,
    pub(crate) resizing: Option<Resizing>,
    /// The device may compress CQEs.
    pub(crate) compressed: bool,
}

/// Fills a new ring.
///
/// # Safety
///
/// `entries` times 2^`shift` bytes at `start` are valid for writes, and the device does not use
/// them yet.
pub(crate) unsafe fn fill(start: *mut u8, entries: u32, shift: u32) {
    for entry in 1..=entries as usize {
        let last = start.wrapping_add((entry << shift) - 1);
        // SAFETY: the last byte of an entry of the ring.
        unsafe { last.write(UNWRITTEN) };
    }
}

impl Cq {
    /// A poller without queue pairs.
    ///
    /// # Safety
    ///
    /// `start` is aligned to an entry. Ring, which was [`fill`]ed, record and doorbell are valid
    /// while `core` lives. This is the only poller.
    pub(crate) unsafe fn new(parts: CqParts) -> Self {
        let start = parts.start.wrapping_add((1 << parts.shift) - mlx5_cqe64::SIZE);
        Self {
            next: start,
            end: start.wrapping_add((parts.entries as usize) << parts.shift),
            ci: 0,
            published: 0,
            stride: 1 << parts.shift,
            turn: 0,
            start,
            size: parts.entries,
            last_uidx: RawUidx::NONE,
            last: std::ptr::null(),
            record: parts.record,
            core: parts.core,
            table: ByIndex::default(),
            strays: 0,
            arm: parts.arm,
            resizing: parts.resizing.map(Box::new),
            special: parts.compressed.then(Special::of_all),
        }
    }

    /// Sets the index, as if that many completions had been polled.
    #[cfg(test)]
    pub(crate) fn start_at(&mut self, index: u32) {
        self.published = index;
        self.seek(index);
    }

    /// Sets the consumer index.
    fn seek(&mut self, index: u32) {
        (self.ci, self.next, self.turn) = (index, self.at(index), self.turn_of(index));
    }

    /// Advances to the next entry.
    #[inline(always)]
    fn step(&mut self) {
        self.ci = self.ci.wrapping_add(1);
        let next = self.next.wrapping_add(self.stride as usize);
        self.next = next;
        if next == self.end {
            self.next = self.start;
            self.turn ^= MLX5_CQE_OWNER_MASK;
        }
    }

    pub(crate) fn core(&self) -> &Arc<CqCore> {
        &self.core
    }

    pub(crate) fn consumer(&self) -> u32 {
        self.ci
    }

    pub(crate) fn entries(&self) -> u32 {
        self.size
    }

    /// Size of an entry in bytes.
    pub(crate) fn stride(&self) -> usize {
        self.stride as usize
    }

    pub(crate) fn record(&self) -> *mut u32 {
        self.record
    }

    pub(crate) fn arm_register(&self) -> *mut u64 {
        self.arm
    }

    /// Address of the ring's first byte.
    pub(crate) fn ring_start(&self) -> *mut u8 {
        self.start.wrapping_sub(self.stride() - mlx5_cqe64::SIZE)
    }

    #[inline(always)]
    fn at(&self, index: u32) -> *mut u8 {
        self.start.wrapping_add((index & (self.size - 1)) as usize * self.stride as usize)
    }

    /// The entry with this free-running index. The caller checks its owner.
    #[inline(always)]
    pub(crate) fn entry(&self, index: u32) -> OwnedCqe {
        // SAFETY: the mask keeps it inside the ring, which `core` keeps.
        unsafe { OwnedCqe::new(self.at(index)) }
    }

    /// Opcode and ownership of the entry with this index, if software owns it.
    #[inline(always)]
    fn owned(&self, index: u32) -> Option<u8> {
        let op_own = self.at(index).wrapping_add(OP_OWN_OFFSET);
        // SAFETY: the mask keeps it inside the ring, which `core` keeps; the device writes whole
        // bytes.
        let op_own = unsafe { device_memory::load_owner(op_own) };
        (op_own & MLX5_CQE_OWNER_MASK == self.turn_of(index)).then_some(op_own)
    }

    /// Ownership bit of software's entries in the turn of `index`: the lowest bit of the turn's
    /// number.
    #[inline(always)]
    fn turn_of(&self, index: u32) -> u8 {
        u8::from(index & self.size != 0)
    }

    /// Makes the queue pair that a CQE names the last one; false if it is unknown.
    #[inline(always)]
    fn know(&mut self, entry: OwnedCqe) -> bool {
        let raw = entry.raw_uidx();
        raw == self.last_uidx || self.find(raw)
    }

    /// As [`know`](Self::know), but returns false with many queue pairs if it is not the last one,
    /// because the lookup then needs prefetching.
    #[inline(always)]
    fn know_few(&mut self, entry: OwnedCqe) -> bool {
        let raw = entry.raw_uidx();
        raw == self.last_uidx || self.table.places() <= FEW && self.find(raw)
    }

    #[inline(always)]
    fn find(&mut self, raw: RawUidx) -> bool {
        let Some(known) = self.table.get(raw.value()) else { return false };
        (self.last_uidx, self.last) = (raw, Arc::as_ptr(&known.shared));
        if self.table.places() > FEW {
            self.look_ahead();
        }
        true
    }

    /// Prefetches the state that a later CQE will need: with thousands of queue pairs, the state of
    /// each has left the cache before its next completion. Only prefetches, so the CQE's content
    /// need not be valid.
    #[cold]
    #[inline(never)]
    fn look_ahead(&self) {
        let entry = self.entry(self.ci.wrapping_add(FAR));
        if let Some(known) = self.table.get(entry.uidx()) {
            if entry.is_send() {
                known.sends.prefetch(entry.wqe_counter().into());
                known.shared.send.prefetch();
            } else {
                known.shared.recv.prefetch();
            }
        }
    }

    /// Takes the work request that the next CQE completes; `None` if it names no outstanding one.
    ///
    /// # Safety
    ///
    /// Software owns the entry, reports a success, and `know` has just found its queue pair.
    #[inline(always)]
    unsafe fn succeed<'a>(&mut self, entry: OwnedCqe, op_own: u8) -> Option<Polled<Cqe<'a>>> {
        let opcode = CqeOpcode(OpOwn(op_own).opcode());
        // SAFETY: the entry is in the ring, and goes back to the device at `publish`, after the
        // lifetime of the caller's view.
        let view = unsafe { Cqe::new(entry, opcode) };
        // SAFETY: `know` found `last` in the table, which is not changed until the next call.
        let shared = unsafe { &*self.last };
        if opcode == CqeOpcode::REQ {
            // SAFETY: the device completed this send; this is the only poller.
            let Taken { wr_id, frame, .. } = unsafe { take_send(shared, entry) }?;
            self.step();
            return Some(Polled { view, wr_id, frame });
        }
        // SAFETY: the device completed the receive; this is the only poller.
        let Taken { wr_id, mut frame, .. } = unsafe { take_recv(shared, entry) }?;
        if let Some(frame) = &mut frame {
            // A WRITE with immediate data consumed the receive without writing to its buffer.
            let into = opcode != CqeOpcode::RESP_WR_IMM;
            frame.arrived(if into { entry.byte_count() } else { 0 });
        }
        self.step();
        Some(Polled { view, wr_id, frame })
    }
}

// SAFETY: a slot is taken once a CQE says that its work request is complete, and retired
// afterwards; see the file's head.
unsafe impl CqOps for Cq {
    type View<'a> = Cqe<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Polled<Cqe<'_>>> {
        let at = self.next;
        // SAFETY: in the ring, which `core` keeps; the device writes whole bytes.
        let op_own = unsafe { device_memory::load_owner(at.wrapping_add(OP_OWN_OFFSET)) };
        // The lowest bit is 0 if software owns the entry. Rotated to the highest bit, it is part of
        // the comparison for a success.
        let mine = (op_own ^ self.turn).rotate_right(1);
        if mine <= LAST_SUCCESS {
            // SAFETY: in the ring, which `core` keeps; the device writes whole bytes.
            let entry = unsafe { OwnedCqe::new(at) };
            // CQEs come from the device and are in no cache. Prefetching overlaps the misses of a
            // batch. Near the ring's end this prefetches memory behind the ring, which is harmless.
            prefetch(at.wrapping_add(AHEAD));
            fence::cqe_owner_before_body();
            if self.know(entry)
                // SAFETY: a success, and its queue pair was just looked up.
                && let Some(polled) = unsafe { self.succeed(entry, op_own) }
            {
                return Some(polled);
            }
        } else if mine & NOT_MINE != 0 {
            return None;
        }
        // Destructured, because the call returns in memory and only that value shall be there.
        let Polled { view, wr_id, frame } = self.next_slow()?;
        Some(Polled { view, wr_id, frame })
    }

    #[inline(always)]
    fn next_usual<'a, S: Sink<Cqe<'a>>>(&'a mut self, sink: S) -> Usual<S::Output> {
        let at = self.next;
        // The ownership check of `next`.
        // SAFETY: in the ring, which `core` keeps; the device writes whole bytes.
        let op_own = unsafe { device_memory::load_owner(at.wrapping_add(OP_OWN_OFFSET)) };
        let mine = (op_own ^ self.turn).rotate_right(1);
        if mine > LAST_SUCCESS {
            return if mine & NOT_MINE != 0 { Usual::Nothing } else { Usual::Unusual };
        }
        // SAFETY: in the ring, which `core` keeps; the device writes whole bytes.
        let entry = unsafe { OwnedCqe::new(at) };
        prefetch(at.wrapping_add(AHEAD));
        fence::cqe_owner_before_body();
        if !self.know_few(entry) {
            return Usual::Unusual;
        }
        // SAFETY: `last` is in the table, which is not changed until the next call.
        let shared = unsafe { &*self.last };
        let opcode = CqeOpcode(OpOwn(op_own).opcode());
        // SAFETY: `turn` is the lowest bit alone, so `mine` has the opcode of `op_own`, and is at
        // most `LAST_SUCCESS`.
        unsafe { assert_unchecked(opcode.0 <= CqeOpcode::RESP_SEND_INV.0) };
        // SAFETY: the entry is in the ring, and goes back to the device at `publish`, after the
        // lifetime of the caller's view.
        let view = unsafe { Cqe::new(entry, opcode) };
        // Separate calls for sends and receives, so that the sink is compiled for each.
        if opcode == CqeOpcode::REQ {
            // SAFETY: the device completed this send; this is the only poller.
            let taken = unsafe { shared.send.take_ahead_bare(entry.wqe_counter()) };
            let Some((wr_id, position)) = taken else { return Usual::Unusual };
            // SAFETY: it was just taken.
            unsafe { shared.send.retire(position) };
            self.step();
            return Usual::Taken(sink.take(view, wr_id));
        }
        // SAFETY: the device completed the receive; this is the only poller.
        let taken = unsafe { shared.recv.take_next_bare(entry.wqe_counter()) };
        let wr_id = if let Some((wr_id, position)) = taken {
            // SAFETY: it was just taken.
            unsafe { shared.recv.retire(position) };
            wr_id
        } else {
            if !S::CALLS {
                return Usual::Unusual;
            }
            // SAFETY: the device completed the receive.
            let taken = unsafe { take_shared(shared, entry) };
            let Some(Taken { wr_id, .. }) = taken else { return Usual::Unusual };
            wr_id
        };
        self.step();
        Usual::Taken(sink.take(view, wr_id))
    }

    #[inline]
    fn is_empty(&mut self) -> bool {
        // SAFETY: in the ring, which `core` keeps; the device writes whole bytes.
        let op_own = unsafe { device_memory::load_owner(self.next.wrapping_add(OP_OWN_OFFSET)) };
        (op_own ^ self.turn).rotate_right(1) & NOT_MINE != 0
    }

    fn strays(&self) -> u64 {
        self.strays.into()
    }

    #[inline]
    fn publish(&mut self) {
        if self.ci == self.published {
            return;
        }
        self.published = self.ci;
        let record = self.record.wrapping_add(MLX5_CQ_SET_CI);
        // The loads from the entries come before the device may overwrite them. SAFETY: the record
        // is valid while `core` lives, and aligned; all other accesses are atomic or by the device.
        unsafe { device_memory::release_record(record, (self.ci & CI_MASK).to_be()) };
    }

    fn settle(&mut self) {
        self.learn();
    }

    fn sweep(&mut self, user_index: u32) {
        let srq = self.shared_of(user_index).and_then(|shared| shared.srq.clone());
        self.sweep_of(user_index, srq.as_deref());
    }

    #[cold]
    fn resize(&mut self, entries: u32) -> Result<(), Error> {
        resize(self, entries)
    }

    #[inline]
    fn arm(&mut self, notify: Notify) -> Result<(), Error> {
        let word = arms::word(self.core.events_to_arm()?, self.ci, notify);
        // SAFETY: both are valid while `core` lives, as the queue was promised.
        unsafe { doorbell::arm(self.record, self.arm, word, self.core.cqn()) };
        Ok(())
    }

    fn armer(&self) -> Armer {
        let core = Arc::clone(&self.core);
        let arms = Arms { record: self.record, register: self.arm, core };
        Box::new(move |notify| arms.arm(notify))
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        if self.core.context().uverbs().is_own() {
            self.give_back_shared();
        }
        // Polling ends: later messages are dropped, so that buffers go back to their slabs. SAFETY:
        // this is the only poller, and it ends here.
        unsafe { self.core.close() };
    }
}

impl fmt::Debug for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cq")
            .field("cqn", &format_args!("{:#x}", self.core.cqn()))
            .field("entries", &self.entries())
            .field("consumer", &self.ci)
            .field("queue_pairs", &self.table.len())
            .field("strays", &self.strays)
            .finish_non_exhaustive()
    }
}
