//! Rings of completions. A completion queue may have several, which are polled in turn.
//!
//! # Safety
//!
//! An entry whose phase bit is new is the program's until the ring has turned. The device then
//! writes it again only for a work request that was posted after the entry was taken, or for an
//! unsolicited WRITE. Peers may overrun a queue with unsolicited WRITEs: entries then change while
//! they are read, by volatile loads. Such an entry names a wrong slot at worst, which is taken only
//! if its work request is in flight. The owner keeps the mapping.
#![allow(unsafe_code, reason = "reads entries that the device wrote, and marks swept ones")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use uverbs_core::error::Error;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::order::fence;
use uverbs_core::provider::Notify;
use uverbs_core::queues::known::{Ended, Known};
use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::slots::SlotTable;
use uverbs_core::queues::token::{Queue, Token};
use uverbs_kernel_abi::efa::io::{
    EFA_IO_CDESC_COMMON_PHASE_MASK, EFA_IO_COMP_STATUS_FLUSHED, EFA_IO_COMP_STATUS_OK,
};

use crate::direct::Direct;
use crate::ring::Register;
use crate::wc::{EfaCqe, QUEUE_TYPE, Wc};
use crate::wqe::req_id;

/// Bit of the doorbell that arms (rdma-core `efa_io_regs_defs.h`).
const ARM: u32 = 1 << 31;
/// Lowest bit of the number of events, modulo 4.
const SEQUENCE: u32 = 29;
/// User index of no queue pair.
const NOBODY: u32 = u32::MAX;

/// Register of a completion queue, to which any thread may store.
#[derive(Debug)]
struct Doorbell {
    register: Register,
    /// Number of consumed entries that the device was told last.
    consumed: AtomicU32,
}

impl Doorbell {
    /// Tells the device consumed entries and events that were taken, and arms if `flags` has
    /// [`ARM`] (rdma-core `verbs.c:efa_update_cq_doorbell`).
    #[inline(always)]
    fn ring(&self, consumed: u32, events: u32, flags: u32) {
        self.register.write(flags | (events & 3) << SEQUENCE | consumed & 0xffff);
    }
}

/// Arms a completion queue; without register it can't be.
#[derive(Clone, Debug)]
pub struct Arm(Option<Arc<Doorbell>>);

impl uverbs_kernel_rings::Arm for Arm {
    fn arm(&self, core: &CqCore, notify: Notify) -> Result<(), Error> {
        let unsupported = |what: &str| {
            let what = format!("{what} (efa)");
            Err(Error::Unsupported { verb: "req_notify_cq", what })
        };
        let Some(doorbell) = &self.0 else {
            return unsupported("events of a device without CQ notifications");
        };
        if notify == Notify::Solicited {
            return unsupported("events of solicited completions alone");
        }
        let consumed = doorbell.consumed.load(Ordering::Relaxed);
        doorbell.ring(consumed, core.events_to_arm()?, ARM);
        Ok(())
    }
}

/// Queue pair that has a number, as far as completions need it.
#[derive(Clone, Copy, Debug)]
struct Owner {
    user_index: u32,
    /// Bits of a slot's number, of sends and of receives.
    slot_bits: [u8; 2],
}

impl Owner {
    const NONE: Self = Self { user_index: NOBODY, slot_bits: [0; 2] };

    fn of(shared: &QpShared) -> Self {
        let bits = |slots: &SlotTable| slots.units().trailing_zeros() as u8;
        let slot_bits = [bits(&shared.send), bits(&shared.recv)];
        Self { user_index: shared.user_index.value(), slot_bits }
    }

    /// Token of a request, unless its number is of another queue pair.
    #[inline(always)]
    fn token(self, queue: Queue, id: u16) -> Option<Token> {
        let bits = u32::from(self.slot_bits[usize::from(queue == Queue::Recv)]);
        let (user_index, index) = (self.user_index, u32::from(id) & ((1u32 << bits) - 1));
        (req_id(user_index, index, bits) == id).then_some(Token { user_index, queue, index })
    }
}

