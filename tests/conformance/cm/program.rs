//! Chooses the steps of a program, from a seed and from the outcomes of earlier steps.

use uverbs_kernel_abi::rdma_cm::{RDMA_PS_IB, RDMA_PS_TCP, RDMA_PS_UDP};

use super::step::{Addr, Ip, Step};
use crate::random::Dice;

/// Steps of a program.
const STEPS: usize = 40;
/// Ids of a program at the same time.
pub(crate) const SLOTS: usize = 8;
/// Ids that a program creates; the other slots are for requests.
const OWN: usize = 5;
/// Ports, few so that ids meet.
const PORTS: [u16; 2] = [7001, 7002];

/// State of an id, as far as the events tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Bound,
    Listening,
    Resolved,
    Routed,
    Requesting,
    Requested,
    Answered,
    Accepting,
    Connected,
    Over,
}

/// A program.
#[derive(Debug)]
pub(crate) struct Program {
    dice: Dice,
    left: usize,
    slots: [Option<Phase>; SLOTS],
    qpn: u32,
}

impl Program {
    pub(crate) fn new(seed: u64) -> Self {
        let qpn = 0x1000 + (seed as u32 & 0x3ff) * 0x100;
        Self { dice: Dice(seed), left: STEPS, slots: [None; SLOTS], qpn }
    }

    pub(crate) fn next(&mut self) -> Option<Step> {
        self.left = self.left.checked_sub(1)?;
        let used = (0..SLOTS).filter(|&slot| self.slots[slot].is_some()).collect::<Vec<_>>();
        let free = (0..OWN).find(|&slot| self.slots[slot].is_none());
        if let Some(slot) = free
            && (used.len() < 2 || self.dice.chance(10))
        {
            let space = self.dice.pick(&[RDMA_PS_TCP, RDMA_PS_TCP, RDMA_PS_TCP, RDMA_PS_UDP]);
            let space = if self.dice.chance(2) { RDMA_PS_IB } else { space };
            return Some(Step::Create { slot, space });
        }
        let slot = self.dice.pick(&used);
        let phase = self.slots[slot].unwrap_or(Phase::Idle);
        let step = if self.dice.chance(72) { self.usual(slot, phase) } else { self.any(slot) };
        Some(step)
    }

    /// The step that usually follows.
    fn usual(&mut self, slot: usize, phase: Phase) -> Step {
        let port = self.dice.pick(&[PORTS[0], PORTS[0], PORTS[0], PORTS[1]]);
        let listened = self.slots.contains(&Some(Phase::Listening));
        match phase {
            Phase::Idle if listened => {
                Step::ResolveAddr { slot, from: None, to: Addr { ip: Ip::Own, port } }
            }
            Phase::Idle => self.bind(slot),
            Phase::Bound => {
                Step::Listen { slot, backlog: self.dice.pick(&[0, 1, 2, 16, -1, 100_000]) }
            }
            Phase::Resolved => Step::ResolveRoute { slot, timeout_ms: 2000 },
            Phase::Routed => self.connect(slot, true),
            Phase::Requested => match self.dice.below(4) {
                0 => self.reject(slot),
                _ => self.accept(slot, true),
            },
            Phase::Answered => match self.dice.below(4) {
                0 => self.reject(slot),
                _ => self.accept(slot, false),
            },
            Phase::Connected => Step::Disconnect { slot },
            Phase::Over => Step::Destroy { slot },
            Phase::Listening | Phase::Requesting | Phase::Accepting => self.asks(slot),
        }
    }

    fn any(&mut self, slot: usize) -> Step {
        let valid = self.dice.chance(80);
        match self.dice.below(14) {
            0 => self.bind(slot),
            1 | 2 => self.option(slot),
            3 => Step::Listen { slot, backlog: self.dice.pick(&[0, 1, 2]) },
            4 => self.resolve(slot),
            5 => Step::ResolveRoute { slot, timeout_ms: self.dice.pick(&[0, 2000]) },
            6 => self.connect(slot, valid),
            7 => self.accept(slot, valid),
            8 => self.reject(slot),
            9 => Step::Disconnect { slot },
            10 => Step::Notify { slot, event: self.dice.pick(&[4, 4, 0, 15]) },
            11 => Step::Destroy { slot },
            _ => self.asks(slot),
        }
    }

    /// A question, which changes nothing.
    fn asks(&mut self, slot: usize) -> Step {
        match self.dice.chance(50) {
            true => Step::Query { slot, option: self.dice.pick(&[0, 0, 1, 2, 9]) },
            false => Step::Attributes { slot, state: self.dice.pick(&[1, 1, 2, 2, 3, 3, 0, 6, 7]) },
        }
    }

    fn port(&mut self) -> u16 {
        self.dice.pick(&[0, PORTS[0], PORTS[0], PORTS[1]])
    }

