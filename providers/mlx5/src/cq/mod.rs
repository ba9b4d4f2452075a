//! Completion queues.
//!
//! The device writes an entry and its last byte last: opcode and ownership bit, which changes with
//! every turn around the ring. A new ring is filled with a bit that the first turn doesn't expect,
//! so the bit alone tells.
//!
//! # Safety
//!
//! A [`Cq`] is the only poller, and holds on to the memory that its pointers go to. An entry is the
//! program's from the load of its ownership bit on (a fence keeps the other loads behind) until the
//! consumer index passes it. The entry names its queue pair by user index, and the table holds on
//! to the queue pairs in it; the pointer of the last one is dropped with its place in the table.
//! Which slot a completion means is the device's word: that it names a published work request is
//! what makes taking the slot sound.
#![allow(
    unsafe_code,
    reason = "reads entries that the device writes, and takes slots that it names"
)]

mod arms;
mod compressed;
mod known;
pub(crate) mod resize;
pub(crate) mod scattered;
mod sweep;
mod tags;

use std::fmt;
use std::hint::assert_unchecked;
use std::sync::Arc;

use uverbs_core::error::Error;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::order::device_memory;
use uverbs_core::order::fence;
use uverbs_core::order::prefetch::prefetch;
use uverbs_core::provider::{Armer, CqOps, Notify, Polled, Sink, Usual};
use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::slots::Taken;
use uverbs_mlx5_prm::cqe::{CqeOpcode, MLX5_CQE_OWNER_MASK, OpOwn, mlx5_cqe64};
use uverbs_mlx5_prm::doorbell::{CI_MASK, MLX5_CQ_SET_CI};

use crate::cqe::{Cqe, Entry, RawUidx};
use crate::send::doorbell;

use self::arms::Arms;
use self::known::{Known, Special};
use self::resize::{Resizing, resize};
use self::tags::Stray;

/// What a ring is filled with: no opcode, and the ownership bit that the first turn doesn't expect.
/// rdma-core writes 0xf0 and looks at the opcode of every entry; with the bit set it need not be
/// looked at.
pub(crate) const UNWRITTEN: u8 = CqeOpcode::INVALID.0 << 4 | MLX5_CQE_OWNER_MASK;

const OP_OWN_OFFSET: usize = mlx5_cqe64::OP_OWN_OFFSET;

/// Queue pairs up to which what polling needs of them stays in a first-level cache by itself.
const FEW: usize = 256;
/// Entries to look ahead: what takes as long as memory does, at a few nanoseconds each.
const FAR: u32 = 24;
/// Bytes of the ring by which the next entries are fetched ahead: eight small ones.
const AHEAD: usize = 8 * mlx5_cqe64::SIZE;

/// The highest value of an entry's last byte that tells of success, ownership bit first: the
/// opcodes of successes are the lowest ones.
const LAST_SUCCESS: u8 = CqeOpcode::RESP_SEND_INV.0 << 3 | 0b111;
/// The ownership bit in such a value.
const NOT_MINE: u8 = MLX5_CQE_OWNER_MASK.rotate_right(1);

/// The polling side of a completion queue.
#[repr(C, align(64))]
pub struct Cq {
    // One cache line: what each poll looks at.
    /// The 64 described bytes of the next entry.
    next: *mut u8,
    /// Behind the last entry, as far as `start` is behind the ring's first byte: where `next` goes
    /// back to `start`.
    end: *mut u8,
    /// Consumer index, free running; the device knows its low 24 bits once it is published.
    ci: u32,
    /// The consumer index that was published last.
    published: u32,
    /// Bytes of an entry.
    stride: u32,
    /// The ownership bit of entries that belong to the program on this turn around the ring.
    turn: u8,
    /// The queue pair of the last completion, as entries have it.
    last_uidx: RawUidx,
    last: *const QpShared,
    record: *mut u32,
    // The rest.
    /// The 64 described bytes of the first entry.
    start: *mut u8,
    /// Entries, a power of two.
    size: u32,
    strays: u32,
    core: Arc<CqCore>,
    /// Queue pairs by user index.
    table: Vec<Option<Known>>,
    /// Where it is armed.
    arm: *mut u64,
    /// What another size takes; none in tests of a ring alone.
    resizing: Option<Box<Resizing>>,
    /// The table of queue pairs whose completions need more work, if there are any.
    special: Option<Box<Special>>,
}

