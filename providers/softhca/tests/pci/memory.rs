//! Memory registered by a driver as mlx5_ib does.

use std::os::unix::fs::FileExt;

use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::{hca, memic, mkey, qp};
use uverbs_softhca::pci::PciOptions;
use uverbs_softhca::vfio_user::Server;

use crate::data::{receive, send};
use crate::driver::{Cq, Driver, Qp};
use crate::host::Host;

/// Creates a free key with room for `octowords` (hw/mlx5/mr.c, the cache).
pub(crate) fn free_key(driver: &mut Driver, mode: u64, octowords: u32) -> (CmdStatus, u32) {
    let mut input = vec![0; mkey::create_mkey_in::SIZE];
    let context = mkey::create_mkey_in::MEMORY_KEY_MKEY_ENTRY.of_mut(&mut input);
    mkey::mkc::FREE.set(context, 1);
    mkey::mkc::UMR_EN.set(context, 1);
    mkey::mkc::ACCESS_MODE_1_0.set(context, mode & 3);
    mkey::mkc::ACCESS_MODE_4_2.set(context, mode >> 2);
    mkey::mkc::PD.set(context, driver.pd.into());
    mkey::mkc::QPN.set(context, 0xff_ffff);
    mkey::mkc::LOG_PAGE_SIZE.set(context, 12);
    mkey::mkc::TRANSLATIONS_OCTWORD_SIZE.set(context, octowords.into());
    let (status, output) = driver.run(CmdOpcode::CREATE_MKEY, 0, &input, 16);
    (status, mkey::create_mkey_out::MKEY_INDEX.get32(&output))
}

/// Maps the pages at `list` to a key, enables it for `len` bytes at `start`, and rings the
/// doorbell. Posts WQE `index` of three WQEBBs, as Linux's `mlx5r_umr_update_mr_pas` does.
pub(crate) fn give_pages(
    driver: &mut Driver,
    umr: &Qp,
    index: u32,
    (key, start, len): (u32, u64, u64),
    (list, bytes): (u64, u32),
) {
    let counter = index * 3;
    let mut wqe = ((counter & 0xffff) << 8 | 0x25).to_be_bytes().to_vec();
    wqe.extend((umr.number << 8 | 9).to_be_bytes());
    wqe.extend([0, 0, 0, 8]);
    wqe.extend(key.to_be_bytes());
    // Must be free; octowords; length, page size, start, domain, variant, rights, free.
    wqe.extend([0x20, 0, 0, 0]);
    wqe.extend(((bytes / 16) as u16).to_be_bytes());
    wqe.extend([0, 0]);
    let mask: u64 = 1 | 1 << 1 | 1 << 6 | 1 << 7 | 1 << 13 | 0x1f << 17 | 1 << 29;
    wqe.extend(mask.to_be_bytes());
    wqe.resize(64, 0);
    let mut context = [0; mkey::mkc::SIZE];
    for right in [mkey::mkc::LW, mkey::mkc::LR, mkey::mkc::RR, mkey::mkc::RW] {
        right.set(&mut context, 1);
    }
    mkey::mkc::QPN.set(&mut context, 0xff_ffff);
    mkey::mkc::MKEY_7_0.set(&mut context, (key & 0xff).into());
    mkey::mkc::PD.set(&mut context, driver.pd.into());
    mkey::mkc::START_ADDR.set(&mut context, start);
    mkey::mkc::LEN.set(&mut context, len);
    // All of memory (`mlx5r_umr_final_update_xlt`).
    mkey::mkc::LENGTH64.set(&mut context, u64::from(len == 0));
    mkey::mkc::LOG_PAGE_SIZE.set(&mut context, 12);
    wqe.extend(context);
    wqe.extend(bytes.to_be_bytes());
    wqe.extend(driver.lkey.to_be_bytes());
    wqe.extend(list.to_be_bytes());
    assert!(counter < 13, "the ring's end");
    driver.host.write(umr.sq + 64 * u64::from(counter), &wqe);
    driver.host.write(umr.record + 4, &(counter + 3).to_be_bytes());
    let doorbell = u64::from_be_bytes(wqe[..8].try_into().unwrap());
    driver.host.ring(u64::from(driver.uar) * 4096 + 0x800, doorbell);
}