/// One ring.
#[derive(Clone, Copy, Debug)]
struct SubRing {
    start: *mut u8,
    /// Index of the next entry, free running.
    ci: u32,
}

/// Rings of a completion queue.
#[derive(Debug)]
pub struct CqRing {
    rings: Box<[SubRing]>,
    /// Ring that is polled next, or whose entry is at hand.
    current: usize,
    /// Entries of a ring: a power of two.
    entries: u32,
    entry_size: u32,
    /// Entries consumed of all rings.
    consumed: u32,
    published: u32,
    doorbell: Option<Arc<Doorbell>>,
    /// Owner of each queue pair number.
    owners: Vec<Owner>,
}

// SAFETY: the memory may be accessed from any thread; the owner is the only one on its side.
unsafe impl Send for CqRing {}

impl CqRing {
    /// `count` rings of `entries` entries each, one behind the other.
    ///
    /// # Safety
    ///
    /// As many entries at `start` are valid to read and write while the rings live, and aligned.
    pub(crate) unsafe fn new(
        start: *mut u8,
        (count, entries, entry_size): (u32, u32, u32),
        register: Option<Register>,
    ) -> Self {
        let bytes = (entries * entry_size) as usize;
        let ring = |index| SubRing { start: start.wrapping_add(index as usize * bytes), ci: 0 };
        let doorbell = |register| Arc::new(Doorbell { register, consumed: AtomicU32::new(0) });
        Self {
            rings: (0..count).map(ring).collect(),
            current: 0,
            entries,
            entry_size,
            consumed: 0,
            published: 0,
            doorbell: register.map(doorbell),
            owners: Vec::new(),
        }
    }

    /// The ring; `None` of several.
    pub(crate) fn direct(&self) -> Option<Direct> {
        let [ring] = *self.rings else { return None };
        let register = self.doorbell.as_ref().map(|doorbell| doorbell.register.address());
        Some(Direct {
            buffer: ring.start,
            entry_size: self.entry_size,
            entries: self.entries,
            doorbell: register.unwrap_or(std::ptr::null_mut()),
            batch: self.entries,
        })
    }

    /// Entry of a ring at a free-running index, if the device has written it.
    #[inline(always)]
    fn written(&self, ring: SubRing, index: u32) -> Option<EfaCqe> {
        let at = (index & (self.entries - 1)) as usize * self.entry_size as usize;
        // SAFETY: an entry of the ring.
        let entry = unsafe { EfaCqe::new(ring.start.wrapping_add(at), self.entry_size) };
        // The first turn has the phase 1, and each turn has another one than the turn before.
        let is_odd = index & self.entries != 0;
        let is_set = entry.flags() & EFA_IO_CDESC_COMMON_PHASE_MASK != 0;
        (is_set != is_odd).then_some(entry)
    }

    /// Goes to the next ring.
    #[inline(always)]
    fn turn(&mut self) {
        self.current = if self.current + 1 < self.rings.len() { self.current + 1 } else { 0 };
    }
}

// SAFETY: an entry is given once the device wrote it, which is not again before `publish`: there
// are fewer work requests outstanding than entries, and a program that accepts unsolicited WRITEs
// makes the queue as long as its peers' WRITEs need. Only status OK reports success.
unsafe impl uverbs_kernel_rings::CqRing for CqRing {
    type Entry = EfaCqe;
    type View<'a> = Wc<'a>;
    type Arm = Arm;

    fn capacity(&self) -> u32 {
        self.entries
    }

    fn consumer(&self) -> u32 {
        self.consumed
    }

    #[inline(always)]
    fn front(&mut self) -> Option<EfaCqe> {
        for _ in 0..self.rings.len() {
            let ring = *self.rings.get(self.current)?;
            if let Some(entry) = self.written(ring, ring.ci) {
                fence::cqe_owner_before_body();
                return Some(entry);
            }
            self.turn();
        }
        None
    }

    #[inline(always)]
    fn advance(&mut self) {
        if let Some(ring) = self.rings.get_mut(self.current) {
            ring.ci = ring.ci.wrapping_add(1);
        }
        self.turn();
        self.consumed = self.consumed.wrapping_add(1);
    }

