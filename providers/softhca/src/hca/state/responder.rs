//! State of a responder: the expected PSN, the current message, waiting answers (IBTA vol 1, 9.7.4,
//! 9.7.5).

use std::collections::VecDeque;
use std::time::Duration;

use crate::hca::state::faults::Stop;
use crate::hca::state::keys::{Segment, Who};
use crate::hca::state::receive::{Receive, Source};
use crate::wire::{Lent, Psn, Syndrome};
use uverbs_front::backend::number::Key;

/// Time within which a polling client replies to a message.
const REPLY: Duration = Duration::from_micros(20);

/// A message of several packets, in progress.
#[derive(Debug)]
pub(crate) enum Message {
    Send { receive: Receive, offset: u64 },
    Write { va: u64, rkey: Key, len: u32, offset: u32 },
}

/// An answer to the requester.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Ack {
        psn: Psn,
        msn: u32,
    },
    Nak {
        psn: Psn,
        syndrome: Syndrome,
        msn: u32,
    },
    Atomic {
        psn: Psn,
        original: u64,
        msn: u32,
        again: bool,
    },
    /// Answer to FLUSH and ATOMIC WRITE.
    Placed {
        psn: Psn,
        msn: u32,
    },
    /// READ response: `left` bytes from `va` remain; `begun` after the first packet.
    Read {
        psn: Psn,
        who: Who,
        va: u64,
        rkey: Key,
        left: u32,
        msn: u32,
        begun: bool,
        again: bool,
    },
}

/// A lent part of a READ response.
#[derive(Debug)]
pub(crate) struct LentAnswer {
    pub(crate) psn: Psn,
    pub(crate) who: Who,
    /// Requested memory, by remote key.
    pub(crate) segment: Segment,
    pub(crate) lent: Lent,
}

#[derive(Debug, Default)]
pub(crate) struct Responder {
    /// Expected PSN.
    pub(crate) expected: Psn,
    /// Message sequence number: messages completed, 24 bits (IBTA 9.7.5.2.1).
    pub(crate) msn: u32,
    /// A NAK for `expected` was sent; no other may follow until it is answered.
    pub(crate) nak_sent: bool,
    pub(crate) message: Option<Message>,
    /// Receive of a message whose rest was lost: the next message gets it. For unreliable
    /// connections, and for messages that are sent again after a page fault.
    pub(crate) spare: Option<Receive>,
    pub(crate) answers: VecDeque<Answer>,
    /// Loans of READ responses, in order; the requester may have taken some.
    pub(crate) lent: VecDeque<LentAnswer>,
    /// Results of atomics for duplicates: an atomic must not execute twice (IBTA 9.7.5.1.5).
    pub(crate) atomics: VecDeque<(Psn, u64)>,
    pub(crate) established: bool,
    /// Time of the last message that completed a receive, until its reply, if any, is noted.
    pub(crate) arrived: Option<Duration>,
    /// The program replied to the last message at once.
    is_replied: bool,
    /// Wait for a page.
    pub(crate) stop: Option<Box<Stop>>,
}

impl Responder {
    pub(crate) fn starting_at(psn: Psn) -> Responder {
        Responder { expected: psn, ..Responder::default() }
    }

    /// Drops all answers, and takes their loans back.
    pub(crate) fn silence(&mut self) {
        self.answers.clear();
        self.lent.clear();
    }

    /// Takes back the receive of the current message, or the spare one.
    pub(crate) fn abandon(&mut self) -> Option<Receive> {
        match self.message.take() {
            Some(Message::Send { receive, .. }) => Some(receive),
            Some(Message::Write { .. }) | None => self.spare.take(),
        }
    }

    /// Drops the receive of the current message, or the spare one, if it is from the ring `of`,
    /// which was destroyed or reset.
    pub(crate) fn forget_receive(&mut self, of: Source) {
        if let Some(Message::Send { receive, .. }) = &self.message
            && receive.from == of
        {
            self.message = None;
        }
        self.spare.take_if(|receive| receive.from == of);
    }

    pub(crate) fn push_ack(&mut self) {
        let ack = Answer::Ack { psn: self.expected.offset(-1), msn: self.msn };
        match self.answers.back_mut() {
            // A later ACK includes an earlier one (IBTA 9.7.5.1.2).
            Some(last @ Answer::Ack { .. }) => *last = ack,
            _ => self.answers.push_back(ack),
        }
    }

    /// Returns `true` if the only answer is an acknowledgement of a message of this slice, and a
    /// reply is likely: it is delayed until the reply.
    pub(crate) fn delays_ack(&self, now: Duration) -> bool {
        self.is_replied
            && self.arrived == Some(now)
            && self.answers.len() == 1
            && matches!(self.answers.front(), Some(Answer::Ack { .. }))
    }

    /// Notes whether a turn behind a message's slice sent the reply.
    pub(crate) fn note_turn(&mut self, now: Duration, answers: bool, requests: bool) {
        let Some(arrived) = self.arrived.filter(|arrived| *arrived != now) else { return };
        let is_soon = now.saturating_sub(arrived) < REPLY;
        if requests || answers || !is_soon {
            self.is_replied = requests && is_soon;
            self.arrived = None;
        }
    }

    pub(crate) fn push_nak(&mut self, syndrome: Syndrome) {
        self.nak_sent = true;
        let nak = Answer::Nak { psn: self.expected, syndrome, msn: self.msn };
        self.answers.push_back(nak);
    }

    /// Advances the first answer by `packets` sent; for a READ also by `len` bytes.
    pub(crate) fn pass(&mut self, packets: u32, len: u32) {
        match self.answers.front_mut() {
            Some(Answer::Read { psn, va, left, begun, .. }) if len < *left => {
                (*psn, *va) = (*psn + packets, va.wrapping_add(len.into()));
                (*left, *begun) = (*left - len, true);
            }
            _ => {
                self.answers.pop_front();
            }
        }
    }

    pub(crate) fn count_message(&mut self) {
        self.msn = (self.msn + 1) & Psn::MASK;
    }

    /// Number of READs and atomics that the requester waits for.
    pub(crate) fn fetching(&self) -> usize {
        let waiting = |answer: &&Answer| {
            matches!(
                answer,
                Answer::Read { again: false, .. } | Answer::Atomic { again: false, .. }
            )
        };
        self.answers.iter().filter(waiting).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_waits_for_a_reply_that_came_the_last_time() {
        let mut one = Responder::starting_at(Psn::new(0));
        let mut now = Duration::ZERO;
        let mut delayed = |answered: bool, replied: bool, after: Duration| {
            now += Duration::from_secs(1);
            (one.arrived, one.answers) = (Some(now), VecDeque::new());
            one.push_ack();
            let delayed = one.delays_ack(now);
            assert!(!one.delays_ack(now + after), "once");
            one.note_turn(now, true, false);
            one.note_turn(now + after, answered, replied);
            delayed
        };
        let soon = Duration::from_micros(1);
        assert!(!delayed(false, true, soon), "nothing is known");
        assert!(delayed(true, true, soon) && delayed(true, true, REPLY), "both times it replied");
        assert!(!delayed(false, true, soon), "the last reply was late");
        assert!(delayed(true, false, soon), "it did");
        assert!(!delayed(false, false, REPLY), "it polled again instead");
        assert!(!delayed(false, true, soon), "it did nothing");
        one.push_nak(Syndrome::ACK);
        one.arrived = Some(now);
        assert!(!one.delays_ack(now), "a NAK never waits");
    }
}
