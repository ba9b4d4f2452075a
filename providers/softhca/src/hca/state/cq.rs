//! Completion queues: writing CQEs, overrun, arming.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use uverbs_mlx5_prm::cqe::{MINI_CQES, OpOwn, SopDropQpn, mlx5_cqe64};
use zerocopy::transmute_ref;

use crate::hca::dma::RegionAccess;
use crate::hca::dma::{Dma, DmaFault};
use crate::hca::state::block::{self, Block};
use crate::hca::state::doorbells::Doorbells;
use crate::hca::state::events::Events;
use crate::hca::stats::HcaStats;
use uverbs_front::backend::context::{CqContext, MiniCqe, Moderation};
use uverbs_front::backend::error::{HcaError, HcaEvent, Noun};
use uverbs_front::backend::number::{Cqn, Qpn, UarNumber};

mod arms;

/// Bytes of a CQE; a 128-byte slot has it at the end (mlx5dv.h, `mlx5_cqe64`).
pub(crate) const CQE_LEN: usize = 64;

/// Offset of the last word of a CQE, whose last byte has the owner bit.
const LAST_WORD: usize = CQE_LEN - 8;

/// Content of a slot. The owner bit in the last byte is ignored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cqe<'a> {
    pub(crate) bytes: &'a [u8; CQE_LEN],
    /// First half of a 128-byte slot, if it is to be written.
    pub(crate) lead: Option<&'a [u8; CQE_LEN]>,
}

impl Cqe<'_> {
    /// True if the CQE may be compressed.
    fn is_plain(&self) -> bool {
        self.lead.is_none() && block::is_plain(self.bytes)
    }
}

impl<'a> From<&'a [u8; CQE_LEN]> for Cqe<'a> {
    fn from(bytes: &'a [u8; CQE_LEN]) -> Self {
        Self { bytes, lead: None }
    }
}

/// Mask of consumer and producer index in records and arms.
const INDEX_MASK: u32 = 0x00ff_ffff;

/// Value of an ARM record until the first arm. No driver stores it, since its reserved bits are
/// set. Silicon leaves the record alone because it sees each doorbell. Here stores into a page of
/// memory coalesce, and the first arm's word may equal the 0 that the driver left in the record.
const NEVER_ARMED: u32 = u32::MAX;

/// Completions that an arm waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    Any,
    Solicited,
}

#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) ctx: CqContext,
    cqn: Cqn,
    /// Producer index: CQEs written, modulo 2^32.
    producer: u32,
    /// CQEs consumed by the record as last read, modulo 2^32. It is read again only when the ring
    /// looks more than half full.
    consumer: u32,
    /// SET_CI as last read.
    set_ci: u32,
    /// Producer index just behind the last CQE that a solicited arm waits for.
    solicited: Option<u32>,
    armed: Option<Armed>,
    /// Sequence number of the last arm taken, and of the arm that the last event answered.
    sn: u8,
    told_sn: Option<u8>,
    /// CQEs since the last event.
    fresh: u32,
    moderation: Moderation,
    /// Completions since the last event, and the time of that event.
    untold: u32,
    told: Duration,
    /// End of the moderation period, when an event is due.
    deadline: Option<Duration>,
    /// ARM record as last processed.
    arm_seen: u32,
    /// QPs that use the CQ; a QP that uses it for both send and receive counts twice.
    pub(crate) users: u32,
    dead: bool,
    /// Completions that wait to be compressed.
    block: Block,
}

/// QP of a CQE. An error CQE has the field at the same offset.
fn owner(cqe: &[u8; CQE_LEN]) -> Qpn {
    let cqe: &mlx5_cqe64 = transmute_ref!(cqe);
    Qpn(SopDropQpn(cqe.sop_drop_qpn.get()).qpn())
}

/// All CQs, and the CQs that died since the device last looked.
#[derive(Debug, Default)]
pub(crate) struct CqTable {
    pub(crate) cqs: BTreeMap<Cqn, Cq>,
    next: u32,
    doorbells: Doorbells<Cqn>,
    /// CQs whose ARM records changed; kept for its memory.
    changed: Vec<Cqn>,
    /// CQs with a running moderation period.
    timers: BTreeSet<(Duration, Cqn)>,
    pub(crate) now: Duration,
    pub(crate) died: Vec<Cqn>,
    /// CQs with completions that wait to be compressed.
    blocks: BTreeSet<Cqn>,
    /// QPs whose completion was lost because its CQ had died. A dead CQ fails its own QPs; an XRC
    /// target is not among them, as it completes to the CQ of the SRQ that a packet names.
    pub(crate) bereft: Vec<Qpn>,
}

