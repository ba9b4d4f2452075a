//! Ethernet frames on their way: out of the send queues, to the wire, and through the flow tables
//! into receive queues.

use crate::hca::Hca;
use crate::hca::engine::frame_receive;
use crate::hca::ethernet::headers::Headers;
use crate::hca::ethernet::{HEADER, SHORTEST};
use crate::hca::number::Qpn;

impl Hca {
    /// Delivers the frames that left their queues: to the wire, and to this device's own receive
    /// queues.
    pub(super) fn exchange(&mut self) {
        for mut frame in std::mem::take(&mut self.common.frames) {
            if frame.bytes.len() < SHORTEST {
                frame.bytes.resize(SHORTEST, 0);
            }
            if frame.bytes.len() > self.steering.frame_limit() {
                self.common.stats.dropped += 1;
                continue;
            }
            self.common.stats.tx_frames += 1;
            self.common.port.flood(&frame.bytes);
            self.arrive(&frame.bytes, Some(frame.sqn));
        }
    }

    /// Takes frames from the wire, at most `most`. True if there were any.
    pub(super) fn listen(&mut self, most: usize) -> bool {
        for number in 0..most {
            let Some(frame) = self.common.port.hear() else { return number != 0 };
            self.arrive(&frame, None);
        }
        true
    }

    /// Routes a frame through the flow tables. `sqn` is the queue that sent it, if it is one of
    /// this device.
    fn arrive(&mut self, frame: &[u8], sqn: Option<Qpn>) {
        if !(HEADER..=self.steering.frame_limit()).contains(&frame.len()) {
            self.common.stats.dropped += 1;
            return;
        }
        let headers = Headers::parse(frame);
        let copies = self.steering.route(&headers, frame.len(), sqn.map(|sqn| sqn.0));
        if copies.is_empty() {
            self.common.stats.dropped += 1;
        }
        for copy in copies {
            let strips = self.steering.strips_vlan(copy.rqn);
            let Some(qp) = self.qps.get_mut(&Qpn(copy.rqn)) else {
                self.common.stats.dropped += 1;
                continue;
            };
            frame_receive::receive(qp, &mut self.common, frame, &headers, copy, strips);
            self.enqueue(Qpn(copy.rqn));
            self.settle(Qpn(copy.rqn));
        }
    }
}
