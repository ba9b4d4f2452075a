//! Devices that run a plan.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::congestion;
use super::plan::{Plan, ROOMY};
use super::side::{Side, setup};
use super::verdict;
use super::work::Kind;
use crate::hca::HcaConfig;
use crate::hca::testing::*;
use crate::wire::faulty::Dice;
use uverbs_front::backend::context::{Access, QpState};
use uverbs_front::backend::error::HcaEvent;
use uverbs_front::backend::number::{Cqn, Key};
use uverbs_front::backend::region::Region;

/// Scheduled action on a work request, a connection or a host, by its number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Open(usize),
    Post(usize),
    Receive(usize),
    Unplug(usize),
    Replug(usize),
    EndKey(usize),
    Die(usize),
    Return(usize),
    Take(usize),
    GiveBack(usize),
}

/// Maximum steps of a run, and its maximum virtual time.
const STEPS: u32 = 400_000;
const HORIZON: Duration = Duration::from_secs(3600);

/// Result of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    Success,
    Failed,
    /// Unknown: its device died, or its completion queue overran.
    Gone,
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub(super) struct Direction {
    /// Works posted and not completed, oldest first, with the index of their WQE.
    pub(super) open: VecDeque<(usize, u16)>,
    /// All works posted, in order.
    pub(super) posted: Vec<usize>,
    pub(super) arrivals: [Arrivals; 2],
    pub(super) has_failed: bool,
}

/// Receives that the peer posted, and their completions: successful ones by message.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    pub(super) receives: Vec<usize>,
    pub(super) received: Vec<Result<Got, u8>>,
}

/// Result of a run. It is equal in two runs of one plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) gone: u64,
    pub(super) retransmits: u64,
    pub(super) timeouts: u64,
    pub(super) rnr_naks: u64,
    pub(super) duplicates: u64,
    /// Unreliable messages sent, and their completions at the receiver.
    pub(super) offered: u64,
    pub(super) arrived: u64,
    pub(super) overruns: u64,
    pub(super) page_faults: u64,
    pub(super) deaths: u64,
    /// Marked packets that arrived at a queue pair with congestion control, and the notifications
    /// for them.
    pub(super) marks: u64,
    pub(super) notifications: u64,
    /// Hash of all completions and their times.
    pub(super) hash: u64,
}