    fn bind(&mut self, slot: usize) -> Step {
        let usual = [Ip::Own, Ip::Own, Ip::Any4, Ip::Any6, Ip::Loopback4, Ip::Loopback6];
        let odd = [Ip::Foreign4, Ip::Foreign6, Ip::Long, Ip::Unknown];
        let ip = if self.dice.chance(88) { self.dice.pick(&usual) } else { self.dice.pick(&odd) };
        Step::Bind { slot, to: Addr { ip, port: self.port() } }
    }

    fn option(&mut self, slot: usize) -> Step {
        let option = self.dice.pick(&[0, 1, 1, 2, 2, 3, 4]);
        let len = if option == 1 || option == 2 { 4 } else { 1 };
        let len = if self.dice.chance(10) { 5 - len } else { len };
        let value = match option {
            0 => self.dice.pick(&[0, 8, 255]),
            3 => self.dice.pick(&[0, 14, 18, 31, 200]),
            _ => self.dice.pick(&[0, 1, 1, 2]),
        };
        Step::Set { slot, option, value, len }
    }

    fn resolve(&mut self, slot: usize) -> Step {
        // A loopback or wildcard peer is the list's (docs/CONFORMANCE.md).
        let ips = [Ip::Own, Ip::Own, Ip::Own, Ip::Long, Ip::Unknown];
        let to = Addr { ip: self.dice.pick(&ips), port: self.dice.pick(&PORTS) };
        let from = match self.dice.chance(50) {
            true => None,
            false => {
                let ips = [Ip::Own, Ip::Own, Ip::Any4, Ip::Any6, Ip::Loopback4, Ip::Foreign4];
                Some(Addr { ip: self.dice.pick(&ips), port: self.port() })
            }
        };
        Step::ResolveAddr { slot, from, to }
    }

    fn qpn(&mut self) -> u32 {
        self.qpn += 1;
        self.qpn
    }

    fn connect(&mut self, slot: usize, valid: bool) -> Step {
        let data = self.dice.pick(&[0, 0, 0, 10, 10, 56, 57, 181]);
        Step::Connect { slot, qpn: self.qpn(), data, depth: self.dice.pick(&[0, 1, 4]), valid }
    }

    fn accept(&mut self, slot: usize, valid: bool) -> Step {
        let data = self.dice.pick(&[0, 0, 0, 10, 10, 136, 137, 197]);
        Step::Accept { slot, qpn: self.qpn(), data, depth: self.dice.pick(&[0, 1, 4]), valid }
    }

    fn reject(&mut self, slot: usize) -> Step {
        let (reason, data) =
            (self.dice.pick(&[0, 28, 28, 35, 1]), self.dice.pick(&[0, 9, 148, 149]));
        Step::Reject { slot, reason, data }
    }

    /// Takes the outcome of a step into account.
    pub(crate) fn learn(&mut self, step: Step, outcome: &str) {
        let done = outcome.starts_with("ok");
        let slot = step.slot();
        let phase = match step {
            Step::Create { .. } => Some(Phase::Idle),
            Step::Bind { .. } => Some(Phase::Bound),
            Step::Listen { .. } => Some(Phase::Listening),
            Step::Connect { .. } => Some(Phase::Requesting),
            Step::Accept { valid: true, .. } => Some(Phase::Accepting),
            Step::Accept { .. } => Some(Phase::Connected),
            Step::Reject { .. } | Step::Disconnect { .. } => Some(Phase::Over),
            _ => None,
        };
        match (step, phase) {
            _ if !done => {}
            (Step::Destroy { .. }, _) => self.slots[slot] = None,
            (_, Some(phase)) => self.slots[slot] = Some(phase),
            _ => {}
        }
        // Events, in the form of `Side::run`.
        for event in outcome.split("; ").skip(1) {
            let mut words = event.split(' ');
            let (Some(slot), Some(name)) = (words.next(), words.next()) else { continue };
            let Ok(slot) = slot.parse::<usize>() else { continue };
            let phase = match name {
                "ADDR_RESOLVED" => Phase::Resolved,
                "ROUTE_RESOLVED" => Phase::Routed,
                "CONNECT_REQUEST" => {
                    let new = words.nth(1).and_then(|word| word.trim_end_matches(',').parse().ok());
                    if let Some(new) = new.filter(|&new: &usize| new < SLOTS) {
                        self.slots[new] = Some(Phase::Requested);
                    }
                    continue;
                }
                "CONNECT_RESPONSE" => Phase::Answered,
                "ESTABLISHED" => Phase::Connected,
                "ADDR_ERROR" | "ROUTE_ERROR" => Phase::Bound,
                _ => Phase::Over,
            };
            self.slots[slot] = Some(phase);
        }
    }
}
