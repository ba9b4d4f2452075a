//! Making objects: requests to the kernel, and answers that are rejected.

use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::attr::QpCap;
use uverbs_core::commands::Uverbs;
use uverbs_core::error::Error;
use uverbs_core::provider::{ContextOps, CqInit, Provider, QpInit, SrqInit};
use uverbs_kernel_abi::objects::{UVERBS_OBJECT_CQ, UVERBS_OBJECT_QP};

use super::kernel::Kernel;
use super::rig::{CAP, Rig};
use crate::{Context, Rxe};

fn open() -> (Arc<Kernel>, Context) {
    let kernel = Arc::new(Kernel::default());
    let context = Rxe::open(kernel.core()).unwrap();
    (kernel, context)
}

fn qp(context: &Context, cap: QpCap) -> Result<QpCap, Error> {
    let pd = context.alloc_pd().unwrap();
    let (cq, _poller) = context.create_cq(&CqInit::new(16)).unwrap();
    let mut init = QpInit::new(pd, Arc::clone(&cq), cq);
    init.cap = cap;
    context.create_qp(&init).map(|qp| *qp.core.cap())
}

#[test]
fn the_kernels_rounding_is_given_to_the_caller() {
    let (_, context) = open();
    let granted = qp(&context, QpCap { max_send_wr: 8, max_recv_wr: 1, ..CAP }).unwrap();
    assert_eq!((granted.max_send_wr, granted.max_recv_wr), (15, 1));
    assert_eq!((granted.max_inline_data, granted.max_send_sge), (100, 6));
    let (core, _) = context.create_cq(&CqInit::new(16)).unwrap();
    assert_eq!((core.capacity(), core.lag()), (24, 7));
    let none = QpCap { max_send_wr: 0, max_recv_wr: 0, ..CAP };
    let granted = qp(&context, none).unwrap();
    assert_eq!((granted.max_send_wr, granted.max_recv_wr), (0, 0));
}

#[test]
fn queues_that_may_overrun_a_completion_queue_are_refused() {
    let (kernel, context) = open();
    let mut init = CqInit::new(4);
    init.ignore_overrun = true;
    let (cq, _poller) = context.create_cq(&init).unwrap();
    let mut init = QpInit::new(context.alloc_pd().unwrap(), Arc::clone(&cq), cq);
    init.cap = CAP;
    let error = context.create_qp(&init).unwrap_err();
    assert!(matches!(error, Error::Limit { verb: "create_qp", .. }), "{error}");
    let destroyed = kernel.state().destroyed.clone();
    assert_eq!(destroyed.iter().map(|(object, _)| *object).collect::<Vec<_>>(), [UVERBS_OBJECT_QP]);
}

/// User indexes are counted per context: the first of one would take the place of the first of
/// another.
#[test]
fn objects_of_another_context_are_refused() {
    let (kernel, context) = open();
    let (_, other) = open();
    let (cq, _poller) = context.create_cq(&CqInit::new(16)).unwrap();
    let (foreign, _foreign_poller) = other.create_cq(&CqInit::new(16)).unwrap();
    let (pd, foreign_pd) = (context.alloc_pd().unwrap(), other.alloc_pd().unwrap());
    for (pd, send, recv, odd) in [
        (&foreign_pd, &cq, &cq, "protection domain"),
        (&pd, &foreign, &cq, "send completion queue"),
        (&pd, &cq, &foreign, "receive completion queue"),
    ] {
        let mut init = QpInit::new(Arc::clone(pd), Arc::clone(send), Arc::clone(recv));
        init.cap = CAP;
        let error = context.create_qp(&init).unwrap_err();
        assert!(matches!(error, Error::Invalid { what, .. } if what == odd), "{error}");
    }
    assert_eq!(kernel.state().made.len(), 1, "no queue pair was asked for");
}

/// Returns true if a fork leaves the mapping around an address behind (`dc`, proc(5)).
fn stays_behind(address: usize) -> bool {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = smaps.lines().skip_while(|line| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let parse = |text| usize::from_str_radix(text, 16).ok();
        !range.is_some_and(|(from, to)| {
            parse(from).zip(parse(to)).is_some_and(|(from, to)| (from..to).contains(&address))
        })
    });
    let flags = lines.find(|line| line.starts_with("VmFlags:")).expect("a mapping");
    flags.split(' ').any(|flag| flag == "dc")
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn a_fork_leaves_the_rings_behind() {
    let mut rig = Rig::new(16);
    for (queue, address) in [
        ("completions", rig.cq.ring_mut().address()),
        ("sends", rig.sq.ring_mut().address()),
        ("receives", rig.rq.ring_mut().0.element(0).addr()),
    ] {
        assert!(stays_behind(address), "{queue}");
    }
}

