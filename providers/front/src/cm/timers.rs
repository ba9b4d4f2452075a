//! Timers of a connection: repeats messages, gives up, ends the time-wait state.

use std::time::Duration;

use uverbs_core::Errno;

use super::id::{Id, IdNumber, Service, State};
use super::mad::{Ids, Message, Rej, room};
use super::manager::{Manager, Param, event, interval};
use super::refusals::{CONSUMER, TIMEOUT, no, sidr_refusal};

impl Manager {
    /// Time of the first timer of all ids and waiting requests.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        let held = self.held.iter().map(|held| held.due);
        self.ids.first_due().into_iter().chain(held).min()
    }

    /// Runs the timers that are due. True if any was.
    pub(crate) fn advance(&mut self, now: Duration) -> bool {
        self.now = self.now.max(now);
        for asked in &mut self.asked {
            asked.until.get_or_insert(self.now + asked.patience);
        }
        if self.next_deadline().is_none_or(|deadline| deadline > self.now) {
            return false;
        }
        let due: Vec<_> = self.ids.due(self.now).map(|(number, _)| number).collect();
        for number in due {
            self.expire(number);
        }
        self.give_up_held();
        self.ids.settle();
        true
    }

    fn expire(&mut self, number: IdNumber) {
        let now = self.now;
        let Some(id) = self.ids.get_mut(number) else { return };
        if id.connection.ends.is_some_and(|ends| ends <= now) {
            id.connection.ends = None;
            id.state = State::Over;
            return self.tell(number, event::TIMEWAIT_EXIT, 0, Param::None);
        }
        let Some(awaited) = &mut id.connection.awaited else { return };
        if awaited.retries > 0 {
            awaited.retries -= 1;
            awaited.due = now + interval();
            let (mad, src, dst) = (awaited.mad.clone(), id.connection.here, id.connection.there);
            return self.send(src, dst, &mad);
        }
        id.connection.awaited = None;
        let was = std::mem::replace(&mut id.state, State::Over);
        match was {
            State::DreqSent => {
                self.tell(number, event::DISCONNECTED, -Errno::ETIMEDOUT.raw(), Param::None);
            }
            _ => {
                if let Some(id) = self.ids.get(number)
                    && was != State::ReqSent
                {
                    let rej = self.timed_out(id, 1);
                    self.send_of(number, rej, false);
                }
                self.tell(number, event::UNREACHABLE, -Errno::ETIMEDOUT.raw(), Param::None);
            }
        }
    }

    /// Final message of an id that ends.
    pub(super) fn last_word(&self, id: &Id) -> Option<Message> {
        let connection = &id.connection;
        let ids = Ids { local: connection.local_id, remote: connection.remote_id };
        match (id.service, id.state) {
            (Service::Datagrams, State::ReqReceived) => Some(sidr_refusal(connection, &[])),
            (Service::Datagrams, _) => None,
            (_, State::ReqSent) => Some(self.timed_out(id, 0)),
            (_, State::ReqReceived | State::RepReceived | State::RepSent) => {
                Some(no(id, CONSUMER, &[]))
            }
            (_, State::Established) => {
                Some(Message::Dreq { ids, remote_qpn: connection.remote_qpn })
            }
            (_, State::DreqReceived) => Some(Message::Drep(ids)),
            _ => None,
        }
    }

    /// REJ for a timeout of `message`, by which the peer knows this side's GUID
    /// (`cm.c:cm_destroy_id`).
    fn timed_out(&self, id: &Id, message: u8) -> Message {
        let ids = Ids { local: id.connection.local_id, remote: id.connection.remote_id };
        let info = self.host.guid.to_be_bytes();
        let private = [0; room::REJ];
        Message::Rej(Rej { ids, message, reason: TIMEOUT, info, private })
    }
}
