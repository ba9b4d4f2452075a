//! Every operation moves the right bytes, for any number of bytes and any position of the SGEs.

use uverbs_mlx5_prm::ctrl::FmCeSe;
use uverbs_mlx5_prm::opcode::Opcode;

use crate::hca::HcaConfig;
use crate::hca::state::doorbells::BESIDE_WORK;
use crate::hca::testing::*;
use crate::wire::{Faults, Psn};
use uverbs_front::backend::context::Mtu;
use uverbs_front::backend::number::Key;

const SRC: u64 = 0x1003;
const DST: u64 = 0x30_0005;

const SIZES: [usize; 9] = [0, 1, 3, 1023, 1024, 1025, 4096, 5000, 1 << 20];

/// Runs `each(rig, a, b, size)` on one host and on two, for all sizes.
fn everywhere(each: impl Fn(&mut Rig, &mut End, &mut End, usize)) {
    for hosts in [1, 2] {
        let mut rig = Rig::new(hosts);
        let (mut a, mut b) = rig.pair(&Setup::default());
        for size in SIZES {
            each(&mut rig, &mut a, &mut b, size);
        }
    }
}

/// A gather list over `size` bytes of `data` at SRC, in three uneven SGEs with gaps.
fn gather(rig: &Rig, wr: Wr, data: &[u8]) -> Wr {
    let host = &rig.hosts[0];
    let cuts = [0, data.len() / 7, data.len() / 2 + data.len() % 2, data.len()];
    let mut wr = wr;
    for (n, cut) in cuts.windows(2).enumerate() {
        let (from, to) = (cut[0], cut[1]);
        if from < to {
            let at = SRC + from as u64 + 13 * n as u64;
            host.put(at, &data[from..to]);
            wr = wr.seg(at, (to - from) as u32, host.key);
        }
    }
    wr
}

#[test]
fn sends() {
    everywhere(|rig, a, b, size| {
        for (opcode, kind) in [(Opcode::SEND, 2), (Opcode::SEND_IMM, 3)] {
            let data = pattern(size, size as u64 + u64::from(kind));
            let (to, key) = (b.host, rig.hosts[b.host].key);
            rig.hosts[to].put(DST, &vec![0xee; size + 64]);
            let half = size as u32 / 2 + 1;
            rig.receive(b, &[(DST, half, key), (DST + u64::from(half), half + 5, key)]);
            let wr = gather(rig, Wr::new(opcode).imm(0x0102_0304), &data);
            let index = rig.post(a, &wr);
            rig.run();
            let sent = rig.sent(a);
            assert_eq!(sent.len(), 1, "size {size}: {sent:?}");
            assert_eq!((sent[0].kind, sent[0].counter, sent[0].qpn), (0, index, a.qpn));
            assert_eq!((sent[0].sop, sent[0].user_index), (opcode.0, 0xabc));
            let got = rig.got(b);
            assert_eq!(got.len(), 1, "size {size}: {got:?}");
            assert_eq!((got[0].kind, got[0].bytes, got[0].qpn), (kind, size as u32, b.qpn));
            assert_eq!((got[0].counter, got[0].rqpn), (b.received - 1, a.qpn));
            assert_eq!(got[0].imm, if kind == 3 { 0x0102_0304 } else { 0 });
            assert_eq!(rig.hosts[to].get(DST, size), data);
            assert_eq!(rig.hosts[to].get(DST + size as u64, 8), [0xee; 8], "nothing beyond");
        }
    });
}