/// State that a completion changes outside of its CQ.
struct Around<'a> {
    timers: &'a mut BTreeSet<(Duration, Cqn)>,
    now: Duration,
    died: &'a mut Vec<Cqn>,
    bereft: &'a mut Vec<Qpn>,
    events: &'a mut Events,
    stats: &'a mut HcaStats,
}

impl CqTable {
    pub(crate) fn create(
        &mut self,
        dma: &dyn Dma,
        ctx: CqContext,
        max: u32,
        log_max: u8,
    ) -> Result<Cqn, HcaError> {
        check_ring(&ctx, log_max)?;
        if ctx.doorbell_record & 7 != 0 {
            let value = ctx.doorbell_record;
            return Err(HcaError::BadParam { what: "doorbell_record", value });
        }
        if self.cqs.len() as u64 >= max.min(INDEX_MASK - 1).into() {
            return Err(HcaError::Limit { what: "max_cq", limit: max.into() });
        }
        // Terminates: fewer than 2^24 - 1 numbers are taken.
        let cqn = loop {
            self.next = (self.next + 1) & INDEX_MASK;
            if self.next != 0 && !self.cqs.contains_key(&Cqn(self.next)) {
                break Cqn(self.next);
            }
        };
        // If the record is unreachable, so is the rest of the queue, which soon shows as an error.
        let _ = dma.store_u32(ctx.doorbell_record + 4, NEVER_ARMED.to_be());
        self.doorbells.insert(ctx.uar, cqn, ctx.doorbell_record + 4);
        self.cqs.insert(cqn, Cq::new(cqn, ctx));
        Ok(cqn)
    }

    pub(crate) fn destroy(&mut self, cqn: Cqn) -> Result<(), HcaError> {
        let users = self.get(cqn)?.users;
        if users != 0 {
            return Err(HcaError::Busy { noun: Noun::Cq, number: cqn.0, users });
        }
        if let Some(cq) = self.cqs.remove(&cqn) {
            self.doorbells.remove(cq.ctx.uar, cqn);
            set_timer(&mut self.timers, cqn, cq.deadline, None);
        }
        self.died.retain(|&dead| dead != cqn);
        Ok(())
    }

    pub(crate) fn get(&self, cqn: Cqn) -> Result<&Cq, HcaError> {
        self.cqs.get(&cqn).ok_or(bad_handle(cqn))
    }

    pub(crate) fn get_mut(&mut self, cqn: Cqn) -> Result<&mut Cq, HcaError> {
        self.cqs.get_mut(&cqn).ok_or(bad_handle(cqn))
    }

    /// Checks that a CQ could move to another ring.
    pub(crate) fn check_resize(
        &self,
        dma: &dyn Dma,
        cqn: Cqn,
        to: &CqContext,
        log_max: u8,
    ) -> Result<(), HcaError> {
        check_ring(to, log_max)?;
        // A CQ in error cannot take the RESIZE_CQ.
        if self.get(cqn)?.dead {
            return Err(HcaError::BadParam { what: "cq in error", value: cqn.0.into() });
        }
        let entries = 1u32 << self.get(cqn)?.ctx.log_entries;
        let cq = self.get(cqn)?;
        let consumer = cq.look(dma).map_or(cq.consumer, |(_, consumer)| consumer);
        let unread = cq.producer.wrapping_sub(consumer);
        // One more for the RESIZE_CQ that ends the old ring. All of them must fit the new ring.
        if unread >= entries || unread + 1 > 1 << to.log_entries {
            return Err(HcaError::Limit { what: "free CQEs", limit: entries.into() });
        }
        Ok(())
    }

    /// Bytes of data that a CQE can hold, if the queue pair allows `most`: half of a 64-byte slot,
    /// or the first half of a 128-byte slot.
    #[inline]
    pub(crate) fn room_for_data(&self, cqn: Cqn, most: u8) -> usize {
        match (most, self.cqs.get(&cqn)) {
            (32, Some(_)) => 32,
            (64, Some(cq)) if cq.ctx.cqe_size == 128 => CQE_LEN,
            _ => 0,
        }
    }

