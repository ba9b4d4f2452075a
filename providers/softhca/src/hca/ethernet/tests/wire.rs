//! Frames from one device to others.

use uverbs_mlx5_prm::opcode::Opcode;

use super::*;
use crate::hca::testing::*;
use uverbs_front::backend::context::Service;

/// A raw packet queue pair that receives every frame; the transport domain differs on each device.
fn station(rig: &mut Rig, host: usize) -> End {
    let setup = Setup { service: Service::Raw, ..Setup::default() };
    let end = rig.end(host, &setup);
    rig.connect(&end, (host, end.qpn.0), &setup.attrs);
    let steering = rig.hosts[host].hca.steering();
    steering.add_sender(end.qpn.0, OWN);
    steering.set_queue(end.qpn.0, QueueOptions::default());
    let own = TirContext { domain: OWN, ..tir(Spread::Queue(end.qpn.0)) };
    steering.set_tir(end.qpn.0, own).unwrap();
    steering.add_table(1, table(1, Miss::Usual)).unwrap();
    catch_all(steering, 1, &[FlowDestination::Tir(end.qpn.0)]);
    steering.set_root(Direction::Receive, Some(1)).unwrap();
    end
}

fn post(rig: &mut Rig, end: &mut End, frame: &[u8]) {
    let mut segment = vec![0; 32];
    segment[13] = 18;
    segment[14..].copy_from_slice(&frame[..18]);
    let key = rig.hosts[end.host].key;
    rig.hosts[end.host].put(0x1000, &frame[18..]);
    let rest = frame.len() as u32 - 18;
    let wr = Wr { address: segment, ..Wr::new(Opcode::SEND).seg(0x1000, rest, key) };
    rig.post(end, &wr);
}

#[test]
fn a_frame_gets_to_all_others_and_back_to_nobody() {
    let mut rig = Rig::new(3);
    let mut ends: Vec<_> = (0..3).map(|host| station(&mut rig, host)).collect();
    for end in &mut ends {
        let key = rig.hosts[end.host].key;
        rig.receive(end, &[(0x3000, 2048, key)]);
    }
    let frame = Packet::udp().to([0xff; 6]).payload(&pattern(100, 3)).bytes();
    post(&mut rig, &mut ends[1], &frame);
    rig.run();
    assert_eq!(rig.sent(&mut ends[1]).len(), 1);
    // Transport domains of different devices are independent, even with equal numbers.
    for host in [0, 2] {
        let got = rig.got(&mut ends[host]);
        assert!(got.len() == 1 && got[0].kind == 2, "{got:?}");
        assert_eq!(rig.hosts[host].get(0x3000, frame.len()), frame);
    }
    assert_eq!(rig.got(&mut ends[1]), []);
}

#[test]
fn what_nobody_has_room_for_is_lost_and_holds_nothing_back() {
    let mut rig = Rig::new(2);
    let (mut a, mut b) = (station(&mut rig, 0), station(&mut rig, 1));
    let frame = Packet::udp().payload(&[1; 100]).bytes();
    rig.hosts[1].link.unplug();
    post(&mut rig, &mut a, &frame);
    rig.run();
    rig.hosts[1].link.replug();
    for _ in 0..40 {
        post(&mut rig, &mut a, &frame);
    }
    rig.run();
    assert_eq!(rig.sent(&mut a).len(), 41);
    assert_eq!(rig.hosts[1].hca.stats().out_of_buffer, 40);
    let key = rig.hosts[1].key;
    rig.receive(&mut b, &[(0x3000, 2048, key)]);
    post(&mut rig, &mut a, &frame);
    rig.run();
    assert_eq!(rig.got(&mut b).len(), 1);
}

#[test]
fn what_arrived_before_a_reset_is_nobodys_after_it() {
    let mut rig = Rig::new(2);
    let frame = Packet::udp().to([0xff; 6]).bytes();
    for _ in 0..3 {
        rig.hosts[0].hca.common.port.flood(&frame);
    }
    let before = rig.hosts[1].hca.stats().dropped;
    rig.hosts[1].hca.reset();
    assert_eq!(rig.hosts[1].hca.stats().dropped, before + 3);
    assert_eq!(rig.hosts[1].hca.common.port.hear(), None);
    rig.hosts[0].hca.common.port.flood(&frame);
    assert_eq!(rig.hosts[1].hca.common.port.hear(), Some(frame));
}
