//! Tag-matching SRQs by commands: create, query, arm, destroy.

use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::{caps, hca, qp, rq};

use crate::data::send;
use crate::driver::{Cq, Driver, Qp, with_page};

/// `rq_type` of a queue pair with an SRQ.
const SHARED: u64 = 1;
/// `op_mod` of ARM_RQ.
const XRQ: u16 = 2;
/// SRQ_LIMIT.
const LIMIT: u8 = 0x14;

/// Input of CREATE_XRQ: 16 receives of 32 bytes.
fn input(driver: &mut Driver, cq: &Cq, log_tags: u64) -> Vec<u8> {
    let (ring, record) = (driver.page(), driver.page());
    let mut input = with_page(rq::create_xrq_in::SIZE, ring);
    let context = rq::create_xrq_in::XRQ_CONTEXT.of_mut(&mut input);
    rq::xrqc::TOPOLOGY.set(context, 1);
    rq::xrqc::OFFLOAD.set(context, 1);
    rq::xrqc::USER_INDEX.set(context, 0x77);
    rq::xrqc::CQN.set(context, cq.number.into());
    let tags = rq::xrqc::TAG_MATCHING_TOPOLOGY_CONTEXT.of_mut(context);
    rq::tag_matching_topology_context::LOG_MATCHING_LIST_SZ.set(tags, log_tags);
    let ring = rq::xrqc::WQ.of_mut(context);
    rq::wq::LOG_WQ_SZ.set(ring, 4);
    rq::wq::LOG_WQ_STRIDE.set(ring, 5);
    rq::wq::PD.set(ring, driver.pd.into());
    rq::wq::DBR_ADDR.set(ring, record);
    input
}

fn create(driver: &mut Driver, input: &[u8]) -> (CmdStatus, u32) {
    let (status, answer) = driver.run(CmdOpcode::CREATE_XRQ, 0, input, 16);
    (status, rq::create_xrq_out::XRQN.get32(&answer))
}

fn destroy(driver: &mut Driver, xrqn: u32) -> CmdStatus {
    driver.about(CmdOpcode::DESTROY_XRQ, rq::destroy_xrq_in::XRQN, xrqn)
}

/// QUERY_XRQ: index of the next tag, software's count, the device's count, and the limit.
fn query(driver: &mut Driver, xrqn: u32) -> [u64; 4] {
    let mut query = [0; 16];
    rq::query_xrq_in::XRQN.set(&mut query, xrqn.into());
    let answer = driver.ok(CmdOpcode::QUERY_XRQ, 0, &query, rq::query_xrq_out::SIZE);
    let context = rq::query_xrq_out::XRQ_CONTEXT.of(&answer);
    let tags = rq::xrqc::TAG_MATCHING_TOPOLOGY_CONTEXT.of(context);
    use rq::tag_matching_topology_context::{APPEND_NEXT_INDEX, HW_PHASE_CNT, SW_PHASE_CNT};
    assert_eq!(rq::xrqc::USER_INDEX.get(context), 0x77);
    let limit = rq::wq::LWM.get(rq::xrqc::WQ.of(context));
    [APPEND_NEXT_INDEX.get(tags), SW_PHASE_CNT.get(tags), HW_PHASE_CNT.get(tags), limit]
}

fn arm(driver: &mut Driver, op_mod: u16, number: u32, limit: u64) -> CmdStatus {
    let mut input = [0; rq::arm_rq_in::SIZE];
    rq::arm_rq_in::SRQ_NUMBER.set(&mut input, number.into());
    rq::arm_rq_in::LWM.set(&mut input, limit);
    driver.run(CmdOpcode::ARM_RQ, op_mod, &input, 8).0
}

/// Creates a queue pair with the SRQ, connected with itself; its ring is a send ring only.
fn receiver(driver: &mut Driver, sends: &Cq, xrqn: u32) -> Qp {
    let qp = driver.qp_with(sends, |context| {
        qp::qpc::RQ_TYPE.set(context, SHARED);
        qp::qpc::SRQN_RMPN_XRQN.set(context, xrqn.into());
    });
    driver.connect(qp.number, qp.number);
    Qp { sq: qp.rq, ..qp }
}

/// A change of the tag list: operation, index, software's count, and length and address of the
/// tag's buffer.
struct TagChange {
    op: u8,
    place: u16,
    count: u16,
    buffer: Option<(u32, u64)>,
}