    /// Writes one CQE. `cqe[63]` carries opcode and solicited bit; the owner bit is filled in.
    /// `wakes`: solicited or in error, so that it fires a solicited arm (PRM, "CQ arm").
    pub(crate) fn push(
        &mut self,
        dma: &dyn Dma,
        cqn: Cqn,
        cqe: Cqe<'_>,
        wakes: bool,
        events: &mut Events,
        stats: &mut HcaStats,
    ) {
        let Self { cqs, timers, now, died, blocks, bereft, .. } = self;
        let Some(cq) = cqs.get_mut(&cqn) else {
            return;
        };
        let mut around = Around { timers, now: *now, died, bereft, events, stats };
        if !wakes && cq.compresses(&cqe) {
            if cq.block.len() == cq.to_end() || !cq.block.fits(cqe.bytes, cq.mini()) {
                cq.end_block(dma, &mut around);
            }
            cq.block.add(*cqe.bytes);
            blocks.insert(cqn);
            return;
        }
        if !cq.block.is_empty() {
            cq.end_block(dma, &mut around);
        }
        cq.put(dma, cqe, wakes, &mut around);
    }

    /// Writes the completions that wait to be compressed. Called after each step, so that none
    /// waits between steps.
    pub(crate) fn end_blocks(&mut self, dma: &dyn Dma, events: &mut Events, stats: &mut HcaStats) {
        let Self { cqs, timers, now, died, blocks, bereft, .. } = self;
        while let Some(cqn) = blocks.pop_first() {
            if let Some(cq) = cqs.get_mut(&cqn) {
                cq.end_block(dma, &mut Around { timers, now: *now, died, bereft, events, stats });
            }
        }
    }

    /// A store to the CQ doorbell of `uar`: `high` = sn << 28 | cmd << 24 | ci, as in the ARM
    /// record (rdma-core cq.c, `mlx5_arm_cq`). Stores can coalesce into one, so the records of all
    /// other CQs of the page are due. False if `cqn` is no CQ of this page.
    pub(crate) fn arm(
        &mut self,
        uar: UarNumber,
        cqn: Cqn,
        high: u32,
        events: &mut Events,
        stats: &mut HcaStats,
    ) -> bool {
        self.doorbells.ring(uar);
        let cq = self.cqs.get_mut(&cqn).filter(|cq| cq.ctx.uar == uar);
        let Some(cq) = cq else { return false };
        let old = cq.deadline;
        cq.arm_seen = high;
        cq.arm(high, self.now, events, stats);
        set_timer(&mut self.timers, cqn, old, cq.deadline);
        true
    }

    pub(crate) fn has_due_records(&self) -> bool {
        self.doorbells.is_due()
    }

    /// Next page with due ARM records, in turn.
    pub(crate) fn next_due(&mut self) -> Option<UarNumber> {
        self.doorbells.next_due()
    }

    /// Looks at the next due ARM records of a page, up to `most`.
    pub(crate) fn look_at(
        &mut self,
        dma: &dyn Dma,
        (uar, most): (UarNumber, usize),
        events: &mut Events,
        stats: &mut HcaStats,
    ) {
        let mut changed = std::mem::take(&mut self.changed);
        self.doorbells.look(uar, most, dma, &mut changed);
        for cqn in changed.drain(..) {
            let Some(cq) = self.cqs.get_mut(&cqn) else { continue };
            let Ok(word) = dma.load_u32(cq.ctx.doorbell_record + 4) else { continue };
            let word = u32::from_be(word);
            if word != cq.arm_seen {
                let old = cq.deadline;
                cq.arm_seen = word;
                cq.arm(word, self.now, events, stats);
                set_timer(&mut self.timers, cqn, old, cq.deadline);
            }
        }
        self.changed = changed;
    }

    /// Changes the moderation, from the next completion on.
    pub(crate) fn moderate(&mut self, cqn: Cqn, moderation: Moderation) -> Result<(), HcaError> {
        self.get_mut(cqn)?.moderation = moderation;
        Ok(())
    }

    /// End of the next moderation period.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.timers.first().map(|(when, _)| *when)
    }

    /// Raises the events whose moderation period has ended.
    pub(crate) fn expire(&mut self, events: &mut Events, stats: &mut HcaStats) -> bool {
        let mut done = false;
        // Terminates: each round removes a timer and sets none.
        while let Some(&(when, cqn)) = self.timers.first()
            && when <= self.now
        {
            done = true;
            self.timers.remove(&(when, cqn));
            if let Some(cq) = self.cqs.get_mut(&cqn) {
                cq.tell(self.now, events, stats);
            }
        }
        done
    }
}

#[inline]
fn set_timer(
    timers: &mut BTreeSet<(Duration, Cqn)>,
    cqn: Cqn,
    old: Option<Duration>,
    new: Option<Duration>,
) {
    if old != new {
        old.map(|old| timers.remove(&(old, cqn)));
        new.map(|new| timers.insert((new, cqn)));
    }
}

