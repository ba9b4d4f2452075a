//! Page faults, with a driver in the role of mlx5_ib (Linux `hw/mlx5/odp.c`).

use uverbs_mlx5_prm::cmd::header::cmd_in;
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::{caps, eq, hca, mkey};

use crate::data::{receive, send};
use crate::driver::{Cq, Driver, Qp};
use crate::memory::{free_key, give_pages, umr_queue};

/// `MLX5_EVENT_TYPE_PAGE_FAULT`.
const PAGE_FAULT: u8 = 0xc;
const PRESENT: u64 = 3;
const START: u64 = 0x5000_0000;
const LEN: u64 = 0x4000;
/// Local protection, remote operation, remote access (PRM "Completion with Error").
const LOCAL_PROTECTION: u8 = 4;
const REMOTE_OPERATION: u8 = 0x14;
const REMOTE_ACCESS: u8 = 0x13;
/// Vendor syndrome (mlx5dv.h, `MLX5_CQE_VENDOR_SYNDROME_ODP_PFAULT`).
const NO_PAGE: u8 = 0x93;

/// Two queue pairs, the driver's UMR queue, and the page fault event queue.
struct Scene {
    driver: Driver,
    faults: u32,
    cq: Cq,
    umr_cq: Cq,
    umr: Qp,
    /// Number of WQEs posted to the UMR queue.
    changes: u32,
    a: Qp,
    b: Qp,
}

/// A page fault event.
#[derive(Debug, PartialEq)]
struct Fault {
    sub_type: u8,
    /// Type of the work request's fault, or of the memory's.
    kind: u32,
    token: u32,
    words: [u32; 7],
}

fn scene() -> Scene {
    let mut driver = Driver::up();
    let eqn = driver.eq(1, 0);
    let faults = driver.eq(2, 1 << PAGE_FAULT);
    let (cq, umr_cq) = (driver.cq(eqn), driver.cq(eqn));
    let (a, b) = (driver.qp(&cq), driver.qp(&cq));
    driver.join(&a, &b);
    let umr = umr_queue(&mut driver, &umr_cq, 1);
    Scene { driver, faults, cq, umr_cq, umr, changes: 0, a, b }
}

impl Scene {
    /// Creates a key of four pages, all of them missing.
    fn key(&mut self) -> u32 {
        let (status, index) = free_key(&mut self.driver, 1, 4);
        assert_eq!(status, CmdStatus::OK);
        let list = self.driver.page();
        self.driver.host.write(list, &[0; 64]);
        give_pages(
            &mut self.driver,
            &self.umr,
            self.changes,
            (index << 8 | 5, START, LEN),
            (list, 64),
        );
        self.changed();
        index << 8 | 5
    }

    fn changed(&mut self) {
        let done = self.driver.poll(&mut self.umr_cq);
        assert_eq!((done[63] >> 4, done[56]), (0, 0x25), "{done:x?}");
        self.changes += 1;
    }

    /// Changes only the first entries of a key's translation (`MLX5_UMR_CHECK_FREE`,
    /// `MLX5_UMR_TRANSLATION_OFFSET_EN`).
    fn put(&mut self, key: u32, entries: &[u64; 8]) {
        let list = self.driver.page();
        let bytes = entries.iter().flat_map(|entry| entry.to_be_bytes()).collect::<Vec<_>>();
        self.driver.host.write(list, &bytes);
        let counter = self.changes * 3;
        let mut wqe = (counter << 8 | 0x25).to_be_bytes().to_vec();
        wqe.extend((self.umr.number << 8 | 9).to_be_bytes());
        wqe.extend([0, 0, 0, 8]);
        wqe.extend(key.to_be_bytes());
        wqe.extend([0x50, 0, 0, 0, 0, 4]);
        wqe.resize(128, 0);
        wqe.extend(64u32.to_be_bytes());
        wqe.extend(self.driver.lkey.to_be_bytes());
        wqe.extend(list.to_be_bytes());
        assert!(counter < 13, "the ring's end");
        self.driver.host.write(self.umr.sq + 64 * u64::from(counter), &wqe);
        self.driver.host.write(self.umr.record + 4, &(counter + 3).to_be_bytes());
        let doorbell = u64::from_be_bytes(wqe[..8].try_into().unwrap());
        self.driver.host.ring(u64::from(self.driver.uar) * 4096 + 0x800, doorbell);
        self.changed();
    }

