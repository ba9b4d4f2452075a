//! A wire that loses, duplicates, reorders and corrupts packets costs only time.

use uverbs_mlx5_prm::opcode::Opcode;

use crate::hca::HcaConfig;
use crate::hca::testing::*;
use crate::wire::{Fabric, Faults, Psn};

const SRC: u64 = 0x1000;
const DST: u64 = 0x20_0000;
const COUNTER: u64 = 0x50_0000;

/// Runs a mix of all operations over a bad wire and checks every byte and every completion.
fn survives(faults: Faults, seed: u64) -> u64 {
    let mut rig = Rig::with(2, HcaConfig::default(), faults, seed);
    let mut setup = Setup::default();
    setup.attrs.sq_psn = Psn::new(0xff_ffe0);
    setup.attrs.rq_psn = Psn::new(0xff_ffe0);
    let (mut a, mut b) = rig.pair(&setup);
    let (key, remote) = (rig.hosts[0].key, rig.hosts[1].key);
    let total = 60u64;
    let mut sum = 0u64;
    let mut olds = Vec::new();
    for n in 0..total {
        let len = (n * 977 % 7000 + 1) as u32;
        let data = pattern(len as usize, seed * 1000 + n);
        let (near, far) = (SRC + n * 8192, DST + n * 8192);
        let wr = match n % 6 {
            0 => {
                rig.hosts[0].put(near, &data);
                rig.receive(&mut b, &[(far, len, remote)]);
                Wr::new(Opcode::SEND).seg(near, len, key)
            }
            1 => {
                rig.hosts[0].put(near, &data);
                Wr::new(Opcode::RDMA_WRITE).remote(far, remote).seg(near, len, key)
            }
            2 => {
                rig.hosts[1].put(far, &data);
                Wr::new(Opcode::RDMA_READ).remote(far, remote).seg(near, len, key)
            }
            3 => {
                rig.hosts[0].put(near, &data);
                rig.receive(&mut b, &[]);
                let wr = Wr::new(Opcode::RDMA_WRITE_IMM).imm(n as u32);
                wr.remote(far, remote).seg(near, len, key)
            }
            4 => {
                olds.push((near, sum));
                sum += n + 1;
                let wr = Wr::new(Opcode::ATOMIC_FA).remote(COUNTER, remote);
                wr.atomic(n + 1, 0).seg(near, 8, key)
            }
            _ => {
                olds.push((near, sum));
                // Matches if everything before it was executed exactly once.
                let wr = Wr::new(Opcode::ATOMIC_CS).remote(COUNTER, remote);
                let wr = wr.atomic(sum + 1000, sum).seg(near, 8, key);
                sum += 1000;
                wr
            }
        };
        rig.post(&mut a, &wr);
        if n % 12 == 11 {
            rig.run();
            let sent = rig.sent(&mut a);
            assert_eq!(sent.len(), 12, "seed {seed}, up to {n}: {sent:?}");
            assert!(sent.iter().all(|c| c.kind == 0), "seed {seed}: {sent:?}");
            assert!(sent.is_sorted_by_key(|c| c.counter));
        }
    }
    let got = rig.got(&mut b);
    assert_eq!(got.len() as u64, total / 3, "each message arrives once");
    assert!(got.iter().zip(0..).all(|(c, n)| c.counter == n && c.kind < 13));
    for n in 0..total {
        let data = pattern((n * 977 % 7000 + 1) as usize, seed * 1000 + n);
        let (near, far) = (SRC + n * 8192, DST + n * 8192);
        match n % 6 {
            0 | 1 | 3 => assert_eq!(rig.hosts[1].get(far, data.len()), data, "seed {seed} op {n}"),
            2 => assert_eq!(rig.hosts[0].get(near, data.len()), data, "seed {seed} op {n}"),
            _ => {}
        }
    }
    assert_eq!(rig.hosts[1].get_u64(COUNTER), sum, "atomics happen exactly once");
    for (near, old) in olds {
        assert_eq!(rig.hosts[0].get_u64(near), old);
    }
    rig.hosts[0].hca.stats().retransmits
}

