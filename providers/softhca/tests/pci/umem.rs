//! Queues in umems: rings and doorbell records at offsets of registered memory.

use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::umem::{
    CQ_UMEM_ID, CQ_UMEM_OFFSET, CQC_DBR_UMEM_ID, QPC_DBR_UMEM_ID, create_umem_in, create_umem_out,
    destroy_umem_in, umem,
};
use uverbs_mlx5_prm::cmd::{Field, cq, header, qp, simple};

use crate::data::{receive, send};
use crate::driver::{Cq, Driver, LOG_CQES, Qp};

/// Registers pages, from byte `offset` of the first page on.
fn register(driver: &mut Driver, pages: &[u64], offset: u64) -> u32 {
    let output = driver.ok(CmdOpcode::CREATE_UMEM, 0, &registration(pages, offset), 16);
    create_umem_out::UMEM_ID.get32(&output)
}

fn registration(pages: &[u64], offset: u64) -> Vec<u8> {
    let mut input = vec![0; create_umem_in::SIZE];
    let context = create_umem_in::UMEM.of_mut(&mut input);
    umem::NUM_OF_MTT.set(context, pages.len() as u64);
    umem::PAGE_OFFSET.set(context, offset);
    // Readable and writable.
    input.extend(pages.iter().flat_map(|page| (page | 3).to_be_bytes()));
    input
}

fn destroy(driver: &mut Driver, id: u32) -> CmdStatus {
    driver.about(CmdOpcode::DESTROY_UMEM, destroy_umem_in::UMEM_ID, id)
}

/// Input of a completion queue, with the ring at offset `ring` of the umem, and the record at
/// `record`.
fn cq_input(driver: &Driver, eqn: u32, id: u32, ring: u64, record: u64) -> Vec<u8> {
    let mut input = vec![0; cq::create_cq_in::SIZE];
    cq::create_cq_in::CQ_UMEM_VALID.set(&mut input, 1);
    CQ_UMEM_ID.set(&mut input, id.into());
    CQ_UMEM_OFFSET.set(&mut input, ring);
    let context = cq::create_cq_in::CQ_CONTEXT.of_mut(&mut input);
    cq::cqc::LOG_CQ_SIZE.set(context, LOG_CQES.into());
    cq::cqc::UAR_PAGE.set(context, driver.uar.into());
    cq::cqc::C_EQN_OR_APU_ELEMENT.set(context, eqn.into());
    cq::cqc::DBR_UMEM_VALID.set(context, 1);
    CQC_DBR_UMEM_ID.set(context, id.into());
    cq::cqc::DBR_ADDR.set(context, record);
    input
}

/// Input of a queue pair, with rings and record in the umem: 16 receives of 16 bytes, then 16
/// WQEBBs.
fn qp_input(driver: &Driver, cq: &Cq, id: u32, rings: u64, record: u64) -> Vec<u8> {
    let mut input = vec![0; qp::create_qp_in::SIZE];
    qp::create_qp_in::WQ_UMEM_VALID.set(&mut input, 1);
    qp::create_qp_in::WQ_UMEM_ID.set(&mut input, id.into());
    qp::create_qp_in::WQ_UMEM_OFFSET.set(&mut input, rings);
    let context = qp::create_qp_in::QPC.of_mut(&mut input);
    let fields: [(Field, u32); 7] = [
        (qp::qpc::PD, driver.pd),
        (qp::qpc::LOG_RQ_SIZE, 4),
        (qp::qpc::LOG_SQ_SIZE, 4),
        (qp::qpc::UAR_PAGE, driver.uar),
        (qp::qpc::CQN_SND, cq.number),
        (qp::qpc::CQN_RCV, cq.number),
        (qp::qpc::DBR_UMEM_VALID, 1),
    ];
    fields.iter().for_each(|(field, value)| field.set(context, u64::from(*value)));
    QPC_DBR_UMEM_ID.set(context, id.into());
    qp::qpc::DBR_ADDR.set(context, record);
    input
}

