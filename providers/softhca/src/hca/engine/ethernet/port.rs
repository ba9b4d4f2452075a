//! Ethernet frames on their way: from send queues through the egress flow tables to the wire, and
//! from the wire through the ingress flow tables into receive queues.

use crate::hca::Hca;
use crate::hca::engine::ethernet::receive;
use crate::hca::ethernet::headers::Headers;
use crate::hca::ethernet::route::Delivery;
use crate::hca::ethernet::{HEADER, SHORTEST};
use uverbs_front::backend::number::Qpn;

impl Hca {
    /// Delivers the frames that left their send queues: to the wire, and to this device's own
    /// receive queues.
    pub(crate) fn exchange(&mut self) {
        for frame in std::mem::take(&mut self.common.frames) {
            match self.steering.leave(&frame.bytes) {
                None => self.depart(frame.bytes, frame.sqn),
                Some(leaving) => {
                    if leaving.is_empty() {
                        self.common.stats.dropped += 1;
                    }
                    leaving.into_iter().for_each(|bytes| self.depart(bytes, frame.sqn));
                }
            }
        }
    }

    fn depart(&mut self, mut bytes: Vec<u8>, sqn: Qpn) {
        if bytes.len() < SHORTEST {
            bytes.resize(SHORTEST, 0);
        }
        if bytes.len() > self.steering.frame_limit() {
            self.common.stats.dropped += 1;
            return;
        }
        self.common.stats.tx_frames += 1;
        self.common.port.flood(&bytes);
        self.arrive(&bytes, Some(sqn));
    }

    /// Takes frames from the wire, at most `most`. True if there were any.
    pub(crate) fn listen(&mut self, most: usize) -> bool {
        for number in 0..most {
            let Some(frame) = self.common.port.hear() else { return number != 0 };
            self.arrive(&frame, None);
        }
        true
    }

    /// Routes a frame through the flow tables. `sqn`: this device's queue that sent it; None for a
    /// frame from the wire.
    fn arrive(&mut self, frame: &[u8], sqn: Option<Qpn>) {
        if !(HEADER..=self.steering.frame_limit()).contains(&frame.len()) {
            self.common.stats.dropped += 1;
            return;
        }
        let headers = Headers::parse(frame);
        let copies = self.steering.route(frame, &headers, sqn.map(|sqn| sqn.0));
        if copies.is_empty() {
            self.common.stats.dropped += 1;
        }
        self.hand_over(frame, &headers, copies);
    }

    /// Delivers copies of the port's packets to the queues that sniff. True if there were any.
    pub(crate) fn overhear(&mut self) -> bool {
        let packets = self.common.port.overheard();
        for packet in &packets {
            let headers = Headers::parse(packet);
            let copies = self.steering.overhear(&headers);
            self.hand_over(packet, &headers, copies);
        }
        !packets.is_empty()
    }

    /// Writes a frame into receive queues.
    fn hand_over(&mut self, frame: &[u8], headers: &Headers, copies: Vec<Delivery>) {
        for copy in copies {
            let strips = self.steering.strips_vlan(copy.rqn);
            let Some(qp) = self.qps.get_mut(&Qpn(copy.rqn)) else {
                self.common.stats.dropped += 1;
                continue;
            };
            let edited = copy.edited.as_deref();
            let (frame, headers) =
                edited.map_or((frame, headers), |edited| (&edited.bytes[..], &edited.headers));
            receive::receive(qp, &mut self.common, frame, headers, &copy, strips);
            self.enqueue(Qpn(copy.rqn));
            self.settle(Qpn(copy.rqn));
        }
    }
}
