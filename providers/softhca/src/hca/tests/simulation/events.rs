//! Events of a plan that reach the devices from outside.

use std::time::Duration;

use uverbs_mlx5_prm::ctrl::FmCeSe;
use uverbs_mlx5_prm::opcode::Opcode;

use super::places::{counter_of, far_of, near_of, receive_of};
use super::work::{Kind, LONGEST, SLOT};
use super::world::{Event, World};
use crate::hca::Placement;
use crate::hca::testing::*;
use crate::wire::Feth;
use uverbs_front::backend::context::{Access, QpTransition};
use uverbs_front::backend::number::Key;

const PAGE: u64 = 4096;

impl World<'_> {
    /// Fills memory, and schedules the events.
    pub(super) fn prepare(&mut self) {
        let plan = self.plan;
        let mut add = |at: Duration, event: Event| {
            let order = self.events.len();
            self.events.insert((at, order), event);
        };
        for (number, connection) in plan.connections.iter().enumerate() {
            add(connection.opens, Event::Open(number));
        }
        for (n, work) in plan.works.iter().enumerate() {
            let (near, far) = (plan.host(work, work.from), plan.host(work, 1 - work.from));
            match work.kind {
                Kind::Read => self.rig.hosts[far].put(far_of(n), &plan.bytes(n)),
                _ if work.kind.is_atomic() || plan.relayed(n).is_some() => {}
                _ => self.rig.hosts[near].put(near_of(n), &plan.bytes(n)),
            }
            if let Some(until) = work.key_until {
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
        for death in &plan.deaths {
            add(death.at, Event::Die(death.host));
            add(death.back, Event::Return(death.host));
        }
        for (at, shortage) in plan.shortages.iter().enumerate() {
            add(shortage.from, Event::Take(at));
            add(shortage.until, Event::GiveBack(at));
        }
    }

    pub(super) fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Open(number) => self.open(number),
            Event::Post(n) => self.post(n),
            Event::Receive(n) => self.receive(n),
            Event::Unplug(host) => self.rig.hosts[host].link.unplug(),
            Event::Replug(host) => self.rig.hosts[host].link.replug(),
            Event::EndKey(n) => self.end_key(n),
            Event::Die(host) => self.die(host)?,
            Event::Return(host) => self.come_back(host)?,
            Event::Take(at) => {
                let shortage = &self.plan.shortages[at];
                let hole = self.pages(shortage.page, shortage.pages);
                self.rig.hosts[shortage.host].arena.set_hole(hole);
            }
            Event::GiveBack(at) => {
                self.rig.hosts[self.plan.shortages[at].host].arena.set_hole([0; 2]);
            }
        }
        Ok(())
    }

    /// Bus addresses of pages of a host's buffer. A list of pages is in reverse order.
    fn pages(&self, page: u64, count: u64) -> [u64; 2] {
        let base = self.rig.hosts[0].arena.base();
        let first = if self.plan.paged { page } else { BUF_LEN / PAGE - page - count };
        [base + first * PAGE, base + (first + count) * PAGE]
    }

    /// Bytes of a host, missing ones included.
    pub(super) fn look(&self, host: usize, offset: u64, len: usize) -> Vec<u8> {
        let host = &self.rig.hosts[host];
        let hole = host.arena.set_hole([0; 2]);
        let bytes = host.get(offset, len);
        host.arena.set_hole(hole);
        bytes
    }

    /// Notes the bytes behind a key before the key is destroyed.
    fn note_end(&mut self, n: usize) {
        let work = &self.plan.works[n];
        let far = self.plan.host(work, 1 - work.from);
        if !self.after_key.contains_key(&n) {
            let bytes = self.look(far, far_of(n), SLOT as usize);
            self.after_key.insert(n, bytes);
        }
    }

    fn end_key(&mut self, n: usize) {
        let work = &self.plan.works[n];
        let far = self.plan.host(work, 1 - work.from);
        if let Some(key) = self.keys.get(&n).filter(|_| !self.after_key.contains_key(&n)) {
            self.rig.hosts[far].hca.destroy_mkey(*key).unwrap();
        }
        self.note_end(n);
    }

    /// A device loses all state. Its programs still see the completions that it had written.
    fn die(&mut self, host: usize) -> Result<(), String> {
        if self.dead[host].is_some() {
            return Ok(());
        }
        self.poll(true)?;
        self.rig.hosts[host].hca.reset();
        for number in 0..self.sides.len() {
            for which in 0..2 {
                let Some(sides) = &mut self.sides[number] else { continue };
                if sides[which].end.host == host {
                    sides[which].gone = true;
                    self.lose(number, which);
                }
            }
        }
        let of_host = |n: &usize| {
            let work = &self.plan.works[*n];
            self.plan.host(work, 1 - work.from) == host
        };
        let keyed: Vec<_> = self.keys.keys().copied().filter(of_host).collect();
        keyed.into_iter().for_each(|n| self.note_end(n));
        self.dead[host] = Some(self.rig.hosts[host].arena.stores());
        self.summary.deaths += 1;
        Ok(())
    }

    /// The device returns without objects; it made no store while it was gone.
    fn come_back(&mut self, host: usize) -> Result<(), String> {
        let Some(stores) = self.dead[host].take() else { return Ok(()) };
        let at = &mut self.rig.hosts[host];
        if at.arena.stores() != stores {
            return Err(format!("host {host} wrote to memory while it had no objects"));
        }
        at.key = Key(at.key(PD, BUF_LEN, Access::all()));
        for number in 0..self.sides.len() {
            let Some(sides) = &self.sides[number] else { continue };
            for which in 0..2 {
                let (side, peer) = (&sides[which], &sides[1 - which]);
                let left = peer.gone && peer.end.host == host && !side.gone;
                if left && self.plan.connections[number].gives_up {
                    let attrs = super::side::setup(number, &self.plan.connections[number]).attrs;
                    let hca = &mut self.rig.hosts[side.end.host].hca;
                    hca.modify_qp(side.end.qpn, QpTransition::ToErr, &attrs).unwrap();
                }
            }
        }
        Ok(())
    }

    fn post(&mut self, n: usize) {
        let plan = self.plan;
        let work = &plan.works[n];
        let Some(sides) = &self.sides[work.connection] else { return };
        if sides[work.from].gone || sides[work.from].lost_sends() {
            return;
        }
        let [near, far] = [work.from, 1 - work.from].map(|end| plan.host(work, end));
        let (key, rkey) = (self.rig.hosts[near].key, self.rig.hosts[far].key);
        let rkey = self.keys.get(&n).copied().unwrap_or(rkey);
        let opcode = match work.kind {
            Kind::Send => Opcode::SEND_IMM,
            Kind::Write => Opcode::RDMA_WRITE,
            Kind::WriteImm => Opcode::RDMA_WRITE_IMM,
            Kind::Read => Opcode::RDMA_READ,
            Kind::FetchAdd => Opcode::ATOMIC_FA,
            Kind::CompareSwap => Opcode::ATOMIC_CS,
            // `placement` has the operation.
            Kind::Flush | Kind::AtomicWrite => Opcode::NOP,
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
            Kind::Send | Kind::Flush | Kind::AtomicWrite => wr,
            Kind::FetchAdd | Kind::CompareSwap => {
                let (swap_add, compare) = plan.operands(n);
                wr.remote(counter_of(work), rkey).atomic(swap_add, compare)
            }
            _ => wr.remote(far_of(n), rkey),
        };
        let placement = self.placement(n, rkey);
        if work.len != 0 && placement.is_none() {
            let source = plan.relayed(n).unwrap_or(n);
            wr = wr.seg(near_of(source), work.len, key);
        }
        let to = &sides[1 - work.from];
        let srqn = to.number(work.inlet);
        if placement.is_none() {
            wr = to.address(&self.rig, &plan.connections[work.connection], work.inlet, wr);
        }
        let Some(sides) = &mut self.sides[work.connection] else { return };
        let end = &mut sides[work.from].end;
        let index = match placement {
            Some(op) => self.rig.place(end, srqn, op, &wr),
            None => self.rig.post(end, &wr),
        };
        let direction = &mut self.directions[work.connection][work.from];
        direction.open.push_back((n, index));
        direction.posted.push(n);
    }

    /// The operation of a work that has no WQE.
    fn placement(&self, n: usize, rkey: Key) -> Option<Placement> {
        let work = &self.plan.works[n];
        match work.kind {
            Kind::Flush => {
                let header = Feth::new(Feth::GLOBAL, Feth::RANGE);
                Some(Placement::Flush { va: IOVA + far_of(n), rkey, len: work.len, header })
            }
            Kind::AtomicWrite => {
                let data = self.plan.operands(n).0.to_ne_bytes();
                Some(Placement::AtomicWrite { va: IOVA + counter_of(work), rkey, data })
            }
            _ => None,
        }
    }

    fn receive(&mut self, n: usize) {
        let work = &self.plan.works[n];
        let to = 1 - work.from;
        let key = self.rig.hosts[self.plan.host(work, to)].key;
        let Some(sides) = &mut self.sides[work.connection] else { return };
        let side = &mut sides[to];
        if side.gone {
            return;
        }
        let list = [(receive_of(n), LONGEST, key)];
        // A WRITE's receive takes no bytes; on an unreliable service another message may get it.
        let unreliable = !self.plan.service(n).is_reliable();
        let list = if work.kind == Kind::Send || unreliable { &list[..] } else { &[] };
        side.receive(&mut self.rig, work.inlet, list);
        let arrivals = &mut self.directions[work.connection][work.from].arrivals[work.inlet];
        arrivals.receives.push(n);
    }
}
