//! Simulation: devices over a network that loses, duplicates and reorders packets, in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Gid;
use super::endpoint::{Endpoint, PEERS};
use super::packet::{Data, Packet};
use crate::random::Random;

/// Bytes of a segment.
const SEGMENT: usize = 256;
/// Longest way of a packet.
const WAY_MS: usize = 30;
/// Time after which a peer must be lost.
const LIMIT: Duration = Duration::from_secs(6);

/// Percentages of a network.
#[derive(Clone, Copy, Debug)]
struct Faults {
    lost: usize,
    twice: usize,
}

/// Devices and the packets between them.
struct World {
    devices: Vec<Endpoint>,
    faults: Faults,
    /// Sender whose data is lost, while its acknowledgements arrive.
    mute: Option<usize>,
    random: Random,
    now: Duration,
    /// By time of arrival and number: sender, receiver, bytes.
    packets: BTreeMap<(Duration, u64), (usize, usize, Vec<u8>)>,
    count: u64,
    /// By receiver and sender, in the order of arrival.
    arrived: BTreeMap<(usize, usize), Vec<Vec<u8>>>,
    /// Sender and receiver of ended streams.
    lost: Vec<(usize, usize)>,
}

fn gid(device: usize) -> Gid {
    [device as u8; 16]
}

impl World {
    fn new(seed: u64, devices: usize, faults: Faults) -> Self {
        let device = |n| Endpoint::new(1000 + n as u64, SEGMENT, seed ^ n as u64);
        Self {
            devices: (0..devices).map(device).collect(),
            faults,
            mute: None,
            random: Random::new(seed),
            now: Duration::ZERO,
            packets: BTreeMap::new(),
            count: 0,
            arrived: BTreeMap::new(),
            lost: Vec::new(),
        }
    }

    fn send(&mut self, from: usize, to: usize, message: Vec<u8>) {
        self.devices[from].send(gid(to), message, self.now);
    }

    /// Lets a millisecond pass. False if nothing is on its way.
    fn step(&mut self) -> bool {
        self.now += Duration::from_millis(1);
        while let Some(first) = self.packets.first_entry()
            && first.key().0 <= self.now
        {
            let (from, to, bytes) = first.remove();
            self.devices[to].receive(gid(from), &bytes, self.now);
        }
        for at in 0..self.devices.len() {
            while let Some((to, bytes)) = self.devices[at].next_packet(self.now) {
                let is_data = matches!(Packet::parse(&bytes), Some(Packet::Data(..)));
                let copies = match self.random.below(100) {
                    _ if is_data && self.mute == Some(at) => 0,
                    lot if lot < self.faults.lost => 0,
                    lot if lot < self.faults.lost + self.faults.twice => 2,
                    _ => 1,
                };
                for _ in 0..copies {
                    let way = Duration::from_millis(self.random.below(WAY_MS) as u64);
                    self.count += 1;
                    let packet = (at, to[0].into(), bytes.clone());
                    self.packets.insert((self.now + way, self.count), packet);
                }
            }
            let device = &mut self.devices[at];
            while let Some((from, message)) = device.next_message() {
                self.arrived.entry((at, from[0].into())).or_default().push(message);
            }
            while let Some(to) = device.next_lost() {
                self.lost.push((at, to[0].into()));
            }
        }
        !self.packets.is_empty()
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step();
        }
    }
}

/// A message: its number, and bytes that follow from it.
fn message(number: u32, random: &mut Random) -> Vec<u8> {
    let len = match random.below(4) {
        0 => 0,
        1 => random.below(SEGMENT),
        2 => SEGMENT,
        _ => random.below(20 * SEGMENT),
    };
    let bytes = (0..len).map(|at| (number as usize * 31 + at) as u8);
    number.to_le_bytes().into_iter().chain(bytes).collect()
}

#[test]
fn each_message_arrives_once_in_any_order() {
    let mut overtaken = 0;
    for seed in 0..40 {
        let faults = Faults { lost: seed as usize % 4 * 10, twice: seed as usize % 3 * 20 };
        let mut world = World::new(seed, 3, faults);
        let mut random = Random::new(!seed);
        let mut sent: BTreeMap<(usize, usize), Vec<Vec<u8>>> = BTreeMap::new();
        for number in 0..120 {
            let from = random.below(3);
            let to = (from + random.below(2) + 1) % 3;
            let message = message(number, &mut random);
            sent.entry((to, from)).or_default().push(message.clone());
            world.send(from, to, message);
            for _ in 0..random.below(8) {
                world.step();
            }
        }
        world.run(Duration::from_secs(60));
        assert_eq!(world.lost, [], "seed {seed}");
        for (ends, mut arrived) in world.arrived {
            overtaken += usize::from(arrived != sent[&ends]);
            arrived.sort();
            let mut sent = sent.remove(&ends).unwrap();
            sent.sort();
            assert!(arrived == sent, "seed {seed}: {ends:?}");
        }
        assert!(sent.is_empty(), "seed {seed}: nothing arrived of {:?}", sent.keys());
    }
    assert!(overtaken > 100, "{overtaken} of 240 pairs had their messages out of order");
}

