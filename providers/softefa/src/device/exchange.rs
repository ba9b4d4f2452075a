//! Requests of devices on wires, and their answers.

use std::time::{Duration, Instant};

use uverbs_kernel_abi::efa::io::{EFA_IO_COMP_STATUS_LOCAL_ERROR_UNRESP_REMOTE, EFA_IO_RDMA_READ};

use super::message::{Checked, Message, Outstanding, Refusal};
use super::parcel::{self, Letter, Parcel, Read};
use super::world::World;
use crate::srd::Gid;

/// Waiting READs of a peer. Further ones are answered as sends without a receive are.
const READS: usize = 1024;

impl World {
    /// Sends a message to a device on the wire.
    pub(crate) fn post(&mut self, board: usize, to: Gid, parcel: &Parcel, message: Message) {
        self.posted += 1;
        let number = self.posted;
        let Some(port) = &mut self.boards[board].port else { return };
        if parcel.is_srd {
            port.send(to, parcel.request(number));
            let more = Duration::from_secs(message.request.len() >> 20);
            let (posted, limit) = (Instant::now(), self.boards[board].patience + more);
            self.outstanding.insert(number, Outstanding { message, board, to, posted, limit });
        } else {
            // A completed datagram has left the device: its process may end.
            port.send_datagram(to, parcel.request(number));
            self.finish(message, Ok(Vec::new()));
        }
    }

    /// Lets all ports receive and send. False if there was nothing to do.
    pub(crate) fn exchange(&mut self) -> bool {
        let mut worked = false;
        for board in 0..self.boards.len() {
            let Some(port) = &mut self.boards[board].port else { continue };
            worked |= port.take();
            self.read_letters(board);
            self.answer_reads(board);
            let Some(port) = &mut self.boards[board].port else { continue };
            let owing = self.outstanding.values().filter(|waiting| waiting.board == board);
            owing.for_each(|waiting| port.expect(waiting.to));
            worked |= port.push();
            self.end_lost(board);
        }
        self.end_overdue();
        worked
    }

    /// Fails work requests to devices that have answered none for too long.
    fn end_overdue(&mut self) {
        if self.outstanding.is_empty() {
            self.boards.iter_mut().for_each(|board| board.heard.clear());
            return;
        }
        let (now, boards) = (Instant::now(), &self.boards);
        let is_overdue = |waiting: &Outstanding| {
            let heard = boards[waiting.board].heard.get(&waiting.to).copied();
            heard.unwrap_or(waiting.posted).max(waiting.posted) + waiting.limit <= now
        };
        let overdue = self.numbers_of(is_overdue);
        let overdue = self.take_numbers(&overdue);
        self.end_unanswered(overdue);
    }

    /// Carries out requests that have arrived, and finishes work requests with answers.
    fn read_letters(&mut self, board: usize) {
        while let Some(port) = &mut self.boards[board].port
            && let Some((from, bytes)) = port.next_message()
        {
            match Letter::parse(from, &bytes) {
                Some(Letter::Request(number, parcel)) if parcel.op == EFA_IO_RDMA_READ => {
                    let of = |read: &&Read| (read.board, read.parcel.from) == (board, from);
                    if self.reads.iter().filter(of).count() < READS {
                        self.reads.push_back(Read { board, number, parcel });
                    } else {
                        self.answer(board, &parcel, number, &Err(Refusal::NotReady));
                    }
                }
                Some(Letter::Request(number, parcel)) => {
                    let outcome = self.arrive(board, &parcel);
                    self.answer(board, &parcel, number, &outcome);
                }
                Some(Letter::Answer(number, outcome)) => {
                    let is_from =
                        |waiting: &Outstanding| (waiting.board, waiting.to) == (board, from);
                    if self.outstanding.get(&number).is_some_and(is_from)
                        && let Some(waiting) = self.outstanding.remove(&number)
                    {
                        self.boards[board].heard.insert(from, Instant::now());
                        self.finish(waiting.message, outcome);
                    }
                }
                None => {}
            }
        }
    }