/// Posts a change of the tag list as WQE `index`, of one WQEBB, and rings the doorbell.
fn change(driver: &mut Driver, qp: &Qp, index: u16, change: &TagChange) {
    let &TagChange { op, place, count, buffer } = change;
    let mut wqe = (u32::from(index) << 8 | 0x28).to_be_bytes().to_vec();
    let ds = if op == 1 { 4 } else { 3 };
    wqe.extend((qp.number << 8 | ds).to_be_bytes());
    wqe.extend([0; 8]);
    // mlx5_wqe_tm_seg: operation; CQE requested, count valid; index, count, tag, mask.
    wqe.extend([op << 4, 0xc0]);
    wqe.extend(place.to_be_bytes());
    wqe.extend([0; 2]);
    wqe.extend(count.to_be_bytes());
    wqe.extend([0; 8]);
    wqe.extend(5u64.to_be_bytes());
    wqe.extend(u64::MAX.to_be_bytes());
    if ds == 4 {
        // The invalid key, if there is no buffer.
        let (len, addr) = buffer.unwrap_or_default();
        let key = if buffer.is_some() { driver.lkey } else { 0x100 };
        wqe.extend(len.to_be_bytes());
        wqe.extend(key.to_be_bytes());
        wqe.extend(addr.to_be_bytes());
    }
    driver.host.write(qp.sq + 64 * u64::from(index), &wqe);
    driver.host.write(qp.record + 4, &u32::from(index + 1).to_be_bytes());
    let doorbell = u64::from_be_bytes(wqe[..8].try_into().unwrap());
    driver.host.ring(u64::from(driver.uar) * 4096 + 0x800, doorbell);
}

#[test]
fn a_queue_is_made_gets_tags_and_ends() {
    let mut driver = Driver::up();
    let answer = driver.ok(CmdOpcode::QUERY_HCA_CAP, 1, &[0; 16], 16 + 4096);
    let cap = hca::query_hca_cap_out::CAPABILITY.of(&answer);
    assert!(caps::cmd_hca_cap::TAG_MATCHING.is_set(cap));
    assert!(caps::cmd_hca_cap::RNDV_OFFLOAD_RC.is_set(cap));
    let most = caps::cmd_hca_cap::LOG_TAG_MATCHING_LIST_SZ.get(cap);
    let eqn = driver.eq(1, 1 << LIMIT);
    let mut cq = driver.cq(eqn);
    let asked = input(&mut driver, &cq, most);
    let (status, xrqn) = create(&mut driver, &asked);
    assert_eq!((status, query(&mut driver, xrqn)), (CmdStatus::OK, [0; 4]));
    // The queue pair for changes uses the SRQ, and is connected with itself.
    let qp = receiver(&mut driver, &cq, xrqn);
    for (index, op, place, app_op) in [(0, 1, 3, 5), (1, 1, 4, 5), (2, 2, 3, 6), (3, 0, 0, 7)] {
        change(&mut driver, &qp, index, &TagChange { op, place, count: 9, buffer: None });
        let cqe = driver.poll(&mut cq);
        // NO_PACKET; user index; tag matching and its operation; success.
        assert_eq!((cqe[63] >> 4, &cqe[32..36]), (6, &[0, 0, 0, 0x77][..]), "{index}");
        assert_eq!((cqe[40], cqe[41], cqe[0]), (1, app_op, 0x80));
    }
    assert_eq!(query(&mut driver, xrqn), [4, 9, 0, 0]);
    // The limit: fewer than 3 receives are posted, which the next message reveals.
    assert_eq!(arm(&mut driver, XRQ, xrqn, 3), CmdStatus::OK);
    assert_eq!(query(&mut driver, xrqn)[3], 3);
    assert_eq!(destroy(&mut driver, xrqn), CmdStatus::RES_BUSY);
    let gone = driver.about(CmdOpcode::DESTROY_QP, qp::destroy_qp_in::QPN, qp.number);
    assert_eq!(gone, CmdStatus::OK);
    assert_eq!(destroy(&mut driver, xrqn), CmdStatus::OK);
    assert_eq!(destroy(&mut driver, xrqn), CmdStatus::BAD_RES_ERR);
}