#[test]
fn traffic_goes_through_queues_in_registered_memory() {
    let mut driver = Driver::up();
    let eqn = driver.eq(0, 0);
    let (first, second, third) = (driver.page(), driver.page(), driver.page());
    // Two pages, the later one first: 0x800 bytes of `second`, then `first`; and a separate page.
    let id = register(&mut driver, &[second, first], 0x800);
    let records = register(&mut driver, &[third], 0);
    assert_ne!(id, records);
    // The completion ring crosses the boundary of the pages; its record is behind it.
    let at =
        |offset: u64| if offset < 0x800 { second + 0x800 + offset } else { first + offset - 0x800 };
    let ring = 0x600;
    for entry in 0..1 << LOG_CQES {
        driver.host.write(at(ring + 64 * entry) + 63, &[0xf1]);
    }
    let input = cq_input(&driver, eqn, id, ring, 0xa40);
    let output = driver.ok(CmdOpcode::CREATE_CQ, 0, &input, 16);
    let number = cq::create_cq_out::CQN.get32(&output);
    let cq = Cq { number, ring: 0, record: at(0xa40), read: 0 };
    // Rings in one umem, the record in another.
    let qps = [0x1000u64, 0x0].map(|rings| {
        let mut input = qp_input(&driver, &cq, id, rings, 8 + rings / 64);
        QPC_DBR_UMEM_ID.set(qp::create_qp_in::QPC.of_mut(&mut input), records.into());
        let output = driver.ok(CmdOpcode::CREATE_QP, 0, &input, 16);
        let number = qp::create_qp_out::QPN.get32(&output);
        Qp { number, rq: at(rings), sq: at(rings + 256), record: third + 8 + rings / 64 }
    });
    let [a, b] = qps;
    driver.join(&a, &b);
    let (from, to) = (driver.page(), driver.page());
    let key = driver.lkey;
    for round in 0..12u32 {
        driver.host.write(from, &[round as u8 + 1; 64]);
        receive(&driver, &b, round, to, 64);
        send(&mut driver, &a, round, (key, from, 64));
        for entry in [2 * round, 2 * round + 1] {
            let slot = at(ring + 64 * u64::from(entry % 16));
            let owner = (entry / 16) as u8 & 1;
            driver.host.wait("a completion", |host| {
                let last = host.read(slot, 64)[63];
                (last & 1 == owner && last >> 4 != 0xf).then_some(())
            });
            driver.host.write(cq.record, &(entry + 1).to_be_bytes());
        }
        assert_eq!(driver.host.read(to, 64), [round as u8 + 1; 64]);
    }
    // A umem in use can't be destroyed.
    for id in [id, records] {
        assert_eq!(destroy(&mut driver, id), CmdStatus::RES_BUSY);
    }
    for qp in [a, b] {
        let status = driver.about(CmdOpcode::DESTROY_QP, qp::destroy_qp_in::QPN, qp.number);
        assert_eq!(status, CmdStatus::OK);
    }
    assert_eq!(destroy(&mut driver, records), CmdStatus::OK);
    assert_eq!(destroy(&mut driver, id), CmdStatus::RES_BUSY);
    let status = driver.about(CmdOpcode::DESTROY_CQ, cq::destroy_cq_in::CQN, number);
    assert_eq!((status, destroy(&mut driver, id)), (CmdStatus::OK, CmdStatus::OK));
    assert_eq!(destroy(&mut driver, id), CmdStatus::BAD_RES_ERR);
}