    /// Answers a request; a datagram has no answer.
    fn answer(&mut self, board: usize, parcel: &Parcel, number: u64, outcome: &Checked<Vec<u8>>) {
        if let Some(port) = &mut self.boards[board].port
            && parcel.is_srd
        {
            port.send(parcel.from, parcel::answer(number, outcome));
        }
    }

    /// Carries out READs while their answers would be sent soon.
    fn answer_reads(&mut self, board: usize) {
        let mut at = 0;
        while let Some(read) = self.reads.get(at) {
            let Some(port) = &self.boards[board].port else { return };
            if read.board != board || !port.has_room(read.parcel.from) {
                at += 1;
            } else if let Some(Read { number, parcel, .. }) = self.reads.remove(at) {
                let outcome = self.arrive(board, &parcel);
                self.answer(board, &parcel, number, &outcome);
            }
        }
    }

    /// Fails work requests to devices that do not respond.
    fn end_lost(&mut self, board: usize) {
        while let Some(port) = &mut self.boards[board].port
            && let Some(lost) = port.next_lost()
        {
            let to = (board, lost);
            self.reads.retain(|read| (read.board, read.parcel.from) != to);
            let unanswered = self.take_outstanding(|waiting| (waiting.board, waiting.to) == to);
            self.end_unanswered(unanswered);
        }
    }

    /// Fails messages whose answer does not come.
    fn end_unanswered(&mut self, messages: Vec<Message>) {
        for message in messages {
            let status = EFA_IO_COMP_STATUS_LOCAL_ERROR_UNRESP_REMOTE;
            self.finish(message, Err(Refusal::Failed(status)));
        }
    }

    /// Takes messages whose answer is outstanding.
    pub(crate) fn take_outstanding(&mut self, is: impl Fn(&Outstanding) -> bool) -> Vec<Message> {
        let numbers = self.numbers_of(is);
        self.take_numbers(&numbers)
    }

    fn numbers_of(&self, is: impl Fn(&Outstanding) -> bool) -> Vec<u64> {
        let found = self.outstanding.iter().filter(|(_, waiting)| is(waiting));
        found.map(|(number, _)| *number).collect()
    }

