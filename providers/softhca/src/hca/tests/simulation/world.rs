//! Devices that run a plan.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use uverbs_mlx5_prm::ctrl::FmCeSe;
use uverbs_mlx5_prm::opcode::Opcode;

use super::plan::{Kind, Plan, SLOT, Work};
use super::verdict;
use crate::hca::number::Key;
use crate::hca::testing::*;
use crate::hca::{Access, HcaConfig, QpState, Service};
use crate::wire::faulty::Dice;

/// Where the bytes of work requests lie at the end that posts them, and what they write or read at
/// the peer; the counters that atomics change; what receives take.
pub(super) const NEAR: u64 = 0x1000;
pub(super) const FAR: u64 = 0x10_0000;
pub(super) const COUNTERS: u64 = 0x20_0000;
pub(super) const RECEIVES: u64 = 0x30_0000;
/// Steps of a run, at most, and its virtual time.
const STEPS: u32 = 400_000;
const HORIZON: Duration = Duration::from_secs(3600);

/// What happens from outside.
#[derive(Clone, Copy, Debug)]
enum Event {
    Post(usize),
    Receive(usize),
    Unplug(usize),
    Replug(usize),
    EndKey(usize),
}

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    Success,
    Failed,
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub(super) struct Direction {
    /// Works posted and not completed, oldest first, with the index of their WQE.
    pub(super) open: VecDeque<(usize, u16)>,
    /// All of it, in order.
    pub(super) posted: Vec<usize>,
    /// Receives that the peer posted for it, and completions of them: good ones by message.
    pub(super) receives: Vec<usize>,
    pub(super) received: Vec<Result<Got, u8>>,
    pub(super) has_failed: bool,
}

/// What a run came to. Two runs of one plan have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) retransmits: u64,
    pub(super) timeouts: u64,
    pub(super) rnr_naks: u64,
    pub(super) duplicates: u64,
    /// Of all completions, and when each was seen.
    pub(super) hash: u64,
}

impl Summary {
    pub(super) fn add(&mut self, other: &Summary) {
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.retransmits += other.retransmits;
        self.timeouts += other.timeouts;
        self.rnr_naks += other.rnr_naks;
        self.duplicates += other.duplicates;
        self.note(other.hash);
    }

    /// FNV-1a, a word at a time.
    fn note(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x100_0000_01b3);
    }
}

#[derive(Debug)]
pub(super) struct World<'a> {
    pub(super) plan: &'a Plan,
    pub(super) rig: Rig,
    pub(super) ends: Vec<[End; 2]>,
    pub(super) directions: Vec<[Direction; 2]>,
    pub(super) done: Vec<Option<Done>>,
    /// Keys of works that have one of their own.
    keys: BTreeMap<usize, Key>,
    /// Bytes that a key led to when it was destroyed.
    pub(super) after_key: BTreeMap<usize, Vec<u8>>,
    events: BTreeMap<(Duration, usize), Event>,
    order: Dice,
    summary: Summary,
}

