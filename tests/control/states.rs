//! Changes of queue pairs that work: RTS to RTS, SQD, SQE, and by mask.
#![allow(unsafe_code, reason = "raw posts that fail, and changes by mask, are what is tested")]

use std::time::{Duration, Instant};

use common::{End, LIMIT, Side, device, is_rxe, local, pair, pattern};
use uverbs::attr::{
    AlternatePath, DrainAttr, PathMigration, QpAttrMask, RcChange, RcDrainedChange, UcChange,
    UcDrainedChange, UcRecovery, UdChange, UdDrainedChange, UdRecovery,
};
use uverbs::event::{AsyncElement, AsyncEventKind};
use uverbs::raw::{Data, RawQpAttr, SendOp, Sge};
use uverbs::transport::{Drains, Uc, Ud};
use uverbs::{
    AccessFlags, AckTimeout, Any, Completed, CompletionQueue, Errno, Error, GRH_LEN, LinkLayer,
    Local, QpState, QueuePair, RnrTimer, Status,
};

/// Room for a datagram of the tests.
const ROOM: usize = GRH_LEN + 64;

fn uc_pair() -> (End<Uc>, End<Uc>) {
    common::uc_pair(&Local::default())
}

fn flushed_or(side: &mut CompletionQueue, id: u64) -> Status {
    let done = side.wait(LIMIT).expect("a completion");
    assert_eq!(done.id, id);
    done.result.expect_err("a failure").status
}

#[test]
fn rights_come_and_go_while_it_works() {
    let nothing = Local { access: AccessFlags::empty(), ..local() };
    let (mut client, mut server) = common::pair_with(&nothing, |qp| qp);
    let memory = server.pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap();
    let change = |access, code| RcChange {
        access: Some(access),
        min_rnr_timer: RnrTimer::from_code(code),
        ..RcChange::default()
    };
    assert_eq!(server.qp.query().unwrap().access, AccessFlags::empty());
    server.qp.change(&change(AccessFlags::REMOTE_WRITE, 5)).expect("RTS to RTS");
    let now = server.qp.query().unwrap();
    assert_eq!((now.access, now.min_rnr_timer.code()), (AccessFlags::REMOTE_WRITE, 5));
    assert_eq!(now.state, QpState::ReadyToSend);
    assert!(is_rxe() || now.cur_state == now.state, "{:?}", now.cur_state);
    let frame = client.filled(64, 3);
    let mut batch = client.qp.batch();
    batch.write(1, frame, memory.remote(0)).unwrap();
    batch.ring();
    client.done();
    let mut there = [0; 64];
    memory.read(0, &mut there).unwrap();
    assert_eq!(there, pattern(64, 3)[..]);
    server.qp.change(&change(AccessFlags::empty(), 6)).expect("RTS to RTS");
    let frame = client.filled(64, 4);
    let mut batch = client.qp.batch();
    batch.write(2, frame, memory.remote(0)).unwrap();
    batch.ring();
    let status = client.wait().result.expect_err("the right is gone").status;
    // soft-RoCE finds the operation invalid, a ConnectX the access.
    let named = [Status::RemoteAccess, Status::RemoteInvalidRequest];
    assert!(named.contains(&status), "{status}");
    memory.read(0, &mut there).unwrap();
    assert_eq!(there, pattern(64, 3)[..], "and nothing was written");
}

#[test]
fn uc_rights_change_too() {
    let (mut client, mut server) = uc_pair();
    let memory = server.pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap();
    let access = Some(AccessFlags::REMOTE_WRITE);
    server.qp.change(&UcChange { access, ..UcChange::default() }).expect("RTS to RTS");
    assert_eq!(server.qp.query().unwrap().access, AccessFlags::REMOTE_WRITE);
    server.expect(1, ROOM);
    let mut batch = client.qp.batch();
    batch.write_imm_inline(2, b"written", memory.remote(0), 9).unwrap();
    batch.ring();
    let told = server.cq.wait(LIMIT).unwrap();
    assert_eq!(told.result, Ok(Completed::RecvWriteImm));
    let mut there = [0; 7];
    memory.read(0, &mut there).unwrap();
    assert_eq!(&there, b"written");
}

