//! What a seed decides before anything runs.

use std::time::Duration;

use crate::hca::{Mtu, Service};
use crate::wire::faulty::Dice;
use crate::wire::{Faults, Psn};

/// Longest message, and bytes between the places of two of them: what lies between is watched.
pub(super) const LONGEST: u32 = 8192;
pub(super) const SLOT: u64 = LONGEST as u64 + 64;
/// Work requests of one plan, at most, and of one queue pair, whose rings have as many entries.
const WORKS: u64 = 48;

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) hosts: usize,
    pub(super) faults: Faults,
    /// Packets of READ answers under way.
    pub(super) read_window: u32,
    pub(super) outages: Vec<Outage>,
    pub(super) connections: Vec<Connection>,
    /// By the time they are posted, per direction of a connection.
    pub(super) works: Vec<Work>,
}

/// A cable that is pulled for a while.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    pub(super) host: usize,
    pub(super) from: Duration,
    pub(super) until: Duration,
}

/// Two queue pairs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    pub(super) service: Service,
    pub(super) hosts: [usize; 2],
    pub(super) mtu: Mtu,
    pub(super) psn: Psn,
    pub(super) timeout: u8,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    pub(super) rnr_timer: u8,
    pub(super) rd_atomic: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Send,
    Write,
    WriteImm,
    Read,
    FetchAdd,
    CompareSwap,
}

impl Kind {
    /// Whether it takes a receive of the peer.
    pub(super) fn is_received(self) -> bool {
        matches!(self, Kind::Send | Kind::WriteImm)
    }

    pub(super) fn is_atomic(self) -> bool {
        matches!(self, Kind::FetchAdd | Kind::CompareSwap)
    }
}

/// A work request. Its number in the plan makes its bytes, its places in memory on both sides, and
/// its immediate data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) connection: usize,
    /// The end that posts it, 0 or 1.
    pub(super) from: usize,
    pub(super) kind: Kind,
    pub(super) len: u32,
    pub(super) at: Duration,
    /// When the peer posts the receive for it.
    pub(super) received_at: Duration,
    pub(super) signaled: bool,
    pub(super) fence: bool,
    /// Sends what the READ before it brings, if there is one: without its fence it would send what
    /// was there before.
    pub(super) relays: bool,
    /// Names a key of its own that is destroyed then.
    pub(super) key_until: Option<Duration>,
}

impl Plan {
    pub(super) fn new(seed: u64) -> Plan {
        // One stream for each purpose: a change of one leaves the others alone.
        let dice = |purpose: u64| Dice::new(seed.wrapping_mul(0x1_0000_0001) ^ purpose << 48);
        let (mut shape, mut wires, mut work) = (dice(1), dice(2), dice(3));
        let mut limits = dice(4);
        let hosts = 2 + shape.below(3) as usize;
        let connections: Vec<_> =
            (0..1 + shape.below(4)).map(|_| Connection::new(&mut shape, hosts)).collect();
        let mut works = works(&mut work, connections.len(), &connections);
        relays(&mut limits, &mut works);
        let end = works.iter().map(|work| work.at).max().unwrap_or_default();
        Plan {
            seed,
            hosts,
            faults: faults(&mut wires),
            read_window: if limits.chance(0.5) { u32::MAX } else { 1 + limits.below(16) as u32 },
            outages: outages(&mut wires, hosts, end),
            connections,
            works,
        }
    }

    /// The READ whose bytes a work sends. One that was shrunk away leaves it with bytes of its own.
    pub(super) fn relayed(&self, n: usize) -> Option<usize> {
        let before = before(&self.works, n).filter(|_| self.works[n].relays)?;
        let read = &self.works[before];
        (read.kind == Kind::Read && read.len >= self.works[n].len).then_some(before)
    }

    /// Nothing is lost, refused or late: all work succeeds.
    pub(super) fn is_kind(&self) -> bool {
        self.faults.loss == 0.0
            && self.faults.corrupt == 0.0
            && self.faults.reorder == 0.0
            && self.outages.is_empty()
            && self.works.iter().all(|work| work.key_until.is_none())
            && self.connections.iter().all(|connection| connection.rnr_retry == 7)
    }
}

