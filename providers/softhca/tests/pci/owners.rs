//! Users of the command interface may name only their objects, since numbers are easily guessed.

use uverbs_mlx5_prm::cmd::header::cmd_in;
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::{Field, cq, dct, eq, qp, rq, simple};

use crate::driver::{Driver, with_page};

/// Value of `rq_type` for an SRQ.
const SHARED: u64 = 1;

/// Objects of one user.
#[derive(Clone, Copy)]
struct Own {
    uid: u64,
    uar: u32,
    pd: u32,
    eqn: u32,
    cqn: u32,
    srqn: u32,
}

fn run(driver: &mut Driver, uid: u64, opcode: CmdOpcode, mut input: Vec<u8>) -> CmdStatus {
    cmd_in::UID.set(&mut input, uid);
    driver.run(opcode, 0, &input, 512).0
}

/// Creates an object as user `uid`. Returns its number.
fn make(
    driver: &mut Driver,
    uid: u64,
    opcode: CmdOpcode,
    mut input: Vec<u8>,
    number: Field,
) -> u32 {
    cmd_in::UID.set(&mut input, uid);
    number.get32(&driver.ok(opcode, 0, &input, 16))
}

/// Input of a command whose only parameter is a number.
fn about(field: Field, number: u32) -> Vec<u8> {
    let mut input = vec![0; 16];
    field.set(&mut input, number.into());
    input
}

fn eq_input(driver: &mut Driver, own: Own) -> Vec<u8> {
    let mut input = with_page(eq::create_eq_in::SIZE, driver.page());
    let context = eq::create_eq_in::EQ_CONTEXT_ENTRY.of_mut(&mut input);
    eq::eqc::LOG_EQ_SIZE.set(context, 3);
    eq::eqc::UAR_PAGE.set(context, own.uar.into());
    input
}

fn cq_input(driver: &mut Driver, own: Own) -> Vec<u8> {
    let (ring, record) = (driver.page(), driver.page());
    let mut input = with_page(cq::create_cq_in::SIZE, ring);
    let context = cq::create_cq_in::CQ_CONTEXT.of_mut(&mut input);
    cq::cqc::LOG_CQ_SIZE.set(context, 4);
    cq::cqc::UAR_PAGE.set(context, own.uar.into());
    cq::cqc::C_EQN_OR_APU_ELEMENT.set(context, own.eqn.into());
    cq::cqc::DBR_ADDR.set(context, record);
    input
}

fn srq_input(driver: &mut Driver, own: Own) -> Vec<u8> {
    let (ring, record) = (driver.page(), driver.page());
    let mut input = with_page(rq::create_rmp_in::SIZE, ring);
    let queue = rq::rmpc::WQ.of_mut(rq::create_rmp_in::CTX.of_mut(&mut input));
    rq::wq::LOG_WQ_SZ.set(queue, 4);
    rq::wq::LOG_WQ_STRIDE.set(queue, 5);
    rq::wq::PD.set(queue, own.pd.into());
    rq::wq::DBR_ADDR.set(queue, record);
    input
}

/// Input of a queue pair that sends with objects of `send` and receives with objects of `own`.
fn qp_input(driver: &mut Driver, own: Own, send: u32) -> Vec<u8> {
    let (ring, record) = (driver.page(), driver.page());
    let mut input = with_page(qp::create_qp_in::SIZE, ring);
    let context = qp::create_qp_in::QPC.of_mut(&mut input);
    for (field, value) in [
        (qp::qpc::PD, own.pd),
        (qp::qpc::LOG_SQ_SIZE, 4),
        (qp::qpc::UAR_PAGE, own.uar),
        (qp::qpc::CQN_SND, send),
        (qp::qpc::CQN_RCV, own.cqn),
        (qp::qpc::SRQN_RMPN_XRQN, own.srqn),
    ] {
        field.set(context, value.into());
    }
    qp::qpc::RQ_TYPE.set(context, SHARED);
    qp::qpc::DBR_ADDR.set(context, record);
    input
}