#[test]
fn writes() {
    everywhere(|rig, a, b, size| {
        for opcode in [Opcode::RDMA_WRITE, Opcode::RDMA_WRITE_IMM] {
            let data = pattern(size, size as u64 + 77 + u64::from(opcode.0));
            let (to, key) = (b.host, rig.hosts[b.host].key);
            rig.hosts[to].put(DST - 4, &vec![0xee; size + 64]);
            if opcode == Opcode::RDMA_WRITE_IMM {
                rig.receive(b, &[]);
            }
            let wr = gather(rig, Wr::new(opcode).imm(0xfeed_f00d).remote(DST, key), &data);
            rig.post(a, &wr);
            rig.run();
            let sent = rig.sent(a);
            assert_eq!(sent.len(), 1, "size {size}");
            assert_eq!((sent[0].kind, sent[0].sop), (0, opcode.0));
            let got = rig.got(b);
            if opcode == Opcode::RDMA_WRITE_IMM {
                assert_eq!(got.len(), 1);
                assert_eq!((got[0].kind, got[0].imm), (1, 0xfeed_f00d));
                assert_eq!((got[0].bytes, got[0].counter), (size as u32, b.received - 1));
            } else {
                assert!(got.is_empty());
            }
            assert_eq!(rig.hosts[to].get(DST, size), data);
            assert_eq!(rig.hosts[to].get(DST - 4, 4), [0xee; 4]);
            assert_eq!(rig.hosts[to].get(DST + size as u64, 8), [0xee; 8]);
        }
    });
}

#[test]
fn reads() {
    everywhere(|rig, a, b, size| {
        let data = pattern(size, size as u64 + 5);
        let (far, remote) = (b.host, rig.hosts[b.host].key);
        rig.hosts[far].put(DST, &data);
        rig.hosts[0].put(SRC, &vec![0xee; size + 64]);
        let key = rig.hosts[0].key;
        let half = size as u32 / 3;
        let mut wr = Wr::new(Opcode::RDMA_READ).remote(DST, remote);
        if half > 0 {
            wr = wr.seg(SRC, half, key);
        }
        if size as u32 > half {
            wr = wr.seg(SRC + u64::from(half), size as u32 - half, key);
        }
        rig.post(a, &wr);
        rig.run();
        let sent = rig.sent(a);
        assert_eq!(sent.len(), 1, "size {size}");
        assert_eq!((sent[0].kind, sent[0].sop, sent[0].bytes), (0, 0x10, size as u32));
        assert_eq!(rig.hosts[0].get(SRC, size), data);
        assert_eq!(rig.hosts[0].get(SRC + size as u64, 8), [0xee; 8]);
    });
}

#[test]
fn atomics() {
    for hosts in [1, 2] {
        let mut rig = Rig::new(hosts);
        let (mut a, b) = rig.pair(&Setup::default());
        let (key, remote) = (rig.hosts[0].key, rig.hosts[b.host].key);
        rig.hosts[b.host].put_u64(0x30_0000, u64::MAX - 1);
        let run = |rig: &mut Rig, a: &mut End, opcode, operands: (u64, u64)| {
            let wr = Wr::new(opcode)
                .remote(0x30_0000, remote)
                .atomic(operands.0, operands.1)
                .seg(0x1000, 8, key);
            rig.post(a, &wr);
            rig.run();
            let sent = rig.sent(a);
            assert_eq!(sent.len(), 1);
            assert_eq!((sent[0].kind, sent[0].sop, sent[0].bytes), (0, opcode.0, 8));
            (rig.hosts[0].get_u64(0x1000), rig.hosts[b.host].get_u64(0x30_0000))
        };
        let fa = Opcode::ATOMIC_FA;
        let cs = Opcode::ATOMIC_CS;
        assert_eq!(run(&mut rig, &mut a, fa, (3, 0)), (u64::MAX - 1, 1), "the sum wraps");
        assert_eq!(run(&mut rig, &mut a, cs, (9, 2)), (1, 1), "no match, no swap");
        assert_eq!(run(&mut rig, &mut a, cs, (9, 1)), (1, 9));
        assert_eq!(run(&mut rig, &mut a, fa, (1 << 56, 0)), (9, 9 + (1 << 56)));
    }
}

