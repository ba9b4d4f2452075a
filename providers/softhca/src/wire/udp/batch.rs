//! Packets of one destination that one system call sends.

use std::io::IoSlice;
use std::net::SocketAddr;

use super::encapsulation::{Ends, Headers, seal};
use crate::wire::crc::icrc;
use crate::wire::packet::ICRC_LEN;
use crate::wire::spare::Spare;
use crate::wire::{Opcode, Route};

/// Maximum segments and bytes of a call: Linux's limits (net/ipv4/udp.c, `UDP_MAX_SEGMENTS` 128
/// since 4.18, and a datagram of 65507 bytes).
const SEGMENTS: usize = 64;
const BYTES: usize = 65_000;

/// Destination of packets, and the socket that sends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// Index of the device's address.
    pub(super) endpoint: usize,
    /// Index of the sending socket: the endpoint's, or one with a separate port.
    pub(super) sender: usize,
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) route: Route,
}

impl Way {
    fn ends(&self) -> Ends {
        Ends {
            src: self.from.ip(),
            dst: self.to.ip(),
            src_port: self.from.port(),
            dst_port: self.to.port(),
        }
    }
}

/// Packets to be sent. All have one length, except that the last may be shorter.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) way: Option<Way>,
    packets: Vec<Vec<u8>>,
    pub(super) segment: usize,
    bytes: usize,
    headers: Headers,
}

impl Batch {
    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Returns `true` if it has half of the bytes of a call.
    pub(super) fn is_half(&self) -> bool {
        self.bytes >= BYTES / 2
    }

    /// Returns `true` if a packet can be added.
    pub(super) fn takes(&self, way: &Way, len: usize, divides: bool) -> bool {
        match &self.way {
            None => true,
            Some(own) => {
                divides
                    && own == way
                    && (len <= self.segment || self.is_acknowledgement())
                    && self.bytes == self.segment * self.len()
                    && self.len() < SEGMENTS
                    && self.bytes + len <= BYTES
            }
        }
    }

    /// Returns `true` if it holds one packet, an acknowledgement. A longer packet goes ahead of it:
    /// requests are of the other direction, and a later response acknowledges as much (IBTA
    /// 9.7.5.1.2).
    fn is_acknowledgement(&self) -> bool {
        let acknowledges = [Opcode::RC_ACKNOWLEDGE, Opcode::XRC_ACKNOWLEDGE];
        matches!(&self.packets[..], [only] if only.first().is_some_and(|opcode| {
            acknowledges.contains(&Opcode(*opcode))
        }))
    }

    /// Adds a packet, and computes its ICRC.
    pub(super) fn push(&mut self, way: Way, mut packet: Vec<u8>) {
        let ends = way.ends();
        let goes_first = self.packets.is_empty() || packet.len() > self.segment;
        // When the kernel divides, it counts identifications up from 0 (net/ipv4/af_inet.c,
        // `inet_gso_segment`).
        let id = if goes_first { 0 } else { self.len() as u16 };
        let damage = damage(&packet);
        self.headers.seal(&ends, id, &mut packet);
        add(damage, &mut packet);
        self.bytes += packet.len();
        if goes_first {
            if let Some(other) = self.packets.first_mut() {
                renumber(&ends, [0, 1], other);
            }
            self.segment = packet.len();
            self.packets.insert(0, packet);
        } else {
            self.packets.push(packet);
        }
        self.way = Some(way);
    }

    /// Bytes of all packets.
    pub(super) fn slices(&self) -> Vec<IoSlice<'_>> {
        self.packets.iter().map(|packet| IoSlice::new(packet)).collect()
    }

    /// Single packets, with ICRCs for separate datagrams.
    pub(super) fn undivided(&mut self) -> impl Iterator<Item = &[u8]> {
        let ends = self.way.map(|way| way.ends());
        (0..).zip(&mut self.packets).map(move |(id, packet)| {
            if let Some(ends) = &ends {
                renumber(ends, [id, 0], packet);
            }
            &packet[..]
        })
    }

    /// Ends the batch. Its buffers go to `spare`.
    pub(super) fn clear(&mut self, spare: &mut Spare) {
        self.way = None;
        self.bytes = 0;
        self.packets.drain(..).for_each(|packet| spare.put(packet));
    }
}

/// Computes the ICRC for another identification. A damaged packet stays damaged.
fn renumber(ends: &Ends, [from, to]: [u16; 2], packet: &mut [u8]) {
    let found = packet.last_chunk::<ICRC_LEN>().map_or(0, |field| u32::from_le_bytes(*field));
    seal(ends, from, packet);
    let whole = packet.last_chunk::<ICRC_LEN>().map_or(0, |field| u32::from_le_bytes(*field));
    seal(ends, to, packet);
    add(found ^ whole, packet);
}

/// Adds a difference to a packet's ICRC.
pub(super) fn add(damage: u32, packet: &mut [u8]) {
    if let Some(field) = packet.last_chunk_mut::<ICRC_LEN>() {
        *field = (u32::from_le_bytes(*field) ^ damage).to_le_bytes();
    }
}

/// Difference between a packet's ICRC and the computed one. It is 0 unless a wire in front of this
/// one has damaged the packet ([`Faulty`](crate::wire::Faulty)), which the receiver must find.
pub(super) fn damage(packet: &[u8]) -> u32 {
    match packet.split_last_chunk::<ICRC_LEN>() {
        None | Some((_, [0, 0, 0, 0])) => 0,
        Some((covered, found)) => icrc(covered) ^ u32::from_le_bytes(*found),
    }
}
