//! Data through queue pairs that were created by commands.

use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::{cq, eq, mcast, mkey, qp, rq};
use uverbs_mlx5_prm::cqe::{FlagsRqpn, mlx5_cqe64};

use zerocopy::FromBytes;

use crate::driver::{Cq, Driver, Qp, with_page};

/// Posts a receive of `len` bytes at `addr` as WQE `index`.
pub(crate) fn receive(driver: &Driver, qp: &Qp, index: u32, addr: u64, len: u32) {
    let mut wqe = len.to_be_bytes().to_vec();
    wqe.extend(driver.lkey.to_be_bytes());
    wqe.extend(addr.to_be_bytes());
    driver.host.write(qp.rq + 16 * u64::from(index % 16), &wqe);
    driver.host.write(qp.record, &(index + 1).to_be_bytes());
}

/// Posts a signaled SEND as WQE `index`, one WQEBB each, and rings the doorbell.
pub(crate) fn send(driver: &mut Driver, qp: &Qp, index: u32, (key, addr, len): (u32, u64, u32)) {
    let mut wqe = ((index & 0xffff) << 8 | 0x0a).to_be_bytes().to_vec();
    wqe.extend((qp.number << 8 | 2).to_be_bytes());
    wqe.extend([0, 0, 0, 8, 0, 0, 0, 0]);
    wqe.extend(len.to_be_bytes());
    wqe.extend(key.to_be_bytes());
    wqe.extend(addr.to_be_bytes());
    driver.host.write(qp.sq + 64 * u64::from(index % 16), &wqe);
    driver.host.write(qp.record + 4, &(index + 1).to_be_bytes());
    let doorbell = u64::from_be_bytes(wqe[..8].try_into().unwrap());
    let offset = u64::from(driver.uar) * 4096 + 0x800;
    driver.host.ring(offset, doorbell);
}

pub(crate) struct Pair {
    driver: Driver,
    eqn: u32,
    cq: Cq,
    qps: [Qp; 2],
}

fn pair() -> Pair {
    let mut driver = Driver::up();
    let eqn = driver.eq(1, 0);
    pair_of(driver, eqn)
}

/// Two connected queue pairs of a driver with an event queue.
pub(crate) fn pair_of(mut driver: Driver, eqn: u32) -> Pair {
    let cq = driver.cq(eqn);
    let qps = [driver.qp(&cq), driver.qp(&cq)];
    driver.connect(qps[0].number, qps[1].number);
    driver.connect(qps[1].number, qps[0].number);
    Pair { driver, eqn, cq, qps }
}

#[test]
fn sends_arrive_complete_and_interrupt() {
    send_and_sleep(pair());
}

/// Sends, and takes each completion after its event.
pub(crate) fn send_and_sleep(pair: Pair) {
    let Pair { mut driver, eqn, mut cq, qps: [a, b] } = pair;
    let (from, to) = (driver.page(), driver.page());
    let key = driver.lkey;
    // More messages than both rings hold.
    for round in 0..20u32 {
        let data = (0..100).map(|at| (at + round) as u8).collect::<Vec<_>>();
        driver.host.write(from, &data);
        receive(&driver, &b, round, to, 4096);
        driver.arm_cq(&cq);
        send(&mut driver, &a, round, (key, from, 100));
        assert_eq!(driver.event(eqn), (0, cq.number));
        let mut kinds = [driver.poll(&mut cq), driver.poll(&mut cq)];
        kinds.sort_by_key(|cqe| cqe[63] >> 4);
        assert_eq!((kinds[0][63] >> 4, kinds[1][63] >> 4), (0, 2), "a send and a receive");
        assert_eq!(kinds[1][44..48], 100u32.to_be_bytes());
        assert_eq!(kinds[0][10..12], [0, 0]);
        assert!(kinds.iter().all(|cqe| cqe[11] == 0x77 || cqe[35] == 0x77 || cqe[7] == 0x77));
        assert_eq!(driver.host.read(to, 100), data);
    }
    driver.host.wait("the interrupt", |host| (host.interrupts(1) > 0).then_some(()));
}