const _: () = assert!(std::mem::offset_of!(Cq, start) <= 64);
// What the API's queue has behind it begins a line, too.
const _: () = assert!(size_of::<Cq>() <= 128);

// SAFETY: `start`, `record` and `arm` go to memory that `core` keeps, `last` into `table`; this is
// the only one to poll.
unsafe impl Send for Cq {}

/// What a completion queue is made from.
pub(crate) struct CqParts {
    /// First byte of the ring.
    pub(crate) start: *mut u8,
    /// Entries, a power of two.
    pub(crate) entries: u32,
    /// Log2 of an entry's bytes: 6 or 7.
    pub(crate) shift: u32,
    pub(crate) record: *mut u32,
    /// The doorbell of completion queues, on a page that is mapped non-cached.
    pub(crate) arm: *mut u64,
    /// Keeps ring, record and page.
    pub(crate) core: Arc<CqCore>,
    pub(crate) resizing: Option<Resizing>,
    /// The device may compress entries.
    pub(crate) compressed: bool,
}

/// The outcome of an entry that is not the success of a work request of a known queue pair.
enum Odd {
    /// A failed work request's; consumed.
    Failed(Taken),
    /// Nothing for the program; consumed.
    Stray,
    /// Not written yet, whatever its ownership bit says.
    Unwritten,
}

/// Fills a new ring.
///
/// # Safety
///
/// `entries` times two to the `shift` bytes are valid to write at `start`, and the device doesn't
/// know them yet.
pub(crate) unsafe fn fill(start: *mut u8, entries: u32, shift: u32) {
    for entry in 1..=entries as usize {
        let last = start.wrapping_add((entry << shift) - 1);
        // SAFETY: the last byte of an entry of the ring.
        unsafe { last.write(UNWRITTEN) };
    }
}