impl Cq {
    fn new(cqn: Cqn, ctx: CqContext) -> Cq {
        Cq {
            ctx,
            cqn,
            producer: 0,
            consumer: 0,
            set_ci: 0,
            solicited: None,
            armed: None,
            sn: 0,
            told_sn: None,
            fresh: 0,
            moderation: Moderation::default(),
            untold: 0,
            told: Duration::ZERO,
            deadline: None,
            arm_seen: NEVER_ARMED,
            users: 0,
            dead: false,
            block: Block::default(),
        }
    }

    /// True if a CQE waits for more CQEs, to be compressed with them.
    fn compresses(&self, cqe: &Cqe<'_>) -> bool {
        let may =
            self.ctx.compressed.is_some() && self.ctx.cqe_size == CQE_LEN as u32 && !self.dead;
        may && cqe.is_plain()
    }

    /// CQEs from the producer index to the ring's end. No block crosses the end: DPDK's vectorised
    /// reader takes a block's arrays and receives without wrapping (`rxq_cq_decompress_v`).
    fn to_end(&self) -> usize {
        let entries = 1u32 << self.ctx.log_entries;
        (entries - (self.producer & (entries - 1))) as usize
    }

    /// Mini CQEs of this queue.
    fn mini(&self) -> MiniCqe {
        self.ctx.compressed.unwrap_or(MiniCqe::Checksum)
    }

    fn end_block(&mut self, dma: &dyn Dma, around: &mut Around<'_>) {
        let all = self.block.take();
        let count = all.len() as u64;
        if count > 1 && !self.dead && self.write_block(dma, &all) == Ok(true) {
            around.stats.cqes += count;
            around.stats.cqe_blocks += 1;
            // The title, and the arrays.
            around.stats.cqe_bytes += (1 + count.div_ceil(MINI_CQES as u64)) * CQE_LEN as u64;
            let old = self.deadline;
            for _ in 0..count {
                self.after_push(false, around.now, around.events, around.stats);
            }
            set_timer(around.timers, self.cqn, old, self.deadline);
            return;
        }
        for bytes in &all {
            self.put(dma, bytes.into(), false, around);
        }
    }

    /// Writes one uncompressed CQE.
    fn put(&mut self, dma: &dyn Dma, cqe: Cqe<'_>, wakes: bool, around: &mut Around<'_>) {
        if self.dead {
            around.bereft.push(owner(cqe.bytes));
            return;
        }
        match self.write(dma, &cqe) {
            Ok(true) => {
                around.stats.cqes += 1;
                let format = OpOwn(cqe.bytes[CQE_LEN - 1]).format();
                around.stats.cqe_payloads += u64::from(format != 0);
                let whole = cqe.lead.is_some() || self.ctx.padded;
                let bytes = if whole { self.ctx.cqe_size.into() } else { CQE_LEN as u64 };
                around.stats.cqe_bytes += bytes;
                let old = self.deadline;
                self.after_push(wakes, around.now, around.events, around.stats);
                set_timer(around.timers, self.cqn, old, self.deadline);
            }
            // The ring is full or its memory is gone: the CQ is in error for good (IBTA 10.10.2.3
            // "CQ overrun"), and the QPs that use it follow.
            Ok(false) | Err(_) => {
                self.dead = true;
                around.stats.cq_overruns += 1;
                around.events.push(HcaEvent::CqError { cqn: self.cqn }, around.stats);
                around.died.push(self.cqn);
                around.bereft.push(owner(cqe.bytes));
            }
        }
    }

    /// Writes a CQE and makes it visible. False if the ring is full.
    fn write(&mut self, dma: &dyn Dma, cqe: &Cqe<'_>) -> Result<bool, DmaFault> {
        let entries = 1u32 << self.ctx.log_entries;
        if !self.has_room(dma, 1)? {
            return Ok(false);
        }
        let slot = u64::from(self.producer & (entries - 1)) * u64::from(self.ctx.cqe_size);
        let at = slot + u64::from(self.ctx.cqe_size) - CQE_LEN as u64;
        let lead = cqe.lead.or(self.ctx.padded.then_some(&[0; CQE_LEN]));
        if let Some(lead) = lead {
            self.ctx.region.write(dma, slot, &lead[..(at - slot) as usize])?;
        }
        let (first, last) = (&cqe.bytes[..LAST_WORD], at + LAST_WORD as u64);
        // Nearly all rings are contiguous.
        let last = match self.ctx.region.flat(at, CQE_LEN as u64) {
            Some(bus) => {
                dma.write(bus, first)?;
                bus + LAST_WORD as u64
            }
            None => {
                self.ctx.region.write(dma, at, first)?;
                self.ctx.region.addr_of(last, 8)?
            }
        };
        // The owner bit flips with each lap, 0 on the first. Its release store publishes all bytes
        // before it. It pairs with the driver's load of op_own followed by a read barrier
        // (rdma-core cq.c, `get_sw_cqe` and `udma_from_device_barrier`).
        let owner = (self.producer >> self.ctx.log_entries) as u8 & 1;
        let mut word = [0; CQE_LEN - LAST_WORD];
        word.copy_from_slice(&cqe.bytes[LAST_WORD..]);
        word[7] = word[7] & !1 | owner;
        dma.store_last(last, word)?;
        self.producer = self.producer.wrapping_add(1);
        Ok(true)
    }

