//! Counters that a driver queries.

use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::{caps, flow, hca, qp, register, simple, vport};

use crate::data::{receive, send};
use crate::driver::Driver;

fn q_counters(driver: &mut Driver, set: u32, clear: u64) -> (CmdStatus, Vec<u8>) {
    let mut input = [0; vport::query_q_counter_in::SIZE];
    vport::query_q_counter_in::COUNTER_SET_ID.set(&mut input, set.into());
    vport::query_q_counter_in::CLEAR.set(&mut input, clear);
    let len = vport::query_q_counter_out::SIZE;
    driver.run(CmdOpcode::QUERY_Q_COUNTER, 0, &input, len)
}

#[test]
fn a_set_counts_for_the_queue_pairs_that_name_it() {
    let mut driver = Driver::up();
    let eqn = driver.eq(1, 0);
    let mut cq = driver.cq(eqn);
    let answer = driver.ok(CmdOpcode::ALLOC_Q_COUNTER, 0, &[0; 16], 16);
    let set = simple::alloc_q_counter_out::COUNTER_SET_ID.get32(&answer);
    let named = |context: &mut [u8]| qp::qpc::COUNTER_SET_ID.set(context, set.into());
    let (a, b) = (driver.qp_with(&cq, named), driver.qp(&cq));
    driver.join(&a, &b);
    // mlx5_ib also names the counter set in the first transition (`__mlx5_ib_modify_qp`). The
    // transition by `connect`, with set 0, removed `a` from its set.
    let mut input = [0; qp::rst2init_qp_in::SIZE];
    qp::rst2init_qp_in::QPN.set(&mut input, a.number.into());
    qp::rst2init_qp_in::OPT_PARAM_MASK.set(&mut input, 1 << 25);
    named(qp::rst2init_qp_in::QPC.of_mut(&mut input));
    driver.ok(CmdOpcode::RTS2RTS_QP, 0, &input, 16);
    let page = driver.page();
    receive(&driver, &b, 0, page, 64);
    let lkey = driver.lkey;
    send(&mut driver, &a, 0, (lkey, page, 65));
    while driver.poll(&mut cq)[63] >> 4 != 0xd {}
    let (status, counts) = q_counters(&mut driver, set, 0);
    assert_eq!(status, CmdStatus::OK);
    let errors = [
        vport::query_q_counter_out::REQ_CQE_ERROR,
        vport::query_q_counter_out::REQ_REMOTE_INVALID_REQUEST,
        vport::query_q_counter_out::RESP_CQE_ERROR,
    ];
    assert_eq!(errors.map(|field| field.get(&counts)), [1, 1, 0], "of the one, not of the other");
    // Reads and clears a set; another set; and a freed set.
    assert_eq!(q_counters(&mut driver, set, 1).1, counts);
    assert_eq!(errors.map(|field| field.get(&q_counters(&mut driver, set, 0).1)), [0; 3]);
    assert_eq!(q_counters(&mut driver, set + 1, 0).0, CmdStatus::BAD_RES_ERR);
    assert_eq!(q_counters(&mut driver, 0, 0).0, CmdStatus::BAD_RES_ERR);
    let field = simple::dealloc_q_counter_in::COUNTER_SET_ID;
    assert_eq!(driver.about(CmdOpcode::DEALLOC_Q_COUNTER, field, set), CmdStatus::OK);
    assert_eq!(q_counters(&mut driver, set, 0).0, CmdStatus::BAD_RES_ERR);
    // As many sets as the capabilities say.
    let answer = driver.ok(CmdOpcode::QUERY_HCA_CAP, 1, &[0; 16], 16 + 4096);
    let cap = hca::query_hca_cap_out::CAPABILITY.of(&answer);
    for _ in 0..caps::cmd_hca_cap::MAX_QP_CNT.get(cap) {
        driver.ok(CmdOpcode::ALLOC_Q_COUNTER, 0, &[0; 16], 16);
    }
    let (status, _) = driver.run(CmdOpcode::ALLOC_Q_COUNTER, 0, &[0; 16], 16);
    assert_eq!(status, CmdStatus::NO_RES_ERR);
}