    /// An entry names queue pair and slot. The bits above the slot are of the user index: they
    /// tell a queue pair from the former owners of its number ([`State::user_index`]), of whose end
    /// the queue did not hear yet. An unsolicited completion has no slot: its token names the
    /// owner of the number.
    ///
    /// [`State::user_index`]: crate::driver::State::user_index
    #[inline(always)]
    fn token(&self, entry: EfaCqe) -> Option<Token> {
        let queue = entry.queue()?;
        let owner = self.owners.get(usize::from(entry.qpn())).unwrap_or(&Owner::NONE);
        let token = owner.token(queue, entry.req_id());
        Some(token.unwrap_or_else(|| {
            let user_index = if Self::is_unsolicited(entry) { owner.user_index } else { NOBODY };
            Token { user_index, queue, index: 0 }
        }))
    }

    #[inline(always)]
    fn is_unsolicited(entry: EfaCqe) -> bool {
        entry.queue() == Some(Queue::Recv) && entry.is_unsolicited()
    }

    /// A queue pair continues after an error of a work request. Work requests of a queue pair in
    /// the error state are flushed.
    #[inline(always)]
    fn ended(entry: EfaCqe) -> Ended {
        match entry.status() {
            EFA_IO_COMP_STATUS_OK => Ended::Done { bytes: entry.placed() },
            EFA_IO_COMP_STATUS_FLUSHED => Ended::Failed,
            _ => Ended::FailedAlone,
        }
    }

    #[inline(always)]
    unsafe fn view<'a>(entry: EfaCqe, is_recv: bool) -> Wc<'a> {
        // SAFETY: guaranteed by the contract of `view`.
        unsafe { Wc::new(entry, is_recv) }
    }

    #[inline(always)]
    fn publish(&mut self, core: &CqCore) {
        if self.consumed == self.published {
            return;
        }
        self.published = self.consumed;
        if let Some(doorbell) = &self.doorbell {
            doorbell.consumed.store(self.consumed, Ordering::Relaxed);
            // Without a channel there are no events.
            doorbell.ring(self.consumed, core.events_to_arm().unwrap_or(0), 0);
        }
    }

    fn attach(&mut self, shared: &QpShared) {
        let qpn = usize::from(shared.qpn as u16);
        if self.owners.len() <= qpn {
            self.owners.resize(qpn + 1, Owner::NONE);
        }
        if let Some(owner) = self.owners.get_mut(qpn) {
            *owner = Owner::of(shared);
        }
    }

    fn detach(&mut self, shared: &QpShared) {
        if let Some(owner) = self.owners.get_mut(usize::from(shared.qpn as u16))
            && owner.user_index == shared.user_index.value()
        {
            *owner = Owner::NONE;
        }
    }

    /// Marks the queue pair's entries, and keeps their phase. Unsolicited completions tell the
    /// number alone: a new owner's are dropped, too.
    fn sweep(&mut self, known: &Known, user_index: u32) {
        // The number may have another owner by now.
        let Some(shared) = known.queue_pair(user_index) else { return };
        let (qpn, owner) = (shared.qpn, Owner::of(shared));
        for ring in self.rings.iter() {
            for ahead in 0..self.entries {
                let Some(entry) = self.written(*ring, ring.ci.wrapping_add(ahead)) else { break };
                let is_of_owner = |queue| {
                    Self::is_unsolicited(entry) || owner.token(queue, entry.req_id()).is_some()
                };
                let is_ours =
                    u32::from(entry.qpn()) == qpn && entry.queue().is_some_and(is_of_owner);
                if is_ours {
                    let flags = entry.flags() & !QUEUE_TYPE;
                    // SAFETY: a field of an entry that is the program's, in a writable mapping.
                    unsafe { entry.at_flags().cast_mut().write_volatile(flags) };
                }
            }
        }
    }

    fn arms(&self) -> Arm {
        Arm(self.doorbell.clone())
    }
}