    fn fault(&mut self) -> Fault {
        let eqe = self.driver.eqe(self.faults);
        assert_eq!(eqe[1], PAGE_FAULT);
        let word = |at: usize| u32::from_be_bytes(eqe[32 + 4 * at..][..4].try_into().unwrap());
        let words = std::array::from_fn(word);
        let token = if eqe[3] == 0 { words[3] } else { words[6] & 0xff_ffff };
        Fault { sub_type: eqe[3], kind: words[6] >> 24, token, words }
    }

    fn resume(&mut self, fault: &Fault, error: bool) -> CmdStatus {
        let mut input = [0; mkey::page_fault_resume_in::SIZE];
        let info = mkey::page_fault_resume_in::PAGE_FAULT_INFO.of_mut(&mut input);
        mkey::trans_page_fault_info::FAULT_TOKEN.set(info, fault.token.into());
        mkey::trans_page_fault_info::PAGE_FAULT_TYPE.set(info, fault.kind.into());
        mkey::trans_page_fault_info::ERROR.set(info, error.into());
        self.driver.run(CmdOpcode::PAGE_FAULT_RESUME, 0, &input, 16).0
    }

    /// Posts an RDMA WRITE of 16 bytes of plain memory as WQE `index` of the first queue pair.
    fn write(&mut self, index: u32, from: u64, (rkey, to): (u32, u64)) {
        let mut wqe = ((index & 0xffff) << 8 | 0x08).to_be_bytes().to_vec();
        wqe.extend((self.a.number << 8 | 3).to_be_bytes());
        wqe.extend([0, 0, 0, 8, 0, 0, 0, 0]);
        wqe.extend(to.to_be_bytes());
        wqe.extend(rkey.to_be_bytes());
        wqe.extend([0; 4]);
        wqe.extend(16u32.to_be_bytes());
        wqe.extend(self.driver.lkey.to_be_bytes());
        wqe.extend(from.to_be_bytes());
        self.driver.host.write(self.a.sq + 64 * u64::from(index % 16), &wqe);
        self.driver.host.write(self.a.record + 4, &(index + 1).to_be_bytes());
        let doorbell = u64::from_be_bytes(wqe[..8].try_into().unwrap());
        self.driver.host.ring(u64::from(self.driver.uar) * 4096 + 0x800, doorbell);
    }
}

#[test]
fn what_the_capabilities_say() {
    let mut driver = Driver::up();
    // MLX5_CAP_GENERAL and MLX5_CAP_ODP, current values and maximum values.
    let answer = driver.ok(CmdOpcode::QUERY_HCA_CAP, 1, &[0; 16], 16 + 4096);
    let general = hca::query_hca_cap_out::CAPABILITY.of(&answer);
    use caps::cmd_hca_cap::{
        FIXED_BUFFER_SIZE, MAX_INDIRECTION, NULL_MKEY, PG, UMR_EXTENDED_TRANSLATION_OFFSET,
        UMR_INDIRECT_MKEY_DISABLED, UMR_MODIFY_ENTITY_SIZE_DISABLED,
    };
    for able in [PG, FIXED_BUFFER_SIZE, NULL_MKEY, UMR_EXTENDED_TRANSLATION_OFFSET] {
        assert!(able.is_set(general));
    }
    for not in [UMR_INDIRECT_MKEY_DISABLED, UMR_MODIFY_ENTITY_SIZE_DISABLED] {
        assert!(!not.is_set(general));
    }
    assert_eq!(MAX_INDIRECTION.get(general), 4);
    let current = driver.ok(CmdOpcode::QUERY_HCA_CAP, 2 << 1 | 1, &[0; 16], 16 + 4096);
    let most = driver.ok(CmdOpcode::QUERY_HCA_CAP, 2 << 1, &[0; 16], 16 + 4096);
    assert_eq!(current, most);
    let odp = hca::query_hca_cap_out::CAPABILITY.of(&current);
    // By hand from mlx5_ifc.h: RC, UC, UD, XRC, DC from byte 16 on; one bit each for send, receive,
    // write, read, atomic, SRQ.
    assert_eq!([odp[16], odp[20], odp[24], odp[28], odp[32]], [0xfc, 0, 0x84, 0xfc, 0xfc]);
    assert_eq!(odp[64..], [0; 4032], "not by memory");
    let mut set = vec![0; hca::set_hca_cap_in::SIZE];
    hca::set_hca_cap_in::CAPABILITY.of_mut(&mut set).copy_from_slice(odp);
    driver.ok(CmdOpcode::SET_HCA_CAP, 2 << 1, &set, 16);
}