#[test]
fn a_key_that_changes_locks_out_who_has_the_old_one() {
    let device = device();
    let (mut one, mut other) = (End::<Ud>::new(&device), End::<Ud>::new(&device));
    one.qp.bring_up(&Local::default()).unwrap();
    let at = other.qp.bring_up(&Local { qkey: 5, ..Local::default() }).unwrap();
    assert_eq!(other.qp.query().unwrap().qkey, 5);
    let old = one.qp.destination(&at).unwrap();
    let new = old.address_handle().to(at.qpn, 6);
    other.qp.change(&UdChange { qkey: Some(6) }).expect("RTS to RTS");
    assert_eq!(other.qp.query().unwrap().qkey, 6);
    other.expect(1, ROOM);
    let mut batch = one.qp.batch();
    batch.send_inline_to(1, b"old", &old).unwrap();
    batch.send_inline_to(2, b"new", &new).unwrap();
    batch.ring();
    let got = other.cq.wait(LIMIT).unwrap();
    assert_eq!(&got.frame.unwrap()[GRH_LEN..], b"new");
}

#[test]
fn a_controlled_key_is_the_senders_own() {
    // IBTA vol 1, 10.2.5: if the post's Q_Key has the highest bit set, the queue pair's Q_Key is
    // sent.
    if common::not_on_rxe("its kernel sends whatever key the post has") {
        return;
    }
    let device = device();
    let (mut one, mut other) = (End::<Ud>::new(&device), End::<Ud>::new(&device));
    one.qp.bring_up(&Local { qkey: 77, ..Local::default() }).unwrap();
    let at = other.qp.bring_up(&Local { qkey: 77, ..Local::default() }).unwrap();
    let to = one.qp.destination(&at).unwrap().address_handle().to(at.qpn, 0x8000_0001);
    other.expect(1, ROOM);
    let mut batch = one.qp.batch();
    batch.send_inline_to(1, b"by the own key", &to).unwrap();
    batch.ring();
    let got = other.cq.wait(LIMIT).unwrap();
    assert_eq!(&got.frame.unwrap()[GRH_LEN..], b"by the own key");
}

/// True if the queue pair can be drained. If not, checks that the refusal says why and that the
/// queue pair stays in RTS.
fn drains<T: Drains>(qp: &mut QueuePair<Any, T>) -> bool {
    match qp.drain_sends(&DrainAttr { notify: true }) {
        Ok(()) => {
            assert_eq!(qp.state(), QpState::SendQueueDrained);
            true
        }
        Err(error) => {
            assert!(matches!(error, Error::Unsupported { verb: "modify_qp", .. }), "{error}");
            assert!(!is_rxe(), "rxe has SQD: {error}");
            assert_eq!(qp.query().unwrap().state, QpState::ReadyToSend);
            false
        }
    }
}

#[test]
fn a_drained_queue_holds_back_and_goes_on() {
    let (mut client, mut server) = pair();
    for id in 0..8 {
        server.expect(id, 64);
    }
    let mut batch = client.qp.batch();
    for id in 0..4 {
        batch.send_inline(id, b"before").unwrap();
    }
    batch.ring();
    if !drains(&mut client.qp) {
        for id in 0..4 {
            assert_eq!(client.done().id, id);
        }
        return;
    }
    client.qp.wait_drained(LIMIT).expect("drained");
    if common::not_on_linux_rdmavt("rdmavt raises no SQ_DRAINED") {
        return;
    }
    let event = client.context.async_event(LIMIT).expect("an event").expect("in time");
    assert_eq!(event.kind, AsyncEventKind::SendQueueDrained);
    assert_eq!(event.element, AsyncElement::Qp(client.qp.event_id()));
    let sent = std::iter::from_fn(|| client.cq.wait(Duration::from_millis(50)).ok()).count();
    assert!(sent <= 4, "no more than were posted");
    let mut batch = client.qp.batch();
    batch.send_inline(9, b"after").unwrap();
    batch.ring();
    let found = client.cq.wait(Duration::from_millis(50));
    assert!(found.is_err(), "a drained queue sends nothing: {found:?}");
    let change = RcDrainedChange {
        timeout: AckTimeout::from_code(15),
        retry_count: Some(3),
        rnr_retry: Some(2),
        access: Some(AccessFlags::REMOTE_READ),
        min_rnr_timer: RnrTimer::from_code(7),
        ..RcDrainedChange::default()
    };
    client.qp.change_drained(&change).expect("SQD to SQD");
    // Soft-RoCE drains anew.
    client.qp.wait_drained(LIMIT).expect("drained again");
    let now = client.qp.query().unwrap();
    assert_eq!((now.timeout.code(), now.retry_count, now.rnr_retry), (15, 3, 2));
    assert_eq!((now.access, now.min_rnr_timer.code()), (AccessFlags::REMOTE_READ, 7));
    assert_eq!((now.state, now.sq_draining), (QpState::SendQueueDrained, false));
    client.qp.resume(&RcChange::default()).expect("SQD to RTS");
    assert_eq!(client.qp.state(), QpState::ReadyToSend);
    for _ in sent..5 {
        client.done();
    }
}

