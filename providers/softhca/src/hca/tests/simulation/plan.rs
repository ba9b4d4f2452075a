//! Decisions of a seed before the run.

use std::time::Duration;

use super::programs;
use super::trouble::{self, Death, Outage, Shortage, Trouble};
use super::work::{Connection, Kind, SETTLED, Work};
use crate::wire::faulty::Dice;
use crate::wire::{Faults, Psn};
use uverbs_front::backend::context::{Mtu, Service};

/// Maximum work requests of a plan and of one queue pair, whose rings have as many entries.
pub(super) const WORKS: u64 = 48;
/// Log2 of the CQEs of a completion queue that holds all completions of a plan.
pub(super) const ROOMY: u8 = 8;

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) hosts: usize,
    pub(super) faults: Faults,
    /// By host: true if it asks for congestion notifications.
    pub(super) asks: Vec<bool>,
    /// Window of READ response packets.
    pub(super) read_window: u32,
    /// Memory is unpinned: missing pages come when the device asks for them.
    pub(super) paged: bool,
    pub(super) outages: Vec<Outage>,
    pub(super) deaths: Vec<Death>,
    pub(super) shortages: Vec<Shortage>,
    pub(super) connections: Vec<Connection>,
    /// By the time of posting, per direction of a connection.
    pub(super) works: Vec<Work>,
}

impl Plan {
    pub(super) fn new(seed: u64) -> Plan {
        // A random stream for each purpose: a change of one leaves the others alone.
        let dice = |purpose: u64| Dice::new(seed.wrapping_mul(0x1_0000_0001) ^ purpose << 48);
        let (mut shape, mut wires, mut work) = (dice(1), dice(2), dice(3));
        let (mut limits, mut fates, mut crowds) = (dice(4), dice(5), dice(6));
        let mut placing = dice(7);
        let hosts = 2 + shape.below(3) as usize;
        let mut connections: Vec<_> =
            (0..1 + shape.below(4)).map(|_| Connection::new(&mut shape, hosts)).collect();
        let mut works = programs::works(&mut work, 2 + shape.below(WORKS - 1), 0, &connections);
        let Trouble { mut faults, outages, deaths, shortages, paged } =
            Trouble::new(&mut wires, &mut fates, hosts, &works, &connections);
        if let Some(back) = deaths.iter().map(|death| death.back).max() {
            let (first, of) = (connections.len(), deaths[0].host);
            let before = connections.iter().position(|one| one.hosts.contains(&of));
            programs::go_on(&mut fates, &mut works, before, back);
            let like = before.map(|before| connections[before].service);
            for _ in 0..1 + fates.below(2) {
                connections.push(Connection::again(&mut fates, hosts, of, back, like));
            }
            let left = WORKS - works.len() as u64;
            works.extend(programs::works(&mut fates, left.min(16), first, &connections));
        }
        programs::place(&mut placing, &mut works, &connections);
        programs::relay(&mut limits, &mut works);
        let asks = trouble::congestion(&mut crowds, &mut faults, hosts, &mut connections);
        Plan {
            seed,
            hosts,
            faults,
            asks,
            read_window: if limits.chance(0.5) { u32::MAX } else { 1 + limits.below(16) as u32 },
            paged,
            outages,
            deaths,
            shortages,
            connections,
            works,
        }
    }

    /// The READ whose bytes a work sends. If shrinking removed it, the work sends its own bytes.
    pub(super) fn relayed(&self, n: usize) -> Option<usize> {
        let before = programs::before(&self.works, n).filter(|_| self.works[n].relays)?;
        let read = &self.works[before];
        (read.kind == Kind::Read && read.len >= self.works[n].len).then_some(before)
    }

    /// True if no packet is lost, refused or late, so that all work succeeds.
    pub(super) fn is_kind(&self) -> bool {
        let patient =
            |connection: &Connection| connection.rnr_retry == 7 && connection.cq_log == ROOMY;
        self.faults.loss == 0.0
            && self.faults.corrupt == 0.0
            && self.faults.reorder == 0.0
            && self.outages.is_empty()
            && self.deaths.is_empty()
            && (self.paged || self.shortages.is_empty())
            && self.works.iter().all(|work| work.key_until.is_none())
            && self.connections.iter().all(patient)
    }
}

impl Connection {
    fn new(dice: &mut Dice, hosts: usize) -> Connection {
        let host = |dice: &mut Dice| dice.below(hosts as u64) as usize;
        let service = match dice.below(20) {
            0..9 => Service::Rc,
            9..12 => Service::Uc,
            12..14 => Service::Ud,
            14..17 => Service::Xrc,
            _ => Service::Dci,
        };
        let mtus = [Mtu::B256, Mtu::B512, Mtu::B1024];
        // Most PSNs start shortly before they wrap.
        let psn = if dice.chance(0.7) { 0xff_ffff - dice.below(200) } else { dice.below(1 << 24) };
        let hosts = [host(dice), host(dice)];
        let mut connection = Connection {
            service,
            hosts,
            opens: Duration::ZERO,
            mtu: mtus[dice.below(3) as usize],
            psn: Psn::new(psn as u32),
            timeout: 6 + dice.below(5) as u8,
            retry_cnt: if dice.chance(0.8) { 7 } else { dice.below(7) as u8 },
            rnr_retry: if dice.chance(0.8) { 7 } else { dice.below(7) as u8 },
            rnr_timer: 1 + dice.below(8) as u8,
            rd_atomic: 1 + dice.below(6) as u8,
            poll_every: Duration::ZERO,
            cq_log: ROOMY,
            gives_up: dice.chance(0.5),
            traffic_class: 0,
        };
        if dice.chance(0.3) {
            connection.poll_every = Duration::from_micros(1 + dice.below(2000));
            if dice.chance(0.2) {
                connection.cq_log = 2 + dice.below(3) as u8;
            }
        }
        // On such a connection any first packet begins a message (IBTA 9.8.2.2), also one that the
        // old queue pair sends when its number is used again.
        connection.gives_up |= service == Service::Uc;
        connection
    }

    /// A connection of a device that came back. Its PSNs are far from earlier connections' PSNs, as
    /// IBTA 9.7.1 asks if queue pair numbers are used again.
    fn again(
        dice: &mut Dice,
        hosts: usize,
        host: usize,
        back: Duration,
        like: Option<Service>,
    ) -> Connection {
        let mut again = Connection::new(dice, hosts);
        // Most have the first connection's service, and so its numbers.
        again.service = like.filter(|_| dice.chance(0.7)).unwrap_or(again.service);
        again.gives_up |= again.service == Service::Uc;
        again.hosts[0] = host;
        again.opens = back + SETTLED + Duration::from_micros(dice.below(500));
        again.psn = Psn::new((0x40_0000 + dice.below(0x1000)) as u32);
        again
    }
}