/// Creates the driver's UMR queue, without protection domain. With `fre` it may map pages.
pub(crate) fn umr_queue(driver: &mut Driver, cq: &Cq, fre: u64) -> Qp {
    let umr = driver.qp_with(cq, |context| {
        qp::qpc::ST.set(context, 0xc);
        qp::qpc::PD.set(context, 0);
        qp::qpc::FRE.set(context, fre);
    });
    driver.open(umr.number, 0);
    umr
}

#[test]
fn a_work_request_registers_memory() {
    let mut driver = Driver::up();
    let eqn = driver.eq(1, 0);
    let mut cq = driver.cq(eqn);
    let (a, b) = (driver.qp(&cq), driver.qp(&cq));
    driver.join(&a, &b);
    let umr = umr_queue(&mut driver, &cq, 1);
    let (status, index) = free_key(&mut driver, 1, 2);
    assert_eq!(status, CmdStatus::OK);
    let (first, second, list, to) = (driver.page(), driver.page(), driver.page(), driver.page());
    let entries = [second | 3, first | 3, 0, 0, 0, 0, 0, 0u64];
    driver
        .host
        .write(list, &entries.iter().flat_map(|page| page.to_be_bytes()).collect::<Vec<_>>());
    let key = index << 8 | 5;
    give_pages(&mut driver, &umr, 0, (key, 0x5000_0f00, 0x200), (list, 64));
    let done = driver.poll(&mut cq);
    assert_eq!((done[63] >> 4, done[56]), (0, 0x25), "{done:x?}");
    let data = (0..=255).cycle().take(0x200).collect::<Vec<u8>>();
    driver.host.write(second + 0xf00, &data[..0x100]);
    driver.host.write(first, &data[0x100..]);
    receive(&driver, &b, 0, to, 4096);
    send(&mut driver, &a, 0, (key, 0x5000_0f00, 0x200));
    driver.poll(&mut cq);
    driver.poll(&mut cq);
    assert_eq!(driver.host.read(to, 0x200), data);
    // The key is in use now: a memory management error, and the queue goes to error.
    give_pages(&mut driver, &umr, 1, (key, 0x5000_0f00, 0x200), (list, 64));
    let failed = driver.poll(&mut cq);
    assert_eq!((failed[63] >> 4, failed[55]), (0xd, 6));
}

#[test]
fn pages_are_the_drivers_to_give() {
    let mut driver = Driver::up();
    let eqn = driver.eq(1, 0);
    let mut cq = driver.cq(eqn);
    let umr = umr_queue(&mut driver, &cq, 0);
    let (_, index) = free_key(&mut driver, 1, 2);
    let list = driver.page();
    give_pages(&mut driver, &umr, 0, (index << 8, 0, 8), (list, 64));
    let failed = driver.poll(&mut cq);
    assert_eq!((failed[63] >> 4, failed[55]), (0xd, 6));
    for mode in [0, 4, 5, 6, 7] {
        assert_eq!(free_key(&mut driver, mode, 2).0, CmdStatus::BAD_PARAM_ERR, "mode {mode}");
    }
}

#[test]
fn a_region_stays_while_a_window_is_bound_to_it() {
    let mut driver = Driver::up();
    let eqn = driver.eq(1, 0);
    let mut cq = driver.cq(eqn);
    let umr = umr_queue(&mut driver, &cq, 1);
    // As `mlx5_ib_alloc_mw` creates one: a list of ranges, with room for one.
    let (status, window) = free_key(&mut driver, 2, 4);
    assert_eq!(status, CmdStatus::OK);
    let (list, lkey) = (driver.page(), driver.lkey);
    let range = [&[0, 0, 0x10, 0][..], &lkey.to_be_bytes(), &list.to_be_bytes()].concat();
    driver.host.write(list, &range);
    give_pages(&mut driver, &umr, 0, (window << 8, list, 0x1000), (list, 64));
    let done = driver.poll(&mut cq);
    assert_eq!((done[63] >> 4, done[56]), (0, 0x25), "{done:x?}");
    let destroy = |driver: &mut Driver, index| {
        driver.about(CmdOpcode::DESTROY_MKEY, mkey::destroy_mkey_in::MKEY_INDEX, index)
    };
    assert_eq!(destroy(&mut driver, lkey >> 8), CmdStatus::BAD_RES_STATE_ERR);
    assert_eq!(destroy(&mut driver, window), CmdStatus::OK);
    assert_eq!(destroy(&mut driver, lkey >> 8), CmdStatus::OK);
}

