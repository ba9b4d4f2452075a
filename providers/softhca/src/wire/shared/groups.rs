//! Packets to multicast groups.
//!
//! Such a packet is written to all devices of the user, which drop it unless they are members. A
//! sender finds the devices once, in the kernel's list of sockets. A device that begins later
//! connects to all of them when it joins a group.

use super::meeting;
use super::peers::{Records, State, number};
use super::ring::{NotWritten, Record};
use super::{Endpoint, SharedWire};
use crate::wire::counts::{add, add_alone};
use crate::wire::udp::sixteen;
use crate::wire::{Address, Frame};

/// Flag beside the index of a record's source: a group's GID precedes the packet.
pub(super) const TO_GROUP: u8 = 0x80;
/// Bytes of that GID.
const GID_LEN: usize = 16;

impl SharedWire {
    /// Writes a packet to a group to all devices of this user and host. One without room loses it.
    #[cold]
    pub(crate) fn spread(&mut self, frame: &Frame) {
        let Some(source) = self.source(frame) else { return };
        // Devices that joined a group since have connected.
        self.tend();
        if !std::mem::replace(&mut self.all_met, true) {
            self.meet_all();
        }
        for at in 0..self.incoming.len() {
            if let State::Writes(Records { sources, .. }) = &self.incoming[at].state
                && let Some(&to) = sources.first()
                && !self.sources.contains(&to)
            {
                self.meet_once(to, source);
            }
        }
        let bytes = record(frame);
        let mut broken = Vec::new();
        let counters = &self.shared.counters;
        for (&to, peer) in &mut self.outgoing {
            if self.sources.contains(&to.to_ne_bytes()) {
                continue;
            }
            match peer.ring.gather(source as u8 | TO_GROUP, &frame.route, &bytes) {
                Ok(()) => {
                    add_alone(&counters.sent, 1);
                    peer.note(to, &mut self.written);
                }
                Err(NotWritten::Full) => add(&counters.full, 1),
                Err(NotWritten::Broken) => {
                    add(&counters.broken, 1);
                    broken.push(to);
                }
            }
        }
        broken.into_iter().for_each(|to| self.forget(to.to_ne_bytes()));
    }

    /// Connects to all devices of this user and host that have the port of this end.
    fn meet_all(&mut self) {
        for at in meeting::all() {
            let alike = |own: &Endpoint| {
                own.address.port() == at.port() && own.address.is_ipv4() == at.is_ipv4()
            };
            let to = sixteen(at.ip());
            if !self.sources.contains(&to)
                && let Some(source) = self.endpoints.iter().position(alike)
            {
                self.meet_once(to, source);
            }
        }
    }

    fn meet_once(&mut self, to: [u8; 16], source: usize) {
        if !self.outgoing.contains_key(&number(to)) {
            self.meet(to, source);
        }
    }

    /// Replaces the groups whose packets are taken, and tells other devices of a new one.
    pub(crate) fn set_groups(&mut self, groups: Vec<Address>) {
        let more = groups.iter().any(|group| !self.groups.contains(group));
        self.groups = groups;
        if more {
            self.meet_all();
        }
    }
}

/// Index of the source, group, and packet of a record to a group. `None`: another record.
#[cold]
pub(super) fn parse(record: &Record) -> Option<(usize, Address, Frame)> {
    let Record { source, route, bytes, lease: None } = record else { return None };
    let (gid, packet) = bytes.split_first_chunk::<GID_LEN>()?;
    let dst = Address { gid: *gid, lid: 0 };
    let (bytes, route) = (packet.to_vec(), *route);
    let frame = Frame { src: Address::default(), dst, route, bytes, loan: None };
    (source & TO_GROUP != 0 && dst.is_group()).then_some(((source & !TO_GROUP).into(), dst, frame))
}

/// Bytes of a record to a group.
fn record(frame: &Frame) -> Vec<u8> {
    [&frame.dst.gid[..], &frame.bytes].concat()
}
