//! Packets of one destination that one system call sends.

use std::net::SocketAddr;

use super::encapsulation::{Ends, seal};
use crate::wire::Route;
use crate::wire::crc::icrc;
use crate::wire::packet::ICRC_LEN;

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

    /// Returns `true` if it has half of the bytes of a call.
    pub(super) fn is_half(&self) -> bool {
        self.bytes.len() >= BYTES / 2
    }

    /// Returns `true` if a packet can be added.
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

    /// Adds a packet, and computes its ICRC.
    pub(super) fn push(&mut self, way: Way, packet: &[u8]) {
        if self.way.is_none() {
            self.segment = packet.len();
        }
        let at = self.bytes.len();
        self.bytes.extend_from_slice(packet);
        let damage = damage(packet);
        // When the kernel divides, it counts identifications up from 0 (net/ipv4/af_inet.c,
        // `inet_gso_segment`).
        seal(&way.ends(), self.count as u16, &mut self.bytes[at..]);
        if let Some(field) = self.bytes.last_chunk_mut::<ICRC_LEN>() {
            *field = (u32::from_le_bytes(*field) ^ damage).to_le_bytes();
        }
        self.way = Some(way);
        self.count += 1;
    }

    /// Single packets, with ICRCs for separate datagrams.
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

/// Difference between a packet's ICRC and the computed one. It is 0 unless a wire in front of this
/// one has damaged the packet ([`Faulty`](crate::wire::Faulty)), which the receiver must find.
pub(super) fn damage(packet: &[u8]) -> u32 {
    match packet.split_last_chunk::<ICRC_LEN>() {
        None | Some((_, [0, 0, 0, 0])) => 0,
        Some((covered, found)) => icrc(covered) ^ u32::from_le_bytes(*found),
    }
}
