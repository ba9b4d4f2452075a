//! Posted and unfetched work, as `Hca::pending_qps` copies it.

use uverbs_mlx5_prm::opcode::Opcode;

use crate::hca::testing::*;
use crate::hca::{PendingQp, PendingRing};
use uverbs_front::backend::number::{Key, Qpn};

const DST: u64 = 0x30_0000;

fn of(rig: &Rig, qpn: Qpn) -> PendingQp {
    rig.hosts[0].hca.pending_qps().into_iter().find(|qp| qp.qpn == qpn.0).unwrap()
}

#[test]
fn a_ring_shows_what_its_record_published_until_it_is_taken() {
    let mut rig = Rig::new(2);
    let (mut a, _b) = rig.pair(&Setup { sq_log: 2, rq_log: 1, ..Setup::default() });
    let key = rig.hosts[1].key;
    let empty = |first| Some(PendingRing { entries: 4, entry_bytes: 64, first, bytes: Vec::new() });
    for lap in 0..7u16 {
        // Three WQEBBs in a ring of four: most of them wrap around its end.
        let wr = Wr::new(Opcode::RDMA_WRITE).remote(DST, key).inline(&pattern(140, lap.into()));
        let mut bytes = wr.bytes(a.qpn, a.posted);
        assert_eq!(of(&rig, a.qpn).send, empty(3 * lap));
        rig.write_wr(&mut a, &wr);
        assert_eq!(of(&rig, a.qpn).send, empty(3 * lap), "written, not published");
        rig.ring(&a);
        let seen = of(&rig, a.qpn);
        assert_eq!(seen.record[4..], u32::from(3 * lap + 3).to_be_bytes());
        let ring = seen.send.unwrap();
        assert_eq!((ring.first, ring.bytes.len()), (3 * lap, 192));
        // The rest of the last WQEBB is from the previous lap.
        bytes.truncate(180);
        assert_eq!(ring.bytes[..bytes.len()], bytes);
        rig.run();
        assert_eq!(rig.sent(&mut a).len(), 1);
    }
}

#[test]
fn a_record_ahead_of_the_ring_shows_nothing() {
    let mut rig = Rig::new(2);
    let (mut a, _b) = rig.pair(&Setup { sq_log: 2, rq_log: 1, ..Setup::default() });
    rig.receive(&mut a, &[(0, 16, Key(7))]);
    let recv = of(&rig, a.qpn).recv.unwrap();
    assert_eq!((recv.entries, recv.first, recv.bytes.len()), (2, 0, recv.entry_bytes as usize));
    assert_eq!(recv.bytes[..8], [0, 0, 0, 16, 0, 0, 0, 7]);
    rig.hosts[0].store(a.record, 3);
    rig.hosts[0].store(a.record + 4, 5);
    let seen = of(&rig, a.qpn);
    assert_eq!(seen.record, [0, 0, 0, 3, 0, 0, 0, 5]);
    assert!(seen.recv.unwrap().bytes.is_empty() && seen.send.unwrap().bytes.is_empty());
}

#[test]
fn a_cq_shows_its_record() {
    let mut rig = Rig::new(1);
    let cq = rig.cq(0, 3, 64);
    rig.hosts[0].store(cq.record, 5);
    rig.hosts[0].store(cq.record + 4, 0x0102_0304);
    let seen = rig.hosts[0].hca.pending_cqs();
    let seen = seen.iter().find(|seen| seen.cqn == cq.cqn.0).unwrap();
    assert_eq!(seen.record, [0, 0, 0, 5, 1, 2, 3, 4]);
}
