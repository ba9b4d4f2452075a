//! Queue pair 1 when no program has created it: management datagrams of the device itself (IBTA vol
//! 1, 13.5.1).

use crate::hca::device::Hca;
use crate::hca::state::common::Common;
use crate::hca::state::mads::Mad;
use crate::wire::{Address, Frame, Opcode, Packet, PacketBuilder, Psn, Route};

/// Number of the general services queue pair (GSI).
const QPN: u32 = 1;
/// Its Q_Key (IBTA 10.2.5, "well-known").
const QKEY: u32 = 0x8001_0000;

impl Hca {
    /// Takes a packet for queue pair 1, which no client has created. False if it is no management
    /// datagram.
    pub(crate) fn take_mad(&mut self, packet: &Packet<'_>, frame: &Frame) -> bool {
        let is_mad = packet.bth().opcode() == Opcode::UD_SEND_ONLY
            && packet.deth().is_some_and(|deth| deth.qkey.get() == QKEY);
        let (from, to) = (frame.src, frame.dst);
        is_mad && self.common.mads.arrive(Mad { from, to, bytes: packet.payload().to_vec() })
    }

    /// Returns the next management datagram that arrived.
    pub(crate) fn next_mad(&mut self) -> Option<Mad> {
        self.common.mads.next_arrived()
    }

    /// Returns the address of a device that has left, after its last datagram.
    pub(crate) fn next_left(&mut self) -> Option<Address> {
        self.common.port.next_left()
    }

    /// Sends a management datagram to another port's queue pair 1. Like any datagram it may be
    /// lost.
    pub(crate) fn send_mad(&mut self, src: Address, dst: Address, payload: &[u8]) {
        let packet = PacketBuilder::new(Opcode::UD_SEND_ONLY, QPN, Psn::new(0))
            .deth(QKEY, QPN)
            .icrc(self.common.port.needs_icrc());
        let mut bytes = Vec::new();
        if packet.emit(payload, &mut bytes).is_ok() {
            self.common.mads.leave(Frame {
                src,
                dst,
                route: Route::new(0, 0, 0),
                bytes,
                loan: None,
            });
            self.transmit_mads();
        }
    }

    /// True if a management datagram of this device still waits for the wire.
    pub(crate) fn holds_mads(&self) -> bool {
        let is_mad = |frame: &Frame| {
            Packet::parse(&frame.bytes).is_ok_and(|packet| packet.bth().dest_qp() == QPN)
        };
        self.common.mads.leaves() || self.common.port.holds(is_mad)
    }

    /// Makes the wire send the packets it has batched.
    pub(crate) fn flush_mads(&mut self) {
        self.common.port.flush();
    }

    /// Sends waiting management datagrams, as far as the wire takes them. True if any was sent.
    pub(crate) fn transmit_mads(&mut self) -> bool {
        let mut any = false;
        let Common { mads, port, stats, .. } = &mut self.common;
        while let Some(frame) = mads.next_leaving(|to| port.is_ready(to)) {
            port.send(frame, stats);
            any = true;
        }
        any
    }
}