#[test]
fn a_key_of_pages_is_walked_page_by_page() {
    let Pair { mut driver, mut cq, qps: [a, b], .. } = pair();
    let (first, _, second, to) = (driver.page(), driver.page(), driver.page(), driver.page());
    // Two pages, the later one first, from byte 4000 on.
    let mut input = vec![0; mkey::create_mkey_in::SIZE];
    mkey::create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE.set(&mut input, 1);
    let context = mkey::create_mkey_in::MEMORY_KEY_MKEY_ENTRY.of_mut(&mut input);
    mkey::mkc::ACCESS_MODE_1_0.set(context, 1);
    mkey::mkc::PD.set(context, driver.pd.into());
    mkey::mkc::START_ADDR.set(context, 0x7000_0fa0);
    mkey::mkc::LEN.set(context, 200);
    mkey::mkc::LOG_PAGE_SIZE.set(context, 12);
    mkey::mkc::QPN.set(context, 0xff_ffff);
    mkey::mkc::MKEY_7_0.set(context, 9);
    let (status, _) = driver.run(CmdOpcode::CREATE_MKEY, 0, &input, 16);
    assert_eq!(status, CmdStatus::BAD_PARAM_ERR, "no page list");
    input.extend((second | 3).to_be_bytes());
    input.extend((first | 3).to_be_bytes());
    let output = driver.ok(CmdOpcode::CREATE_MKEY, 0, &input, 16);
    let index = mkey::create_mkey_out::MKEY_INDEX.get32(&output);
    let data = (0..200).collect::<Vec<u8>>();
    driver.host.write(second + 4000, &data[..96]);
    driver.host.write(first, &data[96..]);
    receive(&driver, &b, 0, to, 4096);
    send(&mut driver, &a, 0, (index << 8 | 9, 0x7000_0fa0, 200));
    driver.poll(&mut cq);
    driver.poll(&mut cq);
    assert_eq!(driver.host.read(to, 200), data);
    // Another variant of the same index is another key.
    receive(&driver, &b, 1, to, 4096);
    send(&mut driver, &a, 1, (index << 8 | 8, 0x7000_0fa0, 200));
    let failed = driver.poll(&mut cq);
    assert_eq!((failed[63] >> 4, failed[55]), (0xd, 4), "local protection error");
    let gone = mkey::destroy_mkey_in::MKEY_INDEX;
    assert_eq!(driver.about(CmdOpcode::DESTROY_MKEY, gone, index), CmdStatus::OK);
    assert_eq!(driver.about(CmdOpcode::DESTROY_MKEY, gone, index), CmdStatus::BAD_RES_ERR);
}

#[test]
fn an_error_flushes_and_a_query_tells() {
    let Pair { mut driver, mut cq, qps: [a, b], .. } = pair();
    let to = driver.page();
    receive(&driver, &b, 0, to, 64);
    let qpn = qp::rst2init_qp_in::QPN;
    assert_eq!(driver.about(CmdOpcode::TO_ERR_QP, qpn, b.number), CmdStatus::OK);
    let flushed = driver.poll(&mut cq);
    assert_eq!((flushed[63] >> 4, flushed[55]), (0xe, 5));
    // A receive posted later is flushed, too, without a doorbell.
    receive(&driver, &b, 1, to, 64);
    assert_eq!(driver.poll(&mut cq)[55], 5);
    let mut query = [0; 16];
    qp::query_qp_in::QPN.set(&mut query, b.number.into());
    let answer = driver.ok(CmdOpcode::QUERY_QP, 0, &query, 272);
    let context = qp::query_qp_out::QPC.of(&answer);
    assert_eq!(qp::qpc::STATE.get(context), 6);
    assert_eq!(qp::qpc::REMOTE_QPN.get32(context), a.number);
    assert_eq!(qp::qpc::NEXT_RCV_PSN.get32(context), 0x1234);
    assert_eq!(qp::qpc::RRE.get(context), 1);
    assert_eq!(driver.about(CmdOpcode::TO_RST_QP, qpn, b.number), CmdStatus::OK);
    let answer = driver.ok(CmdOpcode::QUERY_QP, 0, &query, 272);
    let context = qp::query_qp_out::QPC.of(&answer);
    assert_eq!((qp::qpc::STATE.get(context), qp::qpc::RRE.get(context)), (0, 0));
}

