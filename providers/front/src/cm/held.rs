//! Requests that wait for a listener.
//!
//! A program may listen at one port for several connections in turn, with a new listener for each
//! (perftest's `-R` does: control, then data). A peer that requests the next connection before its
//! listener exists would be rejected, and could not recover. So a request waits for a moment if its
//! peer has a connection by the same service. Linux rejects at once (`cm.c:cm_req_handler`), with
//! the same reason; its programs depend on timing.

use std::time::Duration;

use super::id::State;
use super::mad::Req;
use super::manager::Manager;
use super::refusals::{INVALID_SERVICE, of_request};
use crate::backend::address::Address;

/// Time that a request waits: less than the time until it is repeated.
const HOLD: Duration = Duration::from_secs(1);
/// Maximum waiting requests; more are rejected at once.
const MOST: usize = 64;

/// A waiting request.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) due: Duration,
    from: Address,
    to: Address,
    tid: u64,
    req: Req,
}

impl Manager {
    /// Keeps a request without listener. False if it must be rejected.
    pub(super) fn hold(&mut self, from: Address, to: Address, tid: u64, req: &Req) -> bool {
        let is_same =
            |held: &Held| (held.from, held.tid, held.req.local_id) == (from, tid, req.local_id);
        if self.held.iter().any(is_same) {
            return true;
        }
        self.ids.settle();
        let is_known = self.ids.of_peer(from).any(|(_, id)| {
            id.requested
                && matches!(id.state, State::RepSent | State::Established)
                && id.connection.service_id == req.service_id
        });
        if !is_known || self.held.len() >= MOST {
            return false;
        }
        let due = self.now + HOLD;
        self.held.push(Held { due, from, to, tid, req: req.clone() });
        true
    }

    /// Handles waiting requests again that have a listener now.
    pub(super) fn ask_again(&mut self) {
        for Held { from, to, tid, req, due } in std::mem::take(&mut self.held) {
            if self.is_served(req.service_id) {
                self.request(from, to, tid, &req);
            } else {
                self.held.push(Held { due, from, to, tid, req });
            }
        }
    }

    /// Drops a waiting request that the peer gave up.
    pub(super) fn forget_held(&mut self, from: Address, local_id: u32) {
        self.held.retain(|held| (held.from, held.req.local_id) != (from, local_id));
    }

    /// Drops the waiting requests of a peer that left.
    pub(super) fn forget_held_of(&mut self, peer: Address) {
        self.held.retain(|held| held.from != peer);
    }

    /// Rejects requests that waited too long.
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
