//! Targets and initiators of dynamic connections against packets that the test makes.

use std::time::Duration;

use proptest::prelude::*;
use uverbs_mlx5_prm::opcode::Opcode;

use super::dynamic::{DST, KEY, SRC, Target, initiator, run_one};
use crate::hca::testing::*;
use crate::wire::{
    Address, DcEth, Frame, Opcode as PacketOpcode, PacketBuilder, Psn, Route, Syndrome, U24, Wire,
};

/// A port played by the test.
struct Stranger {
    port: crate::wire::FabricPort,
    address: Address,
}

impl Stranger {
    fn new(rig: &Rig) -> Stranger {
        let address = Address { gid: [9; 16], lid: 0 };
        Stranger { port: rig.fabric.attach(&[address]), address }
    }

    /// Sends a message of one packet. True if it is answered.
    fn send(&mut self, rig: &mut Rig, target: &Target, header: DcEth, psn: u32) -> bool {
        let builder = PacketBuilder::new(PacketOpcode::DC_SEND_ONLY, target.dctn.0, Psn::new(psn));
        let mut bytes = Vec::new();
        builder.ack_request(true).dceth(&header).emit(b"abcd", &mut bytes).unwrap();
        let dst = rig.hosts[target.host].address;
        self.port
            .transmit(Frame { src: self.address, dst, route: Route::default(), bytes, loan: None })
            .unwrap();
        rig.run_until(rig.now);
        std::iter::from_fn(|| self.port.receive()).count() != 0
    }
}

fn header(connection: u32, src_qp: u32) -> DcEth {
    DcEth {
        key: KEY.into(),
        flags: DcEth::CONNECT,
        src_qp: U24::new(src_qp),
        connection: connection.into(),
    }
}

#[test]
fn a_connection_is_known_by_its_number() {
    let mut rig = Rig::new(1);
    let mut target = Target::new(&mut rig, 0);
    for _ in 0..8 {
        target.receive(&mut rig, DST, 64);
    }
    let mut stranger = Stranger::new(&rig);
    let mut arrives = |rig: &mut Rig, header, psn| {
        let answered = stranger.send(rig, &target, header, psn);
        (answered, target.cq.clone(), std::iter::from_fn(|| rig.poll(0, &mut target.cq)).count())
    };
    let mut arrives = |rig: &mut Rig, header, psn| {
        let (answered, _, count) = arrives(rig, header, psn);
        (answered, count)
    };
    let follows = |number| DcEth { flags: 0, ..header(number, 5) };
    assert_eq!(arrives(&mut rig, follows(7), 100), (false, 0), "its beginning was lost");
    assert_eq!(arrives(&mut rig, header(7, 5), 100), (true, 1));
    assert_eq!(arrives(&mut rig, header(7, 5), 100), (true, 0), "acknowledged again, and no more");
    assert_eq!(arrives(&mut rig, follows(7), 101), (true, 1));
    assert_eq!(arrives(&mut rig, header(9, 5), 500), (true, 1));
    assert_eq!(arrives(&mut rig, header(7, 5), 100), (false, 0), "late");
    // The connection numbers of another initiator are independent.
    assert_eq!(arrives(&mut rig, header(1, 6), 0), (true, 1));
    // A device that counts anew is accepted after a while.
    rig.now += Duration::from_secs(2);
    assert_eq!(arrives(&mut rig, header(2, 5), 0), (true, 1));
    assert_eq!(rig.hosts[0].hca.connections(), 2);
}

#[test]
fn connections_are_limited() {
    let mut rig = Rig::new(1);
    let target = Target::new(&mut rig, 0);
    let mut stranger = Stranger::new(&rig);
    for n in 0..5000 {
        // Without a receive each gets an RNR NAK, and is remembered.
        assert!(stranger.send(&mut rig, &target, header(1, n), 0));
        rig.now += Duration::from_nanos(1);
    }
    assert_eq!(rig.hosts[0].hca.connections(), 4096);
}