#[test]
fn the_udp_port_changes_while_a_queue_pair_sends() {
    let Pair { mut driver, qps: [a, _], .. } = pair();
    let port = |driver: &mut Driver| {
        let mut input = [0; 16];
        qp::query_qp_in::QPN.set(&mut input, a.number.into());
        let output = driver.ok(CmdOpcode::QUERY_QP, 0, &input, 272);
        let context = qp::query_qp_out::QPC.of(&output);
        qp::ads::UDP_SPORT.get(qp::qpc::PRIMARY_ADDRESS_PATH.of(context))
    };
    // As libmlx5 does (`mlx5dv_modify_qp_udp_sport`); without its mask bit the port is unchanged.
    let change = |driver: &mut Driver, mask: u64, to: u64| {
        let mut input = [0; 464];
        qp::rst2init_qp_in::QPN.set(&mut input, a.number.into());
        qp::RTS2RTS_OPT_PARAM_MASK_95_32.set(&mut input, mask);
        let context = qp::rst2init_qp_in::QPC.of_mut(&mut input);
        qp::ads::UDP_SPORT.set(qp::qpc::PRIMARY_ADDRESS_PATH.of_mut(context), to);
        driver.ok(CmdOpcode::RTS2RTS_QP, 0, &input, 16);
    };
    change(&mut driver, 1 << 2, 55_555);
    assert_eq!(port(&mut driver), 55_555);
    change(&mut driver, 1 << 1, 44_444);
    assert_eq!(port(&mut driver), 55_555);
}

#[test]
fn objects_in_use_stay() {
    let Pair { mut driver, eqn, cq, qps: [a, b] } = pair();
    let (cqn, qpn) = (cq::destroy_cq_in::CQN, qp::destroy_qp_in::QPN);
    let eq_number = eq::destroy_eq_in::EQ_NUMBER;
    assert_eq!(driver.about(CmdOpcode::DESTROY_CQ, cqn, cq.number), CmdStatus::RES_BUSY);
    assert_eq!(driver.about(CmdOpcode::DESTROY_EQ, eq_number, eqn), CmdStatus::RES_BUSY);
    for qp in [a, b] {
        assert_eq!(driver.about(CmdOpcode::DESTROY_QP, qpn, qp.number), CmdStatus::OK);
        assert_eq!(driver.about(CmdOpcode::DESTROY_QP, qpn, qp.number), CmdStatus::BAD_RES_ERR);
    }
    assert_eq!(driver.about(CmdOpcode::DESTROY_CQ, cqn, cq.number), CmdStatus::OK);
    assert_eq!(driver.about(CmdOpcode::DESTROY_EQ, eq_number, eqn), CmdStatus::OK);
}

#[test]
fn a_queue_is_resized_while_it_holds_completions() {
    let Pair { mut driver, mut cq, qps: [a, b], .. } = pair();
    let (from, to) = (driver.page(), driver.page());
    let key = driver.lkey;
    receive(&driver, &b, 0, to, 64);
    send(&mut driver, &a, 0, (key, from, 8));
    let old = cq.ring;
    driver.poll(&mut cq);
    driver.poll(&mut cq);
    let ring = driver.page();
    let mut input = with_page(cq::modify_cq_in::SIZE, ring);
    cq::modify_cq_in::CQN.set(&mut input, cq.number.into());
    let context = cq::modify_cq_in::CQ_CONTEXT.of_mut(&mut input);
    cq::cqc::LOG_CQ_SIZE.set(context, 5);
    driver.ok(CmdOpcode::MODIFY_CQ, 1, &input, 16);
    // The RESIZE_CQ in the old ring, and the next completions in the new ring.
    assert_eq!(driver.host.read(old + 2 * 64 + 63, 1)[0] >> 4, 5);
    receive(&driver, &b, 1, to, 64);
    send(&mut driver, &a, 1, (key, from, 8));
    let kinds = driver.host.wait("completions in the new ring", |host| {
        let kinds = [3, 4].map(|slot| host.read(ring + slot * 64 + 63, 1)[0] >> 4);
        (kinds.contains(&2)).then_some(kinds)
    });
    assert!(kinds.contains(&2));
}

