//! Whole Ethernet frames: from a send queue, by flow tables, to receive queues (PRM "Ethernet", "Flow Tables").
//!
//! The switch floods: whatever leaves comes to all other ports on the wire and to the port's own receive side, and there the
//! tables that the driver made say which queues get it. What a transport domain sent it doesn't hear itself, unless the TIR
//! says so.
//!
//! | file | what |
//! |---|---|
//! | `headers`, `checksum` | what is in a frame |
//! | `send`, `segment` | a WQE as frames |
//! | `flow`, `matching` | tables, groups, entries; what an entry is compared with |
//! | `tir`, `rss` | which of several queues |
//! | `steering` | all of these, and the way of a frame through them |
//! | `receive` | a frame into a receive, and what its completion says |

mod checksum;
mod flow;
mod headers;
mod matching;
mod receive;
mod rss;
mod segment;
pub(super) mod send;
mod steering;
mod tir;

#[cfg(test)]
mod tests;

pub(crate) use flow::{
    Change, Destination, EntryContext, GroupContext, LOG_MAX_SIZE, MAX_DESTINATIONS, MAX_LEVEL,
    Miss, TableContext,
};
pub(crate) use matching::MATCH_LEN;
pub(crate) use rss::{HashContext, HashFunction, Selector};
pub(crate) use send::EthernetSend;
pub(crate) use steering::{MAX_ENTRIES, QueueOptions, Steering, Wrong};
pub(crate) use tir::{Spread, TirContext};

use self::headers::Headers;
use super::Hca;

/// Bytes of the shortest frame, without its check sequence (IEEE 802.3, 4A.4.2); shorter ones are padded.
const SHORTEST: usize = 60;
/// Bytes of addresses and type.
const HEADER: usize = 14;

/// A frame that left a send queue.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) sqn: u32,
    pub(super) bytes: Vec<u8>,
}

impl Hca {
    /// Queues, tables and what leads to them.
    pub(crate) fn steering(&mut self) -> &mut Steering {
        &mut self.steering
    }

    /// Brings the frames that left to the wire, and to those here who are to have them.
    pub(super) fn exchange(&mut self) {
        for mut frame in std::mem::take(&mut self.shared.frames) {
            if frame.bytes.len() < SHORTEST {
                frame.bytes.resize(SHORTEST, 0);
            }
            if frame.bytes.len() > self.steering.frame_limit() {
                self.shared.stats.dropped += 1;
                continue;
            }
            self.shared.stats.tx_frames += 1;
            self.shared.port.flood(&frame.bytes);
            self.arrive(&frame.bytes, Some(frame.sqn));
        }
    }

    /// Takes what came by the wire, a bounded number of frames; whether there was any.
    pub(super) fn listen(&mut self, most: usize) -> bool {
        for number in 0..most {
            let Some(frame) = self.shared.port.hear() else { return number != 0 };
            self.arrive(&frame, None);
        }
        true
    }

    /// The way of a frame through the tables. `sqn` is the queue that sent it, if it is one of this device.
    fn arrive(&mut self, frame: &[u8], sqn: Option<u32>) {
        if !(HEADER..=self.steering.frame_limit()).contains(&frame.len()) {
            self.shared.stats.dropped += 1;
            return;
        }
        let headers = Headers::parse(frame);
        let copies = self.steering.route(&headers, frame.len(), sqn);
        if copies.is_empty() {
            self.shared.stats.dropped += 1;
        }
        for copy in copies {
            let strips = self.steering.strips_vlan(copy.rqn);
            let Some(qp) = self.qps.get_mut(&copy.rqn) else {
                self.shared.stats.dropped += 1;
                continue;
            };
            receive::receive(qp, &mut self.shared, frame, &headers, copy, strips);
            self.enqueue(copy.rqn);
            self.settle(copy.rqn);
        }
    }
}
