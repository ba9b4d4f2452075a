//! General objects: reserved queue pair numbers, and address vectors mapped to a queue pair.

use uverbs_mlx5_prm::cmd::general::{
    AV_QP_MAPPING, AV_QP_MAPPING_IN, AV_QP_MAPPING_QPN, CREATE_LOG_OBJ_RANGE, RESERVED_QPN,
    RESERVED_QPN_IN, general_obj_in_cmd_hdr as header, general_obj_out_cmd_hdr as answer,
};
use uverbs_mlx5_prm::cmd::header::cmd_in;
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::{caps, hca};

use crate::driver::Driver;

/// Runs a command. `obj_type` is at the offset of `op_mod`.
fn run(
    driver: &mut Driver,
    (opcode, kind): (CmdOpcode, u16),
    uid: u64,
    mut input: Vec<u8>,
) -> (CmdStatus, u32) {
    cmd_in::UID.set(&mut input, uid);
    let (status, output) = driver.run(opcode, kind, &input, 16);
    (status, answer::OBJ_ID.get32(&output))
}

fn create(driver: &mut Driver, uid: u64, kind: u16, input: Vec<u8>) -> (CmdStatus, u32) {
    run(driver, (CmdOpcode::CREATE_GENERAL_OBJECT, kind), uid, input)
}

fn destroy(driver: &mut Driver, uid: u64, kind: u16, id: u32) -> CmdStatus {
    let mut input = vec![0; 16];
    header::OBJ_ID.set(&mut input, id.into());
    run(driver, (CmdOpcode::DESTROY_GENERAL_OBJECT, kind), uid, input).0
}

fn block(log: u64) -> Vec<u8> {
    let mut input = vec![0; RESERVED_QPN_IN];
    CREATE_LOG_OBJ_RANGE.set(&mut input, log);
    input
}

fn granularity(driver: &mut Driver) -> u64 {
    let general = driver.ok(CmdOpcode::QUERY_HCA_CAP, 1, &[0; 16], 16 + 4096);
    let general = hca::query_hca_cap_out::CAPABILITY.of(&general);
    assert!(caps::cmd_hca_cap::HCA_CAP_2.is_set(general));
    let kinds = caps::cmd_hca_cap::GENERAL_OBJ_TYPES.get(general);
    assert_eq!(kinds, 1 << RESERVED_QPN | 1 << AV_QP_MAPPING);
    // MLX5_CAP_GENERAL_2, current values.
    let more = driver.ok(CmdOpcode::QUERY_HCA_CAP, 0x20 << 1 | 1, &[0; 16], 16 + 4096);
    let more = hca::query_hca_cap_out::CAPABILITY.of(&more);
    caps::LOG_RESERVED_QPN_GRANULARITY.get(more)
}

#[test]
fn reserved_numbers_are_nobody_elses() {
    let mut driver = Driver::up();
    let log = granularity(&mut driver);
    let mut blocks = Vec::new();
    for _ in 0..3 {
        let (status, first) = create(&mut driver, 0, RESERVED_QPN, block(log));
        assert_eq!((status, first % (1 << log)), (CmdStatus::OK, 0));
        blocks.push(first);
    }
    blocks.sort_unstable();
    assert!(blocks.windows(2).all(|two| two[0] + (1 << log) <= two[1]), "{blocks:x?}");
    let eqn = driver.eq(1, 0);
    let cq = driver.cq(eqn);
    let qpn = driver.qp(&cq).number;
    assert!(blocks.iter().all(|first| !(*first..first + (1 << log)).contains(&qpn)));
    // A number inside a block is no block, and a block can be destroyed once.
    assert_eq!(destroy(&mut driver, 0, RESERVED_QPN, blocks[0] + 1), CmdStatus::BAD_RES_ERR);
    assert_eq!(destroy(&mut driver, 0, RESERVED_QPN, blocks[0]), CmdStatus::OK);
    assert_eq!(destroy(&mut driver, 0, RESERVED_QPN, blocks[0]), CmdStatus::BAD_RES_ERR);
    assert_eq!(destroy(&mut driver, 0, RESERVED_QPN, u32::MAX), CmdStatus::BAD_RES_ERR);
    assert_eq!(create(&mut driver, 0, RESERVED_QPN, block(log)), (CmdStatus::OK, blocks[0]));
    // Blocks of a wrong size, of a wrong kind, too short, and of another user.
    for log in [0, log - 1, log + 1, 31] {
        let status = create(&mut driver, 0, RESERVED_QPN, block(log)).0;
        assert_eq!(status, CmdStatus::BAD_PARAM_ERR, "{log}");
    }
    for kind in [0, 0x26, 0xffff] {
        assert_eq!(create(&mut driver, 0, kind, block(log)).0, CmdStatus::BAD_PARAM_ERR);
        assert_eq!(destroy(&mut driver, 0, kind, 1), CmdStatus::BAD_PARAM_ERR);
    }
    let status = create(&mut driver, 0, RESERVED_QPN, vec![0; 16]).0;
    assert_eq!(status, CmdStatus::BAD_INP_LEN_ERR);
    assert_eq!(destroy(&mut driver, 5, RESERVED_QPN, blocks[1]), CmdStatus::BAD_RES_ERR);
}

#[test]
fn an_address_is_mapped_to_a_queue_pair_that_is_there() {
    let mut driver = Driver::up();
    let eqn = driver.eq(1, 0);
    let cq = driver.cq(eqn);
    let qpn = driver.qp(&cq).number;
    let input = |qpn: u32| {
        let mut input = vec![0; AV_QP_MAPPING_IN];
        AV_QP_MAPPING_QPN.set(&mut input, qpn.into());
        input
    };
    let (status, id) = create(&mut driver, 0, AV_QP_MAPPING, input(qpn));
    assert_eq!(status, CmdStatus::OK);
    // The owner is not checked: a peer's queue pair is mapped, too.
    assert_eq!(create(&mut driver, 5, AV_QP_MAPPING, input(qpn)).0, CmdStatus::OK);
    for (uid, other) in [(0, qpn + 1), (0, 0), (0, u32::MAX), (5, qpn + 1)] {
        let status = create(&mut driver, uid, AV_QP_MAPPING, input(other)).0;
        assert_eq!(status, CmdStatus::BAD_RES_ERR, "{uid} {other:x}");
    }
    let short = create(&mut driver, 0, AV_QP_MAPPING, vec![0; AV_QP_MAPPING_IN - 4]).0;
    assert_eq!(short, CmdStatus::BAD_INP_LEN_ERR);
    assert_eq!(destroy(&mut driver, 0, AV_QP_MAPPING, id), CmdStatus::OK);
    assert_eq!(destroy(&mut driver, 0, AV_QP_MAPPING, id), CmdStatus::BAD_RES_ERR);
}
