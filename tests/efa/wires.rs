//! Devices on wires, as devices of other processes are: packets get lost, duplicated and
//! reordered, and peers die.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use uverbs::transport::Srd;
use uverbs::{AccessFlags, Completed, GRH_LEN, QpState, Status, Ud};
use uverbs_softefa::SoftEfa;
use uverbs_softhca::Udp;
use uverbs_softhca::wire::{Address, Fabric, Faults, Faulty};

use super::{Side, local, pattern};

/// Messages of each operation.
const COUNT: u64 = 60;
/// Limit of a peer that does not respond, and room for a busy machine.
const SILENCE: Duration = Duration::from_secs(20);

fn ip(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

/// Device with this address on a wire with faults.
fn device(fabric: &Fabric, last: u8, faults: Faults, seed: u64) -> SoftEfa {
    let IpAddr::V4(v4) = ip(last) else { unreachable!() };
    let port = fabric.attach(&[Address { gid: v4.to_ipv6_mapped().octets(), lid: 0 }]);
    let wire = Faulty::new(port, seed, faults);
    SoftEfa::builder().wire(ip(last), wire).seed(seed).build().expect("a device")
}

/// Device without a thread: it is silent unless its completion queue is polled.
fn stepped(fabric: &Fabric, last: u8) -> SoftEfa {
    let IpAddr::V4(v4) = ip(last) else { unreachable!() };
    let wire = fabric.attach(&[Address { gid: v4.to_ipv6_mapped().octets(), lid: 0 }]);
    SoftEfa::builder().wire(ip(last), wire).stepped().build().expect("a device")
}

fn bad() -> Faults {
    Faults { loss: 0.1, duplicate: 0.2, reorder: 0.3, reorder_depth: 8, ..Faults::default() }
}

#[test]
fn each_message_arrives_once_over_a_bad_wire() {
    for seed in 1..4 {
        let fabric = Fabric::new();
        let (a, b) = (device(&fabric, 1, bad(), seed), device(&fabric, 2, bad(), !seed));
        let (mut one, mut two) = (Side::<Srd>::new(&a, &local(1)), Side::new(&b, &local(2)));
        let (to, _back) = (one.to(&two), two.to(&one));
        let all = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
        let memory = two.pd.expose(100_000, all).expect("exposed");
        for number in 0..COUNT {
            two.expect(number, 8928);
        }
        let mut seen = Vec::new();
        let frames = (0..COUNT).map(|number| {
            let len = [8, 100, 4096, 8928][number as usize % 4];
            let mut frame = one.filled(len, number as u8);
            frame[..8].copy_from_slice(&number.to_le_bytes());
            frame
        });
        let frames = frames.collect::<Vec<_>>();
        let mut batch = one.qp.batch();
        for (number, frame) in (0..).zip(frames) {
            batch.send_to(number, frame, &to).unwrap();
        }
        batch.ring();
        for _ in 0..COUNT {
            assert_eq!(one.done().result, Ok(Completed::Send));
        }
        for _ in 0..COUNT {
            let received = two.done();
            assert_eq!(received.result, Ok(Completed::Recv));
            let frame = received.frame.unwrap();
            let number = u64::from_le_bytes(frame[..8].try_into().unwrap());
            assert!(frame[8..] == pattern(frame.len(), number as u8)[8..], "message {number}");
            seen.push(number);
        }
        assert!(!seen.is_sorted(), "seed {seed} delivers in order");
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..COUNT), "seed {seed}");
        for number in 0..COUNT as u8 / 4 {
            let frame = one.filled(100_000, number);
            let mut batch = one.qp.batch();
            batch.write_to(1, frame, memory.remote(0), &to).unwrap();
            batch.ring();
            assert_eq!(one.done().result, Ok(Completed::Write));
            let frame = one.filled(100_000, 0);
            let mut batch = one.qp.batch();
            batch.read_from(2, frame, memory.remote(0), &to).unwrap();
            batch.ring();
            let read = one.done();
            assert_eq!(read.result, Ok(Completed::Read));
            assert!(*read.frame.unwrap() == pattern(100_000, number)[..], "WRITE {number}");
        }
        assert_eq!(two.cq.poll_with(1, |_| {}), 0, "a message came twice");
    }
}

/// Peers of a device: one that never was, and one that has died.
#[test]
fn a_peer_that_does_not_respond_fails_the_work_request_alone() {
    let fabric = Fabric::new();
    let [a, c] = [1, 3].map(|last| device(&fabric, last, Faults::default(), 1));
    // A thread would answer once more.
    let b = stepped(&fabric, 2);
    let mut one = Side::<Srd>::new(&a, &local(1));
    let (two, mut three) = (Side::new(&b, &local(2)), Side::new(&c, &local(3)));
    let (to_two, to_three) = (one.to(&two), one.to(&three));
    let gone = two.at;
    drop((two, b));
    let started = Instant::now();
    let frame = one.filled(16, 0);
    let mut batch = one.qp.batch();
    batch.send_to(1, frame, &to_two).unwrap();
    batch.ring();
    let lost = one.cq.wait(SILENCE).expect("a completion");
    assert_eq!((lost.id, lost.result.unwrap_err().status), (1, Status::ResponseTimeout));
    assert!(started.elapsed().as_secs() >= 1, "{:?}", started.elapsed());
    assert_eq!(one.qp.query().unwrap().state, QpState::ReadyToSend);
    // A datagram is lost without a word.
    let mut datagrams = Side::<Ud>::new(&a, &local(4));
    let frame = datagrams.filled(16, 0);
    let ghost = datagrams.qp.destination(&gone).unwrap();
    let mut batch = datagrams.qp.batch();
    batch.send_to(2, frame, &ghost).unwrap();
    batch.ring();
    assert_eq!(datagrams.done().result, Ok(Completed::Send));
    // Others are reached as before.
    three.expect(3, 16);
    let frame = one.filled(16, 0);
    let mut batch = one.qp.batch();
    batch.send_to(4, frame, &to_three).unwrap();
    batch.ring();
    assert_eq!((one.done().id, three.done().id), (4, 3));
}