/// Runs a plan to its end, and judges it.
///
/// # Errors
/// What didn't hold.
pub(super) fn run(plan: &Plan) -> Result<Summary, String> {
    let mut world = World::new(plan);
    world.play()?;
    verdict::judge(&world)?;
    let mut summary = world.summary;
    for host in &world.rig.hosts {
        let stats = host.hca.stats();
        summary.retransmits += stats.retransmits;
        summary.timeouts += stats.timeouts;
        summary.rnr_naks += stats.rnr_naks_sent;
        summary.duplicates += stats.duplicates;
    }
    summary.succeeded = world.count(Done::Success);
    summary.failed = world.count(Done::Failed);
    Ok(summary)
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan) -> World<'a> {
        let config = HcaConfig { read_window: plan.read_window, ..HcaConfig::default() };
        let mut rig = Rig::with(plan.hosts, config, plan.faults, plan.seed);
        let mut ends = Vec::new();
        for connection in &plan.connections {
            let mut setup = Setup { service: connection.service, ..Setup::default() };
            setup.attrs.path_mtu = connection.mtu;
            setup.attrs.sq_psn = connection.psn;
            setup.attrs.rq_psn = connection.psn;
            setup.attrs.timeout = connection.timeout;
            setup.attrs.retry_cnt = connection.retry_cnt;
            setup.attrs.rnr_retry = connection.rnr_retry;
            setup.attrs.min_rnr_timer = connection.rnr_timer;
            setup.attrs.max_rd_atomic = connection.rd_atomic;
            setup.attrs.max_dest_rd_atomic = connection.rd_atomic;
            let [one, other] = connection.hosts;
            let pair = [rig.end(one, &setup), rig.end(other, &setup)];
            rig.connect(&pair[0], (other, pair[1].qpn.0), &setup.attrs);
            rig.connect(&pair[1], (one, pair[0].qpn.0), &setup.attrs);
            ends.push(pair);
        }
        let directions = plan.connections.iter().map(|_| Default::default()).collect();
        let mut world = World {
            plan,
            rig,
            ends,
            directions,
            done: vec![None; plan.works.len()],
            keys: BTreeMap::new(),
            after_key: BTreeMap::new(),
            events: BTreeMap::new(),
            order: Dice::new(plan.seed ^ 0x5e9),
            summary: Summary::default(),
        };
        world.prepare();
        world
    }

    /// Bytes in memory, keys, and what happens when.
    fn prepare(&mut self) {
        let plan = self.plan;
        let mut add = |at: Duration, event: Event| {
            let order = self.events.len();
            self.events.insert((at, order), event);
        };
        for (n, work) in plan.works.iter().enumerate() {
            let (near, far) = (plan.host(work, work.from), plan.host(work, 1 - work.from));
            match work.kind {
                Kind::Read => self.rig.hosts[far].put(far_of(n), &plan.bytes(n)),
                _ if work.kind.is_atomic() || plan.relayed(n).is_some() => {}
                _ => self.rig.hosts[near].put(near_of(n), &plan.bytes(n)),
            }
            if let Some(until) = work.key_until {
                let key = self.rig.hosts[far].key(PD, BUF_LEN, Access::all());
                self.keys.insert(n, Key(key));
                add(until, Event::EndKey(n));
            }
            add(work.at, Event::Post(n));
            if work.kind.is_received() {
                add(work.received_at, Event::Receive(n));
            }
        }
        for outage in &plan.outages {
            add(outage.from, Event::Unplug(outage.host));
            add(outage.until, Event::Replug(outage.host));
        }
    }

    fn count(&self, done: Done) -> u64 {
        self.done.iter().filter(|other| **other == Some(done)).count() as u64
    }

    /// Until nothing is left to do.
    fn play(&mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            while let Some(first) = self.events.first_entry()
                && first.key().0 <= self.rig.now
            {
                let event = first.remove();
                self.happen(event);
            }
            // A device that isn't stepped is one whose thread doesn't run.
            let mut busy = false;
            for host in 0..self.plan.hosts {
                match self.order.chance(0.8) {
                    true => busy |= self.rig.hosts[host].hca.step(self.rig.now),
                    false => busy = true,
                }
            }
            self.poll()?;
            if busy {
                // Time goes by while devices work.
                self.rig.now += Duration::from_nanos(self.order.below(400));
                continue;
            }
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let timers = self.rig.hosts.iter().filter_map(|host| host.hca.next_deadline()).min();
            match event.into_iter().chain(timers).min() {
                None => return Ok(()),
                Some(next) if next > HORIZON => return Err(format!("a timer at {next:?}")),
                Some(next) => self.rig.now = self.rig.now.max(next),
            }
        }
        Err(format!("no rest within {STEPS} steps, at {:?}", self.rig.now))
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Post(n) => self.post(n),
            Event::Receive(n) => self.receive(n),
            Event::Unplug(host) => self.rig.hosts[host].link.unplug(),
            Event::Replug(host) => self.rig.hosts[host].link.replug(),
            Event::EndKey(n) => {
                let work = &self.plan.works[n];
                let far = self.plan.host(work, 1 - work.from);
                let host = &mut self.rig.hosts[far];
                if let Some(key) = self.keys.get(&n) {
                    host.hca.destroy_mkey(*key).unwrap();
                }
                self.after_key.insert(n, host.get(far_of(n), SLOT as usize));
            }
        }
    }

    fn post(&mut self, n: usize) {
        let work = &self.plan.works[n];
        let [near, far] = [work.from, 1 - work.from].map(|end| self.plan.host(work, end));
        let (key, rkey) = (self.rig.hosts[near].key, self.rig.hosts[far].key);
        let rkey = self.keys.get(&n).copied().unwrap_or(rkey);
        let opcode = match work.kind {
            Kind::Send => Opcode::SEND_IMM,
            Kind::Write => Opcode::RDMA_WRITE,
            Kind::WriteImm => Opcode::RDMA_WRITE_IMM,
            Kind::Read => Opcode::RDMA_READ,
            Kind::FetchAdd => Opcode::ATOMIC_FA,
            Kind::CompareSwap => Opcode::ATOMIC_CS,
        };
        let mut flags = FmCeSe::ZERO;
        if work.signaled {
            flags = flags.with_ce(FmCeSe::CE_CQE);
        }
        if work.fence {
            flags = flags.with_fm(FmCeSe::FENCE_SMALL_AND_FENCE);
        }
        let mut wr = Wr::new(opcode).flags(flags).imm(n as u32);
        wr = match work.kind {
            Kind::Send => wr,
            Kind::FetchAdd | Kind::CompareSwap => {
                let (swap_add, compare) = self.plan.operands(n);
                let at = counter_of(work);
                wr.remote(at, rkey).atomic(swap_add, compare)
            }
            _ => wr.remote(far_of(n), rkey),
        };
        if work.len != 0 {
            let source = self.plan.relayed(n).unwrap_or(n);
            wr = wr.seg(near_of(source), work.len, key);
        }
        let end = &mut self.ends[work.connection][work.from];
        let index = self.rig.post(end, &wr);
        let direction = &mut self.directions[work.connection][work.from];
        direction.open.push_back((n, index));
        direction.posted.push(n);
    }

    fn receive(&mut self, n: usize) {
        let work = &self.plan.works[n];
        let to = 1 - work.from;
        let key = self.rig.hosts[self.plan.host(work, to)].key;
        let end = &mut self.ends[work.connection][to];
        let list = [(receive_of(n), super::plan::LONGEST, key)];
        let unreliable = self.plan.connections[work.connection].service == Service::Uc;
        // A WRITE's receive takes no bytes; where messages are lost another one may get it.
        let list = if work.kind == Kind::Send || unreliable { &list[..] } else { &[] };
        self.rig.receive(end, list);
        self.directions[work.connection][work.from].receives.push(n);
    }

    /// Takes all completions.
    fn poll(&mut self) -> Result<(), String> {
        for connection in 0..self.ends.len() {
            for end in 0..2 {
                for got in self.rig.sent(&mut self.ends[connection][end]) {
                    self.note(&got);
                    self.sent(connection, end, &got)?;
                }
                for got in self.rig.got(&mut self.ends[connection][end]) {
                    self.note(&got);
                    let direction = &mut self.directions[connection][1 - end];
                    if direction.received.len() == direction.receives.len() {
                        return Err(format!("connection {connection}: {got:?} of no receive"));
                    }
                    let outcome = if got.kind < 13 { Ok(got) } else { Err(got.syndrome) };
                    direction.received.push(outcome);
                }
            }
        }
        Ok(())
    }

    fn note(&mut self, got: &Got) {
        self.summary.note(self.rig.now.as_nanos() as u64);
        self.summary.note(u64::from(got.kind) << 32 | u64::from(got.counter));
        self.summary.note(u64::from(got.qpn.0) << 32 | u64::from(got.bytes));
        self.summary.note(u64::from(got.imm) << 32 | u64::from(got.syndrome));
    }

    /// A completion of a send queue: of the oldest work that is open; those before it asked for
    /// none, and succeeded.
    fn sent(&mut self, connection: usize, end: usize, got: &Got) -> Result<(), String> {
        let direction = &mut self.directions[connection][end];
        let failed = got.kind == 13;
        let at = direction.open.iter().position(|(_, index)| *index == got.counter);
        let Some(at) = at else {
            return Err(format!("connection {connection}: {got:?} of nothing that is open"));
        };
        for (position, (n, _)) in direction.open.drain(..=at).enumerate() {
            let last = position == at;
            if !last && (self.plan.works[n].signaled || direction.has_failed) {
                return Err(format!("work {n} was passed over by {got:?}"));
            }
            self.done[n] = Some(if last && failed { Done::Failed } else { Done::Success });
        }
        if direction.has_failed && !failed {
            return Err(format!("connection {connection}: {got:?} behind a failure"));
        }
        direction.has_failed |= failed;
        Ok(())
    }

    pub(super) fn is_up(&self, connection: usize, end: usize) -> bool {
        self.rig.state(&self.ends[connection][end]) == QpState::Rts
    }
}