#[test]
fn inline_data_and_ring_wrap() {
    let mut rig = Rig::new(2);
    // A ring of 8 WQEBBs: WQEs of three start at every index and wrap at every segment.
    let (mut a, b) = rig.pair(&Setup { sq_log: 3, ..Setup::default() });
    let remote = rig.hosts[1].key;
    for n in 0..40u64 {
        let data = pattern(120 + n as usize % 9, n);
        rig.post(&mut a, &Wr::new(Opcode::RDMA_WRITE).remote(DST, remote).inline(&data));
        rig.run();
        assert_eq!(rig.sent(&mut a).len(), 1, "WQE {n}");
        assert_eq!(rig.hosts[1].get(DST, data.len()), data, "WQE {n}");
    }
    assert!(a.posted > 64 && b.posted == 0);
}

#[test]
fn the_longest_wqe_wraps() {
    let mut rig = Rig::new(2);
    let (mut a, _b) = rig.pair(&Setup { sq_log: 5, ..Setup::default() });
    let remote = rig.hosts[1].key;
    // The longest WQE, ds 63: control, remote address, 61 units of inline data.
    let data = pattern(61 * 16 - 4, 4);
    for round in 0..5 {
        rig.post(&mut a, &Wr::new(Opcode::RDMA_WRITE).remote(DST, remote).inline(&data));
        rig.run();
        assert_eq!(rig.sent(&mut a).len(), 1, "round {round}");
        assert_eq!(rig.hosts[1].get(DST, data.len()), data);
    }
}

#[test]
fn unsignaled_work_is_silent_and_in_order() {
    let mut rig = Rig::new(2);
    let (mut a, _b) = rig.pair(&Setup::default());
    let remote = rig.hosts[1].key;
    let mut last = 0;
    for n in 0..10u8 {
        let mut wr = Wr::new(Opcode::RDMA_WRITE).remote(DST + u64::from(n), remote).inline(&[n]);
        if n % 5 != 4 {
            wr = wr.unsignaled();
        }
        last = rig.write_wr(&mut a, &wr);
    }
    // One doorbell for all.
    rig.ring(&a);
    rig.run();
    let sent = rig.sent(&mut a);
    assert_eq!(sent.iter().map(|c| c.counter).collect::<Vec<_>>(), [4, last]);
    assert_eq!(rig.hosts[1].get(DST, 10), (0..10).collect::<Vec<u8>>());
    assert_eq!(rig.hosts[0].hca.stats().complaints.total(), 0);
}

#[test]
fn one_doorbell_serves_all_queues_of_the_page() {
    let mut rig = Rig::new(2);
    let (mut a, _b) = rig.pair(&Setup::default());
    let (mut c, _d) = rig.pair(&Setup::default());
    let remote = rig.hosts[1].key;
    rig.write_wr(&mut a, &Wr::new(Opcode::RDMA_WRITE).remote(DST, remote).inline(b"one"));
    rig.write_wr(&mut c, &Wr::new(Opcode::RDMA_WRITE).remote(DST + 8, remote).inline(b"two"));
    // The doorbell of `a` coalesced into the doorbell of `c`.
    rig.hosts[0].store(a.record + 4, a.posted.into());
    rig.ring(&c);
    rig.run();
    assert_eq!((rig.sent(&mut a).len(), rig.sent(&mut c).len()), (1, 1));
    assert_eq!(rig.hosts[1].get(DST, 3), b"one");
    assert_eq!(rig.hosts[1].get(DST + 8, 3), b"two");
}