impl Cq {
    /// A queue that knows no queue pair yet.
    ///
    /// # Safety
    ///
    /// `start` is aligned to an entry. Ring, which was [`fill`]ed, record and doorbell are valid
    /// while `core` lives. Nobody else polls.
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
            table: Vec::new(),
            strays: 0,
            arm: parts.arm,
            resizing: parts.resizing.map(Box::new),
            special: parts.compressed.then(Special::of_all),
        }
    }

    /// As if so many completions had been polled before.
    #[cfg(test)]
    pub(crate) fn start_at(&mut self, index: u32) {
        self.published = index;
        self.seek(index);
    }

    /// Makes this the consumer index.
    fn seek(&mut self, index: u32) {
        (self.ci, self.next, self.turn) = (index, self.at(index), self.turn_of(index));
    }

    /// Goes on to the next entry.
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

    /// Bytes of an entry.
    pub(crate) fn stride(&self) -> usize {
        self.stride as usize
    }

    pub(crate) fn record(&self) -> *mut u32 {
        self.record
    }

    pub(crate) fn arm_register(&self) -> *mut u64 {
        self.arm
    }

    /// The first byte of the ring.
    pub(crate) fn ring_start(&self) -> *mut u8 {
        self.start.wrapping_sub(self.stride() - mlx5_cqe64::SIZE)
    }

    #[inline(always)]
    fn at(&self, index: u32) -> *mut u8 {
        self.start.wrapping_add((index & (self.size - 1)) as usize * self.stride as usize)
    }

    /// The entry with this free-running index. The caller checks who owns it.
    #[inline(always)]
    pub(crate) fn entry(&self, index: u32) -> Entry {
        // SAFETY: in the ring, by the mask, which `core` keeps.
        unsafe { Entry::new(self.at(index)) }
    }

    /// Opcode and ownership of the entry with this index, if it is the program's.
    #[inline(always)]
    fn owned(&self, index: u32) -> Option<u8> {
        let op_own = self.at(index).wrapping_add(OP_OWN_OFFSET);
        // SAFETY: in the ring, by the mask, which `core` keeps; the device's write is one of a byte
        // at least.
        let op_own = unsafe { device_memory::load_owner(op_own) };
        (op_own & MLX5_CQE_OWNER_MASK == self.turn_of(index)).then_some(op_own)
    }

    /// The ownership bit of entries that belong to the program: the lowest bit of the number of the
    /// turn.
    #[inline(always)]
    fn turn_of(&self, index: u32) -> u8 {
        u8::from(index & self.size != 0)
    }

    /// Makes the queue pair that an entry names the last one; false when there is none.
    #[inline(always)]
    fn know(&mut self, entry: Entry) -> bool {
        let raw = entry.raw_uidx();
        raw == self.last_uidx || self.find(raw)
    }

    /// The same, but false where another queue pair than the last one takes more than a look into
    /// the table: where there are many.
    #[inline(always)]
    fn know_few(&mut self, entry: Entry) -> bool {
        let raw = entry.raw_uidx();
        raw == self.last_uidx || self.table.len() <= FEW && self.find(raw)
    }

    #[inline(always)]
    fn find(&mut self, raw: RawUidx) -> bool {
        let Some(Some(known)) = self.table.get(raw.value() as usize) else {
            return false;
        };
        (self.last_uidx, self.last) = (raw, Arc::as_ptr(&known.shared));
        if self.table.len() > FEW {
            self.look_ahead();
        }
        true
    }

    /// Starts to bring into the cache what an entry further on will need: with thousands of queue
    /// pairs each completion is one of a queue pair that was not looked at for long. Hints only:
    /// whatever stands there, nothing is done but that.
    #[cold]
    #[inline(never)]
    fn look_ahead(&self) {
        let entry = self.entry(self.ci.wrapping_add(FAR));
        if let Some(Some(known)) = self.table.get(entry.uidx() as usize) {
            if entry.is_send() {
                known.sends.prefetch(entry.wqe_counter().into());
                known.shared.send.prefetch();
            } else {
                known.shared.recv.prefetch();
            }
        }
    }

    /// Takes the work request that the next entry says was done; `None` if it names none that is
    /// outstanding.
    ///
    /// # Safety
    ///
    /// The entry is the program's, tells of success, and `know` has just found its queue pair.
    #[inline(always)]
    unsafe fn succeed<'a>(&mut self, entry: Entry, op_own: u8) -> Option<Polled<Cqe<'a>>> {
        let opcode = CqeOpcode(OpOwn(op_own).opcode());
        // SAFETY: the entry is in the ring, and is given back by `publish` at the earliest, for
        // which the caller's view is over.
        let view = unsafe { Cqe::new(entry, opcode) };
        // SAFETY: `know` said that `last` is in the table, which isn't changed until the next call.
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
            // A WRITE with immediate data went elsewhere, and used up the receive.
            let into = opcode != CqeOpcode::RESP_WR_IMM;
            frame.arrived(if into { entry.byte_count() } else { 0 });
        }
        self.step();
        Some(Polled { view, wr_id, frame })
    }

    /// The next completion where it is a failure, or of a queue pair that isn't known yet; or
    /// nothing, after what is nobody's was skipped.
    #[cold]
    #[inline(never)]
    fn next_odd(&mut self) -> Option<Polled<Cqe<'_>>> {
        let mut strays = 0;
        while let Some(op_own) = self.owned(self.ci) {
            fence::cqe_owner_before_body();
            let entry = self.entry(self.ci);
            let opcode = CqeOpcode(OpOwn(op_own).opcode());
            let mut known = self.know(entry);
            if !known && self.core.has_messages() {
                // Learning may sweep, which moves entries and the consumer index: look anew.
                self.learn();
                continue;
            }
            let mut unloaded = Ok(());
            if !known && self.special.is_some() {
                if self.expand(self.ci) {
                    continue;
                }
                known = self.know_special(entry);
                // SAFETY: the entry is the program's.
                match unsafe { self.next_of_tags(entry, opcode) } {
                    Some(Ok(polled)) => return Some(polled),
                    Some(Err(Stray)) if strays + 1 < self.size => {
                        strays += 1;
                        continue;
                    }
                    Some(Err(Stray)) => break,
                    // SAFETY: the queue pair that the entry names was just looked up.
                    None if known => unloaded = unsafe { self.unload(entry, op_own) },
                    None => {}
                }
            }
            if let Err(why) = unloaded
                // SAFETY: a success of the last queue pair.
                && let failed @ Some(_) = unsafe { self.fail_unloaded(entry, opcode, why) }
            {
                return failed;
            }
            if known
                && unloaded.is_ok()
                && opcode.0 <= CqeOpcode::RESP_SEND_INV.0
                // SAFETY: a success, and the queue pair that it names was just looked up.
                && let Some(polled) = unsafe { self.succeed(entry, op_own) }
            {
                return Some(polled);
            }
            match self.odd(opcode, entry, known) {
                Odd::Failed(Taken { wr_id, frame, .. }) => {
                    // SAFETY: as in `succeed`.
                    let view = unsafe { Cqe::new(entry, opcode) };
                    return Some(Polled { view, wr_id, frame });
                }
                // A ring full of them at most, then it is the caller's turn: whatever the device
                // does, this ends.
                Odd::Stray if strays + 1 < self.size => strays += 1,
                Odd::Stray | Odd::Unwritten => break,
            }
        }
        if strays != 0 {
            self.publish();
        }
        None
    }

    fn stray(&mut self) -> Odd {
        self.strays = self.strays.saturating_add(1);
        Odd::Stray
    }

    /// Failures, and what isn't ours: the next entry is the program's, and is no success of a queue
    /// pair that is known. If it is one of a known one, that is the last one.
    #[cold]
    #[inline(never)]
    fn odd(&mut self, opcode: CqeOpcode, entry: Entry, known: bool) -> Odd {
        if opcode == CqeOpcode::INVALID {
            return Odd::Unwritten;
        }
        self.step();
        let failed = opcode == CqeOpcode::REQ_ERR || opcode == CqeOpcode::RESP_ERR;
        if !failed || !known {
            return self.stray();
        }
        // SAFETY: `last` is in a table, says the caller, which isn't changed until the next call.
        let shared = unsafe { &*self.last };
        let taken = if opcode == CqeOpcode::REQ_ERR {
            // SAFETY: the program's, a failed send of the last queue pair, not taken yet.
            let frame = unsafe { self.refused_change(entry) };
            // SAFETY: the device completed this send, with an error; this is the only poller.
            let taken = unsafe { take_send(shared, entry) };
            taken.map(|taken| Taken { frame: taken.frame.or(frame), ..taken })
        } else {
            // SAFETY: the device completed the oldest receive, with an error; this is the only
            // poller.
            unsafe { take_recv(shared, entry) }
        };
        taken.map_or_else(|| self.stray(), Odd::Failed)
    }
}