#[test]
fn what_lies_beyond_registered_memory_is_refused() {
    let mut driver = Driver::up();
    let eqn = driver.eq(0, 0);
    let page = driver.page();
    let id = register(&mut driver, &[page], 0);
    let create = |driver: &mut Driver, opcode, input: &[u8]| driver.run(opcode, 0, input, 16).0;
    let made = cq_input(&driver, eqn, id, 0, 0xff8);
    let output = driver.ok(CmdOpcode::CREATE_CQ, 0, &made, 16);
    let cq = Cq { number: cq::create_cq_out::CQN.get32(&output), ring: page, record: 0, read: 0 };
    for (id, ring, record, status) in [
        (id, 0xc01, 0, CmdStatus::BAD_PARAM_ERR),
        (id, u64::MAX, 0, CmdStatus::BAD_PARAM_ERR),
        (id, 0, 0xff9, CmdStatus::BAD_PARAM_ERR),
        (id, 0, u64::MAX, CmdStatus::BAD_PARAM_ERR),
        (id + 1, 0, 0, CmdStatus::BAD_RES_ERR),
    ] {
        let input = cq_input(&driver, eqn, id, ring, record);
        assert_eq!(
            create(&mut driver, CmdOpcode::CREATE_CQ, &input),
            status,
            "{ring:#x} {record:#x}"
        );
    }
    for (id, rings, record, status) in [
        (id, 0xb01, 0, CmdStatus::BAD_PARAM_ERR),
        (id, u64::MAX - 64, 0, CmdStatus::BAD_PARAM_ERR),
        (id, 0, 0xff9, CmdStatus::BAD_PARAM_ERR),
        (id + 1, 0, 0, CmdStatus::BAD_RES_ERR),
        (id, 0xb00, 0xff8, CmdStatus::OK),
    ] {
        let input = qp_input(&driver, &cq, id, rings, record);
        assert_eq!(
            create(&mut driver, CmdOpcode::CREATE_QP, &input),
            status,
            "{rings:#x} {record:#x}"
        );
    }
    // Invalid registrations.
    let refused = |driver: &mut Driver, change: &[(Field, u64)]| {
        let mut input = registration(&[page], 0);
        let context = create_umem_in::UMEM.of_mut(&mut input);
        change.iter().for_each(|(field, value)| field.set(context, *value));
        assert_eq!(create(driver, CmdOpcode::CREATE_UMEM, &input), CmdStatus::BAD_PARAM_ERR);
    };
    refused(&mut driver, &[(umem::NUM_OF_MTT, 2)]);
    refused(&mut driver, &[(umem::NUM_OF_MTT, u64::MAX)]);
    refused(&mut driver, &[(umem::LOG_PAGE_SIZE, 29)]);
    refused(&mut driver, &[(umem::PAGE_OFFSET, 4097)]);
}

/// The device writes no CQEs to memory registered as read-only, for example a file's.
#[test]
fn completions_are_not_written_to_what_is_to_be_read() {
    let mut driver = Driver::up();
    let eqn = driver.eq(0, 0);
    let (page, second) = (driver.page(), driver.page());
    let mut input = registration(&[page, second], 0);
    // The second page is read-only.
    let last = input.len() - 1;
    input[last] = 1;
    let id = create_umem_out::UMEM_ID.get32(&driver.ok(CmdOpcode::CREATE_UMEM, 0, &input, 16));
    let input = cq_input(&driver, eqn, id, 0, 0xf00);
    assert_eq!(driver.run(CmdOpcode::CREATE_CQ, 0, &input, 16).0, CmdStatus::BAD_PARAM_ERR);
    // Send WQEs are only read.
    let cq = driver.cq(eqn);
    let input = qp_input(&driver, &cq, id, 0, 0xf00);
    assert_eq!(driver.run(CmdOpcode::CREATE_QP, 0, &input, 16).0, CmdStatus::OK);
}