    /// Writes CQEs as a title and arrays of mini CQEs. False if the ring is full.
    fn write_block(&mut self, dma: &dyn Dma, all: &[[u8; CQE_LEN]]) -> Result<bool, DmaFault> {
        let entries = 1u32 << self.ctx.log_entries;
        if !self.has_room(dma, all.len() as u32)? {
            return Ok(false);
        }
        let place = |index: u32| u64::from(index & (entries - 1)) * CQE_LEN as u64;
        let (title, arrays) = block::compress(all, self.mini());
        for (number, array) in (0u32..).zip(&arrays) {
            let ahead = (number * MINI_CQES as u32).max(1);
            self.ctx.region.write(dma, place(self.producer.wrapping_add(ahead)), array)?;
        }
        let (at, last) = (place(self.producer), CQE_LEN - 1);
        self.ctx.region.write(dma, at, &title[..last])?;
        // The owner bit's release store publishes the title, as in `write`, and the arrays.
        let owner = (self.producer >> self.ctx.log_entries) as u8 & 1;
        let bus = self.ctx.region.addr_of(at + last as u64, 1)?;
        dma.store_u8(bus, title[last] & !1 | owner)?;
        self.producer = self.producer.wrapping_add(all.len() as u32);
        Ok(true)
    }

    /// Tests for room for `count` CQEs, and reads the record if the ring looks half full.
    #[inline]
    fn has_room(&mut self, dma: &dyn Dma, count: u32) -> Result<bool, DmaFault> {
        let entries = 1u32 << self.ctx.log_entries;
        if self.ctx.overrun_ignore {
            return Ok(true);
        }
        if self.unread() + count > entries / 2 {
            (self.set_ci, self.consumer) = self.look(dma)?;
        }
        Ok(self.unread() + count <= entries)
    }

    /// Reads SET_CI. Returns it, and the number of CQEs consumed.
    ///
    /// A driver may keep fewer bits of the index than the record has (DPDK writes 16), so the
    /// record is compared modulo the ring's length. Its other bits only tell a ring consumed whole
    /// from an untouched one.
    fn look(&self, dma: &dyn Dma) -> Result<(u32, u32), DmaFault> {
        let set_ci = u32::from_be(dma.load_u32(self.ctx.doorbell_record)?) & INDEX_MASK;
        let entries = 1u32 << self.ctx.log_entries;
        // A ring that may overrun has lost the CQEs before its last lap.
        let unread = self.unread().min(entries);
        let consumer = self.producer.wrapping_sub(unread);
        let taken = match set_ci.wrapping_sub(consumer) & (entries - 1) {
            0 if set_ci != self.set_ci => entries,
            taken => taken,
        };
        // A driver can't have consumed more than the ring has; then the record is invalid.
        let taken = if taken <= unread { taken } else { 0 };
        Ok((set_ci, consumer.wrapping_add(taken)))
    }

    /// CQEs written, modulo 2^32.
    pub(crate) fn produced(&self) -> u32 {
        self.producer
    }

    /// CQEs not consumed, by the record as last read.
    fn unread(&self) -> u32 {
        self.producer.wrapping_sub(self.consumer)
    }
}

fn check_ring(ctx: &CqContext, log_max: u8) -> Result<(), HcaError> {
    if ctx.log_entries > log_max {
        return Err(HcaError::Limit { what: "log_max_cqes", limit: log_max.into() });
    }
    if ctx.cqe_size != 64 && ctx.cqe_size != 128 {
        return Err(HcaError::BadParam { what: "cqe_size", value: ctx.cqe_size.into() });
    }
    let need = u64::from(ctx.cqe_size) << ctx.log_entries;
    if !ctx.region.is_sound() || ctx.region.len() < need {
        return Err(HcaError::BadParam { what: "region", value: ctx.region.len() });
    }
    Ok(())
}

fn bad_handle(cqn: Cqn) -> HcaError {
    HcaError::BadHandle { noun: Noun::Cq, number: cqn.0 }
}