#[test]
fn a_work_request_waits_for_its_page() {
    let mut scene = scene();
    let key = scene.key();
    let (page, to) = (scene.driver.page(), scene.driver.page());
    scene.driver.host.write(page + 0x100, &[7; 300]);
    receive(&scene.driver, &scene.b, 0, to, 4096);
    send(&mut scene.driver, &scene.a, 0, (key, START + 0x1100, 300));
    let fault = scene.fault();
    assert_eq!((fault.sub_type, fault.kind), (0, 1), "of a send");
    assert_eq!((fault.words[6] & 0xff_ffff, fault.words[1]), (scene.a.number, 0));
    // Without the page the fault occurs again, with another token.
    assert_eq!(scene.resume(&fault, false), CmdStatus::OK);
    let again = scene.fault();
    assert_ne!(again.token, fault.token);
    assert_eq!(scene.resume(&fault, false), CmdStatus::BAD_RES_ERR, "answered");
    scene.put(key, &[0, page | PRESENT, 0, 0, 0, 0, 0, 0]);
    assert_eq!(scene.resume(&again, false), CmdStatus::OK);
    let kinds = [0; 2].map(|_| scene.driver.poll(&mut scene.cq)[63] >> 4);
    assert!(kinds.contains(&0) && kinds.contains(&2), "{kinds:?}");
    assert_eq!(scene.driver.host.read(to, 300), [7; 300]);
    // The page is taken away again, and can't be brought.
    scene.put(key, &[0; 8]);
    send(&mut scene.driver, &scene.a, 1, (key, START + 0x1100, 300));
    let fault = scene.fault();
    assert_eq!(fault.words[1], 1, "the WQE's index");
    assert_eq!(scene.resume(&fault, true), CmdStatus::OK);
    let failed = scene.driver.poll(&mut scene.cq);
    assert_eq!((failed[63] >> 4, failed[55], failed[54]), (0xd, LOCAL_PROTECTION, NO_PAGE));
}

#[test]
fn a_peers_request_waits_for_its_page() {
    let mut scene = scene();
    let key = scene.key();
    let (from, page) = (scene.driver.page(), scene.driver.page());
    scene.driver.host.write(from, &[9; 16]);
    scene.write(0, from, (key, START + 0x2008));
    let fault = scene.fault();
    assert_eq!((fault.sub_type, fault.kind), (1, 6), "of a request that writes");
    assert_eq!(fault.words[1..6], [key, 16, 16, 0, (START + 0x2008) as u32]);
    // A read-only page is not enough.
    scene.put(key, &[0, 0, page | 1, 0, 0, 0, 0, 0]);
    assert_eq!(scene.resume(&fault, false), CmdStatus::OK);
    let fault = scene.fault();
    scene.put(key, &[0, 0, page | PRESENT, 0, 0, 0, 0, 0]);
    assert_eq!(scene.resume(&fault, false), CmdStatus::OK);
    assert_eq!(scene.driver.poll(&mut scene.cq)[63] >> 4, 0);
    assert_eq!(scene.driver.host.read(page + 8, 16), [9; 16]);
    // The page can't be brought.
    scene.write(1, from, (key, START + 0x3000));
    let fault = scene.fault();
    assert_eq!(scene.resume(&fault, true), CmdStatus::OK);
    let failed = scene.driver.poll(&mut scene.cq);
    assert_eq!((failed[63] >> 4, failed[55]), (0xd, REMOTE_OPERATION));
}

