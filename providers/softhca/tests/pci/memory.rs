//! Memory that a driver registers as mlx5_ib does.

use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::{mkey, qp};

use crate::data::{receive, send};
use crate::driver::{Cq, Driver, Qp};

/// A key that is free, with room for `octowords` (hw/mlx5/mr.c, the cache).
fn free_key(driver: &mut Driver, mode: u64, octowords: u32) -> (CmdStatus, u32) {
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

/// Gives a key the pages that lie at `list`, enables it for `len` bytes at `start`, and rings: the `index`th WQE of three
/// blocks, which Linux's `mlx5r_umr_update_mr_pas` posts.
fn give_pages(
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

/// The driver's queue for changes: of no domain, and the only one that may give pages.
fn umr_queue(driver: &mut Driver, cq: &Cq, fre: u64) -> Qp {
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
    driver.connect(a.number, b.number);
    driver.connect(b.number, a.number);
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
    // It isn't free now: a memory management error, and the queue is in error.
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
    for mode in [0, 3, 4, 5, 7] {
        assert_eq!(free_key(&mut driver, mode, 2).0, CmdStatus::BAD_PARAM_ERR, "mode {mode}");
    }
}
