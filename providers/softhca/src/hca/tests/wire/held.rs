//! Acknowledgements that wait for a polling program's reply.

use super::packets::{DST, acked, peer};
use crate::hca::testing::*;
use crate::wire::Opcode as O;

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