#[test]
fn a_key_that_is_destroyed_meanwhile() {
    let mut scene = scene();
    let key = scene.key();
    let from = scene.driver.page();
    scene.write(0, from, (key, START));
    let fault = scene.fault();
    let index = mkey::destroy_mkey_in::MKEY_INDEX;
    assert_eq!(scene.driver.about(CmdOpcode::DESTROY_MKEY, index, key >> 8), CmdStatus::OK);
    assert_eq!(scene.resume(&fault, false), CmdStatus::OK);
    let failed = scene.driver.poll(&mut scene.cq);
    assert_eq!((failed[63] >> 4, failed[55]), (0xd, REMOTE_ACCESS));
}

#[test]
fn a_queue_pair_or_device_that_is_gone_meanwhile() {
    use uverbs_mlx5_prm::cmd::qp::destroy_qp_in;
    let mut scene = scene();
    let key = scene.key();
    send(&mut scene.driver, &scene.a, 0, (key, START, 8));
    let fault = scene.fault();
    let unknown = Fault { token: fault.token + 1, ..scene_fault(&fault) };
    assert_eq!(scene.resume(&unknown, false), CmdStatus::BAD_RES_ERR);
    let number = scene.a.number;
    let status = scene.driver.about(CmdOpcode::DESTROY_QP, destroy_qp_in::QPN, number);
    assert_eq!(status, CmdStatus::OK);
    assert_eq!(scene.resume(&fault, false), CmdStatus::BAD_RES_ERR);
    // Teardown of the device with an open page fault.
    send(&mut scene.driver, &scene.b, 0, (key, START, 8));
    let fault = scene.fault();
    scene.driver.ok(CmdOpcode::TEARDOWN_HCA, 0, &[0; 16], 16);
    assert_eq!(scene.resume(&fault, false), CmdStatus::BAD_SYS_STATE_ERR);
    scene.driver.ok(CmdOpcode::INIT_HCA, 0, &[0; 32], 16);
    assert_eq!(scene.resume(&fault, true), CmdStatus::BAD_RES_ERR);
}

/// Without the event queue no driver would end the waits.
#[test]
fn the_queue_of_page_faults_is_gone_meanwhile() {
    let mut scene = scene();
    let key = scene.key();
    send(&mut scene.driver, &scene.a, 0, (key, START, 8));
    let fault = scene.fault();
    let (number, eqn) = (eq::destroy_eq_in::EQ_NUMBER, scene.faults);
    assert_eq!(scene.driver.about(CmdOpcode::DESTROY_EQ, number, eqn), CmdStatus::OK);
    let failed = scene.driver.poll(&mut scene.cq);
    assert_eq!((failed[63] >> 4, failed[55], failed[54]), (0xd, LOCAL_PROTECTION, NO_PAGE));
    assert_eq!(scene.resume(&fault, false), CmdStatus::BAD_RES_ERR);
    // A fault of a peer's request.
    let mut scene = self::scene();
    let key = scene.key();
    let from = scene.driver.page();
    scene.write(0, from, (key, START));
    scene.fault();
    let eqn = scene.faults;
    assert_eq!(scene.driver.about(CmdOpcode::DESTROY_EQ, number, eqn), CmdStatus::OK);
    let failed = scene.driver.poll(&mut scene.cq);
    assert_eq!((failed[63] >> 4, failed[55]), (0xd, REMOTE_OPERATION));
}

