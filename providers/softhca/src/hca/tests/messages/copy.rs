//! Copies within a host, and CQEs that are written whole with a timestamp.

use std::time::Duration;

use uverbs_mlx5_prm::ctrl::FmCeSe;
use uverbs_mlx5_prm::opcode::Opcode;

use crate::hca::testing::*;
use crate::hca::{Dma, HcaConfig};
use crate::wire::Faults;
use uverbs_front::backend::context::{Access, QpState};
use uverbs_front::backend::number::{Key, Pdn};

const SRC: u64 = 0x1003;
const DST: u64 = 0x30_0005;
/// Vendor syndromes: segments, opcode, length.
const SEGMENTS: u8 = 0x64;
const OPCODE: u8 = 0x65;
const LENGTH: u8 = 0x66;

/// SGE: offset, bytes, key.
type Piece = (u64, u32, Key);

/// Posts a copy from the first SGE to the second.
pub(super) fn post(rig: &mut Rig, end: &mut End, pieces: &[Piece], opmod: u8) {
    let mut wr = Wr::new(Opcode::MMO);
    // Result address of an engine that computes; a copy ignores it.
    wr.address = vec![0; 16];
    wr.list = pieces.to_vec();
    let mut bytes = wr.bytes(end.qpn, end.posted);
    bytes[0] = opmod;
    rig.write_wqe(end, &bytes);
    rig.ring(end);
}

#[test]
fn memory_is_copied() {
    let mut rig = Rig::new(1);
    let (mut a, _) = rig.pair(&Setup::default());
    let key = rig.hosts[0].key;
    for size in [1usize, 63, 4096, (1 << 16) - 1, (1 << 16) + 1, 1 << 18] {
        let data = pattern(size, size as u64);
        rig.hosts[0].put(SRC, &data);
        rig.hosts[0].put(DST, &vec![0xee; size + 8]);
        post(&mut rig, &mut a, &[(SRC, size as u32, key), (DST, size as u32, key)], 1);
        rig.run();
        let sent = rig.sent(&mut a);
        assert_eq!((sent.len(), sent[0].kind, sent[0].sop), (1, 0, Opcode::MMO.0), "{size}");
        assert_eq!(rig.hosts[0].get(DST, size), data);
        assert_eq!(rig.hosts[0].get(DST + size as u64, 8), [0xee; 8]);
    }
}

#[test]
fn a_copy_waits_for_what_was_posted_before_it() {
    let mut rig = Rig::new(2);
    let (mut a, b) = rig.pair(&Setup::default());
    let (key, theirs) = (rig.hosts[0].key, rig.hosts[1].key);
    rig.hosts[1].put(SRC, &[7; 64]);
    rig.hosts[0].put(DST, &[1; 128]);
    // Fenced, so that the copy takes the READ's response.
    rig.write_wr(&mut a, &Wr::new(Opcode::RDMA_READ).remote(SRC, theirs).seg(DST, 64, key));
    let mut wr = Wr::new(Opcode::MMO)
        .flags(FmCeSe::ZERO.with_ce(FmCeSe::CE_CQE).with_fm(FmCeSe::FENCE_READ_ATOMIC));
    wr.address = vec![0; 16];
    wr.list = vec![(DST, 64, key), (DST + 64, 64, key)];
    let mut bytes = wr.bytes(a.qpn, a.posted);
    bytes[0] = 1;
    rig.write_wqe(&mut a, &bytes);
    rig.ring(&a);
    rig.run();
    assert_eq!(rig.sent(&mut a).len(), 2);
    assert_eq!(rig.hosts[0].get(DST + 64, 64), [7; 64]);
    assert_eq!(rig.state(&b), QpState::Rts);
}