/// Devices on the network of this host, through shared memory and by UDP, as two processes have.
#[test]
fn devices_on_the_network_reach_each_other() {
    for carrier in ["", ",udp", ",shm"] {
        let [a, b] = [1, 2].map(|_| {
            let udp = format!("loopback{carrier}").parse::<Udp>().unwrap().port(4799);
            SoftEfa::builder().udp(udp).build().expect("a device")
        });
        assert_ne!(a.gid(), b.gid());
        let (mut one, mut two) = (Side::<Srd>::new(&a, &local(1)), Side::new(&b, &local(2)));
        let (to, _back) = (one.to(&two), two.to(&one));
        let memory = two.pd.expose(1 << 20, AccessFlags::REMOTE_WRITE).expect("exposed");
        for round in 0..4 {
            two.expect(1, 8928);
            let (message, data) = (one.filled(8928, round), one.filled(1 << 20, round));
            let mut batch = one.qp.batch();
            batch.send_to(2, message, &to).unwrap();
            batch.write_to(3, data, memory.remote(0), &to).unwrap();
            batch.ring();
            assert!(*two.done().frame.unwrap() == pattern(8928, round)[..]);
            let mut ids = [one.done().id, one.done().id];
            ids.sort_unstable();
            assert_eq!(ids, [2, 3], "{carrier}");
            let mut there = vec![0; 1 << 20];
            memory.read(0, &mut there).unwrap();
            assert!(there == pattern(1 << 20, round));
        }
        let (mut one, mut two) = (Side::<Ud>::new(&a, &local(1)), Side::new(&b, &local(2)));
        let to = one.to(&two);
        two.expect(5, 100 + GRH_LEN);
        let frame = one.filled(100, 9);
        let mut batch = one.qp.batch();
        batch.send_to(6, frame, &to).unwrap();
        batch.ring();
        assert_eq!((one.done().id, two.done().byte_len as usize), (6, 100 + GRH_LEN));
    }
}

/// Without a receive the sender repeats, up to its limit.
#[test]
fn a_receive_may_come_late() {
    let fabric = Fabric::new();
    let [a, b] = [1, 2].map(|last| device(&fabric, last, Faults::default(), 1));
    let (mut one, mut two) = (Side::<Srd>::new(&a, &local(1)), Side::new(&b, &local(2)));
    let to = one.to(&two);
    let frame = one.filled(16, 0);
    let mut batch = one.qp.batch();
    batch.send_to(1, frame, &to).unwrap();
    batch.ring();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(one.cq.poll_with(1, |_| {}), 0);
    two.expect(2, 16);
    assert_eq!((one.done().id, two.done().id), (1, 2));
}

#[test]
fn a_peer_without_room_leaves_the_way_to_others() {
    let fabric = Fabric::new();
    let [a, b, c] = [1, 2, 3].map(|last| stepped(&fabric, last));
    let mut one = Side::<Srd>::new(&a, &local(1));
    let (silent, mut two) = (Side::new(&b, &local(2)), Side::new(&c, &local(3)));
    let (to_silent, to_two) = (one.to(&silent), one.to(&two));
    for id in 0..100 {
        let mut batch = one.qp.batch();
        batch.send_inline_to(id, b"waits", &to_silent).unwrap();
        batch.ring();
        a.step();
    }
    two.expect(1, 16);
    let mut batch = one.qp.batch();
    batch.send_inline_to(100, b"text", &to_two).unwrap();
    batch.ring();
    // One step sends it, another one its packet.
    a.step();
    a.step();
    assert_eq!(two.done().id, 1);
}

/// More READs than answers that wait to be sent.
#[test]
fn many_reads_are_answered() {
    let fabric = Fabric::new();
    let [a, b] = [1, 2].map(|last| device(&fabric, last, bad(), 1));
    let (mut one, two) = (Side::<Srd>::new(&a, &local(1)), Side::new(&b, &local(2)));
    let (to, _back) = (one.to(&two), two.to(&one));
    let memory = two.pd.expose(50_000, AccessFlags::REMOTE_READ).expect("exposed");
    memory.write(0, &pattern(50_000, 9)).unwrap();
    let frames = (0..COUNT).map(|_| one.filled(50_000, 0)).collect::<Vec<_>>();
    let mut batch = one.qp.batch();
    for (id, frame) in (0..).zip(frames) {
        batch.read_from(id, frame, memory.remote(0), &to).unwrap();
    }
    batch.ring();
    let ids = (0..COUNT).map(|_| {
        let read = one.done();
        assert_eq!(read.result, Ok(Completed::Read));
        assert!(*read.frame.unwrap() == pattern(50_000, 9)[..], "READ {}", read.id);
        read.id
    });
    let mut ids: Vec<_> = ids.collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..COUNT));
}
