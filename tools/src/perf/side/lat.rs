//! Latency: one message at a time, on the first queue pair. Iterations count from 1.
#![allow(unsafe_code, reason = "posts by address and key: see the module above")]

use std::sync::atomic::{Ordering, fence};

use uverbs::raw::Data;
use uverbs::{Completed, Wr};

use super::{Side, failed, id, operation, wrong_arrival};
use crate::base::error::Error;
use crate::link::verify::{Pattern, Who};
use crate::perf::shape::Operation;

/// State of the message in flight.
#[derive(Default)]
pub(super) struct Turn {
    /// This side's work request completed.
    sent: bool,
    /// Receive of the peer's message, once it was polled, perhaps before this side waits for it.
    arrived: Option<u32>,
    /// Receive whose message was seen.
    held: Option<u32>,
}

impl Side {
    /// Prepares an iteration, before the clock starts.
    pub(in crate::perf) fn prepare(&mut self, iteration: u64) -> Result<(), Error> {
        self.turn.sent = false;
        let check = self.shape.check;
        match self.shape.op {
            Operation::Write | Operation::Send if check => {
                self.message(iteration, self.who).fill(&mut self.copy);
                match &mut self.inline {
                    Some(inline) => inline.copy_from_slice(&self.copy),
                    None => self.memory.outgoing.write(0, &self.copy)?,
                }
            }
            // The peer polls for the last byte.
            Operation::Write => match &mut self.inline {
                Some(inline) => {
                    if let Some(last) = inline.last_mut() {
                        *last = iteration as u8;
                    }
                }
                None => self.memory.outgoing.write(self.last(), &[iteration as u8])?,
            },
            Operation::Read | Operation::FetchAdd | Operation::CompareSwap if check => {
                // Stale bytes of the last message must not pass for this message's.
                self.copy.fill(0xee);
                self.memory.outgoing.write(0, &self.copy)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Posts the message, and rings.
    #[inline]
    pub(in crate::perf) fn post(&mut self, iteration: u64) -> Result<(), Error> {
        let Some(line) = self.lines.first_mut() else { return Ok(()) };
        let op = operation(self.shape.op, line.remote, line.posted);
        let data = match &self.inline {
            Some(inline) => Data::Inline(inline),
            None => Data::One(line.local),
        };
        line.posted += 1;
        let mut batch = line.qp.batch();
        // SAFETY: the memory belongs to the side, is dropped after its queue pairs, and there is no
        // reference to it.
        let posted = unsafe { batch.post(Wr::new(id(0, 1)), op, data) };
        match posted {
            Ok(()) => batch.ring(),
            Err(error) => return Err(self.post_failed(iteration, error)),
        }
        Ok(())
    }

    /// Returns `true` once the awaited event is there: the peer's message, or the completion of a
    /// one-sided operation.
    #[inline]
    pub(in crate::perf) fn seen(&mut self, iteration: u64) -> Result<bool, Error> {
        match self.shape.op {
            Operation::Write => {
                let mut last = [0];
                self.memory.incoming.read(self.last(), &mut last)?;
                Ok(last[0] == iteration as u8)
            }
            Operation::Send => {
                self.look(iteration)?;
                self.turn.held = self.turn.arrived.take();
                Ok(self.turn.held.is_some())
            }
            _ => {
                self.look(iteration)?;
                Ok(self.turn.sent)
            }
        }
    }

    /// Returns `true` once this side's message was acknowledged. Its buffer may be reused then.
    #[inline]
    pub(in crate::perf) fn acknowledged(&mut self, iteration: u64) -> Result<bool, Error> {
        if !self.turn.sent {
            self.look(iteration)?;
        }
        Ok(self.turn.sent)
    }

    /// Polls for completions, and for reasons that none comes.
    #[inline]
    pub(in crate::perf) fn look(&mut self, iteration: u64) -> Result<(), Error> {
        let head = self.shape.head();
        let mut burst = self.cq.poll(4);
        while let Some(completion) = burst.next() {
            let kind = completion.result();
            let kind =
                kind.map_err(|failure| failed(self.who, completion.is_recv(), iteration, failure))?;
            if !completion.is_recv() {
                self.turn.sent = true;
            } else if self.turn.arrived.is_some() {
                let what = format!("the {} received a message that nobody sent", self.who);
                return Err(Error::Unexpected { iteration, what });
            } else if kind == Completed::Recv && completion.byte_len() == self.size + head {
                self.turn.arrived = Some((completion.id() >> 32) as u32);
            } else {
                let len = completion.byte_len().saturating_sub(head);
                return Err(wrong_arrival(self.who, iteration, len, self.size));
            }
        }
        Ok(())
    }

    /// Compares the received message with the sent one, if requested.
    pub(in crate::perf) fn verify(&mut self, iteration: u64) -> Result<(), Error> {
        if !self.shape.check {
            return Ok(());
        }
        // A relaxed load or a completion showed the message; later loads must read its bytes.
        fence(Ordering::Acquire);
        let (memory, at) = match self.shape.op {
            Operation::Write => (&self.memory.incoming, 0),
            Operation::Send => match (&self.memory.receives, self.turn.held) {
                (Some(receives), Some(slot)) => {
                    let place = slot as usize * self.memory.room;
                    (receives, place + self.shape.head() as usize)
                }
                _ => return Ok(()),
            },
            Operation::Read => (&self.memory.outgoing, 0),
            Operation::FetchAdd | Operation::CompareSwap => {
                return self.verify_word(0, iteration);
            }
        };
        memory.read(at, &mut self.copy)?;
        let wanted = match self.shape.op {
            Operation::Read => Pattern::new(0, self.who.other()),
            _ => self.message(iteration, self.who.other()),
        };
        Ok(wanted.check(&self.copy)?)
    }

    /// Gives the receive back.
    pub(in crate::perf) fn finish(&mut self) -> Result<(), Error> {
        match self.turn.held.take() {
            Some(slot) => self.receive(0, slot),
            None => Ok(()),
        }
    }

    /// Checks the old value of a queue pair's last atomic: only the atomics before it changed the
    /// word.
    pub(super) fn verify_word(&self, line: usize, iteration: u64) -> Result<(), Error> {
        // The line does not exist if the run was interrupted early.
        let posted = self.lines.get(line).map_or(0, |line| line.posted);
        let Some(wanted) = posted.checked_sub(1) else { return Ok(()) };
        let got = self.memory.outgoing.load(line * self.memory.stride)?;
        if got == wanted {
            return Ok(());
        }
        Err(crate::link::verify::WrongWord {
            iteration,
            what: "the old value",
            of: self.who.other(),
            wanted,
            got,
        }
        .into())
    }

    fn message(&self, iteration: u64, from: Who) -> Pattern {
        let pattern = Pattern::new(iteration, from);
        match self.shape.op {
            Operation::Write => pattern.ending_with(iteration as u8),
            _ => pattern,
        }
    }

    /// Offset of the last byte of a message.
    #[inline]
    fn last(&self) -> usize {
        (self.size as usize).saturating_sub(1)
    }
}