#[test]
fn a_coalesced_doorbell_is_served_before_its_queue_ends() {
    let mut rig = Rig::new(2);
    let setup = Setup { sq_log: 2, rq_log: 2, cq_log: 2, ..Setup::default() };
    let (mut a, _b) = rig.pair(&setup);
    for _ in 1..BESIDE_WORK {
        rig.pair(&setup);
    }
    let (mut c, _d) = rig.pair(&setup);
    let remote = rig.hosts[1].key;
    rig.write_wr(&mut c, &Wr::new(Opcode::RDMA_WRITE).remote(DST, remote).inline(b"last"));
    rig.hosts[0].store(c.record + 4, c.posted.into());
    // The command comes before the device looks at the record of `c`.
    rig.post(&mut a, &Wr::new(Opcode::RDMA_WRITE).remote(DST + 8, remote).inline(b"first"));
    rig.hosts[0].hca.destroy_qp(c.qpn).unwrap();
    rig.run();
    assert_eq!(rig.hosts[1].get(DST, 4), b"last");
}

#[test]
fn nop_completes_in_order() {
    let mut rig = Rig::new(2);
    let (mut a, _b) = rig.pair(&Setup::default());
    let remote = rig.hosts[1].key;
    rig.write_wr(&mut a, &Wr::new(Opcode::NOP));
    rig.write_wr(&mut a, &Wr::new(Opcode::RDMA_WRITE).remote(DST, remote).inline(b"x"));
    rig.write_wr(&mut a, &Wr::new(Opcode::NOP));
    rig.ring(&a);
    rig.hosts[0].hca.step(rig.now);
    assert_eq!(rig.sent(&mut a).len(), 1, "the NOP behind the write waits for it");
    rig.run();
    let sent = rig.sent(&mut a);
    assert_eq!(sent.iter().map(|c| (c.counter, c.sop)).collect::<Vec<_>>(), [(1, 8), (2, 0)]);
}

#[test]
fn a_fence_waits_for_reads() {
    for fenced in [false, true] {
        let mut rig = Rig::new(2);
        let (mut a, _b) = rig.pair(&Setup::default());
        let (key, remote) = (rig.hosts[0].key, rig.hosts[1].key);
        rig.hosts[1].put(DST, b"far!");
        rig.hosts[0].put(SRC, b"near");
        rig.write_wr(&mut a, &Wr::new(Opcode::RDMA_READ).remote(DST, remote).seg(SRC, 4, key));
        // Sends the bytes that the READ brings.
        let fm = if fenced { FmCeSe::FENCE_SMALL_AND_FENCE } else { FmCeSe::FENCE_NONE };
        let flags = FmCeSe::ZERO.with_ce(FmCeSe::CE_CQE).with_fm(fm);
        let wr = Wr::new(Opcode::RDMA_WRITE).remote(DST + 64, remote).seg(SRC, 4, key);
        rig.write_wr(&mut a, &wr.flags(flags));
        rig.ring(&a);
        rig.run();
        assert_eq!(rig.sent(&mut a).len(), 2);
        let want: &[u8] = if fenced { b"far!" } else { b"near" };
        assert_eq!(rig.hosts[1].get(DST + 64, 4), want, "fenced: {fenced}");
    }
}

#[test]
fn outstanding_reads_are_limited() {
    let mut rig = Rig::new(2);
    let mut setup = Setup::default();
    setup.attrs.max_rd_atomic = 2;
    setup.attrs.max_dest_rd_atomic = 2;
    let (mut a, _b) = rig.pair(&setup);
    let (key, remote) = (rig.hosts[0].key, rig.hosts[1].key);
    for n in 0..20 {
        let wr = Wr::new(Opcode::RDMA_READ).remote(DST + n * 2048, remote);
        rig.write_wr(&mut a, &wr.seg(SRC + n * 2048, 2048, key));
    }
    rig.ring(&a);
    // Without the limit the 20 requests would leave at once.
    rig.hosts[0].hca.step(rig.now);
    assert_eq!(rig.hosts[0].hca.stats().tx_packets, 2);
    rig.run();
    let sent = rig.sent(&mut a);
    assert_eq!(sent.len(), 20);
    assert!(sent.iter().all(|c| c.kind == 0));
}

