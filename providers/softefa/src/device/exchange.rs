//! Requests of devices on wires, and their answers.

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
            self.outstanding.insert(number, Outstanding { message, board, to });
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
        worked
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
            for message in self.take_outstanding(|waiting| (waiting.board, waiting.to) == to) {
                let status = EFA_IO_COMP_STATUS_LOCAL_ERROR_UNRESP_REMOTE;
                self.finish(message, Err(Refusal::Failed(status)));
            }
        }
    }

    /// Takes messages whose answer is outstanding.
    pub(crate) fn take_outstanding(&mut self, is: impl Fn(&Outstanding) -> bool) -> Vec<Message> {
        let taken = self.outstanding.iter().filter(|(_, waiting)| is(waiting));
        let numbers = taken.map(|(number, _)| *number).collect::<Vec<_>>();
        let taken = numbers.iter().filter_map(|number| self.outstanding.remove(number));
        taken.map(|waiting| waiting.message).collect()
    }
}
