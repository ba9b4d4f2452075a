//! Event queues: table, entries, arming, and commands (Linux `core/eq.c`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use uverbs_mlx5_prm::cmd::Block;
use uverbs_mlx5_prm::cmd::eq::{
    create_eq_in, create_eq_out, destroy_eq_in, eqc, query_eq_in, query_eq_out,
};
use uverbs_mlx5_prm::doorbell::{EQ_DOORBELL_ARM, EQ_DOORBELL_CI, EqDoorbell};
use uverbs_mlx5_prm::eqe::{EventType, mlx5_eqe};
use zerocopy::IntoBytes;

use crate::board::bar::VECTORS;
use crate::board::capabilities::{LOG_MAX_EQES, MAX_EQ};
use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};
use crate::firmware::base::numbers::Numbers;
use crate::firmware::base::owner::User;
use crate::firmware::base::rings::Pages;
use crate::hca::Dma;
use crate::hca::dma::RegionAccess;
use uverbs_front::backend::region::Region;

/// Maximum waiting events of all queues together. Waiting events are distinct, but may name
/// destroyed objects. More events are lost, as in a queue that overruns: its driver has taken no
/// event for very long.
const MAX_WAITING: usize = 1 << 18;
/// Bytes of an event queue entry (EQE).
const EQE_LEN: u64 = 64;
/// Mask of the consumer index in the doorbell.
const INDEX_MASK: u32 = 0x00ff_ffff;

/// All event queues, and their pending interrupts.
#[derive(Debug)]
pub(crate) struct EqTable {
    eqs: BTreeMap<u32, Eq>,
    numbers: Numbers,
    /// MSI-X vectors to raise.
    pub(crate) interrupts: Vec<u16>,
}

impl Default for EqTable {
    fn default() -> Self {
        Self { eqs: BTreeMap::new(), numbers: Numbers::new(1, MAX_EQ), interrupts: Vec::new() }
    }
}

#[derive(Debug)]
struct Eq {
    owner: User,
    context: [u8; eqc::SIZE],
    region: Region,
    log_entries: u32,
    uar: u32,
    vector: u16,
    /// Event types that the queue takes, one bit each. Completion events go to the EQ that the CQ
    /// names.
    mask: [u64; 4],
    producer: u32,
    consumer: u32,
    armed: bool,
    /// Events that wait for room in the ring. Equal events wait once.
    backlog: VecDeque<mlx5_eqe>,
    waiting: BTreeSet<[u8; EQE_LEN as usize]>,
    /// Completed commands to be reported, one bit each: one event has room for all.
    commands: u32,
}

impl EqTable {
    /// Number of the queue that takes async events of this type.
    pub(crate) fn of(&self, kind: EventType) -> Option<u32> {
        let (word, bit) = (usize::from(kind.0 / 64), kind.0 % 64);
        self.eqs.iter().find(|(_, eq)| eq.mask[word] >> bit & 1 != 0).map(|(&eqn, _)| eqn)
    }

    /// True if the queue exists and the command may name it.
    pub(crate) fn has(&self, call: &Call<'_>, eqn: u32) -> bool {
        self.eqs.get(&eqn).is_some_and(|eq| User::of(call).may_name(eq.owner))
    }

    /// Writes an event, and raises the queue's interrupt if it is armed.
    pub(crate) fn post(&mut self, dma: &dyn Dma, eqn: u32, eqe: mlx5_eqe) {
        let full = self.waiting() >= MAX_WAITING;
        let Some(eq) = self.eqs.get_mut(&eqn) else { return };
        if !full && eq.waiting.insert(key(&eqe)) {
            eq.backlog.push_back(eqe);
        }
        if eq.write(dma) {
            raise(&mut self.interrupts, eq.vector);
        }
    }

    /// Writes the completion event of the commands in `vector`.
    pub(crate) fn post_commands(&mut self, dma: &dyn Dma, eqn: u32, vector: u32) {
        let Some(eq) = self.eqs.get_mut(&eqn) else { return };
        eq.commands |= vector;
        if eq.write(dma) {
            raise(&mut self.interrupts, eq.vector);
        }
    }

    /// Number of events that wait for room.
    fn waiting(&self) -> usize {
        self.eqs.values().map(|eq| eq.backlog.len()).sum()
    }

