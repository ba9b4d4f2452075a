//! Acknowledgements delayed until a polling client's reply.

use std::time::Duration;

use uverbs_mlx5_prm::opcode::Opcode;

use super::packets::{ACK, DST, Peer, Seen, acked, peer};
use crate::hca::testing::*;
use crate::wire::Opcode as O;

/// Sends a message to a client that polls a moment later. Returns the device's packets.
fn message(peer: &mut Peer, psn: i32) -> Vec<Seen> {
    let key = peer.rig.hosts[0].key;
    peer.rig.receive(&mut peer.end, &[(DST, 8, key)]);
    let send = peer.packet(O::RC_SEND_ONLY, psn);
    peer.send(send, b"message");
    polls(peer)
}

fn polls(peer: &mut Peer) -> Vec<Seen> {
    peer.rig.now += Duration::from_micros(1);
    peer.rig.hosts[0].hca.set_client_slice(true);
    peer.seen()
}

/// A queue pair whose program replied to the last message at once.
fn replied() -> Peer {
    let mut peer = peer();
    assert_eq!(message(&mut peer, 0), [acked(0, 1)]);
    peer.rig.post(&mut peer.end, &Wr::new(Opcode::SEND).inline(b"x"));
    assert_eq!(polls(&mut peer), [(O::RC_SEND_ONLY, 0, None, 1)]);
    peer.ack(ACK, 0);
    assert_eq!(polls(&mut peer), []);
    peer
}

#[test]
fn a_packet_without_a_message_is_not_replied_to() {
    let mut peer = peer();
    let qpn = peer.end.qpn;
    let hca = &mut peer.rig.hosts[0].hca;
    // The last packet was for a target or a group.
    hca.common.completed_receive = true;
    let key = peer.rig.hosts[0].key;
    let write = peer.packet(O::RC_WRITE_ONLY, 0).reth(IOVA + DST, key.0, 1);
    peer.send(write, b"x");
    assert_eq!(peer.seen(), [acked(0, 1)]);
    assert_eq!(peer.rig.hosts[0].hca.qps[&qpn].responder.arrived, None);
}

#[test]
fn a_delayed_acknowledgement_is_sent_without_reading_the_wire() {
    let mut peer = replied();
    assert_eq!(message(&mut peer, 1), [], "it waits for the reply");
    let key = peer.rig.hosts[0].key;
    peer.rig.receive(&mut peer.end, &[(DST, 8, key)]);
    let send = peer.packet(O::RC_SEND_ONLY, 2);
    peer.send(send, b"unread");
    peer.rig.hosts[0].hca.send_delayed_acks();
    assert_eq!(peer.received(), [acked(1, 2)]);
    assert_eq!(peer.seen(), [acked(2, 3)], "once");
}