/// The peer's responses wait in a receiver's buffers, never more than the window.
#[test]
fn a_long_read_is_asked_for_in_parts() {
    for (window, rd_atomic, part) in [(8, 4, 2), (8, 1, 8), (1, 4, 1), (7, 2, 3), (u32::MAX, 4, 33)]
    {
        let config = HcaConfig { read_window: window, ..HcaConfig::default() };
        let mut rig = Rig::with(2, config, Faults::default(), 1);
        let mut setup = Setup::default();
        setup.attrs.path_mtu = Mtu::B256;
        setup.attrs.max_rd_atomic = rd_atomic;
        setup.attrs.max_dest_rd_atomic = rd_atomic;
        let (mut a, _b) = rig.pair(&setup);
        let (key, remote) = (rig.hosts[0].key, rig.hosts[1].key);
        let (len, parts) = (33 * 256 - 7, 33_u32.div_ceil(part));
        rig.hosts[1].put(DST, &pattern(len, 3));
        let wr = Wr::new(Opcode::RDMA_READ).remote(DST, remote);
        rig.write_wr(&mut a, &wr.seg(SRC, len as u32, key));
        rig.write_wr(&mut a, &Wr::new(Opcode::RDMA_WRITE).remote(DST + 9000, remote).inline(b"x"));
        rig.ring(&a);
        let mut before = 0;
        while rig.hosts[0].hca.step(rig.now) {
            while rig.hosts[1].hca.step(rig.now) {}
            // The 34th packet acknowledges the WRITE.
            let answers = rig.hosts[1].hca.stats().tx_packets.min(33);
            assert!(answers - before <= u64::from(window), "{answers} behind {before}");
            before = answers;
        }
        let stats = rig.hosts[0].hca.stats();
        assert_eq!((stats.tx_packets, stats.retransmits), (u64::from(parts) + 1, 0), "{window}");
        assert_eq!(rig.sent(&mut a).iter().map(|c| c.kind).collect::<Vec<_>>(), [0, 0]);
        assert!(rig.hosts[0].get(SRC, len) == pattern(len, 3));
    }
}

#[test]
fn send_with_invalidate() {
    let mut rig = Rig::new(2);
    let (mut a, mut b) = rig.pair(&Setup::default());
    let key = rig.hosts[1].key;
    let window = rig.hosts[1].key(PD, 4096, uverbs_front::backend::context::Access::all());
    rig.receive(&mut b, &[(DST, 8, key)]);
    rig.post(&mut a, &Wr::new(Opcode::SEND_INVAL).imm(window).inline(b"bye"));
    rig.run();
    assert_eq!(rig.sent(&mut a)[0].kind, 0);
    let got = rig.got(&mut b);
    assert_eq!((got[0].kind, got[0].imm, got[0].bytes), (4, window, 3));
    // The key is invalid now, and can still be destroyed.
    rig.post(&mut a, &Wr::new(Opcode::RDMA_WRITE).remote(0, Key(window)).inline(b"x"));
    rig.run();
    assert_eq!(rig.sent(&mut a)[0].syndrome, 0x13);
    rig.hosts[1].hca.destroy_mkey(Key(window)).unwrap();
}