fn dct_input(own: Own) -> Vec<u8> {
    let mut input = vec![0; dct::create_dct_in::SIZE];
    let context = dct::create_dct_in::DCT_CONTEXT_ENTRY.of_mut(&mut input);
    dct::dctc::PD.set(context, own.pd.into());
    dct::dctc::CQN.set(context, own.cqn.into());
    dct::dctc::SRQN_XRQN.set(context, own.srqn.into());
    dct::dctc::MTU.set(context, 3);
    dct::dctc::PORT.set(context, 1);
    input
}

/// Creates one object of each kind as user `uid`.
fn own(driver: &mut Driver, uid: u64) -> Own {
    let mut own = Own { uid, uar: 0, pd: 0, eqn: 0, cqn: 0, srqn: 0 };
    let uar = simple::alloc_uar_out::UAR;
    own.uar = make(driver, uid, CmdOpcode::ALLOC_UAR, vec![0; 16], uar);
    own.pd = make(driver, uid, CmdOpcode::ALLOC_PD, vec![0; 16], simple::alloc_pd_out::PD);
    let input = eq_input(driver, own);
    own.eqn = make(driver, uid, CmdOpcode::CREATE_EQ, input, eq::create_eq_out::EQ_NUMBER);
    let input = cq_input(driver, own);
    own.cqn = make(driver, uid, CmdOpcode::CREATE_CQ, input, cq::create_cq_out::CQN);
    let input = srq_input(driver, own);
    own.srqn = make(driver, uid, CmdOpcode::CREATE_RMP, input, rq::create_rmp_out::RMPN);
    own
}

/// A command that creates an object is refused if it names another user's object.
#[test]
fn what_a_command_names_must_be_its_users() {
    let mut driver = Driver::up();
    let (one, two) = (own(&mut driver, 1), own(&mut driver, 2));
    // One object of the second user in a command of the first user.
    let mixed = |change: fn(&mut Own, Own)| {
        let mut mixed = one;
        change(&mut mixed, two);
        mixed
    };
    let mut cases = Vec::new();
    for (own, bad) in [
        (one, false),
        (mixed(|own, two| own.uar = two.uar), true),
        (mixed(|own, two| own.eqn = two.eqn), true),
    ] {
        cases.push(("cq", CmdOpcode::CREATE_CQ, cq_input(&mut driver, own), bad));
    }
    let foreign_uar = mixed(|own, two| own.uar = two.uar);
    cases.push(("eq", CmdOpcode::CREATE_EQ, eq_input(&mut driver, foreign_uar), true));
    let foreign_pd = mixed(|own, two| own.pd = two.pd);
    cases.push(("srq's pd", CmdOpcode::CREATE_RMP, srq_input(&mut driver, foreign_pd), true));
    for (name, own, send, bad) in [
        ("qp", one, one.cqn, false),
        ("qp's send cq", one, two.cqn, true),
        ("qp's recv cq", mixed(|own, two| own.cqn = two.cqn), one.cqn, true),
        ("qp's srq", mixed(|own, two| own.srqn = two.srqn), one.cqn, true),
        ("qp's uar", mixed(|own, two| own.uar = two.uar), one.cqn, true),
    ] {
        cases.push((name, CmdOpcode::CREATE_QP, qp_input(&mut driver, own, send), bad));
    }
    for (name, own, bad) in [
        ("dct", one, false),
        ("dct's cq", mixed(|own, two| own.cqn = two.cqn), true),
        ("dct's srq", mixed(|own, two| own.srqn = two.srqn), true),
    ] {
        cases.push((name, CmdOpcode::CREATE_DCT, dct_input(own), bad));
    }
    for (name, opcode, input, bad) in cases {
        let status = run(&mut driver, one.uid, opcode, input.clone());
        let wanted = if bad { CmdStatus::BAD_RES_ERR } else { CmdStatus::OK };
        assert_eq!(status, wanted, "{name}");
        // The driver may name any object.
        assert_eq!(run(&mut driver, 0, opcode, input), CmdStatus::OK, "{name}");
    }
}

