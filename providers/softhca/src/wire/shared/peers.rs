//! Devices that this end writes to and reads from.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::groups;
use super::loan::{Lender, Loan};
use super::ring::{Broken, Reader, Writer};
use super::stats::Shared;
use crate::closer::Connection;
use crate::wire::counts::{add, add_alone};
use crate::wire::spare::Spare;
use crate::wire::{Address, Frame};

/// Maximum packets dropped per look while unplugged: a peer may write without end.
pub(super) const LOST_AT_ONCE: usize = 64;
/// Time limit for the first message of a connection.
pub(super) const SILENT: Duration = Duration::from_secs(1);

/// A device that this end writes to.
pub(super) struct Outgoing {
    pub(super) token: u64,
    pub(super) socket: Connection,
    pub(super) ring: Writer,
    /// Written to since the last flush.
    pub(super) written: bool,
}

/// A GID as a key: numbers are compared at once, bytes by a call.
pub(super) fn number(gid: [u8; 16]) -> u128 {
    u128::from_ne_bytes(gid)
}

impl Outgoing {
    /// Marks the device as written to, for the next flush.
    pub(super) fn note(&mut self, to: u128, written: &mut Vec<u128>) {
        if !std::mem::replace(&mut self.written, true) {
            written.push(to);
        }
    }
}

/// A device that writes to this end.
pub(super) struct Incoming {
    pub(super) token: u64,
    pub(super) socket: Connection,
    /// Address of this end that it connected to.
    pub(super) to: Address,
    /// Its packets to groups are taken: it connected to this end's first address. A device that
    /// connects to several addresses sends them there, too.
    pub(super) takes_groups: bool,
    pub(super) state: State,
    /// Addresses of a device that left, whose remaining records are still to be read.
    pub(super) left: Vec<[u8; 16]>,
}

pub(super) enum State {
    /// Connected at this time; its first message is missing.
    Silent(Duration),
    Writes(Records),
    /// The device is gone; its records are still to be read.
    Leaves(Records),
    /// To be removed.
    Over,
}

/// Records of a device, and what is needed to read them.
pub(super) struct Records {
    pub(super) sources: Vec<[u8; 16]>,
    pub(super) ring: Reader,
    pub(super) lender: Option<Arc<Lender>>,
}

/// Outcome of [`Incoming::read`].
pub(super) enum Read {
    Frame(Frame),
    Nothing,
    /// While unplugged; more may be left.
    Lost,
}

impl Incoming {
    /// Reads a frame, to an own address or to one of `groups`. A peer whose ring is broken, or
    /// empty after it left, is over.
    #[inline]
    pub(super) fn read(&mut self, shared: &Shared, groups: &[Address], spare: &mut Spare) -> Read {
        let leaves = matches!(self.state, State::Leaves(_));
        let (State::Writes(records) | State::Leaves(records)) = &mut self.state else {
            return Read::Nothing;
        };
        let Records { sources, ring, lender } = records;
        let counters = &shared.counters;
        let plugged = shared.plugged.load(Ordering::Relaxed);
        for _ in 0..LOST_AT_ONCE {
            let record = match ring.pop(spare) {
                Ok(Some(record)) => record,
                Ok(None) if !leaves => return Read::Nothing,
                Ok(None) => {
                    self.left = std::mem::take(sources);
                    self.state = State::Over;
                    return Read::Nothing;
                }
                Err(Broken) => {
                    add(&counters.broken, 1);
                    self.state = State::Over;
                    return Read::Nothing;
                }
            };
            let src = sources.get(usize::from(record.source));
            if src.is_none()
                && let Some((source, dst, frame)) = groups::parse(&record)
                && let Some(src) = sources.get(source)
            {
                spare.put(record.bytes);
                if !self.takes_groups || !groups.contains(&dst) {
                    continue;
                }
                if !plugged {
                    add(&counters.link_down, 1);
                    continue;
                }
                add_alone(&counters.received, 1);
                let src = Address { gid: *src, lid: 0 };
                return Read::Frame(Frame { src, dst, ..frame });
            }
            // A loan to an end that takes no loans is a broken record.
            let (Some(src), true) = (src, record.lease.is_none() || lender.is_some()) else {
                add(&counters.broken, 1);
                self.state = State::Over;
                return Read::Nothing;
            };
            if plugged {
                add_alone(&counters.received, 1);
                let (src, dst) = (Address { gid: *src, lid: 0 }, self.to);
                let (route, bytes) = (record.route, record.bytes);
                let lent = record.lease.zip(lender.as_ref());
                let loan =
                    lent.map(|(lease, from)| Box::new(Loan::new(from, ring.memory(), lease)));
                return Read::Frame(Frame { src, dst, route, bytes, loan });
            }
            add(&counters.link_down, 1);
        }
        Read::Lost
    }

    /// Ends the connection of a device whose successor has one of these addresses. Its records are
    /// lost: they would be mixed with the successor's.
    pub(super) fn supersede(&mut self, sources: &[[u8; 16]]) {
        let (State::Writes(records) | State::Leaves(records)) = &mut self.state else { return };
        if records.sources.iter().any(|source| sources.contains(source)) {
            self.left = std::mem::take(&mut records.sources);
            self.state = State::Over;
        }
    }

    /// True if the device writes frames from this address.
    pub(super) fn writes_from(&self, from: Address) -> bool {
        matches!(&self.state, State::Writes(records) if records.sources.contains(&from.gid))
    }

    /// True if the connection is to be removed.
    pub(super) fn is_over(&self, now: Duration) -> bool {
        match self.state {
            State::Over => true,
            State::Silent(since) => now.saturating_sub(since) >= SILENT,
            _ => false,
        }
    }

    /// Finishes the frames that were read.
    pub(super) fn done(&mut self) {
        if let State::Writes(records) = &mut self.state {
            records.ring.done();
        }
    }

    /// Makes the device wake this end.
    pub(super) fn arm(&mut self, now: Duration) {
        if let State::Writes(Records { ring, lender, .. }) = &mut self.state {
            ring.arm();
            lender.iter().for_each(|lender| lender.rest(now));
        }
    }
}