#[test]
fn what_does_not_drain_is_waited_for_with_a_limit() {
    if common::not_on_linux_rdmavt("its loopback waits for no peer") {
        return;
    }
    // A second until the first repetition, and the peer is gone.
    let patient = Local { timeout: AckTimeout::from_code(18).unwrap(), ..local() };
    let (mut client, server) = common::pair_with(&patient, |qp| qp);
    drop(server);
    let first = client.qp.query().unwrap().sq_psn;
    let mut batch = client.qp.batch();
    batch.send_inline(1, b"nobody takes it").unwrap();
    batch.ring();
    // A send that is still unprocessed would stay in the queue, and the queue would drain without
    // it.
    let start = Instant::now();
    while client.qp.query().unwrap().sq_psn == first {
        assert!(start.elapsed() < LIMIT, "the send never began");
    }
    if !drains(&mut client.qp) {
        return;
    }
    let late = client.qp.wait_drained(Duration::from_millis(20)).expect_err("no acknowledgement");
    assert!(matches!(late, Error::TimedOut { verb: "modify_qp", .. }), "{late}");
}

#[test]
fn unreliable_queues_drain_as_well() {
    let (mut one, mut other) = uc_pair();
    if drains(&mut one.qp) {
        one.qp.wait_drained(LIMIT).expect("drained");
        one.qp.change_drained(&UcDrainedChange::default()).expect("SQD to SQD");
        // Soft-RoCE drains anew.
        one.qp.wait_drained(LIMIT).expect("drained again");
        one.qp.resume(&UcChange::default()).expect("SQD to RTS");
        other.expect(1, ROOM);
        let mut batch = one.qp.batch();
        batch.send_inline(1, b"on").unwrap();
        batch.ring();
        other.cq.wait(LIMIT).unwrap().result.unwrap();
    }
    let mut end = End::<Ud>::new(&device());
    let at = end.qp.bring_up(&Local::default()).unwrap();
    if drains(&mut end.qp) {
        end.qp.wait_drained(LIMIT).expect("drained");
        let qkey = Some(at.qkey + 1);
        end.qp.change_drained(&UdDrainedChange { qkey, pkey_index: None }).expect("SQD to SQD");
        // Soft-RoCE drains anew.
        end.qp.wait_drained(LIMIT).expect("drained again");
        end.qp.resume(&UdChange::default()).expect("SQD to RTS");
        assert_eq!(end.qp.query().unwrap().qkey, at.qkey + 1);
    }
}

/// Posts a send that names no memory.
fn fail_a_send(end: &mut End<Ud>, to: &uverbs::Destination) {
    let mut batch = end.qp.batch();
    let list = [Sge { addr: 0x1000, len: 8, lkey: 0x00ff_ff00 }];
    // SAFETY: the device finds that the key names no memory, and reads none.
    unsafe { batch.raw().post_to(1, SendOp::Send, Data::List(&list), to) }.unwrap();
    batch.send_inline_to(2, b"behind it", to).unwrap();
    batch.ring();
}

#[test]
fn datagrams_go_on_after_a_send_that_failed() {
    if common::not_on_rdmavt("its kernel refuses such a send when it is posted") {
        return;
    }
    let device = device();
    let (mut one, mut other) = (End::<Ud>::new(&device), End::<Ud>::new(&device));
    let here = one.qp.bring_up(&Local::default()).unwrap();
    let at = other.qp.bring_up(&Local::default()).unwrap();
    let to = one.qp.destination(&at).unwrap();
    let early = one.qp.recover(&UdRecovery::default()).expect_err("nothing failed");
    let needs = QpState::SendQueueError;
    assert_eq!(early, Error::State { verb: "modify_qp", state: QpState::ReadyToSend, needs });
    one.expect(3, ROOM);
    fail_a_send(&mut one, &to);
    if is_rxe() {
        common::skip("its failed datagrams put the queue pair into ERR");
        // Another task of the kernel flushes the receive, before or after.
        while one.cq.wait(LIMIT).expect("a completion").id != 1 {}
        let ended = one.qp.recover(&UdRecovery::default()).expect_err("not SQE");
        assert_eq!(ended, Error::State { verb: "modify_qp", state: QpState::Error, needs });
        return;
    }
    assert_eq!(flushed_or(&mut one.cq, 1), Status::LocalProtection);
    assert_eq!(flushed_or(&mut one.cq, 2), Status::Flushed);
    assert_eq!(one.qp.query().unwrap().state, QpState::SendQueueError);
    // Receives go on meanwhile.
    let back = other.qp.destination(&here).unwrap();
    let mut batch = other.qp.batch();
    batch.send_inline_to(4, b"hello", &back).unwrap();
    batch.ring();
    let got = one.cq.wait(LIMIT).unwrap();
    assert_eq!(&got.frame.unwrap()[GRH_LEN..], b"hello");
    one.qp.recover(&UdRecovery { qkey: Some(here.qkey) }).expect("SQE to RTS");
    assert_eq!(one.qp.query().unwrap().state, QpState::ReadyToSend);
    other.expect(5, ROOM);
    let mut batch = one.qp.batch();
    batch.send_inline_to(6, b"again", &to).unwrap();
    batch.ring();
    let sent = one.cq.wait(LIMIT).unwrap();
    assert_eq!((sent.id, sent.result), (6, Ok(Completed::Send)));
}