#[test]
fn copies_that_are_refused() {
    // A limit of 4 KiB.
    let config = HcaConfig { max_copy: 4096, ..HcaConfig::default() };
    let wrong = |make: &dyn Fn(&mut Rig) -> (Vec<Piece>, u8)| {
        let mut rig = Rig::with(1, config.clone(), Faults::default(), 1);
        let (mut a, _) = rig.pair(&Setup::default());
        rig.hosts[0].put(DST, &[0xee; 64]);
        let (pieces, opmod) = make(&mut rig);
        post(&mut rig, &mut a, &pieces, opmod);
        rig.run();
        let sent = rig.sent(&mut a);
        assert_eq!((sent.len(), sent[0].kind), (1, 13), "{sent:?}");
        assert_eq!(rig.state(&a), QpState::Err);
        assert_eq!(rig.hosts[0].get(DST, 64), [0xee; 64], "nothing was written");
        (sent[0].syndrome, sent[0].vendor)
    };
    let key = |rig: &mut Rig| rig.hosts[0].key;
    let pair = |key, from, to| vec![(SRC, from, key), (DST, to, key)];
    // Syndromes: 1: local length, 2: local QP operation, 4: local protection.
    assert_eq!(wrong(&|rig| (pair(key(rig), 4097, 4097), 1)), (1, LENGTH));
    assert_eq!(wrong(&|rig| (pair(key(rig), 0, 0), 1)), (1, LENGTH));
    assert_eq!(wrong(&|rig| (pair(key(rig), 64, 63), 1)), (2, SEGMENTS));
    assert_eq!(wrong(&|rig| (pair(key(rig), 64, 64)[..1].to_vec(), 1)), (2, SEGMENTS));
    let three = |rig: &mut Rig| [pair(key(rig), 8, 8), pair(key(rig), 8, 8)].concat();
    assert_eq!(wrong(&|rig| (three(rig), 1)), (2, SEGMENTS));
    assert_eq!(wrong(&|rig| (pair(key(rig), 64, 64), 2)), (2, OPCODE));
    // A target that may not be written; one of another domain; an unknown key on either side.
    let other = |pd: Pdn, access| {
        move |rig: &mut Rig| {
            let other = rig.hosts[0].key(pd, 1 << 22, access);
            (vec![(SRC, 64, rig.hosts[0].key), (DST, 64, Key(other))], 1)
        }
    };
    let pd = Setup::default().pd;
    assert_eq!(wrong(&other(pd, Access::REMOTE_READ)).0, 4);
    assert_eq!(wrong(&other(Pdn(pd.0 + 1), Access::all())).0, 4);
    assert_eq!(
        wrong(&|rig| (vec![(SRC, 64, Key(0x00de_ad00)), (DST, 64, Key(key(rig).0))], 1)).0,
        4
    );
    assert_eq!(
        wrong(&|rig| (vec![(SRC, 64, Key(key(rig).0)), (DST, 64, Key(0x00de_ad00))], 1)).0,
        4
    );
}

#[test]
fn completions_have_their_time() {
    let mut rig = Rig::new(1);
    let (mut a, _) = rig.pair(&Setup::default());
    let key = rig.hosts[0].key;
    for second in [3u64, 5, 5, 4000] {
        rig.now = rig.now.max(Duration::from_secs(second));
        let slot = u64::from(a.send_cq.ci) * a.send_cq.size;
        post(&mut rig, &mut a, &[(SRC, 8, key), (DST, 8, key)], 1);
        rig.run_until(rig.now);
        assert_eq!(rig.sent(&mut a).len(), 1);
        let cqe = rig.hosts[0].arena.bytes(a.send_cq.addr + slot + a.send_cq.size - 64, 64);
        let time = u64::from_be_bytes(cqe[48..56].try_into().unwrap());
        assert_eq!(time, second * 1_000_000_000);
    }
}

#[test]
fn a_padded_completion_is_written_whole() {
    for padded in [false, true] {
        let mut rig = Rig::new(1);
        rig.padded = padded;
        let setup = Setup { cqe_size: 128, ..Setup::default() };
        let (mut a, _) = rig.pair(&setup);
        let key = rig.hosts[0].key;
        let at = a.send_cq.addr;
        rig.hosts[0].arena.write(at, &[0xaa; 64]).unwrap();
        post(&mut rig, &mut a, &[(SRC, 8, key), (DST, 8, key)], 1);
        rig.run();
        assert_eq!(rig.sent(&mut a).len(), 1);
        assert_eq!(rig.hosts[0].arena.bytes(at, 64), [if padded { 0 } else { 0xaa }; 64]);
    }
}
