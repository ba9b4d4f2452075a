//! Making objects: requests to the kernel, and refusals.

use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::attr::{QpCap, QpType};
use uverbs_core::commands::Uverbs;
use uverbs_core::error::Error;
use uverbs_core::objects::context::ContextCore;
use uverbs_core::provider::{ContextOps, CqInit, MiniCqe, Provider, QpInit, SrqInit};
use uverbs_kernel_abi::objects::{UVERBS_OBJECT_CQ, UVERBS_OBJECT_QP, UVERBS_OBJECT_SRQ};

use super::driver::Lab;
use super::kernel::Kernel;
use super::rig::{CAP, Rig};

fn limit<T: std::fmt::Debug>(result: Result<T, Error>) -> (&'static str, u64) {
    match result {
        Err(Error::Limit { what, limit, .. }) => (what, limit),
        other => panic!("{other:?}"),
    }
}

fn unsupported<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Unsupported { what, .. }) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn limits_are_named() {
    let Rig { context, pd, cq_core, .. } = Rig::new(20);
    let qp = |cap| {
        let mut init = QpInit::new(pd.clone(), cq_core.clone(), cq_core.clone());
        init.cap = cap;
        limit(context.create_qp(&init))
    };
    assert_eq!(qp(QpCap { max_send_wr: 101, ..CAP }), ("max_send_wr", 100));
    assert_eq!(qp(QpCap { max_recv_wr: 101, ..CAP }), ("max_recv_wr", 100));
    // The driver's elements have room for less than the device says.
    assert_eq!(qp(QpCap { max_send_sge: 5, ..CAP }), ("max_send_sge", 4));
    assert_eq!(qp(QpCap { max_recv_sge: 5, ..CAP }), ("max_recv_sge", 4));
    assert_eq!(qp(QpCap { max_inline_data: 1, ..CAP }), ("max_inline_data", 0));
    assert_eq!(limit(context.create_cq(&CqInit::new(0))), ("entries", 1));
    assert_eq!(limit(context.create_cq(&CqInit::new(200))), ("entries", 199));
    let mut init = CqInit::new(1);
    init.comp_vector = 2;
    assert_eq!(limit(context.create_cq(&init)), ("comp_vector", 1));
    let srq = |max_wr, max_sge, below| {
        let mut init = SrqInit::new(pd.clone());
        (init.max_wr, init.max_sge, init.limit) = (max_wr, max_sge, below);
        limit(context.create_srq(&init))
    };
    assert_eq!(srq(0, 1, 0), ("max_wr", 1));
    assert_eq!(srq(51, 1, 0), ("max_wr", 50));
    assert_eq!(srq(5, 5, 0), ("max_sge", 4));
    assert_eq!(srq(5, 1, 6), ("limit", 5));
}

#[test]
fn a_program_that_sees_to_the_room_gets_the_largest_queue() {
    let Rig { context, .. } = Rig::new(20);
    let mut init = CqInit::new(200);
    init.unchecked = true;
    context.create_cq(&init).unwrap();
    init.entries = 201;
    assert_eq!(limit(context.create_cq(&init)), ("entries", 200));
}

#[test]
fn a_send_queue_has_the_driver_s_least_size() {
    let Rig { context, pd, cq_core, .. } = Rig::new(20);
    let mut init = QpInit::new(pd, cq_core.clone(), cq_core);
    init.cap = QpCap { max_send_wr: 0, ..CAP };
    assert_eq!(context.create_qp(&init).unwrap().core.cap().max_send_wr, 1);
}

#[test]
fn what_the_driver_lacks_is_refused_by_name() {
    let Rig { kernel, context, pd, cq_core, .. } = Rig::new(20);
    let made = kernel.state().made.len();
    let cq = |change: fn(&mut CqInit)| {
        let mut init = CqInit::new(4);
        change(&mut init);
        unsupported(context.create_cq(&init))
    };
    assert_eq!(
        cq(|init| init.compressed = Some(MiniCqe::Checksum)),
        "compressed completions (lab)"
    );
    assert_eq!(cq(|init| init.padded = true), "entries of 128 bytes (lab)");
    assert_eq!(cq(|init| init.ignore_overrun = true), "a queue that ignores overruns (lab)");
    let mut init = QpInit::new(pd, cq_core.clone(), cq_core);
    (init.cap, init.qp_type) = (CAP, QpType::Ud);
    assert!(unsupported(context.create_qp(&init)).ends_with("(the lab has RC)"));
    assert_eq!(kernel.state().made.len(), made, "the kernel was not asked");
}

#[test]
fn objects_that_cannot_be_mapped_are_destroyed() {
    let Rig { kernel, context, pd, cq_core, .. } = Rig::new(20);
    kernel.state().refuse_mmap = true;
    kernel.state().destroyed.clear();
    let mut init = QpInit::new(pd.clone(), cq_core.clone(), cq_core);
    init.cap = CAP;
    let mut srq = SrqInit::new(pd);
    srq.max_wr = 4;
    let errors = [
        context.create_cq(&CqInit::new(4)).unwrap_err(),
        context.create_qp(&init).unwrap_err(),
        context.create_srq(&srq).unwrap_err(),
    ];
    assert!(errors.iter().all(|error| error.errno() == Some(Errno::EAGAIN)));
    let objects: Vec<_> = kernel.state().destroyed.iter().map(|(object, _)| *object).collect();
    assert_eq!(objects, [UVERBS_OBJECT_CQ, UVERBS_OBJECT_QP, UVERBS_OBJECT_SRQ]);
}

#[test]
fn another_drivers_device_is_refused() {
    let kernel = Arc::new(Kernel::default());
    let core = ContextCore::new(Uverbs::new(kernel, 1));
    let what = unsupported(Lab::open(core));
    assert_eq!(what, "a device of another driver than lab (RDMA driver id 1)");
}
