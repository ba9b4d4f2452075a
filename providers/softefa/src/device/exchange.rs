//! Requests of devices on wires, and their answers.

use uverbs_kernel_abi::efa::io::EFA_IO_COMP_STATUS_LOCAL_ERROR_UNRESP_REMOTE;

use super::message::{Message, Outstanding, Refusal};
use super::parcel::{self, Letter, Parcel};
use super::world::World;
use crate::srd::Gid;

impl World {
    /// Sends a message to a device on the wire.
    pub(crate) fn post(&mut self, board: usize, to: Gid, parcel: &Parcel, message: Message) {
        self.posted += 1;
        let number = self.posted;
        let Some(port) = &mut self.boards[board].port else { return };
        port.send(to, parcel.request(number));
        if parcel.is_srd {
            self.outstanding.insert(number, Outstanding { message, board, to });
        } else {
            // A completed datagram has left the device: its process may end.
            port.push();
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
                Some(Letter::Request(number, parcel)) => {
                    let outcome = self.arrive(board, &parcel);
                    let Some(port) = &mut self.boards[board].port else { return };
                    if parcel.is_srd {
                        port.send(from, parcel::answer(number, &outcome));
                    }
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

    /// Fails work requests to devices that do not respond.
    fn end_lost(&mut self, board: usize) {
        while let Some(port) = &mut self.boards[board].port
            && let Some(lost) = port.next_lost()
        {
            let to = (board, lost);
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