impl Summary {
    pub(super) fn add(&mut self, other: &Summary) {
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.gone += other.gone;
        self.retransmits += other.retransmits;
        self.timeouts += other.timeouts;
        self.rnr_naks += other.rnr_naks;
        self.duplicates += other.duplicates;
        self.offered += other.offered;
        self.arrived += other.arrived;
        self.overruns += other.overruns;
        self.page_faults += other.page_faults;
        self.deaths += other.deaths;
        self.marks += other.marks;
        self.notifications += other.notifications;
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
    /// By connection; None before it opens.
    pub(super) sides: Vec<Option<[Side; 2]>>,
    pub(super) directions: Vec<[Direction; 2]>,
    pub(super) done: Vec<Option<Done>>,
    /// Keys that a single work uses.
    pub(super) keys: BTreeMap<usize, Key>,
    /// Bytes behind a key at its destruction.
    pub(super) after_key: BTreeMap<usize, Vec<u8>>,
    /// By host: number of stores into its memory at the device's death, until it is back.
    pub(super) dead: Vec<Option<u64>>,
    pub(super) events: BTreeMap<(Duration, usize), Event>,
    order: Dice,
    pub(super) summary: Summary,
}

/// Runs a plan to its end, and checks it.
///
/// # Errors
/// The check that failed.
pub(super) fn run(plan: &Plan) -> Result<Summary, String> {
    let mut world = World::new(plan);
    world.play()?;
    verdict::judge(&mut world)?;
    congestion::judge(&mut world)?;
    let mut summary = world.summary;
    for host in &world.rig.hosts {
        let stats = host.hca.stats();
        summary.retransmits += stats.retransmits;
        summary.timeouts += stats.timeouts;
        summary.rnr_naks += stats.rnr_naks_sent;
        summary.duplicates += stats.duplicates;
        summary.overruns += stats.cq_overruns;
        summary.page_faults += host.arena.page_faults();
        summary.marks += stats.congested;
        summary.notifications += stats.cnps_sent;
    }
    summary.succeeded = world.count(Done::Success);
    summary.failed = world.count(Done::Failed);
    summary.gone = world.count(Done::Gone);
    Ok(summary)
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan) -> World<'a> {
        let config = HcaConfig { read_window: plan.read_window, ..HcaConfig::default() };
        let mut rig = Rig::with(plan.hosts, config, plan.faults, plan.seed);
        for (host, asks) in rig.hosts.iter_mut().zip(&plan.asks) {
            host.hca.ask_for_notifications(*asks);
        }
        if plan.paged {
            for host in &mut rig.hosts {
                host.buf = Region::OnDemand { addr: host.arena.base(), len: BUF_LEN };
                host.key = Key(host.key(PD, BUF_LEN, Access::all()));
            }
        }
        let mut world = World {
            plan,
            rig,
            sides: plan.connections.iter().map(|_| None).collect(),
            directions: plan.connections.iter().map(|_| Default::default()).collect(),
            done: vec![None; plan.works.len()],
            keys: BTreeMap::new(),
            after_key: BTreeMap::new(),
            dead: vec![None; plan.hosts],
            events: BTreeMap::new(),
            order: Dice::new(plan.seed ^ 0x5e9),
            summary: Summary::default(),
        };
        world.prepare();
        world
    }

    /// Creates the queue pairs and keys of a connection.
    pub(super) fn open(&mut self, number: usize) {
        let connection = &self.plan.connections[number];
        let hosts = connection.hosts;
        if hosts.iter().any(|host| self.dead[*host].is_some()) {
            return;
        }
        let [one, other] = [0, 1].map(|which| Side::new(&mut self.rig, self.plan, number, which));
        let attrs = setup(number, connection).attrs;
        self.rig.connect(&one.end, (hosts[1], other.end.qpn.0), &attrs);
        self.rig.connect(&other.end, (hosts[0], one.end.qpn.0), &attrs);
        self.sides[number] = Some([one, other]);
        for (n, work) in self.plan.works.iter().enumerate() {
            if work.connection == number && work.key_until.is_some() {
                let far = self.plan.host(work, 1 - work.from);
                let key = self.rig.hosts[far].key(PD, BUF_LEN, Access::all());
                self.keys.insert(n, Key(key));
            }
        }
    }

    fn count(&self, done: Done) -> u64 {
        self.done.iter().filter(|other| **other == Some(done)).count() as u64
    }

    /// Runs until no work is left.
    fn play(&mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            while let Some(first) = self.events.first_entry()
                && first.key().0 <= self.rig.now
            {
                let event = first.remove();
                self.happen(event)?;
            }
            // A device that isn't stepped is one whose thread doesn't run.
            let mut busy = false;
            for host in 0..self.plan.hosts {
                match self.order.chance(0.8) {
                    true => busy |= self.rig.hosts[host].hca.step(self.rig.now),
                    false => busy = true,
                }
            }
            self.hear()?;
            self.poll(false)?;
            if busy {
                // Time goes by while devices work.
                self.rig.now += Duration::from_nanos(self.order.below(400));
                continue;
            }
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let timers = self.rig.hosts.iter().filter_map(|host| host.hca.next_deadline()).min();
            match event.into_iter().chain(timers).min() {
                None => return self.poll(true),
                Some(next) if next > HORIZON => return Err(format!("a timer at {next:?}")),
                Some(next) => self.rig.now = self.rig.now.max(next),
            }
        }
        Err(format!("no rest within {STEPS} steps, at {:?}", self.rig.now))
    }

    /// Takes all asynchronous events.
    fn hear(&mut self) -> Result<(), String> {
        let mut overran = Vec::new();
        for host in 0..self.plan.hosts {
            while let Some(event) = self.rig.hosts[host].hca.next_event() {
                if let HcaEvent::CqError { cqn } = event {
                    overran.extend(self.overrun(host, cqn)?);
                }
            }
        }
        for (number, which) in overran {
            self.poll_side(number, which)?;
            if self.sides[number].as_ref().is_some_and(|sides| sides[which].lost_sends()) {
                self.lose(number, which);
            }
        }
        Ok(())
    }

    /// Checks a CQ in error: only one that a program left full may be. Returns the connection and
    /// end that use it.
    fn overrun(&mut self, host: usize, cqn: Cqn) -> Result<Option<(usize, usize)>, String> {
        for (number, sides) in self.sides.iter_mut().enumerate() {
            for (which, side) in sides.iter_mut().flatten().enumerate() {
                if side.gone || side.end.host != host || !side.note_overrun(cqn) {
                    continue;
                }
                let log = self.plan.connections[number].cq_log;
                let held = side.held(&mut self.rig, cqn);
                if log == ROOMY || held != 1 << log {
                    return Err(format!("connection {number}: overrun of a queue with {held}"));
                }
                return Ok(Some((number, which)));
            }
        }
        Ok(None)
    }

    /// Polls the queues of all programs whose time has come, or of all programs.
    pub(super) fn poll(&mut self, all: bool) -> Result<(), String> {
        for number in 0..self.sides.len() {
            let every = self.plan.connections[number].poll_every;
            for which in 0..2 {
                let Some(sides) = &mut self.sides[number] else { continue };
                let side = &mut sides[which];
                if side.gone || !all && self.rig.now < side.next_poll {
                    continue;
                }
                side.next_poll = self.rig.now + every;
                self.poll_side(number, which)?;
            }
        }
        Ok(())
    }

    /// Polls all queues of one end.
    fn poll_side(&mut self, number: usize, which: usize) -> Result<(), String> {
        let Some(sides) = &mut self.sides[number] else { return Ok(()) };
        let side = &mut sides[which];
        let sent = self.rig.sent(&mut side.end);
        let got: Vec<_> = (0..side.inlets()).map(|inlet| side.got(&mut self.rig, inlet)).collect();
        for got in sent {
            self.note(&got);
            self.sent(number, which, &got)?;
        }
        for (inlet, got) in got.iter().enumerate() {
            for got in got {
                self.note(got);
                let arrivals = &mut self.directions[number][1 - which].arrivals[inlet];
                if arrivals.received.len() == arrivals.receives.len() {
                    return Err(format!("connection {number}: {got:?} of no receive"));
                }
                let outcome = if got.kind < 13 { Ok(*got) } else { Err(got.syndrome) };
                arrivals.received.push(outcome);
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

    /// Takes a completion of a send queue. It is for the first signaled open work; the unsignaled
    /// works before it succeeded.
    fn sent(&mut self, connection: usize, end: usize, got: &Got) -> Result<(), String> {
        let direction = &mut self.directions[connection][end];
        let failed = got.kind == 13;
        let at = direction.open.iter().position(|(_, index)| *index == got.counter);
        let Some(at) = at else {
            return Err(format!("connection {connection}: {got:?} of nothing that is open"));
        };
        let mut flushes = Vec::new();
        for (position, (n, _)) in direction.open.drain(..=at).enumerate() {
            let last = position == at;
            if !last && (self.plan.works[n].signaled || direction.has_failed) {
                return Err(format!("work {n} was passed over by {got:?}"));
            }
            self.done[n] = Some(if last && failed { Done::Failed } else { Done::Success });
            if self.done[n] == Some(Done::Success) && self.plan.works[n].kind == Kind::Flush {
                flushes.push(n);
            }
        }
        if direction.has_failed && !failed {
            return Err(format!("connection {connection}: {got:?} behind a failure"));
        }
        direction.has_failed |= failed;
        flushes.into_iter().try_for_each(|n| verdict::flushed(self, n))
    }

    /// Gives up the results of one end's works.
    pub(super) fn lose(&mut self, number: usize, which: usize) {
        for (n, _) in self.directions[number][which].open.drain(..) {
            self.done[n] = Some(Done::Gone);
        }
    }

    pub(super) fn is_up(&self, side: &Side) -> bool {
        !side.gone && self.rig.state(&side.end) == QpState::Rts
    }
}
