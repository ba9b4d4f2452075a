//! Two functions on one wire, each with a client.

use std::time::{Duration, Instant};

use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::{caps, hca};
use uverbs_softhca::pci::PciOptions;
use uverbs_softhca::vfio_user::Server;
use uverbs_softhca::wire::{Address, Fabric, Frame, Route, Wire};

use crate::data::{receive, send};
use crate::driver::{Cq, Driver, Path, Qp};
use crate::host::Host;

fn server(fabric: &Fabric, number: u16) -> Server {
    Server::on(fabric, &PciOptions { number, ..PciOptions::default() }).unwrap()
}

/// A driver of a function, and the objects that a queue pair needs.
struct End {
    driver: Driver,
    cq: Cq,
    qp: Qp,
    page: u64,
}

impl End {
    fn new(server: Server) -> Self {
        let mut driver = Driver::on(Host::of(server)).initialised();
        let eqn = driver.eq(1, 0);
        let cq = driver.cq(eqn);
        let qp = driver.qp(&cq);
        let page = driver.page();
        Self { driver, cq, qp, page }
    }

    /// Connects to the peer. Queue pair numbers of different devices may be equal.
    fn connect(&mut self, lid: u64, peer: &Self, timeout: u64) {
        let path = Path { lid, timeout, ..Path::default() };
        self.driver.connect_to(self.qp.number, peer.qp.number, &path);
    }

    /// Sends a message as WQE `index`.
    fn send(&mut self, index: u32, data: &[u8]) {
        self.driver.host.write(self.page, data);
        let key = self.driver.lkey;
        send(&mut self.driver, &self.qp, index, (key, self.page, data.len() as u32));
    }

    /// Opcode and syndrome of the next completion.
    fn poll(&mut self) -> (u8, u8) {
        let cqe = self.driver.poll(&mut self.cq);
        (cqe[63] >> 4, cqe[55])
    }
}

/// Sends message `index` from one end to the other, and checks that it is received and
/// acknowledged.
fn message(from: &mut End, to: &mut End, index: u32, data: &[u8]) {
    receive(&to.driver, &to.qp, index, to.page, 4096);
    from.send(index, data);
    assert_eq!(to.poll().0, 2);
    assert_eq!(from.poll().0, 0);
    assert_eq!(to.driver.host.read(to.page, data.len()), data);
}

/// Code of the shortest ACK timeout: with eight tries a dead peer is noticed within a few hundred
/// milliseconds.
const SHORT: u64 = 12;
const LONG: u64 = 18;

#[test]
fn messages_go_from_one_to_the_other() {
    let fabric = Fabric::default();
    let [mut a, mut b] = [1, 2].map(|number| End::new(server(&fabric, number)));
    a.connect(2, &b, LONG);
    b.connect(1, &a, LONG);
    assert_eq!(a.qp.number, b.qp.number, "only the path tells them apart");
    let mut took = Vec::new();
    for round in 0..40u32 {
        let start = Instant::now();
        message(&mut a, &mut b, round, &[round as u8; 100]);
        took.push(start.elapsed());
        message(&mut b, &mut a, round, &[!round as u8; 100]);
    }
    // A store wakes a sleeping device: otherwise each device would poll after five milliseconds,
    // for the message and for the answer.
    took.sort();
    assert!(took[10] < Duration::from_micros(2500), "{took:?}");
    assert_eq!(fabric.stats().unknown_destination, 0);
    // Each function reports its identity.
    for (end, number) in [(&mut a, 1), (&mut b, 2)] {
        let size = hca::query_hca_cap_out::SIZE;
        let answer = end.driver.ok(CmdOpcode::QUERY_HCA_CAP, 1, &[0; 16], size);
        let general = hca::query_hca_cap_out::CAPABILITY.of(&answer);
        assert_eq!(caps::cmd_hca_cap::VHCA_ID.get(general), number);
    }
}

#[test]
fn one_goes_and_comes_again_and_the_other_stays() {
    let fabric = Fabric::default();
    let [mut a, mut b] = [1, 2].map(|number| End::new(server(&fabric, number)));
    a.connect(2, &b, SHORT);
    b.connect(1, &a, LONG);
    message(&mut a, &mut b, 0, b"before");
    let off = b.driver.host.power_off();
    a.send(1, b"nobody");
    assert_eq!(a.poll(), (0xd, 0x15), "retries exceeded");
    // Another guest.
    let mut b = End::new(off);
    a.qp = a.driver.qp(&a.cq);
    a.connect(2, &b, LONG);
    b.connect(1, &a, LONG);
    message(&mut a, &mut b, 0, b"after");
    message(&mut b, &mut a, 0, b"and back");
    // A reset ends a connection, too.
    a.qp = a.driver.qp(&a.cq);
    a.connect(2, &b, SHORT);
    b.driver.host.request(13, &[], &[]).unwrap();
    a.send(0, b"nobody");
    assert_eq!(a.poll(), (0xd, 0x15), "retries exceeded");
    a.qp = a.driver.qp(&a.cq);
    a.driver.connect(a.qp.number, a.qp.number);
    receive(&a.driver, &a.qp, 0, a.page, 64);
    a.send(0, b"to itself");
    let mut kinds = [a.poll().0, a.poll().0];
    kinds.sort();
    assert_eq!(kinds, [0, 2]);
}

#[test]
fn a_function_that_nobody_uses_has_no_link() {
    let fabric = Fabric::default();
    let server = server(&fabric, 7);
    let mut port = fabric.attach(&[]);
    let dst = Address { gid: [0; 16], lid: 7 };
    let mut frame = || {
        port.transmit(Frame {
            src: Address::default(),
            dst,
            route: Route::default(),
            bytes: vec![0; 12],
            loan: None,
        })
        .unwrap();
        fabric.stats().dead_link
    };
    assert_eq!(frame(), 1);
    // The version answer shows that the server has accepted the client.
    let host = Host::of(server);
    assert_eq!(frame(), 1);
    let server = host.power_off();
    // The frame before may be unread: then it was lost with the link.
    let lost = fabric.stats().dead_link;
    assert_eq!(frame(), lost + 1);
    drop(server);
}

/// A timer of the device must not wait for as long as the previous client was connected.
#[test]
fn the_clock_goes_on_with_the_next_client() {
    let mut host = Host::new();
    let clock = |host: &mut Host| {
        std::thread::sleep(Duration::from_millis(50));
        (u64::from(host.get(0x1000)) << 32) + u64::from(host.get(0x1004))
    };
    for _ in 0..8 {
        clock(&mut host);
    }
    let last = clock(&mut host);
    let mut host = Host::of(host.power_off());
    let first = clock(&mut host);
    assert!(last < first && first < clock(&mut host));
}
