//! The function as a driver meets it: configuration space, initialization segment, first commands,
//! teardown.

use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::{caps, hca, header, simple, vport};

use crate::driver::Driver;
use crate::host::Host;

#[test]
fn it_is_a_connectx_on_infiniband() {
    let mut host = Host::new();
    assert_eq!(host.config(0), 0x101d_15b3);
    assert_eq!(host.config(8) >> 8, 0x02_0700);
    // Command interface revision 5, 32 entries of 64 bytes, ready, healthy.
    assert_eq!(host.get(4) >> 16, 5);
    assert_eq!(host.get(0x14), 0x56);
    assert_eq!(host.get(0x1fc) >> 31, 0);
    assert!((0x200..0x240).step_by(4).all(|at| host.get(at) == 0));
    let first = host.get(0x1010);
    let start = std::time::Instant::now();
    while host.get(0x1010) == first {
        assert!(start.elapsed() < crate::host::LIMIT, "the health counter stands");
    }
    // Accesses beyond the end fail.
    assert!(host.region_read(0, 32 << 20, 4).is_err());
    assert!(host.region_read(7, 254, 4).is_err());
    assert!(host.region_read(1, 0, 4).is_err());
    assert!(host.region_write(0, u64::MAX, &[0; 4]).is_err());
}

#[test]
fn objects_need_an_initialised_device() {
    let mut driver = Driver::off();
    let (status, _) = driver.run(CmdOpcode::ALLOC_PD, 0, &[0; 16], 16);
    assert_eq!(status, CmdStatus::BAD_SYS_STATE_ERR);
    driver.ok(CmdOpcode::ENABLE_HCA, 0, &[0; 16], 16);
    let (status, _) = driver.run(CmdOpcode::ALLOC_PD, 0, &[0; 16], 16);
    assert_eq!(status, CmdStatus::BAD_SYS_STATE_ERR);
    driver.ok(CmdOpcode::INIT_HCA, 0, &[0; 16], 16);
    driver.ok(CmdOpcode::ALLOC_PD, 0, &[0; 16], 16);
    driver.ok(CmdOpcode::TEARDOWN_HCA, 0, &[0; 16], 16);
    let (status, output) = driver.run(CmdOpcode::ALLOC_PD, 0, &[0; 16], 16);
    assert_eq!(status, CmdStatus::BAD_SYS_STATE_ERR);
    assert_ne!(header::cmd_out::SYNDROME.get(&output), 0);
}

/// A forced end, and one that the state of the interface completes.
#[test]
fn a_teardown_is_forced_or_prepared() {
    const FORCED: u64 = 1;
    const PREPARED: u64 = 2;
    let mut driver = Driver::up();
    let teardown = |driver: &mut Driver, profile| {
        let mut input = [0; hca::teardown_hca_in::SIZE];
        hca::teardown_hca_in::PROFILE.set(&mut input, profile);
        let (status, output) = driver.run(CmdOpcode::TEARDOWN_HCA, 0, &input, 16);
        assert_eq!(hca::teardown_hca_out::STATE.get(&output), 0);
        status
    };
    let alloc = |driver: &mut Driver| driver.run(CmdOpcode::ALLOC_PD, 0, &[0; 16], 16).0;
    assert_eq!(teardown(&mut driver, 3), CmdStatus::BAD_PARAM_ERR);
    assert_eq!(teardown(&mut driver, PREPARED), CmdStatus::OK);
    assert_eq!(alloc(&mut driver), CmdStatus::OK);
    let low = driver.slot(0) as u32;
    driver.host.set(0x14, low | 1 << 8);
    assert_eq!(driver.host.get(0x14) >> 8 & 7, 1, "disabled");
    driver.host.set(0x14, low);
    assert_eq!(alloc(&mut driver), CmdStatus::BAD_SYS_STATE_ERR);
    // Without a preparation the state ends no object.
    driver.ok(CmdOpcode::INIT_HCA, 0, &[0; 16], 16);
    driver.host.set(0x14, low | 1 << 8);
    driver.host.set(0x14, low);
    assert_eq!(alloc(&mut driver), CmdStatus::OK);
    assert_eq!(teardown(&mut driver, FORCED), CmdStatus::OK);
    assert_eq!(alloc(&mut driver), CmdStatus::BAD_SYS_STATE_ERR);
}

