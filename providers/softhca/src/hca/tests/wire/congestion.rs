//! Congestion marks, congestion notifications, and the devices that obey them.

use uverbs_mlx5_prm::opcode::Opcode;

use crate::hca::HcaConfig;
use crate::hca::testing::*;
use crate::wire::Faults;

const SRC: u64 = 0x1000;
const DST: u64 = 0x30_0000;
/// ECN value "congestion experienced" (RFC 3168), as a switch sets it in each packet.
const MARKED: u8 = 3;
const LONG: usize = 200_000;

fn marked(asks: [bool; 2], faults: Faults) -> (Rig, End, End) {
    let mut rig = Rig::with(2, HcaConfig::default(), faults, 5);
    for (host, asks) in rig.hosts.iter_mut().zip(asks) {
        host.hca.ask_for_notifications(asks);
    }
    let mut setup = Setup::default();
    setup.attrs.path.traffic_class = MARKED;
    let (a, b) = rig.pair(&setup);
    (rig, a, b)
}

fn write_long(rig: &mut Rig, a: &mut End) {
    let (near, far) = (rig.hosts[0].key, rig.hosts[1].key);
    let data = pattern(LONG, 3);
    rig.hosts[0].put(SRC, &data);
    let wr = Wr::new(Opcode::RDMA_WRITE).remote(DST, far).seg(SRC, LONG as u32, near);
    rig.post(a, &wr);
    rig.run();
    assert_eq!(rig.sent(a).len(), 1);
    assert_eq!(rig.hosts[1].get(DST, LONG), data);
}

/// Marks seen by the second host, CNPs that it sent, and CNPs that the first host received.
fn counts(rig: &Rig) -> [u64; 3] {
    let [near, far] = [0, 1].map(|host: usize| rig.hosts[host].hca.stats());
    assert_eq!((near.cnps_sent, far.cnps_received), (0, 0), "nothing came back marked");
    [far.congested, far.cnps_sent, near.cnps_received]
}

#[test]
fn who_asked_is_told_of_congestion_and_slows_down() {
    let (mut rig, mut a, _b) = marked([true; 2], Faults::default());
    write_long(&mut rig, &mut a);
    let [marks, sent, received] = counts(&rig);
    assert_eq!(marks, LONG.div_ceil(1024) as u64);
    assert!(sent >= 1 && sent < marks / 2 && received == sent, "{sent} of {marks}");
    let near = rig.hosts[0].hca.stats();
    assert_eq!((near.retransmits, near.timeouts), (0, 0), "slower, and nothing else");
    // Half of the window leaves without an answer, and no more.
    let before = near.tx_packets;
    let (near, far) = (rig.hosts[0].key, rig.hosts[1].key);
    let wr = Wr::new(Opcode::RDMA_WRITE).remote(DST, far).seg(SRC, LONG as u32, near);
    rig.post(&mut a, &wr);
    for _ in 0..10 {
        let now = rig.now;
        rig.hosts[0].hca.step(now);
    }
    let left = rig.hosts[0].hca.stats().tx_packets - before;
    assert_eq!((sent, left), (1, u64::from(HcaConfig::default().packet_window / 2)));
}

#[test]
fn nobody_else_is_told() {
    for asks in [[false, false], [true, false], [false, true]] {
        let (mut rig, mut a, _b) = marked(asks, Faults::default());
        write_long(&mut rig, &mut a);
        assert_eq!(counts(&rig), [0; 3], "{asks:?}");
        assert_eq!(rig.hosts[0].hca.stats().dropped, 0);
    }
}

#[test]
fn a_narrow_window_ends_no_connection_on_a_bad_network() {
    let faults = Faults { loss: 0.05, ..Faults::default() };
    let (mut rig, mut a, _b) = marked([true; 2], faults);
    for _ in 0..5 {
        write_long(&mut rig, &mut a);
    }
    assert!(counts(&rig)[2] > 0);
}