/// An initiator takes responses from its current target, and no requests.
#[test]
fn an_initiator_has_no_other_half() {
    let mut rig = Rig::new(2);
    let mut target = Target::new(&mut rig, 1);
    let mut dci = initiator(&mut rig, 0);
    let key = rig.hosts[0].key;
    // Without a receive the message stays in flight.
    let wr = target.to(&rig, Wr::new(Opcode::SEND).inline(b"wait"));
    rig.post(&mut dci, &wr);
    rig.run_until(rig.now);
    let mut stranger = Stranger::new(&rig);
    let addresses = [rig.hosts[0].address, rig.hosts[1].address];
    let psn = Psn::new(0x1234);
    let ack = PacketBuilder::new(PacketOpcode::DC_ACKNOWLEDGE, dci.qpn.0, psn);
    let write = PacketBuilder::new(PacketOpcode::DC_WRITE_ONLY, dci.qpn.0, psn);
    let write = write.reth(IOVA + DST, key.0, 4).dceth(&header(1, 9));
    for (src, packet, payload) in
        [(stranger.address, ack.aeth(Syndrome::ACK, 1), &b""[..]), (addresses[1], write, b"evil")]
    {
        let mut bytes = Vec::new();
        packet.emit(payload, &mut bytes).unwrap();
        stranger
            .port
            .transmit(Frame { src, dst: addresses[0], route: Route::default(), bytes, loan: None })
            .unwrap();
    }
    rig.run_until(rig.now);
    assert!(rig.sent(&mut dci).is_empty());
    assert_eq!(rig.hosts[0].get(DST, 4), [0; 4]);
    target.receive(&mut rig, DST, 64);
    rig.run();
    assert_eq!((rig.sent(&mut dci)[0].kind, target.got(&mut rig).len()), (0, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Arbitrary packets to a target or an initiator harm no other queue pair.
    #[test]
    fn any_packets(
        packets in prop::collection::vec(
            (any::<prop::sample::Index>(), -2i32..3, 0usize..1100, any::<[u32; 3]>(), any::<u8>()),
            1..24,
        ),
    ) {
        let mut rig = Rig::new(2);
        let mut target = Target::new(&mut rig, 1);
        let mut dci = initiator(&mut rig, 0);
        let (key, remote) = (rig.hosts[0].key, rig.hosts[1].key);
        // A READ in flight, to the address that the packets pretend to come from.
        let read = Wr::new(Opcode::RDMA_READ).remote(DST, remote).seg(SRC, 5000, key);
        let wr = target.to(&rig, read);
        rig.post(&mut dci, &wr);
        rig.hosts[0].hca.step(rig.now);
        target.receive(&mut rig, DST, 2000);
        let addresses = [rig.hosts[0].address, rig.hosts[1].address];
        let mut port = rig.fabric.attach(&[]);
        for (opcode, ahead, len, words, bits) in packets {
            let dc: Vec<_> = PacketOpcode::ALL.iter().filter(|op| op.0 >> 5 == 6).collect();
            let opcode = *dc[opcode.index(dc.len())];
            let layout = opcode.layout().unwrap();
            let at = usize::from(bits & 1);
            let qpn = [dci.qpn, target.dctn][at];
            let psn = Psn::new(0x1234).offset(ahead);
            let mut builder = PacketBuilder::new(opcode, qpn.0, psn).ack_request(bits & 2 != 0);
            use crate::wire::Extensions as E;
            for it in layout.headers.iter() {
                builder = match it {
                    E::RETH => builder.reth(IOVA + DST, remote.0, len as u32),
                    E::ATOMIC_ETH => builder.atomic_eth(IOVA + DST, remote.0, 1, 2),
                    E::AETH => builder.aeth(Syndrome::from_u8(words[0] as u8), words[1]),
                    E::ATOMIC_ACK => builder.atomic_ack(words[0].into()),
                    E::IMMDT => builder.immdt(words[0]),
                    E::IETH => builder.ieth(words[0]),
                    _ => builder.dceth(&DcEth {
                        key: if bits & 4 != 0 { KEY.into() } else { u64::from(words[0]).into() },
                        flags: bits,
                        src_qp: U24::new(if bits & 8 != 0 { dci.qpn.0 } else { words[1] }),
                        connection: (words[2] % 4).into(),
                    }),
                };
            }
            let payload = vec![bits; if layout.payload { len } else { 0 }];
            let (mut bytes, route) = (Vec::new(), Route::default());
            builder.emit(&payload, &mut bytes).unwrap();
            let (src, dst) = (addresses[1 - at], addresses[at]);
            port.transmit(Frame { src, dst, route, bytes, loan: None }).unwrap();
        }
        rig.run();
        // The target still serves an initiator created later.
        let mut dci = initiator(&mut rig, 0);
        target.got(&mut rig);
        target.receive(&mut rig, DST, 64);
        let wr = target.to(&rig, Wr::new(Opcode::RDMA_WRITE).remote(DST, remote).inline(b"ok"));
        prop_assert_eq!(run_one(&mut rig, &mut dci, &wr).kind, 0);
        prop_assert_eq!(rig.hosts[1].get(DST, 2), b"ok");
    }
}
