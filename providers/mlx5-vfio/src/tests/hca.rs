//! A function as an RDMA device, on a device in the test.

use std::time::{Duration, Instant};

use uverbs_core::attr::PortState;
use uverbs_mlx5_prm::cmd::caps::cmd_hca_cap;
use uverbs_mlx5_prm::cmd::hca::query_hca_cap_out;
use uverbs_mlx5_prm::eqe::{MLX5_PORT_CHANGE_SUBTYPE_DOWN, mlx5_eqe};

use super::context::{context, use_context};
use super::fake::{Fake, Twist, limits};
use crate::device::Limits;
use crate::door::Hca;
use crate::error::Error;
use crate::function::Function;

const LIMIT: Duration = Duration::from_secs(20);
/// Port states of IBTA PortInfo.
const INITIALIZE: u8 = 2;
const ACTIVE: u8 = 4;
/// `MLX5_PORT_CHANGE_SUBTYPE_LID` of Linux.
const SUBTYPE_LID: u8 = 6;
/// Commands of bring-up before the last QUERY_HCA_CAP.
const CAPS: usize = 13;

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

/// A lost doorbell is a lost send.
#[test]
fn a_device_that_needs_each_doorbell_is_refused() {
    let fake = Fake::new();
    fake.state().acts_on_each = true;
    let refused = Hca::new(Function::open(fake.clone(), limits()).unwrap(), "fake").map(drop);
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
    fake.wait_for_the_end();
    let named = Hca::named("vfio:0000:65:00.2").unwrap().map(drop);
    assert_eq!(named, refused);
}

/// Sizes beyond all devices reach no shift.
#[test]
fn capabilities_that_no_device_has_are_cut() {
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
    let hca = open(&fake);
    let uverbs = context(&hca).unwrap();
    assert!(use_context(&uverbs).is_some());
}