    /// Handles a store into a doorbell page at `offset`; the value names the queue. False if
    /// `offset` is not an event queue's doorbell.
    pub(crate) fn ring(&mut self, dma: &dyn Dma, uar: u32, offset: u32, value: u32) -> bool {
        let arm = match offset as usize {
            EQ_DOORBELL_ARM => true,
            EQ_DOORBELL_CI => false,
            _ => return false,
        };
        let doorbell = EqDoorbell(value);
        if let Some(eq) = self.eqs.get_mut(&doorbell.eqn().into())
            && eq.uar == uar
        {
            // A consumer index ahead of the producer is invalid and ignored.
            if eq.producer.wrapping_sub(doorbell.ci()) & INDEX_MASK <= 1 << eq.log_entries {
                eq.consumer = doorbell.ci();
            }
            eq.armed |= arm;
            let wrote = eq.write(dma);
            // Events from before the arm fire it, too.
            if wrote || eq.fires() {
                raise(&mut self.interrupts, eq.vector);
            }
        }
        true
    }
}

fn raise(interrupts: &mut Vec<u16>, vector: u16) {
    if !interrupts.contains(&vector) {
        interrupts.push(vector);
    }
}

/// Identity of an event: all its bytes.
fn key(eqe: &mlx5_eqe) -> [u8; EQE_LEN as usize] {
    zerocopy::transmute!(*eqe)
}

impl Eq {
    /// Takes the next event to write.
    fn next(&mut self) -> Option<mlx5_eqe> {
        if self.commands != 0 {
            return Some(mlx5_eqe::command(std::mem::take(&mut self.commands)));
        }
        let eqe = self.backlog.pop_front()?;
        self.waiting.remove(&key(&eqe));
        Some(eqe)
    }

    fn unread(&self) -> u32 {
        self.producer.wrapping_sub(self.consumer) & INDEX_MASK
    }

    /// Moves the backlog into the ring as far as there is room. True if the interrupt is to be
    /// raised.
    fn write(&mut self, dma: &dyn Dma) -> bool {
        let entries = 1u32 << self.log_entries;
        let mut wrote = false;
        while self.unread() < entries {
            let Some(mut eqe) = self.next() else { break };
            let at = u64::from(self.producer & (entries - 1)) * EQE_LEN;
            // The owner bit flips with each lap, 0 on the first (eq.h, `next_eqe_sw`). Its release
            // store publishes the rest of the entry.
            eqe.owner = (self.producer >> self.log_entries) as u8 & 1;
            let last = EQE_LEN - 1;
            let written = self.region.write(dma, at, &eqe.as_bytes()[..last as usize]);
            let owner = self.region.addr_of(at + last, 1);
            if written.is_err() || owner.and_then(|owner| dma.store_u8(owner, eqe.owner)).is_err() {
                // The ring's memory is gone. Silicon would report a fatal error; here no event
                // queue is left to report it to.
                break;
            }
            self.producer = self.producer.wrapping_add(1);
            wrote = true;
        }
        wrote && self.fires()
    }

    /// Disarms the queue and returns true if it is armed and not empty.
    fn fires(&mut self) -> bool {
        let fires = self.armed && self.unread() != 0;
        self.armed &= !fires;
        fires
    }
}

impl Firmware {
    pub(crate) fn create_eq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let context = create_eq_in::EQ_CONTEXT_ENTRY.of(call.input);
        let log_entries = eqc::LOG_EQ_SIZE.get32(context);
        if log_entries > LOG_MAX_EQES.into() {
            return Err(Refusal::param("log_eq_size"));
        }
        let uar = eqc::UAR_PAGE.get32(context);
        if !self.simple.has_uar(call, uar) {
            return Err(Refusal::resource("no such doorbell page"));
        }
        // Two doorbells of event queues could become one there, and no record has the first.
        if self.mapped_uars.contains(&uar) {
            return Err(Refusal::param("a doorbell page that the guest maps"));
        }
        let vector = eqc::INTR.get(context) as u16;
        if vector >= VECTORS {
            return Err(Refusal::param("no such interrupt vector"));
        }
        let pages = Pages {
            pas: create_eq_in::PAS.of(call.input),
            log_page_size: eqc::LOG_PAGE_SIZE.get(context),
            page_offset: eqc::PAGE_OFFSET.get(context),
        };
        let region = pages.region(0, EQE_LEN << log_entries)?;
        let eqn = self.eqs.numbers.take().ok_or(Refusal::resource("no event queue is left"))?;
        let mut eq = Eq {
            owner: User::of(call),
            context: [0; eqc::SIZE],
            region,
            log_entries,
            uar,
            vector,
            mask: mask(create_eq_in::EVENT_BITMASK, call.input),
            producer: 0,
            consumer: 0,
            armed: false,
            backlog: VecDeque::new(),
            waiting: BTreeSet::new(),
            commands: 0,
        };
        eq.context.copy_from_slice(context);
        self.eqs.eqs.insert(eqn, eq);
        self.note_page_fault_queue();
        create_eq_out::EQ_NUMBER.set(call.output, eqn.into());
        Ok(())
    }

    pub(crate) fn destroy_eq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let eqn = destroy_eq_in::EQ_NUMBER.get32(call.input);
        if !self.eqs.has(call, eqn) {
            return Err(Refusal::resource("no such event queue"));
        }
        if self.cqs.values().any(|cq| cq.eqn == eqn) {
            return Err(Refusal::new(
                uverbs_mlx5_prm::cmd::opcode::CmdStatus::RES_BUSY,
                "completion queues use it",
            ));
        }
        self.eqs.eqs.remove(&eqn);
        self.eqs.numbers.give_back(eqn);
        self.note_page_fault_queue();
        Ok(())
    }

    pub(crate) fn query_eq(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let eqn = query_eq_in::EQ_NUMBER.get32(call.input);
        let eq = self.eqs.eqs.get(&eqn).filter(|eq| User::of(call).may_name(eq.owner));
        let eq = eq.ok_or(Refusal::resource("no such event queue"))?;
        let out = query_eq_out::EQ_CONTEXT_ENTRY.of_mut(call.output);
        out.copy_from_slice(&eq.context);
        eqc::CONSUMER_COUNTER.set(out, eq.consumer.into());
        eqc::PRODUCER_COUNTER.set(out, eq.producer.into());
        Ok(())
    }
}

