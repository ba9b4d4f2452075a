//! Requests that wait for a listener.
//!
//! A program may listen at one port for one connection after the other, and end each listener once
//! it has its connection (perftest's `-R` does: control, then data). A peer that asks for the next
//! one before that listener is there would be refused, and can do nothing about it. So the request
//! of a peer that has a connection by this very service waits for a moment. Linux refuses at once
//! (`cm.c:cm_req_handler`), with the same words; its programs depend on being in time.

use std::time::Duration;

use super::id::State;
use super::mad::Req;
use super::manager::Manager;
use super::refusals::{INVALID_SERVICE, of_request};
use crate::wire::Address;

/// How long a request waits: less than until it is sent again.
const HOLD: Duration = Duration::from_secs(1);
/// Requests that wait at a time; more are refused at once.
const MOST: usize = 64;

/// A request that waits.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) due: Duration,
    from: Address,
    to: Address,
    tid: u64,
    req: Req,
}

impl Manager {
    /// Has a request wait that nobody listens for. False if it must not.
    pub(super) fn hold(&mut self, from: Address, to: Address, tid: u64, req: &Req) -> bool {
        let is_same =
            |held: &Held| (held.from, held.tid, held.req.local_id) == (from, tid, req.local_id);
        if self.held.iter().any(is_same) {
            return true;
        }
        let is_known = self.ids.values().any(|id| {
            let connection = &id.connection;
            id.requested
                && matches!(id.state, State::RepSent | State::Established)
                && connection.there == from
                && connection.service_id == req.service_id
        });
        if !is_known || self.held.len() >= MOST {
            return false;
        }
        let due = self.now + HOLD;
        self.held.push(Held { due, from, to, tid, req: req.clone() });
        true
    }

    /// Somebody listens: requests that waited for that come again.
    pub(super) fn ask_again(&mut self) {
        for Held { from, to, tid, req, due } in std::mem::take(&mut self.held) {
            if self.is_served(req.service_id) {
                self.request(from, to, tid, &req);
            } else {
                self.held.push(Held { due, from, to, tid, req });
            }
        }
    }

    /// The peer waits for it no more.
    pub(super) fn forget_held(&mut self, from: Address, local_id: u32) {
        self.held.retain(|held| (held.from, held.req.local_id) != (from, local_id));
    }

    /// Refuses what waited in vain.
    pub(super) fn give_up_held(&mut self) {
        let (due, held) =
            std::mem::take(&mut self.held).into_iter().partition(|held| held.due <= self.now);
        self.held = held;
        let due: Vec<Held> = due;
        for Held { from, to, tid, req, .. } in due {
            self.send(to, from, &of_request(tid, &req, INVALID_SERVICE));
        }
    }
}