#[test]
fn pages_come_back_as_they_were_given() {
    let mut driver = Driver::off();
    driver.ok(CmdOpcode::ENABLE_HCA, 0, &[0; 16], 16);
    let wanted = driver.ok(CmdOpcode::QUERY_PAGES, 1, &[0; 16], 16);
    let wanted = hca::query_pages_out::NUM_PAGES.get(&wanted);
    assert!(wanted > 0);
    let mut give = vec![0; 16];
    hca::manage_pages_in::INPUT_NUM_ENTRIES.set(&mut give, wanted);
    let pages = (1..=wanted).map(|page| page << 12).collect::<Vec<_>>();
    let (status, _) = driver.run(CmdOpcode::MANAGE_PAGES, 1, &give, 16);
    assert_eq!(status, CmdStatus::BAD_PARAM_ERR, "a list that isn't there");
    give.extend(pages.iter().flat_map(|page| page.to_be_bytes()));
    driver.ok(CmdOpcode::MANAGE_PAGES, 1, &give, 16);
    let left = driver.ok(CmdOpcode::QUERY_PAGES, 1, &[0; 16], 16);
    assert_eq!(hca::query_pages_out::NUM_PAGES.get(&left), 0);
    let mut take = [0; 16];
    hca::manage_pages_in::INPUT_NUM_ENTRIES.set(&mut take, 1000);
    let taken = driver.ok(CmdOpcode::MANAGE_PAGES, 2, &take, 16 + 8 * 1000);
    assert_eq!(hca::manage_pages_out::OUTPUT_NUM_ENTRIES.get(&taken), wanted);
    let mut back =
        taken[16..].chunks_exact(8).map(|page| u64::from_be_bytes(page.try_into().unwrap()));
    let mut back = back.by_ref().take(wanted as usize).collect::<Vec<_>>();
    back.sort_unstable();
    assert_eq!(back, pages);
}

#[test]
fn it_says_what_it_can_do_and_keeps_the_byte_order_of_atomics() {
    let mut driver = Driver::up();
    let size = hca::query_hca_cap_out::SIZE;
    let general = driver.ok(CmdOpcode::QUERY_HCA_CAP, 1, &[0; 16], size);
    let cap = hca::query_hca_cap_out::CAPABILITY.of(&general);
    use caps::{atomic_caps, cmd_hca_cap};
    assert_eq!(cmd_hca_cap::NUM_PORTS.get(cap), 1);
    assert_eq!(cmd_hca_cap::PORT_TYPE.get(cap), 0);
    assert_eq!(cmd_hca_cap::CQE_VERSION.get(cap), 1);
    assert_eq!(cmd_hca_cap::BF.get(cap), 0);
    assert_eq!(cmd_hca_cap::ROCE.get(cap), 0);
    // A driver writes a structure with only the byte order set: everything else stays.
    let mut set = vec![0; hca::set_hca_cap_in::SIZE];
    let atomic = hca::set_hca_cap_in::CAPABILITY.of_mut(&mut set);
    atomic_caps::ATOMIC_REQ_8B_ENDIANNESS_MODE.set(atomic, 1);
    driver.ok(CmdOpcode::SET_HCA_CAP, 3 << 1, &set, 16);
    let atomic = driver.ok(CmdOpcode::QUERY_HCA_CAP, 3 << 1 | 1, &[0; 16], size);
    let cap = hca::query_hca_cap_out::CAPABILITY.of(&atomic);
    assert_eq!(atomic_caps::ATOMIC_REQ_8B_ENDIANNESS_MODE.get(cap), 1);
    assert_eq!(atomic_caps::ATOMIC_OPERATIONS.get(cap), 3);
}

#[test]
fn the_port_is_up_and_has_tables() {
    let mut driver = Driver::up();
    let size = vport::query_hca_vport_context_out::SIZE;
    let context = driver.ok(CmdOpcode::QUERY_HCA_VPORT_CONTEXT, 0, &[0; 16], size);
    let context = vport::query_hca_vport_context_out::HCA_VPORT_CONTEXT.of(&context);
    assert_eq!(vport::hca_vport_context::PORT_STATE.get(context), 4);
    assert_eq!(vport::hca_vport_context::LID.get(context), 1);
    let guid = vport::hca_vport_context::PORT_GUID.get(context);
    // A communication manager sets its capability bit, and changes no other bit.
    use vport::hca_vport_context::{CAP_MASK1_FIELD_SELECT, FIELD_SELECT};
    assert_eq!(CAP_MASK1_FIELD_SELECT.get(context), 1 << 16);
    let mut said = vec![0; size];
    let of = vport::query_hca_vport_context_out::HCA_VPORT_CONTEXT;
    CAP_MASK1_FIELD_SELECT.set(of.of_mut(&mut said), 1 << 16);
    driver.ok(CmdOpcode::MODIFY_HCA_VPORT_CONTEXT, 0, &said, 16);
    for (field, bits) in [(CAP_MASK1_FIELD_SELECT, 1 << 17), (FIELD_SELECT, 1)] {
        let mut said = vec![0; said.len()];
        field.set(of.of_mut(&mut said), bits);
        let (status, _) = driver.run(CmdOpcode::MODIFY_HCA_VPORT_CONTEXT, 0, &said, 16);
        assert_eq!(status, CmdStatus::BAD_PARAM_ERR);
    }
    let gid = driver.ok(CmdOpcode::QUERY_HCA_VPORT_GID, 0, &[0; 16], 32);
    assert_eq!(gid[16..24], [0xfe, 0x80, 0, 0, 0, 0, 0, 0]);
    assert_eq!(gid[24..], guid.to_be_bytes());
    let pkey = driver.ok(CmdOpcode::QUERY_HCA_VPORT_PKEY, 0, &[0; 16], 20);
    assert_eq!(pkey[16..], [0, 0, 0xff, 0xff]);
    let mut beyond = [0; 16];
    vport::query_hca_vport_pkey_in::PKEY_INDEX.set(&mut beyond, 128);
    let (status, _) = driver.run(CmdOpcode::QUERY_HCA_VPORT_PKEY, 0, &beyond, 20);
    assert_eq!(status, CmdStatus::IX_ERR);
}

