//! A function as an RDMA device, on a device in the test.
//!
//! # Safety
//!
//! Doorbells are stores into a mapped page.
#![allow(unsafe_code, reason = "stores doorbells")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use uverbs_core::attr::PortState;
use uverbs_core::memory::pages::Pages;
use uverbs_core::order::mmio;
use uverbs_mlx5_prm::cmd::caps::cmd_hca_cap;
use uverbs_mlx5_prm::cmd::hca::query_hca_cap_out;
use uverbs_mlx5_prm::eqe::{MLX5_PORT_CHANGE_SUBTYPE_DOWN, mlx5_eqe};

use super::context::{context, use_context};
use super::fake::{Fake, Twist, UAR, limits};
use crate::device::Limits;
use crate::door::Hca;
use crate::function::Function;

const LIMIT: Duration = Duration::from_secs(20);
/// Port states of IBTA PortInfo.
const INITIALIZE: u8 = 2;
const ACTIVE: u8 = 4;
/// `MLX5_PORT_CHANGE_SUBTYPE_LID` of Linux.
const SUBTYPE_LID: u8 = 6;
/// Commands of bring-up before the last QUERY_HCA_CAP.
const CAPS: usize = 13;

/// Stores a doorbell, as a program does.
fn ring(page: &Pages, offset: usize, value: u64) {
    assert!(offset.is_multiple_of(8) && offset + 8 <= page.len());
    let word = page.as_mut_ptr().wrapping_add(offset).cast::<u64>();
    // SAFETY: within the mapping and aligned.
    unsafe { mmio::write64_be(word, value) };
}

fn open(fake: &Fake) -> Hca {
    let limits = Limits { command: LIMIT, health: Duration::from_secs(1), ..limits() };
    Hca::new(Function::open(fake.clone(), limits).unwrap(), "fake").unwrap()
}

#[test]
fn a_device_follows_its_port() {
    let fake = Fake::new();
    fake.state().port = (INITIALIZE, 0);
    let hca = open(&fake);
    let uverbs = context(&hca).unwrap();
    let is = |up: bool, lid: u16| {
        let start = Instant::now();
        loop {
            let port = uverbs.query_port(1).unwrap();
            if (port.state == PortState::Active, port.lid) == (up, lid) {
                return;
            }
            assert!(start.elapsed() < LIMIT, "{port:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    is(false, 0);
    // Each kind of event has the port read anew.
    fake.state().port = (ACTIVE, 5);
    fake.report(&mlx5_eqe::port(SUBTYPE_LID, 1));
    is(true, 5);
    fake.state().port = (INITIALIZE, 5);
    fake.report(&mlx5_eqe::port(MLX5_PORT_CHANGE_SUBTYPE_DOWN, 1));
    is(false, 5);
}

/// A device with sizes beyond all devices.
fn vast() -> Fake {
    let mut answer = vec![0; query_hca_cap_out::SIZE];
    let caps = query_hca_cap_out::CAPABILITY.of_mut(&mut answer);
    for field in [
        cmd_hca_cap::LOG_MAX_QP_SZ,
        cmd_hca_cap::LOG_MAX_SRQ_SZ,
        cmd_hca_cap::LOG_MAX_CQ_SZ,
        cmd_hca_cap::LOG_TAG_MATCHING_LIST_SZ,
    ] {
        field.set(caps, !0 >> (64 - field.width()));
    }
    let fake = Fake::new();
    fake.twist(CAPS, Twist::Output(answer.split_off(8)));
    fake
}

/// Each context has a page, the device gets each word, and a page is freed after its
/// last mapping.
#[test]
fn a_doorbell_reaches_the_device_by_itself() {
    let fake = vast();
    let hca = open(&fake);
    let contexts = [(); 2].map(|()| context(&hca).unwrap());
    let queues = contexts.each_ref().map(|uverbs| use_context(uverbs).unwrap());
    assert_eq!(queues.each_ref().map(|queue| queue.uar), [UAR + 1, UAR + 2]);
    for (queue, numbers) in queues.iter().zip([[5, 6], [7, 8]]) {
        for (offset, number) in [(0x20, numbers[0]), (0x800, numbers[1]), (0x800, numbers[0])] {
            ring(&queue.page, offset, number);
            assert_eq!(fake.state().take_doorbell(queue.uar, offset as u64), number);
        }
    }
    assert_eq!(fake.state().rings, 0, "the driver rings for no program");
    let [first, second] = queues;
    // The mapping is the last user of its page.
    drop(contexts);
    assert_eq!(fake.state().uars, BTreeSet::from([UAR, first.uar, second.uar]));
    drop(first);
    let again = context(&hca).unwrap();
    assert_eq!(use_context(&again).unwrap().uar, UAR + 1);
    assert!(fake.state().uars.contains(&second.uar));
    drop((again, hca, second));
    fake.wait_for_the_end();
    assert_eq!(fake.state().failures, [""; 0]);
}

/// The thread that gives pages waits for a command, which waits for a page.
#[test]
fn the_driver_s_own_commands_get_pages() {
    let fake = vast();
    let limits = Limits { command: Duration::from_secs(2), ..limits() };
    let hca = Hca::new(Function::open(fake.clone(), limits).unwrap(), "fake").unwrap();
    let uverbs = context(&hca).unwrap();
    let queue = use_context(&uverbs).unwrap();
    drop(uverbs);
    let pages = fake.state().pages.len();
    fake.twist(0, Twist::WantPage);
    let uar = queue.uar;
    drop(queue);
    // The driver's thread frees the doorbell page in its next turn.
    fake.report(&mlx5_eqe::port(MLX5_PORT_CHANGE_SUBTYPE_DOWN, 1));
    fake.wait(|state| (!state.uars.contains(&uar)).then_some(()));
    assert_eq!(fake.state().pages.len(), pages + 1);
}

/// A number that is in use, or has registers.
#[test]
fn a_page_that_no_device_gives_is_a_failure() {
    for number in [UAR, 0, 0x30, 0xff_ffff] {
        let fake = vast();
        let hca = open(&fake);
        let uverbs = context(&hca).unwrap();
        fake.state().next_uar = Some(number);
        assert!(use_context(&uverbs).is_none(), "{number:#x}");
        assert!(context(&hca).is_none_or(|uverbs| use_context(&uverbs).is_none()));
    }
}

/// Sizes beyond all devices reach no shift.
#[test]
fn capabilities_that_no_device_has_are_cut() {
    let fake = vast();
    let hca = open(&fake);
    let uverbs = context(&hca).unwrap();
    assert!(use_context(&uverbs).is_some());
}