#[test]
fn all_mtus_and_psn_wrap() {
    for mtu in [Mtu::B256, Mtu::B512, Mtu::B2048, Mtu::B4096] {
        let mut rig = Rig::new(2);
        let mut setup = Setup::default();
        setup.attrs.path_mtu = mtu;
        // The PSNs wrap within the message.
        setup.attrs.sq_psn = Psn::new(0xff_fffd);
        setup.attrs.rq_psn = Psn::new(0xff_fffd);
        let (mut a, b) = rig.pair(&setup);
        let (key, remote) = (rig.hosts[0].key, rig.hosts[b.host].key);
        let data = pattern(100_001, mtu as u64);
        rig.hosts[0].put(SRC, &data);
        let len = data.len() as u32;
        rig.write_wr(&mut a, &Wr::new(Opcode::RDMA_WRITE).remote(DST, remote).seg(SRC, len, key));
        rig.write_wr(
            &mut a,
            &Wr::new(Opcode::RDMA_READ)
                .remote(DST, remote)
                .seg(SRC + 0x10_0000, len, key)
                .flags(FmCeSe::ZERO.with_ce(2).with_fm(FmCeSe::FENCE_READ_ATOMIC)),
        );
        rig.ring(&a);
        rig.run();
        let sent = rig.sent(&mut a);
        assert!(sent.len() == 2 && sent.iter().all(|c| c.kind == 0), "{mtu:?}: {sent:?}");
        assert_eq!(rig.hosts[1].get(DST, data.len()), data);
        assert_eq!(rig.hosts[0].get(SRC + 0x10_0000, data.len()), data);
        assert_eq!(rig.hosts[0].hca.stats().retransmits, 0);
    }
}

#[test]
fn cqes_of_128_bytes() {
    let mut rig = Rig::with(1, Default::default(), Faults::default(), 1);
    let (mut a, _b) = rig.pair(&Setup { cqe_size: 128, cq_log: 2, ..Setup::default() });
    let remote = rig.hosts[0].key;
    for n in 0..11u8 {
        rig.post(&mut a, &Wr::new(Opcode::RDMA_WRITE).remote(DST, remote).inline(&[n]));
        rig.run();
        let sent = rig.sent(&mut a);
        assert_eq!(sent.len(), 1, "CQE {n}");
        assert_eq!(sent[0].counter, u16::from(n));
    }
}

/// Short messages and responses are in their CQEs, and not in the buffers. Longer ones, and
/// unsignaled ones, are in the buffers.
#[test]
fn payloads_in_cqes() {
    for (cqe_size, room) in [(64, 32), (128, 64)] {
        let mut rig = Rig::with(1, Default::default(), Faults::default(), 1);
        let setup = Setup { cqe_size, scatter: room as u8, ..Setup::default() };
        let (mut a, mut b) = rig.pair(&setup);
        let (remote, key) = (rig.hosts[0].key, rig.hosts[0].key);
        for len in [1, room, room + 1] {
            let data: Vec<u8> = (1..=len as u8).collect();
            rig.hosts[0].put(SRC, &data);
            rig.hosts[0].put(DST, &[0xee; 200]);
            let before = rig.hosts[0].hca.stats().cqe_payloads;
            rig.receive(&mut b, &[(DST, 200, key)]);
            rig.post(&mut a, &Wr::new(Opcode::SEND).seg(SRC, len as u32, key));
            rig.run();
            let fits = len <= room;
            assert_eq!(rig.got(&mut b).len(), 1);
            assert_eq!(rig.hosts[0].hca.stats().cqe_payloads - before, fits.into());
            let there = if fits { vec![0xee; len] } else { data.clone() };
            assert_eq!(rig.hosts[0].get(DST, len), there, "{len} of {room}");
            rig.post(
                &mut a,
                &Wr::new(Opcode::RDMA_READ).remote(SRC, remote).seg(DST, len as u32, key),
            );
            rig.run();
            assert_eq!(rig.hosts[0].hca.stats().cqe_payloads - before, 2 * u64::from(fits));
            assert_eq!(rig.hosts[0].get(DST, len), there, "READ of {len} of {room}");
            let read = Wr::new(Opcode::RDMA_READ).remote(SRC, remote).seg(DST, len as u32, key);
            rig.post(&mut a, &read.unsignaled());
            rig.post(&mut a, &Wr::new(Opcode::RDMA_WRITE).remote(DST + 300, remote).inline(&[1]));
            rig.run();
            assert_eq!(rig.hosts[0].get(DST, len), data, "without a CQE");
            rig.sent(&mut a);
        }
    }
}
