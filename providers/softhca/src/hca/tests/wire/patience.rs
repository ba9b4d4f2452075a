//! Acknowledgements that wait unread, and peers that do not read.

use std::task::Waker;
use std::time::Duration;

use uverbs_mlx5_prm::opcode::Opcode;

use super::packets::{ACK, DST, PEER, Peer, peer};
use crate::hca::engine::scheduler::slices::{FRAMES_PER_STEP, LATE_STEPS};
use crate::hca::state::port::Port;
use crate::hca::testing::*;
use crate::wire::{Frame, Opcode as Packet, Route, Syndrome, Wire, WireFull};

/// Posts a WRITE and puts its ACK behind `noise` frames. Returns the timeouts after `steps` steps
/// beyond its due time.
fn timeouts_behind(noise: usize, steps: usize) -> u64 {
    let mut peer = peer();
    let key = peer.rig.hosts[0].key;
    peer.rig.post(&mut peer.end, &Wr::new(Opcode::RDMA_WRITE).remote(DST, key).seg(0, 8, key));
    assert_eq!(peer.seen().len(), 1);
    for _ in 0..noise {
        peer.ack(Syndrome::Reserved(0x40), 0);
    }
    if noise < QUEUE_DEPTH {
        peer.ack(ACK, 0);
    }
    // The device's thread did not run meanwhile: the ACK timer is long due.
    peer.rig.now += Duration::from_millis(100);
    for _ in 0..steps {
        peer.rig.hosts[0].hca.step(peer.rig.now);
    }
    peer.rig.hosts[0].hca.stats().timeouts
}

/// Frames that a port of the fabric holds.
const QUEUE_DEPTH: usize = 1024;

#[test]
fn an_ack_that_lies_unread_is_not_lost() {
    let step = FRAMES_PER_STEP;
    for noise in [0, 1, step - 1, step, step + 1, 20 * step, LATE_STEPS as usize * step] {
        let steps = noise / step + 8;
        assert_eq!(timeouts_behind(noise, steps), 0, "behind {noise} frames");
    }
}

#[test]
fn traffic_does_not_stop_the_timers() {
    let late = LATE_STEPS as usize;
    assert!(QUEUE_DEPTH > late * FRAMES_PER_STEP, "the wire is empty before");
    assert_eq!(timeouts_behind(QUEUE_DEPTH, late), 0);
    assert_eq!(timeouts_behind(QUEUE_DEPTH, late + 1), 1);
}

/// A WRITE to a peer that promised to read packets and did not yet, a while after the
/// acknowledgement was due.
fn unread() -> Peer {
    let mut peer = peer();
    assert!(peer.port.set_waker(Waker::noop().clone()));
    let key = peer.rig.hosts[0].key;
    peer.rig.post(&mut peer.end, &Wr::new(Opcode::RDMA_WRITE).remote(DST, key).seg(0, 8, key));
    for _ in 0..100 {
        while peer.rig.hosts[0].hca.step(peer.rig.now) {}
        peer.rig.now += Duration::from_millis(50);
    }
    assert_eq!(peer.rig.hosts[0].hca.stats().timeouts, 0);
    peer
}

/// Runs steps of a millisecond each, `millis` of them. Returns the timeouts so far.
fn timeouts_after(peer: &mut Peer, millis: u64) -> u64 {
    for _ in 0..millis {
        peer.rig.now += Duration::from_millis(1);
        peer.rig.hosts[0].hca.step(peer.rig.now);
    }
    peer.rig.hosts[0].hca.stats().timeouts
}

#[test]
fn a_peer_without_processor_time_costs_no_retry() {
    let mut peer = unread();
    assert_eq!(peer.port.receive().map(|frame| frame.dst), Some(PEER));
    // The packet is read, but the peer's step isn't finished.
    assert_eq!(timeouts_after(&mut peer, 100), 0);
    peer.port.advance(Duration::ZERO);
    peer.ack(ACK, 0);
    assert_eq!(timeouts_after(&mut peer, 100), 0);
    assert_eq!(peer.rig.sent(&mut peer.end).len(), 1);
}

#[test]
fn a_peer_that_read_and_says_nothing_costs_one() {
    let mut peer = unread();
    assert!(peer.port.receive().is_some());
    peer.port.advance(Duration::ZERO);
    assert_eq!(timeouts_after(&mut peer, 3), 1);
}

#[test]
fn patience_ends() {
    let mut peer = unread();
    assert_eq!(timeouts_after(&mut peer, 6_000), 1);
}

/// A wire that pauses before its only frame.
#[derive(Debug)]
struct Pausing {
    paused: bool,
    frame: Option<Frame>,
}

impl Wire for Pausing {
    fn transmit(&mut self, _: Frame) -> Result<(), WireFull> {
        Ok(())
    }

    fn receive(&mut self) -> Option<Frame> {
        self.paused = !self.paused;
        if self.paused { None } else { self.frame.take() }
    }

    fn is_paused(&self) -> bool {
        self.paused
    }
}

#[test]
fn an_ack_behind_a_pause_of_the_wire_is_not_lost() {
    let mut peer = peer();
    let key = peer.rig.hosts[0].key;
    peer.rig.post(&mut peer.end, &Wr::new(Opcode::RDMA_WRITE).remote(DST, key).seg(0, 8, key));
    assert_eq!(peer.seen().len(), 1);
    let (mut bytes, dst) = (Vec::new(), peer.rig.hosts[0].address);
    let ack = peer.packet(Packet::RC_ACKNOWLEDGE, 0).ack_request(false).aeth(ACK, 1);
    ack.emit(&[], &mut bytes).unwrap();
    let frame = Frame { src: PEER, dst, route: Route::default(), bytes, loan: None };
    let wire = Pausing { paused: false, frame: Some(frame) };
    peer.rig.hosts[0].hca.common.port = Port::new(Box::new(wire));
    peer.rig.now += Duration::from_millis(100);
    for _ in 0..2 {
        peer.rig.hosts[0].hca.step(peer.rig.now);
    }
    assert_eq!(peer.rig.hosts[0].hca.stats().timeouts, 0);
    assert_eq!(peer.rig.sent(&mut peer.end).len(), 1);
}
