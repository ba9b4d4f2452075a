//! A port that takes no frame.

use std::time::Duration;

use uverbs_mlx5_prm::opcode::Opcode;

use crate::hca::HcaConfig;
use crate::hca::testing::*;
use crate::wire::{Fabric, Faults};

const DST: u64 = 0x30_0000;

/// Steps all hosts except the last.
fn step_others(rig: &mut Rig) {
    let now = rig.now;
    while rig.hosts[..2].iter_mut().fold(false, |busy, host| host.hca.step(now) | busy) {}
}

#[test]
fn a_stuck_receiver_does_not_block_others() {
    let fabric = Fabric::with_queue_depth(4);
    let mut rig = Rig::on(fabric, 3, HcaConfig::default(), Faults::default(), 1);
    let mut setup = Setup::default();
    // 1.07 s, so that no retry occurs during the test.
    setup.attrs.timeout = 18;
    let (mut to_stuck, _stuck) = rig.pair(&setup);
    let (mut to_live, live) = (rig.end(0, &setup), rig.end(1, &setup));
    rig.connect(&to_live, (1, live.qpn.0), &setup.attrs);
    rig.connect(&live, (0, to_live.qpn.0), &setup.attrs);
    let write = |rig: &Rig, host: usize| {
        Wr::new(Opcode::RDMA_WRITE).remote(DST, rig.hosts[host].key).inline(b"x")
    };

    for _ in 0..10 {
        let wr = write(&rig, 2);
        rig.post(&mut to_stuck, &wr);
    }
    step_others(&mut rig);
    let wr = write(&rig, 1);
    rig.post(&mut to_live, &wr);
    // A frame that waits for one port does not stop frames for another.
    step_others(&mut rig);
    assert_eq!(rig.sent(&mut to_live).len(), 1);
    // A link without loss waits, but like a switch's PFC watchdog not for ever.
    for (now, waits) in [(199_999, true), (200_000, false)] {
        rig.now = Duration::from_micros(now);
        step_others(&mut rig);
        let retry = rig.now + Duration::from_micros(10);
        assert_eq!(rig.hosts[0].hca.next_deadline() == Some(retry), waits, "after {now} us");
    }
    // The port is known as stuck, so no frame waits for it any more.
    for _ in 0..3 {
        let wr = write(&rig, 2);
        rig.post(&mut to_stuck, &wr);
        let wr = write(&rig, 1);
        rig.post(&mut to_live, &wr);
        step_others(&mut rig);
        assert_eq!(rig.sent(&mut to_live).len(), 1);
    }
    assert!(rig.sent(&mut to_stuck).is_empty());
    // The port takes frames again: lost packets are repeated.
    rig.run();
    let sent = rig.sent(&mut to_stuck);
    assert_eq!(sent.len(), 13);
    assert!(sent.iter().all(|cqe| cqe.kind == 0), "{sent:?}");
}

/// A frame from before the reset would come to its peer at any time after it, under numbers that
/// are used again.
#[test]
fn a_frame_that_waits_does_not_outlive_a_reset() {
    let fabric = Fabric::with_queue_depth(4);
    let mut rig = Rig::on(fabric, 3, HcaConfig::default(), Faults::default(), 1);
    let (mut end, _stuck) = rig.pair(&Setup::default());
    let wr = Wr::new(Opcode::RDMA_WRITE).remote(DST, rig.hosts[2].key).inline(b"x");
    for _ in 0..5 {
        rig.post(&mut end, &wr);
    }
    step_others(&mut rig);
    rig.hosts[0].hca.reset();
    rig.hosts[2].hca.step(rig.now);
    rig.hosts[0].hca.step(rig.now);
    rig.hosts[2].hca.step(rig.now);
    assert_eq!(rig.hosts[2].hca.stats().rx_packets, 4);
}