/// Offset of device memory in the BAR, and its bytes, as the capabilities report.
fn device_memory(driver: &mut Driver) -> (u64, u64) {
    // MLX5_CAP_DEV_MEM, current values.
    let answer = driver.ok(CmdOpcode::QUERY_HCA_CAP, 0xf << 1 | 1, &[0; 16], 16 + 4096);
    let cap = hca::query_hca_cap_out::CAPABILITY.of(&answer);
    assert!(memic::device_mem_cap::MEMIC.is_set(cap));
    (
        memic::device_mem_cap::MEMIC_BAR_START_ADDR.get(cap),
        memic::device_mem_cap::MEMIC_BAR_SIZE.get(cap),
    )
}

fn alloc(driver: &mut Driver, start: u64, len: u64, alignment: u64) -> (CmdStatus, u64) {
    let mut input = [0; memic::alloc_memic_in::SIZE];
    memic::alloc_memic_in::RANGE_START_ADDR.set(&mut input, start);
    memic::alloc_memic_in::RANGE_SIZE.set(&mut input, len.next_multiple_of(4096));
    memic::alloc_memic_in::MEMIC_SIZE.set(&mut input, len);
    memic::alloc_memic_in::LOG_MEMIC_ADDR_ALIGNMENT.set(&mut input, alignment);
    let (status, answer) = driver.run(CmdOpcode::ALLOC_MEMIC, 0, &input, 16);
    (status, memic::alloc_memic_out::MEMIC_START_ADDR.get(&answer))
}

fn dealloc(driver: &mut Driver, start: u64, len: u64) -> CmdStatus {
    let mut input = [0; memic::dealloc_memic_in::SIZE];
    memic::dealloc_memic_in::MEMIC_START_ADDR.set(&mut input, start);
    memic::dealloc_memic_in::MEMIC_SIZE.set(&mut input, len);
    driver.run(CmdOpcode::DEALLOC_MEMIC, 0, &input, 16).0
}

fn device_key(driver: &mut Driver, start: u64, len: u64) -> (CmdStatus, u32) {
    let mut input = vec![0; mkey::create_mkey_in::SIZE];
    let context = mkey::create_mkey_in::MEMORY_KEY_MKEY_ENTRY.of_mut(&mut input);
    mkey::mkc::ACCESS_MODE_1_0.set(context, 1);
    mkey::mkc::ACCESS_MODE_4_2.set(context, 1);
    for right in [mkey::mkc::LW, mkey::mkc::RW, mkey::mkc::RR, mkey::mkc::A] {
        right.set(context, 1);
    }
    mkey::mkc::PD.set(context, driver.pd.into());
    mkey::mkc::QPN.set(context, 0xff_ffff);
    mkey::mkc::START_ADDR.set(context, start);
    mkey::mkc::LEN.set(context, len);
    let (status, output) = driver.run(CmdOpcode::CREATE_MKEY, 0, &input, 16);
    (status, mkey::create_mkey_out::MKEY_INDEX.get32(&output) << 8)
}