/// Takes and retires the send that an entry is of; `None` if no send that is outstanding starts
/// there, as after a completion that came twice.
///
/// # Safety
///
/// The device completed it, and the caller is the only poller.
#[inline(always)]
unsafe fn take_send(shared: &QpShared, entry: Entry) -> Option<Taken> {
    // SAFETY: the caller's promise. The table has a slot at least, whatever the queue has.
    let taken = unsafe { shared.send.take_ahead(entry.wqe_counter()) }?;
    // SAFETY: and it was just taken.
    unsafe { shared.send.retire(taken.reach) };
    Some(taken)
}

/// Takes and retires the oldest receive: a queue pair's own receive queue completes in order. If
/// the entry is of another one, it is of a shared queue, or `None`: as after a completion that came
/// twice. The device counts a queue pair's own receives modulo 65536 (Linux's mlx5e finds its
/// receives by the same field, `en_rx.c:mlx5e_handle_rx_cqe`).
///
/// # Safety
///
/// The device completed it, and the caller is the only poller.
#[inline(always)]
unsafe fn take_recv(shared: &QpShared, entry: Entry) -> Option<Taken> {
    // SAFETY: the caller's promise. The table has a slot at least, whatever the queue has.
    let Some(taken) = (unsafe { shared.recv.take_next(entry.wqe_counter()) }) else {
        // SAFETY: the caller's promise.
        return unsafe { take_shared(shared, entry) };
    };
    // SAFETY: and it was just taken.
    unsafe { shared.recv.retire(taken.reach) };
    Some(taken)
}

/// Takes the receive of a shared queue that an entry is of; `None` if none is in flight there. The
/// entry has the WQE's place in the ring. Or of an own queue that completes in any order, and
/// retires it.
///
/// # Safety
///
/// The device completed it.
#[inline(never)]
unsafe fn take_shared(shared: &QpShared, entry: Entry) -> Option<Taken> {
    let Some(srq) = shared.srq.as_ref() else {
        // SAFETY: the caller's promise.
        let taken = unsafe { shared.recv.take_out_of_turn(entry.wqe_counter()) }?;
        // SAFETY: the queue completes in any order, and one more was taken.
        unsafe { shared.recv.retire(taken.reach) };
        return Some(taken);
    };
    // SAFETY: the caller's promise.
    unsafe { srq.take(entry.wqe_counter().into()) }
}

