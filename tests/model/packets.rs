//! Raw packets between the two programs, each steered to the other.

use std::collections::VecDeque;

use uverbs::flow::{EthMatch, Flow, FlowRule, MacAddr};
use uverbs::packet::{Checksums, RawPacketQueuePair};
use uverbs::{Completed, CompletionQueue, PostError, Wr};

use crate::frames::{FRAME, Place};
use crate::pair::PIECES;
use crate::polls::{Given, Seen};
use crate::work::{Arrival, Queue, Work};
use crate::world::World;

struct End {
    // Before the queue pair, which the kernel keeps while it has rules.
    _flow: Flow,
    qp: RawPacketQueuePair,
    cq: CompletionQueue,
    sq: Queue,
    rq: Queue,
    /// Packets on their way to the other end. Some get lost.
    sent: VecDeque<Vec<u8>>,
}

pub(crate) struct Packets {
    ends: [End; 2],
}

fn station(side: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, side as u8 + 1]
}

impl Packets {
    pub(crate) fn new(world: &mut World) -> Self {
        let end = |world: &mut World, side: usize| {
            let of = &world.sides[side];
            let cq = of.context.create_cq(64).expect("create_cq");
            let qp = of.context.queue_pair(&of.pd, &cq).max_send_wr(16).max_recv_wr(16);
            let qp = qp.max_send_sge(PIECES).max_recv_sge(PIECES).max_inline_data(200);
            let mut qp = qp.raw_packet().build().expect("create_qp");
            qp.bring_up(1).expect("bring_up");
            let mine = EthMatch { dst: Some(MacAddr(station(side)).into()), ..EthMatch::default() };
            let flow = qp.steer(&FlowRule::new().eth(mine)).expect("create_flow");
            let (sq, rq) = (world.works.new_queue(), world.works.new_queue());
            End { _flow: flow, qp, cq, sq, rq, sent: VecDeque::new() }
        };
        Self { ends: [end(world, 0), end(world, 1)] }
    }

    /// Sends or receives packets, polls or resets.
    pub(crate) fn step(&mut self, world: &mut World) -> String {
        let side = world.choices.below(2);
        match world.choices.below(20) {
            0..7 => self.ends[side].send(world, side),
            7..13 => self.ends[side].receive(world, side),
            13..19 => self.poll(world, side),
            _ => self.ends[side].reset(world, side),
        }
    }

    fn poll(&mut self, world: &mut World, side: usize) -> String {
        let mut seen = Vec::new();
        let most = world.choices.within(1, 16);
        self.ends[side].cq.poll_with(most, |completion| {
            seen.push(Seen::from(uverbs::WorkCompletion::from(completion)));
        });
        let told = format!("side {side} polls packets: {}", seen.len());
        for Seen { id, result, is_recv, len, given, .. } in seen {
            let (passed, work) = world.works.complete(id, true);
            for (id, work) in passed {
                world.succeed(id, &work, Given::Left);
            }
            let done = result.unwrap_or_else(|failure| panic!("packet {id}: {failure}"));
            if !is_recv {
                assert_eq!(done, Completed::Send);
                world.succeed(id, &work, given);
                continue;
            }
            assert_eq!(done, Completed::Recv);
            let Given::Taken(Some(frame)) = &given else { panic!("{id} has no frame") };
            let found: Vec<u8> =
                frame.pieces().take(work.used().len()).flat_map(|piece| piece.to_vec()).collect();
            assert_eq!(found.len(), len as usize);
            // Earlier packets found no receive.
            let sent = &mut self.ends[1 - side].sent;
            let at = sent.iter().position(|packet| *packet == found);
            let at = at.unwrap_or_else(|| panic!("{id} is a packet that was never sent"));
            sent.drain(..=at);
            world.give(id, &work, &Arrival::Received(found), given);
        }
        told
    }
}