#[test]
fn an_unreliable_connection_goes_on_after_a_send_that_failed() {
    if common::not_on_rdmavt("its kernel refuses such a send when it is posted") {
        return;
    }
    if common::not_on_rxe("its failed sends put the queue pair into ERR") {
        return;
    }
    let (mut one, mut other) = uc_pair();
    let mut batch = one.qp.batch();
    let list = [Sge { addr: 0x1000, len: 8, lkey: 0x00ff_ff00 }];
    // SAFETY: the device finds that the key names no memory, and reads none.
    unsafe { batch.raw().post(1, SendOp::Send, Data::List(&list)) }.unwrap();
    batch.ring();
    assert_eq!(flushed_or(&mut one.cq, 1), Status::LocalProtection);
    let access = Some(AccessFlags::REMOTE_WRITE);
    one.qp.recover(&UcRecovery { access }).expect("SQE to RTS");
    assert_eq!(one.qp.query().unwrap().access, AccessFlags::REMOTE_WRITE);
    other.expect(5, ROOM);
    let mut batch = one.qp.batch();
    batch.send_inline(6, b"again").unwrap();
    batch.ring();
    assert_eq!(one.cq.wait(LIMIT).unwrap().result, Ok(Completed::Send));
    assert_eq!(&other.cq.wait(LIMIT).unwrap().frame.unwrap()[..], b"again");
}

#[test]
fn each_change_asks_for_its_state() {
    let device = device();
    let mut rc = Side::new(&device, &local(), |qp| qp);
    let (state, verb) = (QpState::Init, "modify_qp");
    let needs = |needs| Err(Error::State { verb, state, needs });
    assert_eq!(rc.qp.change(&RcChange::default()), needs(QpState::ReadyToSend));
    assert_eq!(rc.qp.drain_sends(&DrainAttr::default()), needs(QpState::ReadyToSend));
    assert_eq!(rc.qp.wait_drained(LIMIT), needs(QpState::SendQueueDrained));
    let change = rc.qp.change_drained(&RcDrainedChange::default());
    assert_eq!(change, needs(QpState::SendQueueDrained));
    assert_eq!(rc.qp.resume(&RcChange::default()), needs(QpState::SendQueueDrained));
    let mut uc = End::<Uc>::new(&device);
    let needs = QpState::SendQueueError;
    let early = uc.qp.recover(&UcRecovery::default());
    assert_eq!(early, Err(Error::State { verb, state: QpState::Reset, needs }));
    let found = uc.cq.wait(Duration::from_millis(50));
    assert!(found.is_err(), "{found:?}");
}

#[test]
fn an_alternate_path_is_infinibands() {
    let (mut client, server) = pair();
    let mut alternate = AlternatePath {
        port: 1,
        pkey_index: 0,
        path: client.qp.query().unwrap().path,
        timeout: AckTimeout::DEFAULT,
    };
    let change = |alternate| RcChange { alternate: Some(alternate), ..RcChange::default() };
    let answer = client.qp.change(&change(alternate));
    if client.context.query_port(1).unwrap().link_layer == LinkLayer::Ethernet {
        let refused = answer.expect_err("RoCE has none");
        assert_eq!((refused.verb(), refused.errno()), (Some("modify_qp"), Some(Errno::EINVAL)));
    }
    alternate.port = 77;
    let port = client.qp.change(&change(alternate)).expect_err("no such port");
    let (verb, what) = ("modify_qp", "alternate port");
    assert_eq!(port, Error::Limit { verb, what, value: 77, limit: 1 });
    alternate.path.service_level = 16;
    let level = client.qp.change(&change(alternate)).expect_err("no such level");
    assert!(matches!(level, Error::Limit { what: "service level", limit: 15, .. }), "{level}");
    let migration = Some(PathMigration::Migrated);
    let stays = RcChange { migration, ..RcChange::default() };
    client.qp.change(&stays).expect("it is on its primary path");
    let attr = server.qp.query().unwrap();
    assert_eq!((attr.alternate, attr.migration), (None, PathMigration::Migrated));
    assert!(!attr.sq_sig_all);
}