// SAFETY: a slot is taken when an entry of the ring says that its work request is over, and retired
// behind that; see the file's head.
unsafe impl CqOps for Cq {
    type View<'a> = Cqe<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Polled<Cqe<'_>>> {
        let at = self.next;
        // SAFETY: in the ring, which `core` keeps; the device's write is one of a byte at least.
        let op_own = unsafe { device_memory::load_owner(at.wrapping_add(OP_OWN_OFFSET)) };
        // The lowest bit is 0 in an entry that is the program's. As the highest one it is part of
        // the comparison for a success.
        let mine = (op_own ^ self.turn).rotate_right(1);
        if mine <= LAST_SUCCESS {
            // SAFETY: as above.
            let entry = unsafe { Entry::new(at) };
            // Entries come from the device and are in no cache: fetched ahead, a batch's misses
            // overlap. Near the ring's end this names memory behind the ring, which is harmless.
            prefetch(at.wrapping_add(AHEAD));
            fence::cqe_owner_before_body();
            if self.know(entry)
                // SAFETY: a success, and the queue pair that it names was just looked up.
                && let Some(polled) = unsafe { self.succeed(entry, op_own) }
            {
                return Some(polled);
            }
        } else if mine & NOT_MINE != 0 {
            return None;
        }
        // Taken apart: what the call returns is in memory, and nothing else shall be.
        let Polled { view, wr_id, frame } = self.next_odd()?;
        Some(Polled { view, wr_id, frame })
    }

    #[inline(always)]
    fn next_usual<'a, S: Sink<Cqe<'a>>>(&'a mut self, sink: S) -> Usual<S::Output> {
        let at = self.next;
        // As in `next`.
        // SAFETY: in the ring, which `core` keeps; the device's write is one of a byte at least.
        let op_own = unsafe { device_memory::load_owner(at.wrapping_add(OP_OWN_OFFSET)) };
        let mine = (op_own ^ self.turn).rotate_right(1);
        if mine > LAST_SUCCESS {
            return if mine & NOT_MINE != 0 { Usual::Nothing } else { Usual::Unusual };
        }
        // SAFETY: as above.
        let entry = unsafe { Entry::new(at) };
        prefetch(at.wrapping_add(AHEAD));
        fence::cqe_owner_before_body();
        if !self.know_few(entry) {
            return Usual::Unusual;
        }
        // SAFETY: `last` is in the table, which isn't changed until the next call.
        let shared = unsafe { &*self.last };
        let opcode = CqeOpcode(OpOwn(op_own).opcode());
        // SAFETY: `turn` is the lowest bit alone, so `mine` has the opcode of `op_own`, and is at
        // most `LAST_SUCCESS`.
        unsafe { assert_unchecked(opcode.0 <= CqeOpcode::RESP_SEND_INV.0) };
        // SAFETY: the entry is in the ring, and is given back by `publish` at the earliest, for
        // which the caller's view is over.
        let view = unsafe { Cqe::new(entry, opcode) };
        // The sink is called once for sends and once for receives, and compiled for each.
        if opcode == CqeOpcode::REQ {
            // SAFETY: the device completed this send; this is the only poller.
            let taken = unsafe { shared.send.take_ahead_bare(entry.wqe_counter()) };
            let Some((wr_id, reach)) = taken else { return Usual::Unusual };
            // SAFETY: and it was just taken.
            unsafe { shared.send.retire(reach) };
            self.step();
            return Usual::Taken(sink.take(view, wr_id));
        }
        // SAFETY: the device completed the receive; this is the only poller.
        let taken = unsafe { shared.recv.take_next_bare(entry.wqe_counter()) };
        let wr_id = if let Some((wr_id, reach)) = taken {
            // SAFETY: and it was just taken.
            unsafe { shared.recv.retire(reach) };
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
        // The loads from the entries come before the device may write over them. SAFETY: the record
        // is valid while `core` lives, aligned, and others access it atomically, or are the device.
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
        // Nobody will look any more: what is told from now on is dropped, so that buffers go back
        // to their slabs. SAFETY: this is the one polling side, and it ends here.
        unsafe { self.core.close() };
    }
}

impl fmt::Debug for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cq")
            .field("cqn", &format_args!("{:#x}", self.core.cqn()))
            .field("entries", &self.entries())
            .field("consumer", &self.ci)
            .field("queue_pairs", &self.table.iter().flatten().count())
            .field("strays", &self.strays)
            .finish_non_exhaustive()
    }
}