#[test]
fn limits_are_named() {
    let (kernel, context) = open();
    let limit = |error: Error| match error {
        Error::Limit { what, limit, .. } => (what, limit),
        other => panic!("{other}"),
    };
    for (cap, what, most) in [
        (QpCap { max_send_wr: 0x4001, ..CAP }, "max_send_wr", 0x4000),
        (QpCap { max_recv_wr: u32::MAX, ..CAP }, "max_recv_wr", 0x4000),
        (QpCap { max_send_sge: 33, ..CAP }, "max_send_sge", 32),
        (QpCap { max_recv_sge: 33, ..CAP }, "max_recv_sge", 32),
        (QpCap { max_inline_data: 513, ..CAP }, "max_inline_data", 512),
    ] {
        assert_eq!(limit(qp(&context, cap).unwrap_err()), (what, most));
    }
    for (entries, most) in [(0, 1), (0x7fff, 0x7ffe)] {
        let error = context.create_cq(&CqInit::new(entries)).unwrap_err();
        assert_eq!(limit(error), ("entries", most));
    }
    let mut init = CqInit::new(1);
    init.comp_vector = 2;
    assert_eq!(limit(context.create_cq(&init).unwrap_err()), ("comp_vector", 1));
    assert!(kernel.state().destroyed.iter().all(|(object, _)| *object == UVERBS_OBJECT_CQ));
}

#[test]
fn limits_as_high_as_numbers_go_are_believed() {
    let kernel = Arc::new(Kernel::default());
    kernel.state().boast = Some(u32::MAX);
    let context = Rxe::open(kernel.core()).unwrap();
    let mut init = SrqInit::new(context.alloc_pd().unwrap());
    let mut queue = CqInit::new(u32::MAX);
    queue.unchecked = true;
    // The kernel has the last word.
    for max_wr in [u32::MAX, u32::MAX - 1, 1 << 31] {
        init.max_wr = max_wr;
        assert_eq!(context.create_srq(&init).unwrap_err().errno(), Some(Errno::EINVAL));
    }
    assert_eq!(context.create_cq(&queue).unwrap_err().errno(), Some(Errno::EINVAL));
}

#[test]
fn a_queue_that_makes_no_sense_is_refused_and_its_object_destroyed() {
    // Offset in the head, and the value stored there: element size, mask.
    for (offset, value) in
        [(0, 2), (0, 31), (0, u32::MAX), (0, 5), (4, 2), (4, u32::MAX), (4, 0xffff), (4, 1 << 31)]
    {
        let (kernel, context) = open();
        kernel.state().spoil = Some((offset, value));
        let error = context.create_cq(&CqInit::new(16)).unwrap_err();
        assert!(matches!(error, Error::Unsupported { verb: "create_cq", .. }), "{error}");
        assert_eq!(kernel.state().destroyed.len(), 1);
    }
    let (kernel, context) = open();
    let pd = context.alloc_pd().unwrap();
    let (cq, _poller) = context.create_cq(&CqInit::new(16)).unwrap();
    kernel.state().spoil = Some((4, 0xff_ffff));
    let init = QpInit::new(pd, Arc::clone(&cq), cq);
    let error = context.create_qp(&init).unwrap_err();
    assert!(matches!(error, Error::Unsupported { verb: "create_qp", .. }), "{error}");
    let state = kernel.state();
    assert_eq!(
        state.destroyed.iter().map(|(object, _)| *object).collect::<Vec<_>>(),
        [UVERBS_OBJECT_QP]
    );
}

#[test]
fn a_queue_that_cant_be_mapped_is_an_error() {
    let (kernel, context) = open();
    kernel.state().refuse_mmap = true;
    let error = context.create_cq(&CqInit::new(16)).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::EAGAIN));
    assert_eq!(kernel.state().destroyed.len(), 1);
}

#[test]
fn another_drivers_device_is_refused() {
    let kernel = Arc::new(Kernel::default());
    for driver in [0, 1] {
        let core =
            uverbs_core::objects::context::ContextCore::new(Uverbs::new(kernel.clone(), driver));
        assert!(matches!(Rxe::open(core), Err(Error::Unsupported { verb: "open_device", .. })));
    }
}

#[test]
fn everything_is_destroyed_once() {
    let rig = Rig::new(15);
    let kernel = Arc::clone(&rig.kernel);
    drop(rig);
    let mut destroyed = kernel.state().destroyed.clone();
    destroyed.sort_unstable();
    let objects: Vec<_> = destroyed.iter().map(|(object, _)| *object).collect();
    assert_eq!(objects, [UVERBS_OBJECT_CQ, UVERBS_OBJECT_QP]);
}
