//! Latency: one message at a time, on the first queue pair. Iterations count from 1.
#![allow(unsafe_code, reason = "posts by address and key: see the module above")]

use std::sync::atomic::{Ordering, fence};

use uverbs::any_transport::TransportName;
use uverbs::raw::{Data, SendOp};
use uverbs::{Completed, Remote, Wr};

use super::{Side, failed, id, operation};
use crate::base::error::Error;
use crate::link::operation::Operation;
use crate::link::verify::{Pattern, Who, WrongWord, immediate};

/// State of the message in flight.
#[derive(Default)]
pub(crate) struct Turn {
    /// Kind and length of this side's work request, once it completed.
    sent: Option<(Completed, u32)>,
    /// Receive and immediate data of the peer's message, once it was polled, perhaps before this
    /// side waits for it.
    arrived: Option<(u32, Option<u32>)>,
    /// Receive whose message was seen.
    held: Option<u32>,
}

impl Side {
    /// Prepares an iteration, before the clock starts.
    pub(crate) fn prepare(&mut self, iteration: u64) -> Result<(), Error> {
        self.turn.sent = None;
        let check = self.shape.check;
        match self.shape.op {
            op if check && !op.is_one_sided() => {
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
            op if check && op.is_one_sided() => {
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
    pub(crate) fn post(&mut self, iteration: u64) -> Result<(), Error> {
        let Some(line) = self.lines.first() else { return Ok(()) };
        let imm = || immediate(iteration, self.who);
        self.post_as(iteration, operation(self.shape.op, line.remote, line.posted, imm))
    }

    /// Posts this operation, and rings.
    #[inline]
    pub(crate) fn post_as(&mut self, iteration: u64, op: SendOp) -> Result<(), Error> {
        let Some(line) = self.lines.first_mut() else { return Ok(()) };
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
    pub(crate) fn seen(&mut self, iteration: u64) -> Result<bool, Error> {
        match self.shape.op {
            Operation::Write => {
                let mut last = [0];
                self.memory.incoming.read(self.last(), &mut last)?;
                Ok(last[0] == iteration as u8)
            }
            op if op.needs_receives() => {
                self.look(iteration)?;
                let Some((receive, immediate)) = self.turn.arrived.take() else {
                    return Ok(false);
                };
                self.turn.held = Some(receive);
                self.check_immediate(iteration, immediate).map(|()| true)
            }
            _ => {
                self.look(iteration)?;
                Ok(self.turn.sent.is_some())
            }
        }
    }

    /// Returns `true` once this side's message was acknowledged. Its buffer may be reused then.
    #[inline]
    pub(crate) fn acknowledged(&mut self, iteration: u64) -> Result<bool, Error> {
        if self.turn.sent.is_none() {
            self.look(iteration)?;
        }
        Ok(self.turn.sent.is_some())
    }

    /// Polls for completions, and for reasons that none comes.
    #[inline]
    pub(crate) fn look(&mut self, iteration: u64) -> Result<(), Error> {
        let (head, op) = (self.shape.head(), self.shape.op);
        let wanted =
            if op == Operation::WriteImm { Completed::RecvWriteImm } else { Completed::Recv };
        let mut burst = self.cq.poll(4);
        while let Some(completion) = burst.next() {
            let kind = completion.result();
            let kind =
                kind.map_err(|failure| failed(self.who, completion.is_recv(), iteration, failure))?;
            if !completion.is_recv() {
                self.turn.sent = Some((kind, completion.byte_len()));
            } else if self.turn.arrived.is_some() {
                let what = format!("the {} received a message that nobody sent", self.who);
                return Err(Error::Unexpected { iteration, what });
            } else if kind == wanted && completion.byte_len() == self.size + head {
                let receive = (completion.id() >> 32) as u32;
                self.turn.arrived = Some((receive, completion.immediate()));
            } else {
                let len = completion.byte_len().saturating_sub(head);
                let what = format!(
                    "the {} received {kind:?} of {len} bytes, not {wanted:?} of {}",
                    self.who, self.size
                );
                return Err(Error::Unexpected { iteration, what });
            }
        }
        Ok(())
    }

    /// Compares immediate data with the sent one, if requested.
    fn check_immediate(&self, iteration: u64, got: Option<u32>) -> Result<(), Error> {
        let of_peer = || immediate(iteration, self.who.other());
        let wanted = self.shape.op.has_immediate().then(of_peer);
        if !self.shape.check || got == wanted {
            return Ok(());
        }
        let what = format!("the {} received immediate data {got:x?}, not {wanted:x?}", self.who);
        Err(Error::Unexpected { iteration, what })
    }

    /// Compares the received message with the sent one, if requested.
    pub(crate) fn verify(&mut self, iteration: u64) -> Result<(), Error> {
        if !self.shape.check {
            return Ok(());
        }
        // A relaxed load or a completion showed the message; later loads must read its bytes.
        fence(Ordering::Acquire);
        let (memory, at) = match self.shape.op {
            Operation::Write | Operation::WriteImm => (&self.memory.incoming, 0),
            Operation::Send | Operation::SendImm => match (&self.memory.receives, self.turn.held) {
                (Some(receives), Some(slot)) => {
                    let place = slot as usize * self.memory.room;
                    (receives, place + self.shape.head() as usize)
                }
                _ => return Ok(()),
            },
            Operation::Read => return self.verify_answer(0),
            Operation::FetchAdd | Operation::CompareSwap => {
                return self.verify_word(0, iteration);
            }
        };
        memory.read(at, &mut self.copy)?;
        Ok(self.message(iteration, self.who.other()).check(&self.copy)?)
    }

    /// Writes the message of an iteration into the memory that the peer reads.
    pub(crate) fn expose(&mut self, iteration: u64) -> Result<(), Error> {
        Pattern::new(iteration, self.who).fill(&mut self.copy);
        Ok(self.memory.incoming.write(0, &self.copy)?)
    }

    /// Compares the bytes that were read with the message that the peer exposed.
    pub(crate) fn verify_answer(&mut self, iteration: u64) -> Result<(), Error> {
        self.memory.outgoing.read(0, &mut self.copy)?;
        Ok(Pattern::new(iteration, self.who.other()).check(&self.copy)?)
    }

    /// Checks kind and length of the completion of a one-sided operation.
    pub(crate) fn verify_sent(&self, iteration: u64, kind: Completed) -> Result<(), Error> {
        // EFA tells no length of a READ.
        let of_srd = self.shape.connection == TransportName::Srd && kind == Completed::Read;
        let expected = if of_srd { 0 } else { self.size };
        if self.turn.sent == Some((kind, expected)) {
            return Ok(());
        }
        let (who, sent, size) = (self.who, self.turn.sent, self.size);
        let what = format!("the {who}'s completion is {sent:?}, not of {kind:?} with {size} bytes");
        Err(Error::Unexpected { iteration, what })
    }

    /// Memory of the first queue pair's peer.
    pub(crate) fn remote(&self) -> Remote {
        self.lines.first().map_or(Remote { addr: 0, rkey: 0 }, |line| line.remote)
    }

    /// Old value that the last atomic returned, and the word that the peer's atomics change.
    pub(crate) fn words(&self) -> Result<[u64; 2], Error> {
        Ok([self.memory.outgoing.load(0)?, self.memory.incoming.load(0)?])
    }

    /// Gives the receive back.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        match self.turn.held.take() {
            Some(slot) => self.receive(0, slot),
            None => Ok(()),
        }
    }

    /// Checks the old value of a queue pair's last atomic: only the atomics before it changed the
    /// word.
    pub(crate) fn verify_word(&self, line: usize, iteration: u64) -> Result<(), Error> {
        // The line does not exist if the run was interrupted early.
        let posted = self.lines.get(line).map_or(0, |line| line.posted);
        let Some(wanted) = posted.checked_sub(1) else { return Ok(()) };
        let got = self.memory.outgoing.load(line * self.memory.stride)?;
        if got == wanted {
            return Ok(());
        }
        Err(WrongWord { iteration, what: "the old value", of: self.who.other(), wanted, got }
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
