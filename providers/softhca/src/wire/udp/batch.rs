//! Packets of one destination that leave in one system call.

use std::net::SocketAddr;

use super::encapsulation::{Ends, seal};
use crate::wire::Route;
use crate::wire::crc::icrc;
use crate::wire::packet::ICRC_LEN;

/// Segments of one call, and its bytes: what Linux takes at most (net/ipv4/udp.c,
/// `UDP_MAX_SEGMENTS` 128 since 4.18, and a datagram of 65507 bytes).
const SEGMENTS: usize = 64;
const BYTES: usize = 65_000;

/// Destination of packets, and the socket they leave by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// The device's own address among several.
    pub(super) endpoint: usize,
    /// The socket that sends: of the endpoint itself, or one with a separate port.
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

/// Packets that wait to leave, all of one length but the last, which may be shorter.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) way: Option<Way>,
    pub(super) bytes: Vec<u8>,
    pub(super) segment: usize,
    count: usize,
}

impl Batch {
    pub(super) fn new() -> Batch {
        Batch { way: None, bytes: Vec::with_capacity(BYTES), segment: 0, count: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Returns `true` if it has half of the bytes that one call takes.
    pub(super) fn is_half(&self) -> bool {
        self.bytes.len() >= BYTES / 2
    }

    /// Returns `true` if a packet can join.
    pub(super) fn takes(&self, way: &Way, len: usize, divides: bool) -> bool {
        match &self.way {
            None => true,
            Some(own) => {
                divides
                    && own == way
                    && len <= self.segment
                    && self.bytes.len() == self.segment * self.count
                    && self.count < SEGMENTS
                    && self.bytes.len() + len <= BYTES
            }
        }
    }

    /// Adds a packet, and its ICRC.
    pub(super) fn push(&mut self, way: Way, packet: &[u8]) {
        if self.way.is_none() {
            self.segment = packet.len();
        }
        let at = self.bytes.len();
        self.bytes.extend_from_slice(packet);
        let damage = damage(packet);
        // The kernel counts identifications up from 0 when it divides (net/ipv4/af_inet.c,
        // `inet_gso_segment`).
        seal(&way.ends(), self.count as u16, &mut self.bytes[at..]);
        if let Some(field) = self.bytes.last_chunk_mut::<ICRC_LEN>() {
            *field = (u32::from_le_bytes(*field) ^ damage).to_le_bytes();
        }
        self.way = Some(way);
        self.count += 1;
    }

    /// The packets one by one, with ICRCs for datagrams that are sent so.
    pub(super) fn undivided(&mut self) -> impl Iterator<Item = &[u8]> {
        let ends = self.way.map(|way| way.ends());
        self.bytes.chunks_mut(self.segment.max(1)).map(move |packet| {
            if let Some(ends) = &ends {
                seal(ends, 0, packet);
            }
            &*packet
        })
    }

    pub(super) fn clear(&mut self) {
        self.way = None;
        self.bytes.clear();
        self.count = 0;
    }
}

/// How far the ICRC of a packet is from what its bytes give: 0, unless a wire in front of this one
/// has damaged it ([`Faulty`](crate::wire::Faulty)), which the other end is to find.
pub(super) fn damage(packet: &[u8]) -> u32 {
    match packet.split_last_chunk::<ICRC_LEN>() {
        None | Some((_, [0, 0, 0, 0])) => 0,
        Some((covered, found)) => icrc(covered) ^ u32::from_le_bytes(*found),
    }
}
