//! Trouble of a plan: bad wires, pulled cables, deaths of devices, missing memory.

use std::time::Duration;

use super::places::{far_of, near_of, receive_of};
use super::work::{Connection, Work};

use crate::wire::Faults;
use crate::wire::faulty::Dice;

const PAGE: u64 = 4096;

#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) faults: Faults,
    pub(super) outages: Vec<Outage>,
    pub(super) deaths: Vec<Death>,
    pub(super) shortages: Vec<Shortage>,
    pub(super) paged: bool,
}

/// A cable that is pulled for a while.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    pub(super) host: usize,
    pub(super) from: Duration,
    pub(super) until: Duration,
}

/// A device that loses all of its objects. After its return it may have new ones with the same
/// numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Death {
    pub(super) host: usize,
    pub(super) at: Duration,
    pub(super) back: Duration,
}

/// Pages of a host's buffer that are missing for a while: first page, and number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shortage {
    pub(super) host: usize,
    pub(super) page: u64,
    pub(super) pages: u64,
    pub(super) from: Duration,
    pub(super) until: Duration,
}

impl Trouble {
    pub(super) fn new(
        wires: &mut Dice,
        fates: &mut Dice,
        hosts: usize,
        works: &[Work],
        connections: &[Connection],
    ) -> Trouble {
        let end = works.iter().map(|work| work.at).max().unwrap_or_default();
        let span = end.as_micros() as u64 + 200;
        Trouble {
            faults: faults(wires),
            outages: outages(wires, hosts, span),
            deaths: deaths(fates, hosts, span),
            shortages: shortages(fates, works, connections),
            paged: fates.chance(0.5),
        }
    }
}

/// Each fault is in half of the plans, so that each also occurs alone.
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
        mark: 0.0,
    }
}

/// Adds switches that mark packets, and programs with any traffic class. Returns the hosts that ask
/// for notifications: all, some or none.
pub(super) fn congestion(
    dice: &mut Dice,
    faults: &mut Faults,
    hosts: usize,
    connections: &mut [Connection],
) -> Vec<bool> {
    if dice.chance(0.6) {
        faults.mark = dice.below(1000) as f64 / 1000.0;
    }
    for connection in connections {
        if dice.chance(0.3) {
            connection.traffic_class = dice.below(256) as u8;
        }
    }
    (0..hosts).map(|_| dice.chance(0.6)).collect()
}

fn outages(dice: &mut Dice, hosts: usize, span: u64) -> Vec<Outage> {
    if !dice.chance(0.3) {
        return Vec::new();
    }
    let outage = |dice: &mut Dice| {
        let from = Duration::from_micros(dice.below(span));
        let until = from + Duration::from_micros(dice.below(3000));
        Outage { host: dice.below(hosts as u64) as usize, from, until }
    };
    (0..1 + dice.below(3)).map(|_| outage(dice)).collect()
}

fn deaths(dice: &mut Dice, hosts: usize, span: u64) -> Vec<Death> {
    if !dice.chance(0.2) {
        return Vec::new();
    }
    let death = |dice: &mut Dice| {
        let at = Duration::from_micros(dice.below(span));
        let back = at + Duration::from_micros(1 + dice.below(3000));
        Death { host: dice.below(hosts as u64) as usize, at, back }
    };
    (0..1 + dice.below(2)).map(|_| death(dice)).collect()
}

/// Shortages at times and places at which works use memory.
fn shortages(dice: &mut Dice, works: &[Work], connections: &[Connection]) -> Vec<Shortage> {
    if !dice.chance(0.25) {
        return Vec::new();
    }
    let shortage = |dice: &mut Dice| {
        let n = dice.below(works.len() as u64) as usize;
        let work = &works[n];
        let (place, end) = match dice.below(3) {
            0 => (near_of(n), work.from),
            1 => (far_of(n), 1 - work.from),
            _ => (receive_of(n), 1 - work.from),
        };
        let from = work.at.saturating_sub(Duration::from_micros(dice.below(20)));
        Shortage {
            host: connections[work.connection].hosts[end],
            page: (place + dice.below(u64::from(work.len) + 1)) / PAGE,
            pages: 1 + dice.below(4),
            from,
            until: from + Duration::from_micros(dice.below(500)),
        }
    };
    (0..1 + dice.below(4)).map(|_| shortage(dice)).collect()
}
