//! Dynamic connections by commands: targets are created, drained and destroyed, and initiators
//! reach them.

use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::{caps, dct, hca, qp, rq};

use crate::driver::{Cq, Driver, Qp};

const KEY: u64 = 0xfeed_f00d_0bad_cafe;
/// DCT_DRAINED and DCT_KEY_VIOLATION.
const DRAINED: u8 = 0x1c;
const VIOLATION: u8 = 0x1d;

/// Input of CREATE_DCT.
fn context(driver: &Driver, cq: &Cq, srqn: u32) -> Vec<u8> {
    use dct::dctc::*;
    let mut input = vec![0; dct::create_dct_in::SIZE];
    let context = dct::create_dct_in::DCT_CONTEXT_ENTRY.of_mut(&mut input);
    PD.set(context, driver.pd.into());
    CQN.set(context, cq.number.into());
    SRQN_XRQN.set(context, srqn.into());
    DC_ACCESS_KEY.set(context, KEY);
    USER_INDEX.set(context, 0x55);
    RWE.set(context, 1);
    MTU.set(context, 3);
    MIN_RNR_NAK.set(context, 1);
    PORT.set(context, 1);
    input
}

fn create(driver: &mut Driver, input: &[u8]) -> u32 {
    let answer = driver.ok(CmdOpcode::CREATE_DCT, 0, input, 16);
    dct::create_dct_out::DCTN.get32(&answer)
}

/// Creates a DC initiator in RTS.
fn initiator(driver: &mut Driver, cq: &Cq) -> Qp {
    let qp = driver.qp_with(cq, |context| {
        qp::qpc::ST.set(context, 5);
        qp::qpc::RQ_TYPE.set(context, 3);
    });
    driver.connect(qp.number, 0);
    // Without a receive ring the send ring comes first.
    Qp { sq: qp.rq, ..qp }
}

/// Posts a SEND of `len` bytes at `addr` as WQE `index`, two WQEBBs each, and rings the doorbell.
fn send(driver: &mut Driver, qp: &Qp, index: u32, (dctn, key): (u32, u64), data: (u64, u32)) {
    let counter = index * 2;
    let mut wqe = ((counter & 0xffff) << 8 | 0x0a).to_be_bytes().to_vec();
    wqe.extend((qp.number << 8 | 5).to_be_bytes());
    wqe.extend([0, 0, 0, 8, 0, 0, 0, 0]);
    // mlx5_wqe_av of 48 bytes: key, target, rate, LID.
    wqe.extend(key.to_be_bytes());
    wqe.extend((1 << 31 | dctn).to_be_bytes());
    wqe.extend([0, 0, 0, 1]);
    wqe.extend([0; 32]);
    wqe.extend(data.1.to_be_bytes());
    wqe.extend(driver.lkey.to_be_bytes());
    wqe.extend(data.0.to_be_bytes());
    driver.host.write(qp.sq + 64 * u64::from(counter % 16), &wqe);
    driver.host.write(qp.record + 4, &(counter + 2).to_be_bytes());
    let doorbell = u64::from_be_bytes(wqe[..8].try_into().unwrap());
    driver.host.ring(u64::from(driver.uar) * 4096 + 0x800, doorbell);
}

fn state(driver: &mut Driver, dctn: u32) -> (u64, u64) {
    let mut query = [0; 16];
    dct::query_dct_in::DCTN.set(&mut query, dctn.into());
    let answer = driver.ok(CmdOpcode::QUERY_DCT, 0, &query, dct::query_dct_out::SIZE);
    let context = dct::query_dct_out::DCT_CONTEXT_ENTRY.of(&answer);
    assert_eq!(dct::dctc::DC_ACCESS_KEY.get(context), KEY);
    (dct::dctc::STATE.get(context), dct::dctc::DC_ACCESS_KEY_VIOLATION_COUNT.get(context))
}