/// Only the driver may end waits, since tokens are easily guessed.
#[test]
fn users_end_no_waits() {
    let mut scene = scene();
    let key = scene.key();
    send(&mut scene.driver, &scene.a, 0, (key, START, 8));
    let fault = scene.fault();
    let mut input = [0; mkey::page_fault_resume_in::SIZE];
    cmd_in::UID.set(&mut input, 1);
    let info = mkey::page_fault_resume_in::PAGE_FAULT_INFO.of_mut(&mut input);
    mkey::trans_page_fault_info::FAULT_TOKEN.set(info, fault.token.into());
    let (status, _) = scene.driver.run(CmdOpcode::PAGE_FAULT_RESUME, 0, &input, 16);
    assert_eq!(status, CmdStatus::BAD_RES_ERR);
    assert_eq!(scene.resume(&fault, true), CmdStatus::OK, "still open");
}

fn scene_fault(fault: &Fault) -> Fault {
    Fault { words: fault.words, ..*fault }
}

#[test]
fn without_a_queue_for_them_there_are_no_page_faults() {
    let mut scene = scene();
    let key = scene.key();
    let number = eq::destroy_eq_in::EQ_NUMBER;
    let eqn = scene.faults;
    assert_eq!(scene.driver.about(CmdOpcode::DESTROY_EQ, number, eqn), CmdStatus::OK);
    send(&mut scene.driver, &scene.a, 0, (key, START, 8));
    let failed = scene.driver.poll(&mut scene.cq);
    assert_eq!((failed[63] >> 4, failed[55]), (0xd, LOCAL_PROTECTION));
    assert_ne!(failed[54], NO_PAGE);
}

/// A key of blocks, as mlx5_ib creates one for all memory: `MLX5_MKC_ACCESS_MODE_KSM`.
#[test]
fn blocks_begin_null_and_get_keys() {
    let mut scene = scene();
    let answer = scene.driver.ok(CmdOpcode::QUERY_SPECIAL_CONTEXTS, 0, &[0; 16], 32);
    let null = hca::query_special_contexts_out::NULL_MKEY.get(&answer);
    let child = scene.key();
    let page = scene.driver.page();
    scene.put(child, &[page | PRESENT, 0, 0, 0, 0, 0, 0, 0]);
    let (status, index) = free_key(&mut scene.driver, 3, 4);
    assert_eq!(status, CmdStatus::OK);
    let whole = index << 8 | 6;
    // Length and key, then an address, of each block.
    let block = |key: u64| 4096 << 32 | key;
    let list = scene.driver.page();
    let entries = [block(null), 0, block(null), 0, block(null), 0, block(null), 0u64];
    let bytes = entries.iter().flat_map(|entry| entry.to_be_bytes()).collect::<Vec<_>>();
    scene.driver.host.write(list, &bytes);
    let changes = scene.changes;
    give_pages(&mut scene.driver, &scene.umr, changes, (whole, 0, 0), (list, 64));
    scene.changed();
    let from = scene.driver.page();
    scene.driver.host.write(from, &[5; 16]);
    // Across the boundary of the second and third block.
    scene.write(0, from, (whole, 0x1ff8));
    let fault = scene.fault();
    assert_eq!((fault.words[1], fault.words[5]), (whole, 0x1ff8));
    let child_at = block(child.into());
    let with = |third| [block(null), 0, child_at, START + 8, third, START, block(null), 0];
    scene.put(whole, &with(block(null)));
    assert_eq!(scene.resume(&fault, false), CmdStatus::OK);
    let fault = scene.fault();
    assert_eq!((fault.words[1], fault.words[5]), (whole, 0x1ff8));
    scene.put(whole, &with(child_at));
    assert_eq!(scene.resume(&fault, false), CmdStatus::OK);
    // The second block's end is in the child's second page, which is missing.
    let fault = scene.fault();
    assert_eq!(scene.resume(&fault, true), CmdStatus::OK);
    let failed = scene.driver.poll(&mut scene.cq);
    assert_eq!((failed[63] >> 4, failed[55]), (0xd, REMOTE_OPERATION));
    assert_eq!(scene.driver.host.read(page, 8), [0; 8], "not a byte of it was written");
}