/// Posts a signaled datagram as WQE `index`, two WQEBBs each.
fn send_datagram(
    driver: &Driver,
    qp: &Qp,
    index: u32,
    (qpn, qkey, gid): (u32, u32, Option<[u8; 16]>),
    (addr, len): (u64, u32),
) {
    let counter = index * 2;
    let mut wqe = ((counter & 0xffff) << 8 | 0x0a).to_be_bytes().to_vec();
    wqe.extend((qp.number << 8 | 5).to_be_bytes());
    wqe.extend([0, 0, 0, 8, 0, 0, 0, 0]);
    // mlx5_wqe_av: key, destination, rate, LID; then the GRH.
    wqe.extend(qkey.to_be_bytes());
    wqe.extend([0; 4]);
    wqe.extend((1 << 31 | qpn).to_be_bytes());
    wqe.extend([0, 0]);
    wqe.extend(if gid.is_some() { 0xc001u16 } else { 1 }.to_be_bytes());
    wqe.extend([0; 12]);
    wqe.extend((u32::from(gid.is_some()) << 30).to_be_bytes());
    wqe.extend(gid.unwrap_or_default());
    wqe.extend(len.to_be_bytes());
    wqe.extend(driver.lkey.to_be_bytes());
    wqe.extend(addr.to_be_bytes());
    driver.host.write(qp.sq + 64 * u64::from(counter % 16), &wqe);
    driver.host.write(qp.record + 4, &(counter + 2).to_be_bytes());
}

fn ring(driver: &mut Driver, qp: &Qp) {
    let first = u64::from_be_bytes(driver.host.read(qp.sq, 8).try_into().unwrap());
    let offset = u64::from(driver.uar) * 4096 + 0x800;
    driver.host.ring(offset, first);
}

/// Returns the next receive completion; a send completion may come before or after it.
fn received(driver: &mut Driver, cq: &mut Cq) -> Vec<u8> {
    loop {
        let cqe = driver.poll(cq);
        if matches!(cqe[63] >> 4, 1..=4 | 0xe) {
            return cqe;
        }
    }
}

#[test]
fn datagrams_arrive_behind_forty_bytes_and_with_the_right_key_only() {
    let mut driver = Driver::up();
    let eqn = driver.eq(1, 0);
    let mut cq = driver.cq(eqn);
    let ud = |context: &mut [u8]| qp::qpc::ST.set(context, 2);
    let qps = [driver.qp_with(&cq, ud), driver.qp_with(&cq, ud)];
    for qp in &qps {
        driver.open(qp.number, 0x1111_1111);
    }
    let (from, to) = (driver.page(), driver.page());
    driver.host.write(from, b"datagram");
    receive(&driver, &qps[1], 0, to, 4096);
    // The first has a wrong Q_Key and is dropped; the second arrives.
    send_datagram(&driver, &qps[0], 0, (qps[1].number, 0x2222, None), (from, 3));
    send_datagram(&driver, &qps[0], 1, (qps[1].number, 0x1111_1111, None), (from, 8));
    ring(&mut driver, &qps[0]);
    let cqe = received(&mut driver, &mut cq);
    assert_eq!(cqe[44..48], 48u32.to_be_bytes());
    assert_eq!(driver.host.read(to + 40, 8), b"datagram");
    let cqe = mlx5_cqe64::read_from_bytes(&cqe).unwrap();
    assert_eq!(FlagsRqpn(cqe.flags_rqpn.get()).rqpn(), qps[0].number);
}