#[test]
fn by_mask_whatever_the_kernel_has() {
    let device = device();
    let mut end = End::<Ud>::new(&device);
    let mut attr = RawQpAttr::default();
    attr.base.port_num = 1;
    attr.base.qkey = 11;
    let step = |end: &mut End<Ud>, attr: &RawQpAttr, mask| {
        // SAFETY: the usual way up.
        unsafe { end.qp.modify(attr, mask) }
    };
    let init = QpAttrMask::STATE | QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::QKEY;
    attr.base.qp_state = QpState::Init.raw() as u8;
    let without = step(&mut end, &attr, init - QpAttrMask::QKEY).expect_err("an attribute short");
    assert_eq!((without.verb(), without.errno()), (Some("modify_qp"), Some(Errno::EINVAL)));
    assert_eq!(end.qp.state(), QpState::Reset);
    step(&mut end, &attr, init).expect("INIT");
    assert_eq!(end.qp.state(), QpState::Init);
    end.expect(1, ROOM);
    attr.base.qp_state = QpState::ReadyToReceive.raw() as u8;
    step(&mut end, &attr, QpAttrMask::STATE).expect("RTR");
    attr.base.qp_state = QpState::ReadyToSend.raw() as u8;
    attr.base.sq_psn = 5;
    step(&mut end, &attr, QpAttrMask::STATE | QpAttrMask::SQ_PSN).expect("RTS");
    let now = end.qp.query().unwrap();
    assert_eq!((now.state, now.qkey, now.sq_psn), (QpState::ReadyToSend, 11, 5));
    let unknown = QpAttrMask::from_bits_retain(1 << 24);
    let unknown = step(&mut end, &attr, unknown).expect_err("unknown");
    assert_eq!(unknown.errno(), Some(Errno::EOPNOTSUPP));
    attr.rate_limit = 1000;
    let rate = step(&mut end, &attr, QpAttrMask::STATE | QpAttrMask::RATE_LIMIT);
    let rate = rate.expect_err("raw packets alone have one").errno();
    assert!(matches!(rate, Some(Errno::EINVAL | Errno::EOPNOTSUPP)), "{rate:?}");
    attr.base.qp_state = QpState::Reset.raw() as u8;
    let reset = step(&mut end, &attr, QpAttrMask::STATE).expect_err("`reset` does that");
    assert!(matches!(reset, Error::Invalid { what: "state", .. }), "{reset}");
    // To itself, and then no more.
    let own = end.context.best_gid(1).unwrap();
    let lid = end.context.query_port(1).unwrap().lid;
    let at = uverbs::AhAttr {
        port: 1,
        path: uverbs::attr::Path {
            dlid: lid,
            grh: own.map(|own| uverbs::attr::GlobalRoute {
                dgid: own.gid,
                sgid_index: own.index as u8,
                hop_limit: 64,
                traffic_class: 0,
                flow_label: 0,
            }),
            service_level: 0,
            src_path_bits: 0,
            static_rate: 0,
        },
    };
    let to = end.context.create_ah(&end.pd, &at).unwrap().to(end.qp.qpn(), 11);
    let mut batch = end.qp.batch();
    batch.send_inline_to(2, b"to myself", &to).unwrap();
    batch.ring();
    let mut done = [end.cq.wait(LIMIT).unwrap(), end.cq.wait(LIMIT).unwrap()];
    done.sort_by_key(|done| done.id);
    assert_eq!(&done[0].frame.as_ref().unwrap()[GRH_LEN..], b"to myself");
    end.expect(3, ROOM);
    attr.base.qp_state = QpState::Error.raw() as u8;
    step(&mut end, &attr, QpAttrMask::STATE).expect("ERR");
    assert_eq!(flushed_or(&mut end.cq, 3), Status::Flushed);
}