/// A user may modify, query and destroy only its objects.
#[test]
fn what_a_command_is_about_must_be_its_users() {
    let mut driver = Driver::up();
    let one = own(&mut driver, 1);
    let input = qp_input(&mut driver, one, one.cqn);
    let qpn = make(&mut driver, 1, CmdOpcode::CREATE_QP, input, qp::create_qp_out::QPN);
    let input = dct_input(one);
    let dctn = make(&mut driver, 1, CmdOpcode::CREATE_DCT, input, dct::create_dct_out::DCTN);
    let mut init = vec![0; qp::rst2init_qp_in::SIZE];
    qp::rst2init_qp_in::QPN.set(&mut init, qpn.into());
    // In an order in which the owner's commands succeed.
    let commands = [
        (CmdOpcode::QUERY_EQ, about(eq::query_eq_in::EQ_NUMBER, one.eqn)),
        (CmdOpcode::QUERY_CQ, about(cq::query_cq_in::CQN, one.cqn)),
        (CmdOpcode::QUERY_RMP, about(rq::query_rmp_in::RMPN, one.srqn)),
        (CmdOpcode::QUERY_QP, about(qp::query_qp_in::QPN, qpn)),
        (CmdOpcode::QUERY_DCT, about(dct::query_dct_in::DCTN, dctn)),
        (CmdOpcode::RST2INIT_QP, init),
        (CmdOpcode::DRAIN_DCT, about(dct::drain_dct_in::DCTN, dctn)),
        (CmdOpcode::DESTROY_DCT, about(dct::destroy_dct_in::DCTN, dctn)),
        (CmdOpcode::DESTROY_QP, about(qp::destroy_qp_in::QPN, qpn)),
        (CmdOpcode::DESTROY_RMP, about(rq::destroy_rmp_in::RMPN, one.srqn)),
        (CmdOpcode::DESTROY_CQ, about(cq::destroy_cq_in::CQN, one.cqn)),
        (CmdOpcode::DESTROY_EQ, about(eq::destroy_eq_in::EQ_NUMBER, one.eqn)),
        (CmdOpcode::DEALLOC_UAR, about(simple::dealloc_uar_in::UAR, one.uar)),
        (CmdOpcode::DEALLOC_PD, about(simple::dealloc_pd_in::PD, one.pd)),
    ];
    for (opcode, input) in &commands {
        let status = run(&mut driver, 2, *opcode, input.clone());
        assert_eq!(status, CmdStatus::BAD_RES_ERR, "{opcode} of another");
    }
    for (opcode, input) in commands {
        assert_eq!(run(&mut driver, 1, opcode, input), CmdStatus::OK, "{opcode}");
    }
}

/// Every user may name the driver's doorbell pages and the event queues of completions, and no
/// other object of the driver.
#[test]
fn some_of_the_drivers_is_everybodys() {
    let mut driver = Driver::up();
    let one = own(&mut driver, 1);
    let completions = driver.eq(0, 0);
    let events = driver.eq(0, 1 << 5);
    let theirs = driver.cq(completions).number;
    let (srqn, ..) = driver.srq();
    let uar = driver.uar;
    for (own, status) in [
        (Own { uar, eqn: completions, ..one }, CmdStatus::OK),
        (Own { eqn: events, ..one }, CmdStatus::BAD_RES_ERR),
    ] {
        let input = cq_input(&mut driver, own);
        assert_eq!(run(&mut driver, 1, CmdOpcode::CREATE_CQ, input), status);
    }
    for (own, send, status) in [
        (Own { uar, ..one }, one.cqn, CmdStatus::OK),
        (one, theirs, CmdStatus::BAD_RES_ERR),
        (Own { srqn, ..one }, one.cqn, CmdStatus::BAD_RES_ERR),
    ] {
        let input = qp_input(&mut driver, own, send);
        assert_eq!(run(&mut driver, 1, CmdOpcode::CREATE_QP, input), status);
    }
}