#[test]
fn processor_and_work_requests_see_the_same_device_memory() {
    let mut driver = Driver::up();
    let eqn = driver.eq(1, 0);
    let mut cq = driver.cq(eqn);
    let (a, b) = (driver.qp(&cq), driver.qp(&cq));
    driver.join(&a, &b);
    let (start, size) = device_memory(&mut driver);
    assert_eq!(alloc(&mut driver, start + 4096, 4160, 0), (CmdStatus::OK, start + 4096));
    let (status, key) = device_key(&mut driver, start + 4096 + 64, 4096);
    assert_eq!(status, CmdStatus::OK);
    // Processor stores of any length and offset, and a SEND of that memory.
    let data = (0..200).map(|at| at ^ 0x5a).collect::<Vec<u8>>();
    let bar = start + 4096 + 64;
    for (from, to) in [(0, 1), (1, 3), (3, 7), (7, 15), (15, 200)] {
        driver.host.region_write(0, bar + from as u64, &data[from..to]).unwrap();
    }
    let page = driver.page();
    receive(&driver, &b, 0, page, 4096);
    send(&mut driver, &a, 0, (key, 0, 200));
    driver.poll(&mut cq);
    driver.poll(&mut cq);
    assert_eq!(driver.host.read(page, 200), data);
    // In the other direction: a receive into the last bytes of the key.
    let mut wqe = 100u32.to_be_bytes().to_vec();
    wqe.extend(key.to_be_bytes());
    wqe.extend(3996u64.to_be_bytes());
    driver.host.write(b.rq + 16, &wqe);
    driver.host.write(b.record, &2u32.to_be_bytes());
    let lkey = driver.lkey;
    send(&mut driver, &a, 1, (lkey, page, 100));
    driver.poll(&mut cq);
    driver.poll(&mut cq);
    assert_eq!(driver.host.region_read(0, bar + 3996, 100).unwrap(), data[..100]);
    // One byte beyond the key fails.
    send(&mut driver, &a, 2, (key, 4000, 97));
    let failed = driver.poll(&mut cq);
    assert_eq!((failed[63] >> 4, failed[55]), (0xd, 4));
    // In use, then freed; the content is cleared.
    assert_eq!(dealloc(&mut driver, start + 4096, 4160), CmdStatus::RES_BUSY);
    let index = mkey::destroy_mkey_in::MKEY_INDEX;
    assert_eq!(driver.about(CmdOpcode::DESTROY_MKEY, index, key >> 8), CmdStatus::OK);
    assert_eq!(dealloc(&mut driver, start + 4096, 4160), CmdStatus::OK);
    assert_eq!(dealloc(&mut driver, start + 4096, 4160), CmdStatus::BAD_RES_ERR);
    assert_eq!(alloc(&mut driver, start, size, 6).0, CmdStatus::OK);
    assert_eq!(driver.host.region_read(0, bar, 200).unwrap(), [0; 200]);
}

#[test]
fn device_memory_that_nobody_gets() {
    let mut driver = Driver::up();
    let (start, size) = device_memory(&mut driver);
    for (at, len, alignment) in [
        (start, 0, 0),
        (start, 63, 0),
        (start, size + 64, 0),
        (start + size, 64, 0),
        (start - 4096, 64, 0),
        (u64::MAX - 63, 64, 0),
        (start, 64, 7),
    ] {
        let (status, _) = alloc(&mut driver, at, len, alignment);
        assert_eq!(status, CmdStatus::BAD_PARAM_ERR, "{at:#x} {len} {alignment}");
    }
    assert_eq!(alloc(&mut driver, start + 64, 64, 1).0, CmdStatus::NO_RES_ERR, "not aligned");
    assert_eq!(alloc(&mut driver, start + 8192, 8192, 0).0, CmdStatus::OK);
    for at in [start + 8192, start + 4096, start + 12288] {
        assert_eq!(alloc(&mut driver, at, 8192, 0).0, CmdStatus::NO_RES_ERR, "{at:#x} is taken");
    }
    assert_eq!(alloc(&mut driver, start, 8192, 0).0, CmdStatus::OK, "beside it");
    assert_eq!(dealloc(&mut driver, start + 8192, 4096), CmdStatus::BAD_RES_ERR);
    assert_eq!(dealloc(&mut driver, start + 8256, 8128), CmdStatus::BAD_RES_ERR);
    for (at, len) in [
        (start + 8192, 8193),
        (start + 8191, 8),
        (start + 16384, 1),
        (start + 16384, 0),
        (0, 64),
        (u64::MAX, 64),
        (start + 8192, u64::MAX),
    ] {
        let status = device_key(&mut driver, at, len).0;
        assert_eq!(status == CmdStatus::OK, (at, len) == (start + 16384, 0), "{at:#x} {len}");
    }
    // The gap between doorbells and device memory.
    driver.host.region_write(0, start - 4, &[0xff; 8]).unwrap();
    assert_eq!(driver.host.region_read(0, start - 4, 8).unwrap(), [0; 8]);
    driver.ok(CmdOpcode::NOP, 0, &[0; 16], 16);
}

