//! Page faults of datagrams, unreliable and dynamic connections, and copies.

use uverbs_mlx5_prm::address::{DqpDct, GrhGidFl, mlx5_wqe_av};
use uverbs_mlx5_prm::eqe::PageFaultType;
use uverbs_mlx5_prm::opcode::Opcode;
use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::U32;

use super::copy;
use super::dynamic::{Target, initiator, open};
use super::page_faults::{DST, NO_PAGE, Pager, SRC, kinds, request, run, soon, token};
use crate::hca::testing::*;
use uverbs_front::backend::context::{QpState, Service};
use uverbs_front::backend::error::PageFault;
use uverbs_front::backend::region::ABSENT;

const QKEY: u32 = 0x1122_3344;

#[test]
fn datagrams_wait_for_the_pages_of_a_receive() {
    let mut rig = Rig::new(2);
    let mut srq = rig.srq(1, 6, 0, None);
    let mut setup = Setup { service: Service::Ud, ..Setup::default() };
    setup.attrs.qkey = QKEY;
    let mut a = rig.end(0, &setup);
    let mut b = rig.end(1, &Setup { srq: Some(srq.srqn), ..setup.clone() });
    for end in [&a, &b] {
        open(&mut rig, end, &setup);
    }
    let mut far = Pager::new(&mut rig, 1);
    for slot in 0..20 {
        rig.receive_shared(&mut srq, &[(DST + slot * 128, 128, far.key)]);
    }
    let mut av = mlx5_wqe_av::default();
    av.key.qkey = U32::new(QKEY);
    av.dqp_dct = U32::new(DqpDct::ZERO.with_ext(true).with_qpn(b.qpn.0).0);
    av.grh_gid_fl = U32::new(GrhGidFl::ZERO.with_grh(true).0);
    av.rgid = rig.hosts[1].address.gid;
    let key = rig.hosts[0].key;
    for n in 0..18u64 {
        rig.hosts[0].put(SRC + 8 * n, &[n as u8; 8]);
        let mut wr = Wr::new(Opcode::SEND).seg(SRC + 8 * n, 8, key);
        wr.address = av.as_bytes().to_vec();
        rig.post(&mut a, &wr);
    }
    soon(&mut rig);
    assert_eq!(rig.sent(&mut a).len(), 18, "sent is done");
    assert_eq!(rig.got(&mut b).len(), 0);
    far.answer(&mut rig, false);
    assert_eq!(kinds(&far.told), [PageFaultType::RMP]);
    let PageFault::Wqe { queue, index, .. } = far.told[0] else { unreachable!() };
    assert_eq!((queue, index), (srq.srqn.0, 0));
    rig.run();
    // In order; the two datagrams beyond the limit were lost.
    assert_eq!(rig.got(&mut b).len(), 16);
    for n in 0..16 {
        assert_eq!(rig.hosts[1].get(DST + n * 128 + 40, 8), [n as u8; 8]);
    }
    // A page that never comes ends the queue, and the receive is flushed.
    far.set(&mut rig, 0..BUF_LEN, |_| ABSENT);
    let mut wr = Wr::new(Opcode::SEND).seg(SRC, 8, key);
    wr.address = av.as_bytes().to_vec();
    rig.post(&mut a, &wr);
    soon(&mut rig);
    far.answer(&mut rig, true);
    rig.run();
    let got = rig.got(&mut b);
    assert_eq!((got.len(), got[0].kind, got[0].syndrome, got[0].vendor), (1, 14, 4, NO_PAGE));
}

#[test]
fn an_unreliable_connection_loses_what_has_no_page() {
    let mut rig = Rig::new(2);
    let (mut a, mut b) = rig.pair(&Setup { service: Service::Uc, ..Setup::default() });
    let mut far = Pager::new(&mut rig, 1);
    let key = rig.hosts[0].key;
    rig.receive(&mut b, &[(DST, 3000, far.key)]);
    for n in 0..2 {
        rig.post(&mut a, &Wr::new(Opcode::SEND).seg(SRC, 3000, key));
        soon(&mut rig);
        assert_eq!(rig.got(&mut b).len(), n, "the second one arrives");
        far.answer(&mut rig, false);
        assert_eq!(far.told.len(), 1);
    }
    assert_eq!(rig.state(&b), QpState::Rts);
}