impl Connection {
    fn new(dice: &mut Dice, hosts: usize) -> Connection {
        let host = |dice: &mut Dice| dice.below(hosts as u64) as usize;
        let service = if dice.chance(0.75) { Service::Rc } else { Service::Uc };
        let mtus = [Mtu::B256, Mtu::B512, Mtu::B1024];
        // Most begin shortly before the numbers start anew.
        let psn = if dice.chance(0.7) { 0xff_ffff - dice.below(200) } else { dice.below(1 << 24) };
        Connection {
            service,
            hosts: [host(dice), host(dice)],
            mtu: mtus[dice.below(3) as usize],
            psn: Psn::new(psn as u32),
            timeout: 6 + dice.below(5) as u8,
            retry_cnt: if dice.chance(0.8) { 7 } else { dice.below(7) as u8 },
            rnr_retry: if dice.chance(0.8) { 7 } else { dice.below(7) as u8 },
            rnr_timer: 1 + dice.below(8) as u8,
            rd_atomic: 1 + dice.below(6) as u8,
        }
    }
}

fn works(dice: &mut Dice, connections: usize, all: &[Connection]) -> Vec<Work> {
    let mut works = Vec::new();
    // The last time at which each direction posted, and its peer posted a receive.
    let mut posted = vec![[Duration::ZERO; 2]; connections];
    let mut received = posted.clone();
    for _ in 0..2 + dice.below(WORKS - 1) {
        let connection = dice.below(connections as u64) as usize;
        let from = dice.below(2) as usize;
        let kinds = match all[connection].service {
            Service::Uc => &[Kind::Send, Kind::Write, Kind::WriteImm][..],
            _ => &[
                Kind::Send,
                Kind::Write,
                Kind::WriteImm,
                Kind::Read,
                Kind::FetchAdd,
                Kind::CompareSwap,
            ],
        };
        let kind = kinds[dice.below(kinds.len() as u64) as usize];
        let mtu = all[connection].mtu.bytes();
        let len = match dice.below(6) {
            0 => dice.below(3) as u32,
            1 => mtu * (1 + dice.below(6) as u32),
            2 => mtu * (1 + dice.below(6) as u32) + 1,
            3 => mtu * (1 + dice.below(6) as u32) - 1,
            _ => dice.below(LONGEST.into()) as u32 + 1,
        };
        let len = if kind.is_atomic() { 8 } else { len.min(LONGEST) };
        let pause = if dice.chance(0.5) { dice.below(60) } else { 0 };
        let at = posted[connection][from] + Duration::from_micros(pause);
        posted[connection][from] = at;
        let late = match dice.below(4) {
            0 => Duration::from_micros(dice.below(400)),
            _ => Duration::ZERO,
        };
        let received_at = received[connection][from].max(at + late);
        received[connection][from] = received_at;
        let ends = dice.chance(0.03) && !kind.is_atomic() && kind != Kind::Send;
        let until = at + Duration::from_micros(dice.below(100));
        works.push(Work {
            connection,
            from,
            kind,
            len,
            at,
            received_at,
            signaled: dice.chance(0.8),
            fence: dice.chance(0.1),
            relays: false,
            key_until: ends.then_some(until),
        });
    }
    works
}

/// Half of the messages and WRITEs behind a READ send what it brings.
fn relays(dice: &mut Dice, works: &mut [Work]) {
    for n in 0..works.len() {
        let Some(before) = before(works, n) else { continue };
        let (read, len) = (works[before].kind == Kind::Read, works[before].len);
        let work = &mut works[n];
        let sends = work.kind.is_received() || work.kind == Kind::Write;
        if read && sends && dice.chance(0.5) {
            (work.relays, work.fence, work.len) = (true, true, work.len.min(len));
        }
    }
}

/// The work that the same end posts before another one.
fn before(works: &[Work], n: usize) -> Option<usize> {
    let own = |work: &Work| (work.connection, work.from);
    works[..n].iter().rposition(|work| own(work) == own(&works[n]))
}

/// Each fault is there in half of the plans, so that each is met alone, too.
fn faults(dice: &mut Dice) -> Faults {
    let mut some = |most: f64| match dice.chance(0.5) {
        true => most * (dice.below(1000) as f64 / 1000.0),
        false => 0.0,
    };
    let (loss, duplicate, reorder, corrupt) = (some(0.15), some(0.15), some(0.1), some(0.08));
    Faults {
        loss,
        duplicate,
        reorder,
        reorder_depth: 1 + dice.below(4) as u32,
        corrupt,
        delay: Duration::from_nanos(dice.below(8000)),
        jitter: Duration::from_nanos(dice.below(4000)),
    }
}

fn outages(dice: &mut Dice, hosts: usize, end: Duration) -> Vec<Outage> {
    if !dice.chance(0.3) {
        return Vec::new();
    }
    let span = end.as_micros() as u64 + 200;
    let outage = |dice: &mut Dice| {
        let from = Duration::from_micros(dice.below(span));
        let until = from + Duration::from_micros(dice.below(3000));
        Outage { host: dice.below(hosts as u64) as usize, from, until }
    };
    (0..1 + dice.below(3)).map(|_| outage(dice)).collect()
}