#[test]
fn a_group_hears_what_is_sent_to_it() {
    let mut driver = Driver::up();
    let eqn = driver.eq(1, 0);
    let mut cq = driver.cq(eqn);
    let ud = |context: &mut [u8]| qp::qpc::ST.set(context, 2);
    let (a, b) = (driver.qp_with(&cq, ud), driver.qp_with(&cq, ud));
    driver.open(a.number, 5);
    driver.open(b.number, 5);
    let gid = [0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let mut join = [0; mcast::attach_to_mcg_in::SIZE];
    mcast::attach_to_mcg_in::QPN.set(&mut join, b.number.into());
    let (status, _) = driver.run(CmdOpcode::ATTACH_TO_MCG, 0, &join, 16);
    assert_eq!(status, CmdStatus::BAD_PARAM_ERR, "no group's address");
    mcast::attach_to_mcg_in::MULTICAST_GID.of_mut(&mut join).copy_from_slice(&gid);
    driver.ok(CmdOpcode::ATTACH_TO_MCG, 0, &join, 16);
    let (from, to) = (driver.page(), driver.page());
    driver.host.write(from, b"all");
    receive(&driver, &b, 0, to, 4096);
    send_datagram(&driver, &a, 0, (0xff_ffff, 5, Some(gid)), (from, 3));
    ring(&mut driver, &a);
    received(&mut driver, &mut cq);
    assert_eq!(driver.host.read(to + 40, 3), b"all");
    driver.ok(CmdOpcode::DETACH_FROM_MCG, 0, &join, 16);
    let (status, _) = driver.run(CmdOpcode::DETACH_FROM_MCG, 0, &join, 16);
    assert_eq!(status, CmdStatus::BAD_PARAM_ERR);
}

#[test]
fn a_shared_queue_gives_receives_and_tells_when_few_are_left() {
    let mut driver = Driver::up();
    let asynchronous = driver.eq(0, 1 << 0x14);
    let eqn = driver.eq(1, 0);
    let mut cq = driver.cq(eqn);
    let (srqn, srq, record) = driver.srq();
    let shared = |context: &mut [u8]| {
        qp::qpc::RQ_TYPE.set(context, 1);
        qp::qpc::SRQN_RMPN_XRQN.set(context, srqn.into());
    };
    let a = driver.qp(&cq);
    // Without a receive ring the send ring comes first.
    let b = driver.qp_with(&cq, shared);
    driver.join(&a, &b);
    let (from, to) = (driver.page(), driver.page());
    for slot in 0..3u64 {
        let mut wqe = 64u32.to_be_bytes().to_vec();
        wqe.extend(driver.lkey.to_be_bytes());
        wqe.extend((to + 64 * slot).to_be_bytes());
        driver.host.write(srq + 32 * slot + 16, &wqe);
    }
    driver.host.write(record, &3u32.to_be_bytes());
    let mut arm = [0; rq::modify_rmp_in::SIZE];
    rq::modify_rmp_in::RMPN.set(&mut arm, srqn.into());
    rq::modify_rmp_in::BITMASK.set(&mut arm, 1);
    let wq = rq::rmpc::WQ.of_mut(rq::modify_rmp_in::CTX.of_mut(&mut arm));
    rq::wq::LWM.set(wq, 2);
    driver.ok(CmdOpcode::MODIFY_RMP, 0, &arm, 16);
    let limit = |driver: &mut Driver| {
        let mut query = [0; 16];
        rq::query_rmp_in::RMPN.set(&mut query, srqn.into());
        let answer = driver.ok(CmdOpcode::QUERY_RMP, 0, &query, 272);
        rq::wq::LWM.get(rq::rmpc::WQ.of(rq::query_rmp_out::RMP_CONTEXT.of(&answer)))
    };
    assert_eq!(limit(&mut driver), 2);
    let key = driver.lkey;
    for index in 0..2u32 {
        driver.host.write(from, &index.to_be_bytes());
        send(&mut driver, &a, index, (key, from, 4));
        received(&mut driver, &mut cq);
        assert_eq!(driver.host.read(to + 64 * u64::from(index), 4), index.to_be_bytes());
    }
    assert_eq!(driver.event(asynchronous), (0x14, srqn));
    assert_eq!(limit(&mut driver), 0, "told once");
    let rmpn = rq::destroy_rmp_in::RMPN;
    assert_eq!(driver.about(CmdOpcode::DESTROY_RMP, rmpn, srqn), CmdStatus::RES_BUSY);
    let xrc_srqn = rq::destroy_xrc_srq_in::XRC_SRQN;
    assert_eq!(driver.about(CmdOpcode::DESTROY_XRC_SRQ, xrc_srqn, srqn), CmdStatus::BAD_RES_ERR);
    let qpn = qp::destroy_qp_in::QPN;
    assert_eq!(driver.about(CmdOpcode::DESTROY_QP, qpn, b.number), CmdStatus::OK);
    assert_eq!(driver.about(CmdOpcode::DESTROY_RMP, rmpn, srqn), CmdStatus::OK);
}

#[test]
fn a_reset_leaves_nothing() {
    a_reset_leaves_nothing_by(|driver| drop(driver.host.request(13, &[], &[]).unwrap()));
}

#[test]
fn a_function_level_reset_leaves_nothing() {
    a_reset_leaves_nothing_by(|driver| {
        // The PCI Express capability follows MSI-X.
        assert_eq!(driver.host.config(0x40) >> 8 & 0xff, 0x60);
        assert_eq!(driver.host.config(0x60) & 0xffff, 0x10);
        driver.host.configure(4, &[6, 0]);
        driver.host.configure(0x68, &0x8810u16.to_le_bytes());
        assert_eq!(driver.host.config(4) & 0xffff, 0, "registers are as after power-on");
    });
}

fn a_reset_leaves_nothing_by(reset: impl FnOnce(&mut Driver)) {
    let Pair { mut driver, cq, qps: [a, _], .. } = pair();
    reset(&mut driver);
    // The command queue's address is reset, too.
    assert_eq!(driver.host.get(0x14), 0x56);
    let cmdq = driver.slot(0);
    driver.host.set(0x10, (cmdq >> 32) as u32);
    driver.host.set(0x14, cmdq as u32);
    driver.ok(CmdOpcode::ENABLE_HCA, 0, &[0; 16], 16);
    driver.ok(CmdOpcode::INIT_HCA, 0, &[0; 16], 16);
    let (qpn, cqn) = (qp::destroy_qp_in::QPN, cq::destroy_cq_in::CQN);
    assert_eq!(driver.about(CmdOpcode::DESTROY_QP, qpn, a.number), CmdStatus::BAD_RES_ERR);
    assert_eq!(driver.about(CmdOpcode::DESTROY_CQ, cqn, cq.number), CmdStatus::BAD_RES_ERR);
}

/// MODIFY_CQ of the fields `select`: an event after `count` completions, or after `period`
/// microseconds.
fn moderate(
    driver: &mut Driver,
    cq: &Cq,
    select: u64,
    (period, count, mode): (u64, u64, u64),
) -> CmdStatus {
    let mut input = vec![0; cq::modify_cq_in::SIZE];
    cq::modify_cq_in::CQN.set(&mut input, cq.number.into());
    cq::modify_cq_in::MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT.set(&mut input, select);
    let context = cq::modify_cq_in::CQ_CONTEXT.of_mut(&mut input);
    cq::cqc::CQ_PERIOD.set(context, period);
    cq::cqc::CQ_MAX_COUNT.set(context, count);
    cq::cqc::CQ_PERIOD_MODE.set(context, mode);
    driver.run(CmdOpcode::MODIFY_CQ, 0, &input, 16).0
}

#[test]
fn events_come_in_bundles() {
    let Pair { mut driver, eqn, mut cq, qps: [a, b] } = pair();
    let page = driver.page();
    let key = driver.lkey;
    // Four completions: two SENDs and their receives.
    assert_eq!(moderate(&mut driver, &cq, 0b10, (0, 4, 0)), CmdStatus::OK);
    driver.arm_cq(&cq);
    for index in 0..2 {
        receive(&driver, &b, index, page, 64);
        send(&mut driver, &a, index, (key, page, 8));
        driver.poll(&mut cq);
        driver.poll(&mut cq);
        // The event follows its completion.
        driver.ok(CmdOpcode::NOP, 0, &[0; 16], 16);
        let (_, ring, _) = driver.eqs[0];
        assert_eq!(driver.host.read(ring + 63, 1), [u8::from(index == 0)], "after {index}");
    }
    assert_eq!(driver.event(eqn), (0, cq.number));
    // A single completion raises its event after the period.
    assert_eq!(moderate(&mut driver, &cq, 0b11, (2000, 100, 0)), CmdStatus::OK);
    driver.arm_cq(&cq);
    receive(&driver, &b, 2, page, 64);
    send(&mut driver, &a, 2, (key, page, 8));
    assert_eq!(driver.event(eqn), (0, cq.number));
    // Selected fields have the new values; the device refuses other fields.
    let mut query = [0; 16];
    cq::query_cq_in::CQN.set(&mut query, cq.number.into());
    let answer = driver.ok(CmdOpcode::QUERY_CQ, 0, &query, cq::query_cq_out::SIZE);
    let context = cq::query_cq_out::CQ_CONTEXT.of(&answer);
    assert_eq!(cq::cqc::CQ_PERIOD.get(context), 2000);
    assert_eq!(cq::cqc::CQ_MAX_COUNT.get(context), 100);
    for (select, mode) in [(0b100, 0), (1 << 31, 0), (1 << 4, 2), (1 << 4, 3)] {
        let status = moderate(&mut driver, &cq, select, (1, 1, mode));
        assert_eq!(status, CmdStatus::BAD_PARAM_ERR, "{select:#x} {mode}");
    }
}