/// Fields that a driver queries of a key that work requests changed: the start, and the parts.
#[test]
fn a_query_gives_a_lists_parts() {
    let mut scene = scene();
    let part = scene.key();
    let (status, index) = free_key(&mut scene.driver, 2, 4);
    assert_eq!(status, CmdStatus::OK);
    let list = scene.driver.page();
    let of = |len: u64, at: u64| [len << 32 | u64::from(part), at];
    let entries = [of(8, START), of(16, START + 64), [0; 2], [0; 2]].concat();
    let bytes = entries.iter().flat_map(|entry| entry.to_be_bytes()).collect::<Vec<_>>();
    scene.driver.host.write(list, &bytes);
    let changes = scene.changes;
    give_pages(&mut scene.driver, &scene.umr, changes, (index << 8, 0x700, 24), (list, 64));
    scene.changed();
    let mut input = [0; 16];
    mkey::query_mkey_in::MKEY_INDEX.set(&mut input, index.into());
    let outlen = mkey::query_mkey_out::SIZE;
    let answer = scene.driver.ok(CmdOpcode::QUERY_MKEY, 0, &input, outlen);
    let context = mkey::query_mkey_out::MEMORY_KEY_MKEY_ENTRY.of(&answer);
    assert_eq!(mkey::mkc::START_ADDR.get(context), 0x700);
    assert_eq!(answer[272..304], bytes[..32]);
    // A shorter output gets fewer parts.
    let answer = scene.driver.ok(CmdOpcode::QUERY_MKEY, 0, &input, 300);
    assert_eq!((&answer[272..288], &answer[288..]), (&bytes[..16], &[0; 12][..]));
}

/// CREATE_MKEY whose page list has flags (`pg_access`).
#[test]
fn pages_of_a_new_key_may_be_missing() {
    let mut scene = scene();
    for (flags, waits) in [(0, false), (1, true)] {
        let page = scene.driver.page();
        let mut input = vec![0; mkey::create_mkey_in::SIZE];
        mkey::create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE.set(&mut input, 1);
        mkey::create_mkey_in::PG_ACCESS.set(&mut input, flags);
        let context = mkey::create_mkey_in::MEMORY_KEY_MKEY_ENTRY.of_mut(&mut input);
        mkey::mkc::ACCESS_MODE_1_0.set(context, 1);
        mkey::mkc::PD.set(context, scene.driver.pd.into());
        mkey::mkc::START_ADDR.set(context, START);
        mkey::mkc::LEN.set(context, 4096);
        mkey::mkc::LOG_PAGE_SIZE.set(context, 12);
        mkey::mkc::QPN.set(context, 0xff_ffff);
        input.extend(page.to_be_bytes());
        input.extend([0; 8]);
        let output = scene.driver.ok(CmdOpcode::CREATE_MKEY, 0, &input, 16);
        let key = mkey::create_mkey_out::MKEY_INDEX.get32(&output) << 8;
        let to = scene.driver.page();
        receive(&scene.driver, &scene.b, flags as u32, to, 4096);
        send(&mut scene.driver, &scene.a, flags as u32, (key, START, 8));
        if waits {
            let fault = scene.fault();
            assert_eq!(scene.resume(&fault, true), CmdStatus::OK);
            let failed = scene.driver.poll(&mut scene.cq);
            assert_eq!((failed[63] >> 4, failed[55]), (0xd, LOCAL_PROTECTION));
        } else {
            scene.driver.poll(&mut scene.cq);
            scene.driver.poll(&mut scene.cq);
        }
    }
}