#[test]
fn a_target_of_dynamic_connections_waits() {
    let mut rig = Rig::new(2);
    let mut target = Target::new(&mut rig, 1);
    let mut ends = [(); 2].map(|()| initiator(&mut rig, 0));
    let (mut near, mut far) = (Pager::new(&mut rig, 0), Pager::new(&mut rig, 1));
    let data = pattern(3000, 1);
    rig.hosts[0].put(SRC, &data);
    for opcode in [Opcode::SEND, Opcode::RDMA_WRITE, Opcode::RDMA_READ] {
        near.set(&mut rig, 0..BUF_LEN, |_| ABSENT);
        far.set(&mut rig, 0..BUF_LEN, |_| ABSENT);
        rig.hosts[1].put(DST, &data);
        for end in &mut ends {
            if opcode == Opcode::SEND {
                rig.receive_shared(&mut target.srq, &[(DST, 3000, far.key)]);
            }
            let wr = target.to(&rig, request(opcode, 3000, near.key, far.key));
            rig.post(end, &wr);
        }
        run(&mut rig, &mut [&mut near, &mut far]);
        for end in &mut ends {
            assert_eq!(rig.sent(end).iter().map(|got| got.kind).collect::<Vec<_>>(), [0]);
        }
        assert_eq!(rig.hosts[1].get(DST, 3000), data);
    }
    assert_eq!(target.got(&mut rig).len(), 2);
    // Only one connection fails.
    far.set(&mut rig, 0..BUF_LEN, |_| ABSENT);
    let wr = target.to(&rig, request(Opcode::RDMA_WRITE, 64, rig.hosts[0].key, far.key));
    rig.post(&mut ends[0], &wr);
    soon(&mut rig);
    far.answer(&mut rig, true);
    rig.run();
    assert_eq!(rig.sent(&mut ends[0])[0].syndrome, 0x14);
    rig.post(&mut ends[1], &wr);
    run(&mut rig, &mut [&mut far]);
    assert_eq!(rig.sent(&mut ends[1])[0].kind, 0);
    // A target destroyed meanwhile leaves no page fault open.
    far.set(&mut rig, 0..BUF_LEN, |_| ABSENT);
    rig.post(&mut ends[1], &wr);
    soon(&mut rig);
    let fault = far.faults(&mut rig)[0];
    rig.hosts[1].hca.drain_dct(target.dctn).unwrap();
    soon(&mut rig);
    rig.hosts[1].hca.destroy_dct(target.dctn).unwrap();
    assert_eq!(far.open(&rig), 0);
    assert!(rig.hosts[1].hca.resume(token(fault), false).is_err());
}

#[test]
fn a_copy_waits_for_its_pages() {
    let mut rig = Rig::new(1);
    let (mut a, _) = rig.pair(&Setup::default());
    let mut pager = Pager::new(&mut rig, 0);
    for failed in [false, true] {
        pager.set(&mut rig, 0..BUF_LEN, |_| ABSENT);
        let data = pattern(9000, 2);
        rig.hosts[0].put(SRC, &data);
        copy::post(&mut rig, &mut a, &[(SRC, 9000, pager.key), (DST, 9000, pager.key)], 1);
        soon(&mut rig);
        assert_eq!(rig.sent(&mut a), []);
        pager.answer(&mut rig, failed);
        rig.run();
        let sent = rig.sent(&mut a);
        assert_eq!((sent[0].kind == 0, sent[0].syndrome), (!failed, if failed { 4 } else { 0 }));
        assert_eq!(rig.hosts[0].get(DST, 9000), data);
    }
}

/// A copy waits for its page, whatever else makes the queue pair run.
#[test]
fn a_copy_that_waits_is_left_alone() {
    let mut rig = Rig::new(2);
    let (mut a, _) = rig.pair(&Setup::default());
    let mut pager = Pager::new(&mut rig, 0);
    let len = 1u32 << 17;
    let last = DST + u64::from(len) - 1;
    pager.set(&mut rig, 0..BUF_LEN, |page| page);
    pager.set(&mut rig, last..last + 1, |_| ABSENT);
    let data = pattern(len as usize, 5);
    rig.hosts[0].put(SRC, &data);
    copy::post(&mut rig, &mut a, &[(SRC, len, pager.key), (DST, len, pager.key)], 1);
    soon(&mut rig);
    assert_eq!((pager.open(&rig), rig.hosts[0].get(DST, 64)), (1, data[..64].to_vec()));
    rig.hosts[0].put(DST, &[0xee; 64]);
    rig.post(&mut a, &Wr::new(Opcode::NOP));
    soon(&mut rig);
    assert_eq!((pager.open(&rig), rig.hosts[0].get(DST, 64)), (1, vec![0xee; 64]));
    pager.answer(&mut rig, false);
    rig.run();
    assert_eq!(rig.sent(&mut a).iter().map(|got| got.kind).collect::<Vec<_>>(), [0, 0]);
    assert_eq!(rig.hosts[0].get(DST, len as usize), data);
}