#[test]
fn loss() {
    let resent: u64 =
        (1..12).map(|seed| survives(Faults { loss: 0.1, ..Faults::default() }, seed)).sum();
    assert!(resent > 100, "the wire did lose: {resent}");
}

#[test]
fn duplication() {
    for seed in 1..8 {
        survives(Faults { duplicate: 0.2, ..Faults::default() }, seed);
    }
}

#[test]
fn reordering() {
    for seed in 1..8 {
        survives(Faults { reorder: 0.1, reorder_depth: 3, ..Faults::default() }, seed);
    }
}

#[test]
fn corruption() {
    for seed in 1..8 {
        survives(Faults { corrupt: 0.1, ..Faults::default() }, seed);
    }
}

#[test]
fn everything_at_once() {
    use std::time::Duration;
    for seed in 1..12 {
        let faults = Faults {
            loss: 0.05,
            duplicate: 0.05,
            reorder: 0.05,
            reorder_depth: 2,
            corrupt: 0.03,
            delay: Duration::from_micros(3),
            jitter: Duration::from_micros(2),
            ..Faults::default()
        };
        survives(faults, seed);
    }
}

#[test]
fn runs_repeat_exactly() {
    let faults = || Faults { loss: 0.1, ..Faults::default() };
    assert_eq!(survives(faults(), 42), survives(faults(), 42));
}

/// A link that is down for a while costs retries, not data.
#[test]
fn an_outage_shorter_than_the_retries() {
    use std::time::Duration;
    let mut rig = Rig::new(2);
    let (mut a, _b) = rig.pair(&Setup::default());
    let (key, remote) = (rig.hosts[0].key, rig.hosts[1].key);
    let data = pattern(300_000, 3);
    rig.hosts[0].put(SRC, &data);
    let len = data.len() as u32;
    rig.post(&mut a, &Wr::new(Opcode::RDMA_WRITE).remote(DST, remote).seg(SRC, len, key));
    for _ in 0..3 {
        for host in &mut rig.hosts {
            host.hca.step(rig.now);
        }
    }
    rig.hosts[1].link.unplug();
    rig.run_until(Duration::from_millis(3));
    rig.hosts[1].link.replug();
    rig.run();
    assert_eq!(rig.sent(&mut a)[0].kind, 0);
    assert_eq!(rig.hosts[1].get(DST, data.len()), data);
    assert!(rig.hosts[0].hca.stats().timeouts > 0);
}

/// A full wire is not loss: both sides wait for room, without deadlock.
#[test]
fn a_wire_with_room_for_two() {
    for depth in [1, 2] {
        let fabric = Fabric::with_queue_depth(depth);
        let mut rig = Rig::on(fabric, 2, HcaConfig::default(), Faults::default(), 1);
        let (mut a, mut b) = rig.pair(&Setup::default());
        let keys = [rig.hosts[0].key, rig.hosts[1].key];
        let data = [pattern(200_000, 1), pattern(200_000, 2)];
        for (end, me, peer) in [(&mut a, 0, 1), (&mut b, 1, 0)] {
            rig.hosts[me].put(SRC, &data[me]);
            let write = Wr::new(Opcode::RDMA_WRITE).remote(DST, keys[peer]);
            rig.write_wr(end, &write.seg(SRC, 200_000, keys[me]));
            let read = Wr::new(Opcode::RDMA_READ).remote(SRC, keys[peer]);
            rig.write_wr(end, &read.seg(DST + 0x10_0000, 200_000, keys[me]));
            rig.ring(end);
        }
        rig.run();
        for (end, me, peer) in [(&mut a, 0, 1), (&mut b, 1, 0)] {
            let sent = rig.sent(end);
            assert!(sent.len() == 2 && sent.iter().all(|c| c.kind == 0), "{sent:?}");
            assert_eq!(rig.hosts[me].get(DST, 200_000), data[peer]);
            assert_eq!(rig.hosts[me].get(DST + 0x10_0000, 200_000), data[peer]);
            assert_eq!(rig.hosts[me].hca.stats().retransmits, 0, "nothing was lost");
        }
    }
}