/// Each user of the command interface may name only its umems.
#[test]
fn registered_memory_is_of_one_user() {
    let mut driver = Driver::up();
    let eqn = driver.eq(0, 0);
    let page = driver.page();
    let by = |mut input: Vec<u8>, uid: u64| {
        header::cmd_in::UID.set(&mut input, uid);
        input
    };
    let input = by(registration(&[page], 0), 1);
    let id = create_umem_out::UMEM_ID.get32(&driver.ok(CmdOpcode::CREATE_UMEM, 0, &input, 16));
    let output =
        driver.ok(CmdOpcode::CREATE_CQ, 0, &by(cq_input(&driver, eqn, id, 0, 0xf00), 1), 16);
    let number = cq::create_cq_out::CQN.get32(&output);
    let own = Cq { number, ring: page, record: page + 0xf00, read: 0 };
    let pd = driver.ok(CmdOpcode::ALLOC_PD, 0, &by(vec![0; 16], 1), 16);
    driver.pd = simple::alloc_pd_out::PD.get32(&pd);
    let mut gone = vec![0; destroy_umem_in::SIZE];
    destroy_umem_in::UMEM_ID.set(&mut gone, id.into());
    for (opcode, input) in [
        (CmdOpcode::CREATE_CQ, cq_input(&driver, eqn, id, 0, 0xf00)),
        (CmdOpcode::CREATE_QP, qp_input(&driver, &own, id, 0, 0xf00)),
        (CmdOpcode::DESTROY_UMEM, gone),
    ] {
        let status = driver.run(opcode, 0, &by(input.clone(), 2), 16).0;
        assert_eq!(status, CmdStatus::BAD_RES_ERR, "{opcode}");
        if opcode != CmdOpcode::DESTROY_UMEM {
            assert_eq!(driver.run(opcode, 0, &by(input, 1), 16).0, CmdStatus::OK, "{opcode}");
        }
    }
}

/// A user's queue pairs are in the user's protection domains: in another user's they could use all
/// of its keys.
#[test]
fn protection_domains_are_of_one_user() {
    let mut driver = Driver::up();
    let eqn = driver.eq(0, 0);
    let page = driver.page();
    let by = |mut input: Vec<u8>, uid: u64| {
        header::cmd_in::UID.set(&mut input, uid);
        input
    };
    let mut pd = || {
        simple::alloc_pd_out::PD.get32(&driver.ok(CmdOpcode::ALLOC_PD, 0, &by(vec![0; 16], 1), 16))
    };
    let (own, gone) = (pd(), pd());
    let memory = driver.ok(CmdOpcode::CREATE_UMEM, 0, &by(registration(&[page], 0), 1), 16);
    let id = create_umem_out::UMEM_ID.get32(&memory);
    let input = by(cq_input(&driver, eqn, id, 0, 0xf00), 1);
    let number = cq::create_cq_out::CQN.get32(&driver.ok(CmdOpcode::CREATE_CQ, 0, &input, 16));
    let cq = Cq { number, ring: page, record: page + 0xf00, read: 0 };
    let number = simple::dealloc_pd_in::PD;
    assert_eq!(driver.about(CmdOpcode::DEALLOC_PD, number, gone), CmdStatus::OK);
    let drivers = driver.pd;
    for (uid, pd, status) in [
        (1, own, CmdStatus::OK),
        (2, own, CmdStatus::BAD_RES_ERR),
        (1, drivers, CmdStatus::BAD_RES_ERR),
        (1, gone, CmdStatus::BAD_RES_ERR),
        (0, own, CmdStatus::OK),
        (0, drivers, CmdStatus::OK),
    ] {
        let memory = by(registration(&[page], 0), uid);
        let id = driver.ok(CmdOpcode::CREATE_UMEM, 0, &memory, 16);
        let id = create_umem_out::UMEM_ID.get32(&id);
        let mut input = by(qp_input(&driver, &cq, id, 0, 0xf00), uid);
        qp::qpc::PD.set(qp::create_qp_in::QPC.of_mut(&mut input), pd.into());
        assert_eq!(driver.run(CmdOpcode::CREATE_QP, 0, &input, 16).0, status, "{uid} {pd}");
    }
    // The number is allocated again, and belongs to the driver now.
    let again = simple::alloc_pd_out::PD.get32(&driver.ok(CmdOpcode::ALLOC_PD, 0, &[0; 16], 16));
    assert_eq!(again, gone);
    let memory = driver.ok(CmdOpcode::CREATE_UMEM, 0, &by(registration(&[page], 0), 1), 16);
    let id = create_umem_out::UMEM_ID.get32(&memory);
    let mut input = by(qp_input(&driver, &cq, id, 0, 0xf00), 1);
    qp::qpc::PD.set(qp::create_qp_in::QPC.of_mut(&mut input), again.into());
    assert_eq!(driver.run(CmdOpcode::CREATE_QP, 0, &input, 16).0, CmdStatus::BAD_RES_ERR);
}