#[test]
fn a_target_lives_receives_drains_and_ends() {
    let mut driver = Driver::up();
    let size = hca::query_hca_cap_out::SIZE;
    let answer = driver.ok(CmdOpcode::QUERY_HCA_CAP, 1, &[0; 16], size);
    let general = hca::query_hca_cap_out::CAPABILITY.of(&answer);
    assert!(caps::cmd_hca_cap::DCT.is_set(general));
    let asynchronous = driver.eq(0, 1 << DRAINED | 1 << VIOLATION);
    let eqn = driver.eq(1, 0);
    let (mut sent, mut arrived) = (driver.cq(eqn), driver.cq(eqn));
    let (srqn, srq, record) = driver.srq();
    let input = context(&driver, &arrived, srqn);
    let dctn = create(&mut driver, &input);
    assert_eq!(state(&mut driver, dctn), (0, 0), "active");
    let dci = initiator(&mut driver, &sent);

    let (from, to) = (driver.page(), driver.page());
    let mut receive = 64u32.to_be_bytes().to_vec();
    receive.extend(driver.lkey.to_be_bytes());
    receive.extend(to.to_be_bytes());
    driver.host.write(srq + 16, &receive);
    driver.host.write(record, &1u32.to_be_bytes());
    driver.host.write(from, b"dynamic");
    send(&mut driver, &dci, 0, (dctn, KEY), (from, 7));
    assert_eq!(driver.poll(&mut sent)[63] >> 4, 0);
    let cqe = driver.poll(&mut arrived);
    assert_eq!((cqe[63] >> 4, &cqe[44..48]), (2, &7u32.to_be_bytes()[..]));
    assert_eq!(cqe[32..36], 0x55u32.to_be_bytes(), "the user's index");
    assert_eq!(driver.host.read(to, 7), b"dynamic");

    // A wrong DC key: counted, reported once, and the initiator gives up.
    let arm = dct::arm_dct_in::DCT_NUMBER;
    let armed = driver.about(CmdOpcode::ARM_DCT_FOR_KEY_VIOLATION, arm, dctn);
    assert_eq!(armed, CmdStatus::OK);
    send(&mut driver, &dci, 1, (dctn, KEY + 1), (from, 7));
    assert_eq!(driver.event(asynchronous), (VIOLATION, dctn));
    assert!(state(&mut driver, dctn).1 > 0);

    // A target can be destroyed only after it is drained.
    let (drain, destroy) = (dct::drain_dct_in::DCTN, dct::destroy_dct_in::DCTN);
    let early = driver.about(CmdOpcode::DESTROY_DCT, destroy, dctn);
    assert_eq!(early, CmdStatus::BAD_RES_STATE_ERR);
    let (rmp, rmpn) = (CmdOpcode::DESTROY_RMP, rq::destroy_rmp_in::RMPN);
    assert_eq!(driver.about(rmp, rmpn, srqn), CmdStatus::RES_BUSY);
    assert_eq!(driver.about(CmdOpcode::DRAIN_DCT, drain, dctn), CmdStatus::OK);
    assert_eq!(driver.event(asynchronous), (DRAINED, dctn));
    assert_eq!(state(&mut driver, dctn).0, 2, "drained");
    let again = driver.about(CmdOpcode::DRAIN_DCT, drain, dctn);
    assert_eq!(again, CmdStatus::BAD_RES_STATE_ERR);
    assert_eq!(driver.about(CmdOpcode::DESTROY_DCT, destroy, dctn), CmdStatus::OK);
    assert_eq!(driver.about(CmdOpcode::DESTROY_DCT, destroy, dctn), CmdStatus::BAD_RES_ERR);
    assert_eq!(driver.about(rmp, rmpn, srqn), CmdStatus::OK);
    for opcode in [CmdOpcode::DRAIN_DCT, CmdOpcode::QUERY_DCT, CmdOpcode::ARM_DCT_FOR_KEY_VIOLATION]
    {
        let mut input = [0; 16];
        drain.set(&mut input, dctn.into());
        let (status, _) = driver.run(opcode, 0, &input, dct::query_dct_out::SIZE);
        assert_eq!(status, CmdStatus::BAD_RES_ERR, "{opcode}");
    }
}

#[test]
fn what_a_target_hangs_on_is_checked() {
    let mut driver = Driver::up();
    let eqn = driver.eq(1, 0);
    let cq = driver.cq(eqn);
    let (srqn, ..) = driver.srq();
    let good = context(&driver, &cq, srqn);
    use dct::dctc::*;
    for (field, value, status) in [
        (PD, 99, CmdStatus::BAD_RES_ERR),
        (CQN, 99, CmdStatus::BAD_RES_ERR),
        (SRQN_XRQN, 99, CmdStatus::BAD_RES_ERR),
        (MTU, 0, CmdStatus::BAD_PARAM_ERR),
        (MTU, 6, CmdStatus::BAD_PARAM_ERR),
        (PKEY_INDEX, 128, CmdStatus::BAD_PARAM_ERR),
    ] {
        let mut input = good.clone();
        field.set(dct::create_dct_in::DCT_CONTEXT_ENTRY.of_mut(&mut input), value);
        assert_eq!(driver.run(CmdOpcode::CREATE_DCT, 0, &input, 16).0, status, "{value}");
    }
    let (status, _) = driver.run(CmdOpcode::CREATE_DCT, 0, &good[..100], 16);
    assert_eq!(status, CmdStatus::BAD_INP_LEN_ERR);
    // An initiator with a receive ring.
    let mut input = vec![0; qp::create_qp_in::SIZE];
    let page = driver.page();
    input.extend(page.to_be_bytes());
    let context = qp::create_qp_in::QPC.of_mut(&mut input);
    qp::qpc::ST.set(context, 5);
    qp::qpc::PD.set(context, driver.pd.into());
    qp::qpc::UAR_PAGE.set(context, driver.uar.into());
    qp::qpc::CQN_SND.set(context, cq.number.into());
    qp::qpc::CQN_RCV.set(context, cq.number.into());
    assert_eq!(driver.run(CmdOpcode::CREATE_QP, 0, &input, 16).0, CmdStatus::BAD_PARAM_ERR);
    // A reset destroys all objects of a driver.
    let dctn = create(&mut driver, &good);
    driver.host.request(13, &[], &[]).unwrap();
    let cmdq = driver.slot(0);
    driver.host.set(0x10, (cmdq >> 32) as u32);
    driver.host.set(0x14, cmdq as u32);
    driver.ok(CmdOpcode::ENABLE_HCA, 0, &[0; 16], 16);
    driver.ok(CmdOpcode::INIT_HCA, 0, &[0; 16], 16);
    let drain = dct::drain_dct_in::DCTN;
    assert_eq!(driver.about(CmdOpcode::DRAIN_DCT, drain, dctn), CmdStatus::BAD_RES_ERR);
}
