//! A function as an RDMA device, on a device in the test.

use std::time::{Duration, Instant};

use uverbs_core::attr::PortState;
use uverbs_core::commands::Uverbs;
use uverbs_core::doors::DeviceSource;
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_MLX5;
use uverbs_kernel_abi::mlx5::*;
use uverbs_mlx5_prm::eqe::{MLX5_PORT_CHANGE_SUBTYPE_DOWN, mlx5_eqe};
use zerocopy::IntoBytes;

use super::fake::{Fake, limits};
use crate::device::Limits;
use crate::door::Hca;
use crate::function::Function;

const LIMIT: Duration = Duration::from_secs(20);
/// Port states of IBTA PortInfo.
const INITIALIZE: u8 = 2;
const ACTIVE: u8 = 4;
/// `MLX5_PORT_CHANGE_SUBTYPE_LID` of Linux.
const SUBTYPE_LID: u8 = 6;

fn open(fake: &Fake) -> Hca {
    let limits = Limits { command: LIMIT, health: Duration::from_secs(1), ..limits() };
    Hca::new(Function::open(fake.clone(), limits).unwrap(), "fake").unwrap()
}

/// Opens a context.
fn context(hca: &Hca) -> Uverbs {
    let uverbs = Uverbs::new(hca.open().unwrap(), RDMA_DRIVER_MLX5);
    let request = mlx5_ib_alloc_ucontext_req_v2 {
        total_num_bfregs: 16,
        num_low_latency_bfregs: 4,
        max_cqe_version: 1,
        lib_caps: MLX5_LIB_CAP_4K_UAR | MLX5_LIB_CAP_DYN_UAR,
        ..Default::default()
    };
    uverbs.get_context(request.as_bytes(), &mut [0; 72]).unwrap();
    uverbs
}

#[test]
fn a_device_follows_its_port() {
    let fake = Fake::new();
    fake.state().port = (INITIALIZE, 0);
    let hca = open(&fake);
    let uverbs = context(&hca);
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