/// Each client that maps the memory has other pages, from which a former one is gone.
#[test]
fn device_memory_of_a_client_is_not_the_next_ones() {
    let server = Server::new(&PciOptions::default()).unwrap();
    let mut first = Driver::on(Host::that_maps(server)).initialised();
    let (start, size) = device_memory(&mut first);
    let (old, [_, memory]) = first.host.offered();
    assert_eq!(memory, start..start + size);
    assert_eq!(alloc(&mut first, start, 4096, 0).0, CmdStatus::OK);
    old.write_all_at(&[7; 64], start + 64).unwrap();
    assert_eq!(first.host.region_read(0, start + 64, 64).unwrap(), [7; 64]);
    let mut second = Driver::on(Host::that_maps(first.host.power_off())).initialised();
    let (new, [_, memory]) = second.host.offered();
    assert_eq!(memory, start..start + size);
    let mut seen = [9; 64];
    new.read_exact_at(&mut seen, start + 64).unwrap();
    assert_eq!((seen, second.host.region_read(0, start + 64, 64)), ([0; 64], Ok(vec![0; 64])));
    // The allocations ended, too.
    assert_eq!(alloc(&mut second, start, 4096, 0).0, CmdStatus::OK);
    old.write_all_at(&[8; 64], start).unwrap();
    new.write_all_at(&[5; 32], start).unwrap();
    assert_eq!(
        second.host.region_read(0, start, 40).unwrap(),
        [[5; 32].as_slice(), &[0; 8]].concat()
    );
    old.read_exact_at(&mut seen, start).unwrap();
    assert_eq!(seen, [8; 64]);
}

const INCREMENT: u64 = 0;
const TEST_AND_SET: u64 = 1;
/// `op_mod` of MODIFY_MEMIC.
const ALLOC: u16 = 0;
const DEALLOC: u16 = 1;

/// MODIFY_MEMIC. Returns the address of the operation.
fn operation(driver: &mut Driver, op_mod: u16, start: u64, kind: u64) -> (CmdStatus, u64) {
    let mut input = [0; memic::modify_memic_in::SIZE];
    memic::modify_memic_in::MEMIC_START_ADDR.set(&mut input, start);
    memic::modify_memic_in::MEMIC_OPERATION_TYPE.set(&mut input, kind);
    let len = memic::modify_memic_out::SIZE;
    let (status, answer) = driver.run(CmdOpcode::MODIFY_MEMIC, op_mod, &input, len);
    (status, memic::modify_memic_out::MEMIC_OPERATION_ADDR.get(&answer))
}