impl End {
    fn send(&mut self, world: &mut World, side: usize) -> String {
        world.frames.begin(self.sq);
        let mut batch = self.qp.batch();
        let mut posted = Vec::new();
        for _ in 0..world.choices.within(1, 3) {
            let id = world.works.new_id();
            let mut work = Work::new(self.sq, side);
            work.completed = Some(Completed::Send);
            work.signaled = world.choices.percent(60) || id.is_multiple_of(4);
            let wr = if work.signaled { Wr::new(id) } else { Wr::new(id).unsignaled() };
            let len = world.choices.within(50, 180);
            let payload = world.choices.bytes(len);
            let head = [&station(1 - side)[..], &station(side), &[0x88, 0xb5]].concat();
            let packet = [head, payload].concat();
            let sums = Checksums::AsTheyAre;
            let done = match world.choices.below(3) {
                0 => batch.send_packet_inline(wr, &packet, sums).map_err(|error| (error, None)),
                1 => {
                    let Some(mut frame) = world.frames.take(&mut world.choices, side) else {
                        continue;
                    };
                    world.frames.write(&mut frame, &packet, packet.len());
                    work.holds(&frame, false);
                    let done = batch.send_packet(wr, frame, sums);
                    done.map_err(|rejected| (rejected.error, Some(rejected.data)))
                }
                _ => {
                    let most = PIECES as usize;
                    let Some(mut frame) = world.frames.chain(&mut world.choices, side, most) else {
                        continue;
                    };
                    let first = world.choices.within(1, packet.len());
                    world.frames.write(&mut frame, &packet, first);
                    if frame.total_len() < packet.len() {
                        world.frames.keep(side, frame);
                        continue;
                    }
                    work.holds(&frame, true);
                    let done = batch.send_packet(wr, frame.chain(), sums);
                    done.map_err(|rejected| (rejected.error, Some(rejected.data.of)))
                }
            };
            match done {
                Ok(()) => posted.push((id, work, packet)),
                Err((error, frame)) => {
                    let long = work.used().len() > PIECES as usize;
                    let full = error == PostError::Full;
                    assert!(full || long && error == PostError::TooManySges, "{error}");
                    frame.into_iter().for_each(|frame| world.frames.keep(side, frame));
                }
            }
        }
        let is_rung = world.choices.percent(80);
        let count = posted.len();
        if is_rung {
            batch.ring();
        }
        for (id, work, packet) in posted {
            if is_rung {
                world.frames.place(work.frames(), Place::Posted(id));
                world.works.add(id, work);
                self.sent.push_back(packet);
            } else {
                world.never(&work, Some(Place::Unrung(self.sq)));
            }
        }
        format!("side {side} sends {count} packets, rung: {is_rung}")
    }

    fn receive(&mut self, world: &mut World, side: usize) -> String {
        let id = world.works.new_id();
        let most = world.choices.within(1, 2);
        let Some(frame) = world.frames.chain(&mut world.choices, side, most) else {
            return "no frame".to_owned();
        };
        world.frames.begin(self.rq);
        let mut work = Work::new(self.rq, side);
        work.room = FRAME;
        work.holds(&frame, true);
        match self.qp.post_recv(id, frame.chain()) {
            Ok(()) => {
                world.frames.place(work.frames(), Place::Posted(id));
                world.works.add(id, work);
            }
            Err(rejected) => {
                let error = rejected.error;
                let long = work.used().len() > PIECES as usize;
                let full = error == PostError::Full;
                assert!(full || long && error == PostError::TooManySges, "{error}");
                world.frames.open(work.frames());
                world.frames.keep(side, rejected.data.of);
            }
        }
        format!("side {side} receives a packet: {id}")
    }

    fn reset(&mut self, world: &mut World, side: usize) -> String {
        let queues = [self.sq, self.rq];
        queues.iter().for_each(|queue| world.frames.begin(*queue));
        let back = self.qp.reset(&mut [&mut self.cq]).expect("reset");
        world.take_back(&queues, side, back);
        self.qp.bring_up(1).expect("bring_up");
        format!("the packets of side {side} are reset")
    }
}

impl Packets {
    /// Ends the rules and the queue pairs.
    pub(crate) fn end(self, world: &mut World) {
        for (side, end) in self.ends.into_iter().enumerate() {
            let End { _flow: flow, qp, mut cq, sq, rq, .. } = end;
            [sq, rq].iter().for_each(|queue| world.frames.begin(*queue));
            drop(flow);
            let gone = qp.destroy().expect("destroy_qp");
            let back = cq.reclaim(&gone);
            world.take_back(&[sq, rq], side, back);
        }
    }
}