#[test]
fn what_is_unknown_or_too_short_is_refused_by_name() {
    let mut driver = Driver::up();
    let (status, _) = driver.run(CmdOpcode(0x7ff), 0, &[0; 16], 16);
    assert_eq!(status, CmdStatus::BAD_OP_ERR);
    let (status, _) = driver.run(CmdOpcode::CREATE_CQ, 0, &[0; 271], 16);
    assert_eq!(status, CmdStatus::BAD_INP_LEN_ERR);
    let (status, _) = driver.run(CmdOpcode::QUERY_HCA_CAP, 0, &[0; 16], 2063);
    assert_eq!(status, CmdStatus::BAD_OUTP_LEN_ERR);
    // Users query the first half of the maximum output.
    driver.ok(CmdOpcode::QUERY_HCA_CAP, 0, &[0; 16], 2064);
    let uar = simple::dealloc_uar_in::UAR;
    assert_eq!(driver.about(CmdOpcode::DEALLOC_UAR, uar, 0), CmdStatus::BAD_RES_ERR);
    let given = driver.uar;
    assert_eq!(driver.about(CmdOpcode::DEALLOC_UAR, uar, given), CmdStatus::OK);
    let again = driver.ok(CmdOpcode::ALLOC_UAR, 0, &[0; 16], 16);
    assert_eq!(simple::alloc_uar_out::UAR.get32(&again), given, "pages are used again");
}

/// A driver of a machine with pages of 16 KiB, as mlx5_core (`handle_hca_cap`).
#[test]
fn a_driver_with_larger_pages_gets_as_many_uars() {
    use caps::cmd_hca_cap::{LOG_UAR_PAGE_SZ, NUM_OF_UARS_PER_PAGE, UAR_4K};
    let size = hca::query_hca_cap_out::SIZE;
    let told = |driver: &mut Driver| {
        let general = driver.ok(CmdOpcode::QUERY_HCA_CAP, 1, &[0; 16], size);
        let cap = hca::query_hca_cap_out::CAPABILITY.of(&general);
        [UAR_4K, LOG_UAR_PAGE_SZ, NUM_OF_UARS_PER_PAGE].map(|field| field.get(cap))
    };
    let mut driver = Driver::off();
    driver.ok(CmdOpcode::ENABLE_HCA, 0, &[0; 16], 16);
    assert_eq!(told(&mut driver), [1, 0, 1]);
    for (log, kept) in [(2, 2), (5, 2), (0xffff, 2)] {
        let mut set = vec![0; hca::set_hca_cap_in::SIZE];
        LOG_UAR_PAGE_SZ.set(hca::set_hca_cap_in::CAPABILITY.of_mut(&mut set), log);
        driver.ok(CmdOpcode::SET_HCA_CAP, 0, &set, 16);
        assert_eq!(told(&mut driver), [1, kept, 1 << kept]);
    }
    driver.ok(CmdOpcode::INIT_HCA, 0, &[0; 32], 16);
    let take = |driver: &mut Driver| {
        simple::alloc_uar_out::UAR.get32(&driver.ok(CmdOpcode::ALLOC_UAR, 0, &[0; 16], 16))
    };
    let (first, second) = (take(&mut driver), take(&mut driver));
    assert_eq!((first % 4, second), (0, first + 4));
    let uar = simple::dealloc_uar_in::UAR;
    assert_eq!(driver.about(CmdOpcode::DEALLOC_UAR, uar, first + 1), CmdStatus::BAD_RES_ERR);
    assert_eq!(driver.about(CmdOpcode::DEALLOC_UAR, uar, first), CmdStatus::OK);
    assert_eq!(take(&mut driver), first);
    // With allocated pages the size is unchanged. Each queue may use any UAR of a page.
    driver.eq_uar = second + 3;
    driver.ok(CmdOpcode::SET_HCA_CAP, 0, &vec![0; hca::set_hca_cap_in::SIZE], 16);
    assert_eq!(told(&mut driver), [1, 2, 4]);
    driver.eq(2, 1 << 0xa);
}

#[test]
fn commands_are_told_once_there_is_a_queue_for_them() {
    let mut driver = Driver::up();
    // The command that creates the queue is polled, as the driver does.
    let eqn = driver.eq(2, 1 << 0xa);
    assert_eq!(driver.host.read(driver.eqs[0].1 + 63, 1), [1], "nothing was told");
    driver.ok(CmdOpcode::ALLOC_PD, 0, &[0; 16], 16);
    assert_eq!(driver.event(eqn).0, 0xa);
    driver.host.wait("the interrupt", |host| (host.interrupts(2) > 0).then_some(()));
    // Only `event` arms again: one event, one interrupt, over two laps of the ring.
    for _ in 0..20 {
        driver.ok(CmdOpcode::ALLOC_PD, 0, &[0; 16], 16);
        assert_eq!(driver.event(eqn).0, 0xa);
    }
}