#[test]
fn the_port_counts_packets_and_bytes() {
    let mut driver = Driver::up();
    let eqn = driver.eq(1, 0);
    let mut cq = driver.cq(eqn);
    let (a, b) = (driver.qp(&cq), driver.qp(&cq));
    driver.join(&a, &b);
    let page = driver.page();
    receive(&driver, &b, 0, page, 4096);
    let lkey = driver.lkey;
    send(&mut driver, &a, 0, (lkey, page, 100));
    driver.poll(&mut cq);
    driver.poll(&mut cq);
    let len = vport::query_vport_counter_out::SIZE;
    let answer = driver.ok(CmdOpcode::QUERY_VPORT_COUNTER, 0, &[0; 32], len);
    use vport::query_vport_counter_out as out;
    for (block, expected) in [
        // A SEND and its acknowledgement, with a local route header each: 8 + 12 + 100 + 4, and 8 +
        // 12 + 4 + 4.
        (out::TRANSMITTED_IB_UNICAST, (2, 152)),
        (out::RECEIVED_IB_UNICAST, (2, 152)),
        (out::TRANSMITTED_IB_MULTICAST, (0, 0)),
        (out::RECEIVED_IB_MULTICAST, (0, 0)),
    ] {
        let traffic = block.of(&answer);
        let packets = vport::traffic_counter::PACKETS.get(traffic);
        assert_eq!((packets, vport::traffic_counter::OCTETS.get(traffic)), expected);
    }
    // The register names the group of its counters.
    let mut input = vec![0; hca::access_register_in::SIZE + register::ppcnt_reg::SIZE];
    hca::access_register_in::REGISTER_ID.set(&mut input, 0x5008);
    let written = hca::access_register_in::REGISTER_DATA.of_mut(&mut input);
    register::ppcnt_reg::LOCAL_PORT.set(written, 1);
    register::ppcnt_reg::GRP.set(written, 0x20);
    let len = hca::access_register_out::SIZE + register::ppcnt_reg::SIZE;
    let answer = driver.ok(CmdOpcode::ACCESS_REG, 1, &input, len);
    let read = hca::access_register_out::REGISTER_DATA.of(&answer);
    assert_eq!(register::ppcnt_reg::GRP.get(read), 0x20);
    assert_eq!(register::ppcnt_reg::LOCAL_PORT.get(read), 1);
}

/// Flow counters of one allocation start at a multiple of their number, and are freed together.
#[test]
fn rows_of_flow_counters_are_made_and_end_whole() {
    let mut driver = Driver::ethernet();
    let more = driver.ok(CmdOpcode::QUERY_HCA_CAP, 0x20 << 1 | 1, &[0; 16], 16 + 4096);
    let more = hca::query_hca_cap_out::CAPABILITY.of(&more);
    let most = caps::FLOW_COUNTER_BULK_LOG_MAX_ALLOC.get(more);
    let alloc = |driver: &mut Driver, log: u64, bulk: u64| {
        let mut input = [0; flow::alloc_flow_counter_in::SIZE];
        flow::alloc_flow_counter_in::FLOW_COUNTER_BULK_LOG_SIZE.set(&mut input, log);
        flow::alloc_flow_counter_in::FLOW_COUNTER_BULK.set(&mut input, bulk);
        let (status, answer) = driver.run(CmdOpcode::ALLOC_FLOW_COUNTER, 0, &input, 16);
        (status, flow::alloc_flow_counter_out::FLOW_COUNTER_ID.get32(&answer))
    };
    let dealloc = |driver: &mut Driver, number: u32| {
        let field = flow::dealloc_flow_counter_in::FLOW_COUNTER_ID;
        driver.about(CmdOpcode::DEALLOC_FLOW_COUNTER, field, number)
    };
    let one = alloc(&mut driver, 0, 0).1;
    let (status, row) = alloc(&mut driver, 2, 0);
    assert_eq!((status, row % 4), (CmdStatus::OK, 0));
    let (status, long) = alloc(&mut driver, most, 0);
    assert_eq!((status, long % (1 << most)), (CmdStatus::OK, 0));
    let rows = [one..one + 1, row..row + 4, long..long + (1 << most)];
    assert!(
        rows.iter().flat_map(Clone::clone).collect::<std::collections::BTreeSet<_>>().len()
            == 5 + (1 << most)
    );
    for (log, bulk) in [(most + 1, 0), (31, 0), (0, 4), (2, 1)] {
        assert_eq!(alloc(&mut driver, log, bulk).0, CmdStatus::BAD_PARAM_ERR, "{log} {bulk}");
    }
    for inner in [row + 1, row + 3, long + 1] {
        assert_eq!(dealloc(&mut driver, inner), CmdStatus::BAD_PARAM_ERR, "{inner}");
    }
    for first in [row, one, long] {
        assert_eq!(dealloc(&mut driver, first), CmdStatus::OK);
        assert_ne!(dealloc(&mut driver, first), CmdStatus::OK, "twice");
    }
    assert_ne!(dealloc(&mut driver, row + 1), CmdStatus::OK, "all of it is gone");
    assert_ne!(dealloc(&mut driver, u32::MAX), CmdStatus::OK);
}