#[test]
fn a_silent_peer_is_lost_within_the_limit() {
    let mut world = World::new(1, 2, Faults { lost: 100, twice: 0 });
    world.send(0, 1, vec![1; 1000]);
    world.run(LIMIT);
    assert_eq!(world.lost, [(0, 1)]);
    // The next message begins a new stream.
    world.faults.lost = 0;
    world.send(0, 1, vec![2; 1000]);
    world.run(LIMIT);
    assert_eq!((world.lost.len(), &world.arrived[&(1, 0)]), (1, &vec![vec![2; 1000]]));
}

#[test]
fn a_peer_that_owes_an_answer_is_asked_for_a_sign_of_life() {
    for dies in [false, true] {
        let mut world = World::new(1, 2, Faults { lost: 0, twice: 0 });
        world.send(0, 1, vec![1; 10]);
        world.run(Duration::from_secs(1));
        assert_eq!(world.arrived[&(1, 0)].len(), 1);
        world.faults.lost = if dies { 100 } else { 0 };
        let end = world.now + LIMIT;
        while world.now < end {
            world.devices[0].expect(gid(1), world.now);
            world.step();
        }
        assert_eq!(world.lost.len(), usize::from(dies));
        assert_eq!(world.arrived[&(1, 0)].len(), 1);
    }
}

/// The peer acknowledges the request, and its answer never arrives.
#[test]
fn a_discarded_answer_is_told() {
    let mut world = World::new(1, 2, Faults { lost: 0, twice: 0 });
    world.send(0, 1, vec![1; 10]);
    world.run(Duration::from_secs(1));
    world.mute = Some(1);
    world.send(1, 0, vec![2; 10]);
    let end = world.now + 2 * LIMIT;
    while world.now < end {
        world.devices[0].expect(gid(1), world.now);
        world.step();
    }
    assert_eq!(world.lost, [(1, 0), (0, 1)]);
    // Both begin new streams.
    world.mute = None;
    world.send(0, 1, vec![3; 10]);
    world.send(1, 0, vec![4; 10]);
    world.run(LIMIT);
    assert_eq!(world.lost.len(), 2);
    assert_eq!(world.arrived[&(1, 0)].last(), Some(&vec![3; 10]));
    assert_eq!(world.arrived[&(0, 1)], [vec![4; 10]]);
}

#[test]
fn another_device_at_the_address_ends_the_stream() {
    let mut world = World::new(1, 2, Faults { lost: 0, twice: 0 });
    world.send(0, 1, vec![1; 10]);
    world.run(Duration::from_secs(1));
    world.devices[1] = Endpoint::new(1_000_000, SEGMENT, 1);
    world.send(0, 1, vec![2; 10]);
    world.run(Duration::from_secs(1));
    assert_eq!(world.lost, [(0, 1)]);
    // Its own stream is a later one than its predecessor's.
    world.send(1, 0, vec![3; 10]);
    world.send(0, 1, vec![4; 10]);
    world.run(Duration::from_secs(1));
    assert_eq!(world.lost.len(), 1);
    assert_eq!(world.arrived[&(0, 1)], [vec![3; 10]]);
    assert_eq!(world.arrived[&(1, 0)].last(), Some(&vec![4; 10]));
}

#[test]
fn malformed_packets_are_dropped() {
    let mut device = Endpoint::new(1000, SEGMENT, 1);
    let mut sender = Endpoint::new(1000, SEGMENT, 1);
    sender.send(gid(1), vec![7; 600], Duration::ZERO);
    let (_, good) = sender.next_packet(Duration::ZERO).unwrap();
    assert!(Packet::parse(&good).is_some());
    let mut random = Random::new(1);
    for _ in 0..100_000 {
        let mut bytes = good.clone();
        for _ in 0..=random.below(4) {
            let at = random.below(40);
            bytes[at] = random.below(256) as u8;
        }
        bytes.truncate(random.below(bytes.len() + 1));
        device.receive(gid(random.below(3)), &bytes, Duration::ZERO);
        while device.next_message().is_some() {}
        while device.next_packet(Duration::ZERO).is_some() {}
    }
}

/// A packet of a stream with number 2000: a segment of zeroes.
fn segment(number: u64, message: u64, (offset, total): (usize, usize)) -> Vec<u8> {
    let len = SEGMENT.min(total - offset);
    Data::packet((2000, number), message, (offset, total), &vec![0; len])
}

#[test]
fn admitted_messages_complete_while_others_are_refused() {
    const LONGEST: usize = 1 << 30;
    let mut device = Endpoint::new(1000, SEGMENT, 1);
    let mut receive = |from: u8, packet: Vec<u8>| {
        device.receive([from; 16], &packet, Duration::ZERO);
        let acks = std::iter::from_fn(|| device.next_packet(Duration::ZERO)).count();
        (acks, device.next_message().map(|(_, message)| message.len()))
    };
    // Each peer begins a message of two segments, then one of the longest.
    for from in 0..8 {
        assert_eq!(receive(from, segment(0, 0, (0, 2 * SEGMENT))), (1, None));
    }
    let admitted = (0..8).map(|from| receive(from, segment(1, 1, (0, LONGEST))).0);
    assert_eq!(admitted.sum::<usize>(), 3, "messages of 1 GiB in 4 GiB");
    for from in 0..8 {
        let done = receive(from, segment(2, 0, (SEGMENT, 2 * SEGMENT)));
        assert_eq!(done, (1, Some(2 * SEGMENT)));
        // A message of one packet needs no memory.
        assert_eq!(receive(from, segment(3, 2, (0, SEGMENT))), (1, Some(SEGMENT)));
    }
}