    fn take_numbers(&mut self, numbers: &[u64]) -> Vec<Message> {
        let taken = numbers.iter().filter_map(|number| self.outstanding.remove(number));
        taken.map(|waiting| waiting.message).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::net::Ipv4Addr;

    use uverbs_kernel_abi::efa::io::{EFA_IO_COMP_STATUS_OK, EFA_IO_SEND};
    use uverbs_kernel_abi::qp::{IB_QPS_RTS, ib_uverbs_qp_cap};
    use uverbs_softhca::wire::{Address, Fabric, Frame, Route, Wire};

    use super::super::area::Area;
    use super::super::objects::{Cq, Object, Qp, RecvQueue, SendQueue};
    use super::super::request::{Content, Request};
    use super::super::world::Owner;
    use super::*;
    use crate::SoftEfa;
    use crate::srd::endpoint::Endpoint;

    const NEAR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const FAR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    fn gid(at: Ipv4Addr) -> Gid {
        at.to_ipv6_mapped().octets()
    }

    /// Handles of a completion queue, and of a queue pair of it.
    const CQ: u32 = 8;
    const QP: u32 = 9;
    /// Bytes of a completion.
    const CQE: usize = 32;

    fn area() -> Area {
        Area::new("softefa-test", CQE).unwrap()
    }

    fn qp() -> Qp {
        Qp {
            pd: 0,
            qpn: 1,
            is_srd: true,
            is_unsolicited: false,
            state: IB_QPS_RTS,
            qkey: 0,
            sq_psn: 0,
            rnr_retry: 0,
            cap: ib_uverbs_qp_cap::default(),
            send_cq: CQ,
            recv_cq: CQ,
            counters: Vec::new(),
            sq: SendQueue {
                llq: area(),
                offset: 0,
                register: area(),
                elements: 1,
                wqe: 64,
                taken: 0,
            },
            rq: RecvQueue { ring: area(), register: area(), elements: 1, taken: 0 },
        }
    }

    fn message() -> Message {
        let request = Request {
            req_id: 0,
            op: EFA_IO_SEND,
            imm: None,
            ah: 0,
            qpn: 1,
            qkey: 0,
            remote: None,
            content: Content::Inline(vec![1]),
        };
        Message { from: QP, request, tries: 0, not_before: None }
    }

    /// Posts `count` messages to a peer that acknowledges all, and answers one each time `pause`
    /// has passed. Returns the statuses of their completions, and the time that it took.
    fn statuses(count: usize, patience: Duration, pause: Duration) -> (Vec<u8>, Duration) {
        let fabric = Fabric::new();
        let [near, mut wire] =
            [NEAR, FAR].map(|at| fabric.attach(&[Address { gid: gid(at), lid: 0 }]));
        let device = SoftEfa::builder().stepped().wire(NEAR.into(), near).build().unwrap();
        let mut peer = Endpoint::new(1, 4096, 1);
        let parcel = Parcel {
            from: gid(NEAR),
            src_qpn: 1,
            qpn: 1,
            qkey: 0,
            is_srd: true,
            op: EFA_IO_SEND,
            imm: None,
            remote: None,
            data: vec![1],
        };
        let mut world = device.fabric().lock();
        let owner = Owner { file: 0, board: 0 };
        world.objects.insert(CQ, (owner, Object::Cq(Cq::sample(None))));
        world.objects.insert(QP, (owner, Object::Qp(Box::new(qp()))));
        assert!(world.boards[0].patience >= Duration::from_secs(30));
        world.boards[0].patience = patience;
        (0..count).for_each(|_| world.post(0, gid(FAR), &parcel, message()));
        let (start, mut arrived, mut answered) = (Instant::now(), VecDeque::new(), 0);
        while !world.outstanding.is_empty() {
            assert!(start.elapsed() < Duration::from_secs(8), "held");
            world.exchange();
            let now = start.elapsed();
            wire.advance(now);
            while let Some(frame) = wire.receive() {
                peer.receive(frame.src.gid, &frame.bytes, now);
            }
            while let Some((from, bytes)) = peer.next_message() {
                let Some(Letter::Request(number, _)) = Letter::parse(from, &bytes) else {
                    panic!("no request");
                };
                arrived.push_back(number);
            }
            if now >= pause * (answered + 1)
                && let Some(number) = arrived.pop_front()
            {
                answered += 1;
                peer.send(gid(NEAR), parcel::answer(number, &Ok(Vec::new())), now);
            }
            while let Some((to, bytes)) = peer.next_packet(now) {
                let [src, dst] = [gid(FAR), to].map(|gid| Address { gid, lid: 0 });
                let frame = Frame { src, dst, route: Route::default(), bytes, loan: None };
                let _ = wire.transmit(frame);
            }
            wire.flush();
        }
        let (took, cq) = (start.elapsed(), world.cq_mut(CQ).unwrap());
        let status = |index| {
            let mut entry = [0; CQE];
            cq.ring.read(index as usize * CQE, &mut entry);
            entry[2]
        };
        ((0..cq.rings[0].produced).map(status).collect(), took)
    }

    const PATIENCE: Duration = Duration::from_millis(300);

    #[test]
    fn a_request_without_an_answer_ends() {
        let (statuses, took) = statuses(1, PATIENCE, Duration::from_secs(60));
        assert_eq!(statuses, [EFA_IO_COMP_STATUS_LOCAL_ERROR_UNRESP_REMOTE]);
        assert!(took >= PATIENCE, "too early");
    }

    #[test]
    fn a_slow_peer_that_answers_is_waited_for() {
        let (statuses, took) = statuses(6, PATIENCE, PATIENCE / 3);
        assert_eq!(statuses, [EFA_IO_COMP_STATUS_OK; 6]);
        assert!(took > PATIENCE, "the limit was not reached");
    }
}