#[test]
fn the_processor_increments_and_tests_and_sets() {
    let mut driver = Driver::up();
    let answer = driver.ok(CmdOpcode::QUERY_HCA_CAP, 0xf << 1 | 1, &[0; 16], 16 + 4096);
    let cap = hca::query_hca_cap_out::CAPABILITY.of(&answer);
    assert_eq!(memic::device_mem_cap::MEMIC_OPERATIONS.get(cap), 0b11);
    assert_eq!((memic::INCREMENT_SIZES.get(cap), memic::TEST_AND_SET_SIZES.get(cap)), (1, 1));
    let (start, _) = device_memory(&mut driver);
    let memory = start + 8192;
    assert_eq!(alloc(&mut driver, memory, 4160, 0).0, CmdStatus::OK);
    let (status, add) = operation(&mut driver, ALLOC, memory, INCREMENT);
    assert_eq!(status, CmdStatus::OK);
    let (status, set) = operation(&mut driver, ALLOC, memory, TEST_AND_SET);
    assert_eq!(status, CmdStatus::OK);
    assert_eq!((add % 4096, set % 4096), (memory % 4096, memory % 4096), "mapped by the page");
    for at in [0, 4159] {
        driver.host.region_write(0, memory + at, &[250]).unwrap();
        for _ in 0..3 {
            driver.host.region_write(0, add + at, &[5]).unwrap();
        }
        assert_eq!(driver.host.region_read(0, memory + at, 1).unwrap(), [9], "modulo 256");
        assert_eq!(driver.host.region_read(0, set + at, 1).unwrap(), [9]);
        assert_eq!(driver.host.region_read(0, set + at, 1).unwrap(), [1]);
        assert_eq!(driver.host.region_read(0, memory + at, 1).unwrap(), [1]);
    }
    // Loads from increment and stores to test-and-set have no effect, and neither have other
    // lengths.
    driver.host.region_write(0, memory, &[7; 8]).unwrap();
    driver.host.region_write(0, set, &[3]).unwrap();
    driver.host.region_write(0, add, &[1, 0]).unwrap();
    assert_eq!(driver.host.region_read(0, add, 1).unwrap(), [0]);
    assert_eq!(driver.host.region_read(0, set, 8).unwrap(), [0; 8]);
    assert_eq!(driver.host.region_read(0, memory, 8).unwrap(), [7; 8]);
}

#[test]
fn operations_outside_of_their_range() {
    let mut driver = Driver::up();
    let (start, _) = device_memory(&mut driver);
    for at in [start, start + 4096] {
        assert_eq!(alloc(&mut driver, at, 4096, 0).0, CmdStatus::OK);
    }
    let (status, add) = operation(&mut driver, ALLOC, start, INCREMENT);
    assert_eq!(status, CmdStatus::OK);
    for (op_mod, at, kind, expected) in [
        (ALLOC, start, INCREMENT, CmdStatus::BAD_RES_ERR),
        (ALLOC, start, 2, CmdStatus::BAD_PARAM_ERR),
        (ALLOC, start, 255, CmdStatus::BAD_PARAM_ERR),
        (2, start, TEST_AND_SET, CmdStatus::BAD_PARAM_ERR),
        (ALLOC, start + 64, INCREMENT, CmdStatus::BAD_RES_ERR),
        (ALLOC, start + 8192, INCREMENT, CmdStatus::BAD_RES_ERR),
        (ALLOC, 0, INCREMENT, CmdStatus::BAD_RES_ERR),
        (ALLOC, u64::MAX, INCREMENT, CmdStatus::BAD_RES_ERR),
        (DEALLOC, start, TEST_AND_SET, CmdStatus::BAD_RES_ERR),
        (DEALLOC, start + 4096, INCREMENT, CmdStatus::BAD_RES_ERR),
    ] {
        let status = operation(&mut driver, op_mod, at, kind).0;
        assert_eq!(status, expected, "{op_mod} {at:#x} {kind}");
    }
    // The next allocation has no operations, and none follows it.
    let size = device_memory(&mut driver).1;
    for at in [4096, 8191, 8192, size - 1] {
        driver.host.region_write(0, add + at, &[1]).unwrap();
        assert_eq!(driver.host.region_read(0, add + size + at, 1).unwrap(), [0]);
    }
    assert_eq!(driver.host.region_read(0, start + 4096, 4096).unwrap(), [0; 4096]);
    // Memory with an operation can't be freed.
    assert_eq!(dealloc(&mut driver, start, 4096), CmdStatus::RES_BUSY);
    assert_eq!(operation(&mut driver, DEALLOC, start, INCREMENT).0, CmdStatus::OK);
    driver.host.region_write(0, add, &[1]).unwrap();
    assert_eq!(driver.host.region_read(0, start, 1).unwrap(), [0]);
    assert_eq!(operation(&mut driver, DEALLOC, start, INCREMENT).0, CmdStatus::BAD_RES_ERR);
    assert_eq!(dealloc(&mut driver, start, 4096), CmdStatus::OK);
}