#[test]
fn a_repeated_offset_counts_once() {
    let mut device = Endpoint::new(1000, SEGMENT, 1);
    let total = 2 * SEGMENT;
    for (number, offset) in [(0, 0), (1, 0), (2, SEGMENT)] {
        assert_eq!(device.next_message(), None);
        device.receive(gid(1), &segment(number, 0, (offset, total)), Duration::ZERO);
    }
    assert_eq!(device.next_message(), Some((gid(1), vec![0; total])));
}

#[test]
fn a_stream_is_full_after_many_messages_or_bytes() {
    for (len, count) in [(10, 16), (1 << 20, 16), (8 << 20, 2), (64 << 20, 1)] {
        let mut device = Endpoint::new(1000, SEGMENT, 1);
        let mut sent = 0;
        while device.has_room(gid(1)) {
            device.send(gid(1), vec![0; len], Duration::ZERO);
            sent += 1;
        }
        assert_eq!(sent, count, "messages of {len} bytes");
    }
}

#[test]
fn silent_peers_make_room_for_others() {
    let ack = {
        let mut device = Endpoint::new(1000, SEGMENT, 1);
        device.receive(gid(1), &segment(0, 0, (0, 10)), Duration::ZERO);
        device.next_packet(Duration::ZERO).unwrap().1
    };
    let mut device = Endpoint::new(1000, SEGMENT, 1);
    let peer = |number: usize| {
        let mut gid = [0; 16];
        gid[..8].copy_from_slice(&(number as u64).to_be_bytes());
        gid
    };
    let mut arrives = |number: usize, now: u64| {
        let now = Duration::from_secs(now);
        // An acknowledgement of a stranger makes no peer.
        device.receive(peer(number + 100_000), &ack, now);
        device.receive(peer(number), &segment(0, 0, (0, 10)), now);
        device.next_message().is_some()
    };
    for number in 0..PEERS {
        assert!(arrives(number, number as u64 / 1000), "peer {number}");
    }
    assert!(!arrives(PEERS, 2), "no peer is silent");
    assert!(arrives(PEERS, 5), "peers are silent since the beginning");
    assert!(!arrives(1, 5), "a message came twice");
    assert!(arrives(0, 5), "the first one was forgotten");
}

#[test]
fn a_silent_peer_lets_go_of_its_memory() {
    let mut device = Endpoint::new(1000, SEGMENT, 1);
    let now = Duration::from_secs;
    for from in 0..4 {
        device.receive(gid(from), &segment(0, 0, (0, 1 << 30)), now(0));
    }
    for (from, time, answers) in [(4, 1, 0), (4, 7, 0), (4, 7, 1)] {
        while device.next_packet(now(time)).is_some() {}
        device.receive(gid(from), &segment(0, 0, (0, 1 << 30)), now(time));
        let acks = std::iter::from_fn(|| device.next_packet(now(time)));
        assert_eq!(acks.filter(|(to, _)| *to == gid(from)).count(), answers, "{time} s");
    }
}

#[test]
fn a_silent_stream_gives_way_to_any_number() {
    let mut device = Endpoint::new(1000, SEGMENT, 1);
    let mut arrives = |stream: u64, millis: u64| {
        let packet = Data::packet((stream, 0), 0, (0, 10), &[7; 10]);
        device.receive(gid(1), &packet, Duration::from_millis(millis));
        device.next_message().is_some()
    };
    assert!(arrives(u64::MAX, 0));
    assert!(!arrives(2000, 4999), "late, as far as the device knows");
    assert!(arrives(2000, 5000));
    assert!(!arrives(1999, 5001));
}

#[test]
fn a_datagram_fits_while_its_packets_would_be_sent_at_once() {
    let mut device = Endpoint::new(1000, SEGMENT, 1);
    let packets =
        |device: &mut Endpoint| std::iter::from_fn(|| device.next_packet(Duration::ZERO)).count();
    // A long message fills the window, and waits.
    device.send(gid(1), vec![7; 1000 * SEGMENT], Duration::ZERO);
    assert_eq!(packets(&mut device), 32);
    let mut datagrams = 0;
    while device.sends_now(gid(1), 5 * SEGMENT) {
        device.send_datagram(gid(1), vec![7; 5 * SEGMENT], Duration::ZERO);
        assert_eq!(packets(&mut device), 5);
        datagrams += 1;
    }
    assert_eq!(datagrams, 2, "in 12 packets");
    assert!(device.sends_now(gid(1), 2 * SEGMENT));
    assert!(device.sends_now(gid(2), 36 * SEGMENT));
}