fn mask(block: Block, input: &[u8]) -> [u64; 4] {
    let mut mask = [0; 4];
    for (word, bytes) in mask.iter_mut().zip(block.of(input).chunks_exact(8)) {
        *word = bytes.try_into().map_or(0, u64::from_be_bytes);
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hca::testing::Arena;

    const UAR: u32 = 0x10;

    /// A queue of one entry, which the test does not consume yet.
    fn table(arena: &Arena) -> EqTable {
        let mut table = EqTable::default();
        let eq = Eq {
            owner: User::DRIVER,
            context: [0; eqc::SIZE],
            region: Region::Flat { addr: arena.base(), len: EQE_LEN },
            log_entries: 0,
            uar: UAR,
            vector: 0,
            mask: [0; 4],
            producer: 0,
            consumer: 0,
            armed: false,
            backlog: VecDeque::new(),
            waiting: BTreeSet::new(),
            commands: 0,
        };
        table.eqs.insert(1, eq);
        table
    }

    /// Takes all events: type, first and last word of the data.
    fn drain(table: &mut EqTable, arena: &Arena) -> Vec<(EventType, u32, u32)> {
        let mut events = Vec::new();
        while table.eqs[&1].unread() != 0 {
            let eqe: mlx5_eqe = zerocopy::transmute!(
                <[u8; EQE_LEN as usize]>::try_from(arena.bytes(arena.base(), 64)).unwrap()
            );
            events.push((EventType(eqe.type_), eqe.data[0].get(), eqe.data[6].get()));
            let consumer = table.eqs[&1].consumer + 1;
            let doorbell = EqDoorbell::ZERO.with_eqn(1).with_ci(consumer);
            assert!(table.ring(arena, UAR, EQ_DOORBELL_CI as u32, doorbell.0));
        }
        events
    }

    #[test]
    fn what_nobody_takes_waits_once() {
        let arena = Arena::new(64);
        let mut table = table(&arena);
        table.post(&arena, 1, mlx5_eqe::completion(9));
        for turn in 0..100_000 {
            table.post_commands(&arena, 1, 1 << (turn % 32));
            table.post(&arena, 1, mlx5_eqe::completion(turn % 3));
        }
        assert_eq!(table.waiting(), 3);
        let completion = |cqn| (EventType::COMP, 0, cqn);
        let mut told = vec![completion(9), (EventType::CMD, u32::MAX, 0)];
        told.extend((0..3).map(completion));
        assert_eq!(drain(&mut table, &arena), told);
        // A reported event may be reported again.
        table.post(&arena, 1, mlx5_eqe::completion(2));
        table.post_commands(&arena, 1, 4);
        assert_eq!(drain(&mut table, &arena), [completion(2), (EventType::CMD, 4, 0)]);
        assert_eq!(table.eqs[&1].waiting.len(), 0);
    }

    #[test]
    fn what_waits_has_a_bound() {
        let arena = Arena::new(64);
        let mut table = table(&arena);
        for cqn in 0..MAX_WAITING as u32 + 1000 {
            table.post(&arena, 1, mlx5_eqe::completion(cqn));
        }
        assert_eq!(table.waiting(), MAX_WAITING);
        assert_eq!(table.eqs[&1].waiting.len(), MAX_WAITING);
        table.post_commands(&arena, 1, 1);
        assert!(drain(&mut table, &arena).contains(&(EventType::CMD, 1, 0)));
    }
}