/// `offload` selects who fetches announced data: the device, or software, which gets the message's
/// headers.
#[test]
fn a_queue_says_who_fetches() {
    let mut driver = Driver::up();
    let eqn = driver.eq(1, 0);
    for offload in [0, 1] {
        let (mut cq, mut sends) = (driver.cq(eqn), driver.cq(eqn));
        let mut asked = input(&mut driver, &cq, 4);
        let context = rq::create_xrq_in::XRQ_CONTEXT.of_mut(&mut asked);
        rq::xrqc::OFFLOAD.set(context, offload);
        let xrqn = create(&mut driver, &asked).1;
        let qp = receiver(&mut driver, &sends, xrqn);
        let (message, data, buffer) = (driver.page(), driver.page(), driver.page());
        let tag = TagChange { op: 1, place: 1, count: 0, buffer: Some((64, buffer)) };
        change(&mut driver, &qp, 0, &tag);
        assert_eq!(driver.poll(&mut cq)[41], 5, "added");
        driver.host.write(data, b"announced");
        // ibv_tmh: a rendezvous, tag 5. ibv_rvh: address, key, bytes.
        let mut headers = [1, 0, 0, 0, 0, 0, 0, 0].to_vec();
        headers.extend(5u64.to_be_bytes());
        headers.extend(data.to_be_bytes());
        headers.extend(driver.lkey.to_be_bytes());
        headers.extend(9u32.to_be_bytes());
        driver.host.write(message, &headers);
        let all = (driver.lkey, message, headers.len() as u32);
        send(&mut driver, &qp, 1, all);
        let first = driver.poll(&mut cq);
        assert_eq!((first[40], &first[..16]), (1, &headers[..16]), "{offload}");
        if offload == 0 {
            // CONSUMED_MSG_SW_RDNV.
            assert_eq!((first[63] >> 4, first[41], first[47]), (2, 0xb, 32));
            assert_eq!(driver.host.read(buffer, 32), headers);
        } else {
            // CONSUMED, then EXPECTED.
            assert_eq!((first[63] >> 4, first[41]), (6, 1));
            let last = driver.poll(&mut cq);
            assert_eq!((last[63] >> 4, last[41], last[47]), (2, 2, 9));
            assert_eq!(driver.host.read(buffer, 9), b"announced");
        }
        assert_eq!(driver.poll(&mut sends)[63] >> 4, 0);
    }
}

#[test]
fn queues_that_nobody_gets() {
    let mut driver = Driver::up();
    let eqn = driver.eq(1, 0);
    let cq = driver.cq(eqn);
    type Change = fn(&mut [u8]);
    let wrong: [(CmdStatus, Change); 6] = [
        (CmdStatus::BAD_PARAM_ERR, |xrq| rq::xrqc::TOPOLOGY.set(xrq, 0)),
        (CmdStatus::BAD_RES_ERR, |xrq| rq::xrqc::CQN.set(xrq, 0xff_ffff)),
        (CmdStatus::BAD_RES_ERR, |xrq| rq::wq::PD.set(rq::xrqc::WQ.of_mut(xrq), 0xff_ffff)),
        (CmdStatus::BAD_PARAM_ERR, |xrq| rq::wq::LOG_WQ_SZ.set(rq::xrqc::WQ.of_mut(xrq), 31)),
        (CmdStatus::BAD_PARAM_ERR, |xrq| rq::wq::LOG_WQ_STRIDE.set(rq::xrqc::WQ.of_mut(xrq), 4)),
        (CmdStatus::LIM_ERR, |xrq| {
            let tags = rq::xrqc::TAG_MATCHING_TOPOLOGY_CONTEXT.of_mut(xrq);
            rq::tag_matching_topology_context::LOG_MATCHING_LIST_SZ.set(tags, 15);
        }),
    ];
    for (n, (expected, change)) in wrong.iter().enumerate() {
        let mut asked = input(&mut driver, &cq, 4);
        change(rq::create_xrq_in::XRQ_CONTEXT.of_mut(&mut asked));
        assert_eq!(create(&mut driver, &asked).0, *expected, "{n}");
    }
    let asked = input(&mut driver, &cq, 4);
    let xrqn = create(&mut driver, &asked).1;
    assert_eq!(arm(&mut driver, XRQ, xrqn, 17), CmdStatus::BAD_PARAM_ERR);
    for op_mod in [0, 1, 3] {
        assert_eq!(arm(&mut driver, op_mod, xrqn, 1), CmdStatus::BAD_PARAM_ERR);
    }
    // Each kind of SRQ has separate commands.
    let plain = driver.srq().0;
    assert_eq!(arm(&mut driver, XRQ, plain, 1), CmdStatus::BAD_RES_ERR);
    assert_eq!(destroy(&mut driver, plain), CmdStatus::BAD_RES_ERR);
    let as_pool = driver.about(CmdOpcode::DESTROY_RMP, rq::destroy_rmp_in::RMPN, xrqn);
    assert_eq!(as_pool, CmdStatus::BAD_RES_ERR);
    assert_eq!(destroy(&mut driver, xrqn), CmdStatus::OK);
}