pub(super) fn near_of(n: usize) -> u64 {
    NEAR + n as u64 * SLOT
}

pub(super) fn far_of(n: usize) -> u64 {
    FAR + n as u64 * SLOT
}

pub(super) fn receive_of(n: usize) -> u64 {
    RECEIVES + n as u64 * SLOT
}

/// Each direction of a connection has a counter of its own, at the peer.
pub(super) fn counter_of(work: &Work) -> u64 {
    COUNTERS + (work.connection * 2 + work.from) as u64 * 8
}

impl Plan {
    pub(super) fn host(&self, work: &Work, end: usize) -> usize {
        self.connections[work.connection].hosts[end]
    }

    /// Bytes of a work's message.
    pub(super) fn bytes(&self, n: usize) -> Vec<u8> {
        if let Some(read) = self.relayed(n) {
            let mut bytes = self.bytes(read);
            bytes.truncate(self.works[n].len as usize);
            return bytes;
        }
        let mut bytes = pattern(self.works[n].len as usize, self.seed << 16 | n as u64);
        // Memory that nobody wrote is 0.
        bytes.iter_mut().for_each(|byte| *byte |= 1);
        bytes
    }

    /// What an atomic adds, or stores and compares with, so that each one matches if those before
    /// it were executed once.
    pub(super) fn operands(&self, n: usize) -> (u64, u64) {
        let before = self.counter_before(n);
        match self.works[n].kind {
            Kind::CompareSwap => (before + 1000, before),
            _ => (n as u64 + 1, 0),
        }
    }

    /// What a work's counter holds when all atomics of its direction before it were executed once.
    pub(super) fn counter_before(&self, n: usize) -> u64 {
        let own = &self.works[n];
        let same = |work: &Work| {
            (work.connection, work.from) == (own.connection, own.from) && work.kind.is_atomic()
        };
        let before = self.works[..n].iter().enumerate().filter(|(_, work)| same(work));
        let add = |(n, work): (usize, &Work)| match work.kind {
            Kind::CompareSwap => 1000,
            _ => n as u64 + 1,
        };
        before.map(add).sum()
    }
}
