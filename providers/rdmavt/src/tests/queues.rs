//! Completions, and objects that the device refuses.

use uverbs_core::attr::QpType;
use uverbs_core::error::Error;
use uverbs_core::provider::{ContextOps, CqInit, CqOps, QpInit, View};
use uverbs_core::queues::completion::{Completed, Status};
use uverbs_core::queues::work::{Data, SendOp};
use uverbs_kernel_rings::testing::free;

use super::rig::{CAP, PIECE, Rig, Told};

const RECV: u32 = 128;

fn done(id: u64, completed: Completed, byte_len: u32, has_frame: bool) -> Option<Told> {
    Some(Told { id, result: Ok(completed), byte_len, has_frame })
}

#[test]
fn completions_say_what_the_kernel_wrote() {
    let mut rig = Rig::new(64);
    for (opcode, completed, bytes) in [
        (0, Completed::Send, 0),
        (1, Completed::Write, 0),
        (2, Completed::Read, 33),
        (3, Completed::CompareSwap, 33),
        (4, Completed::FetchAdd, 33),
    ] {
        rig.send(1, SendOp::Send, Data::One(PIECE), None).unwrap();
        let id = rig.kernel.state().take_send().unwrap().wr.id();
        assert!(rig.kernel.state().complete(id, 0, opcode, 33));
        assert_eq!(rig.poll(), done(1, completed, bytes, false));
    }
    rig.recv(2, &[PIECE], None).unwrap();
    let id = rig.kernel.state().take_recv().unwrap().id();
    // Immediate data in network order, the sender, GRH and immediate flag; P_Key index and LID,
    // service level and path bits.
    let imm = u32::from_ne_bytes([1, 2, 3, 4]);
    let words = [(12, RECV), (20, 60), (24, imm), (32, 0x77), (36, 3), (40, 9 << 16 | 5)];
    let level = u32::from_ne_bytes([6, 4, 1, 0]);
    let state = rig.kernel.state();
    assert!(state.complete_in(0, id, &[&words[..], &[(44, level)]].concat()));
    drop(state);
    let view = rig.cq.next().unwrap().view;
    assert_eq!((view.byte_len(), view.immediate(), view.qpn()), (60, Some(0x0102_0304), 0x11));
    let sender = view.sender();
    assert_eq!((sender.qpn(), sender.has_grh(), sender.lid()), (0x77, true, 9));
    assert_eq!((sender.service_level(), view.pkey_index(), view.path_bits()), (6, 5, 4));
}

#[test]
fn failures_have_their_status() {
    let mut rig = Rig::new(64);
    for (code, status) in [
        (1, Status::LocalLength),
        (4, Status::LocalProtection),
        (5, Status::Flushed),
        (10, Status::RemoteAccess),
        (12, Status::RetryExceeded),
        (99, Status::General),
    ] {
        rig.send(1, SendOp::Send, Data::One(PIECE), None).unwrap();
        let id = rig.kernel.state().take_send().unwrap().wr.id();
        assert!(rig.kernel.state().complete(id, code, 0, 0));
        let failure = rig.cq.next().unwrap().view.result().unwrap_err();
        assert_eq!((failure.status, u32::from(failure.syndrome)), (status, code));
    }
}

#[test]
fn a_ring_of_strays_ends_a_poll_and_comes_free() {
    let mut rig = Rig::new(5);
    let most = (0..20).take_while(|_| rig.kernel.state().complete(9 << 40, 0, 0, 0)).count();
    // The completion at hand has an entry, too.
    assert_eq!(most, 6);
    assert_eq!((rig.poll(), rig.cq.strays()), (None, 6));
    assert!(rig.kernel.state().complete(9 << 40, 0, 0, 0), "the entries were given back");
    // Indexes that no kernel stores.
    for index in [7, u32::MAX] {
        rig.kernel.state().made[0].poke(0, index);
        assert_eq!(rig.poll(), None);
    }
}

#[test]
fn another_size_keeps_what_completed() {
    let mut rig = Rig::new(20);
    let slab = rig.slab(64, 2);
    rig.batch(1..=2, Some(&slab));
    let ids: Vec<_> = rig.kernel.state().sent.drain(..).map(|sent| sent.wr.id()).collect();
    assert!(rig.kernel.state().complete(ids[0], 0, 0, 0));
    rig.cq.resize(100).unwrap();
    assert!(rig.kernel.state().complete(ids[1], 0, 0, 0));
    assert_eq!(rig.poll(), done(1, Completed::Send, 0, true));
    assert_eq!(rig.poll(), done(2, Completed::Send, 0, true));
    assert_eq!((rig.poll(), rig.cq.strays(), free(&slab)), (None, 0, 2));
    let too_small = rig.cq.resize(3).unwrap_err();
    assert!(matches!(too_small, Error::Limit { what: "entries", .. }), "{too_small}");
}

#[test]
fn entries_of_a_queue_pair_that_goes_are_swept() {
    let mut rig = Rig::new(20);
    let slab = rig.slab(64, 2);
    rig.batch(1..=2, Some(&slab));
    let ids: Vec<_> = rig.kernel.state().sent.drain(..).map(|sent| sent.wr.id()).collect();
    assert!(rig.kernel.state().complete(ids[0], 0, 0, 0));
    assert!(rig.kernel.state().complete(9 << 40, 0, 0, 0));
    rig.cq.settle();
    rig.cq.sweep(0);
    assert_eq!((rig.poll(), rig.cq.strays()), (None, 1), "swept, and the other one a stray");
    let Rig { mut cq, sq, rq, qp, .. } = rig;
    drop((sq, rq, qp));
    cq.settle();
    assert_eq!(free(&slab), 2);
}

#[test]
fn what_the_device_lacks_is_refused_by_name() {
    let rig = Rig::new(16);
    let (cq, _poller) = rig.context.create_cq(&CqInit::new(16)).unwrap();
    let mut init = QpInit::new(rig.pd.clone(), cq.clone(), cq);
    init.cap = CAP;
    for qp_type in [QpType::XrcIni, QpType::RawPacket] {
        init.qp_type = qp_type;
        let error = rig.context.create_qp(&init).unwrap_err();
        assert!(error.to_string().contains("rdmavt has RC, UC and UD"), "{error}");
    }
    (init.qp_type, init.cap.max_inline_data) = (QpType::Rc, 513);
    let error = rig.context.create_qp(&init).unwrap_err();
    assert!(matches!(error, Error::Limit { what: "max_inline_data", limit: 512, .. }), "{error}");
    let mut init = CqInit::new(4);
    init.ignore_overrun = true;
    let error = rig.context.create_cq(&init).unwrap_err();
    assert!(error.to_string().contains("ignores overruns (rdmavt)"), "{error}");
}

/// The kernel makes a ring also for no receives.
#[test]
fn a_queue_pair_may_have_no_receives() {
    let rig = Rig::new(16);
    let (cq, _poller) = rig.context.create_cq(&CqInit::new(16)).unwrap();
    let mut init = QpInit::new(rig.pd.clone(), cq.clone(), cq);
    init.cap = uverbs_core::attr::QpCap { max_recv_wr: 0, max_recv_sge: 0, ..CAP };
    let mut made = rig.context.create_qp(&init).unwrap();
    uverbs_core::provider::RqOps::enable(&mut made.rq, true);
    let full = uverbs_kernel_rings::testing::post_recv(&mut made.rq, 1, &[], None);
    assert_eq!(full, Err(uverbs_core::queues::work::PostError::Full));
}
