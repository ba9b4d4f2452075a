//! Opening a device, and creation and destruction of queues: the commands sent to the kernel.

use std::collections::HashSet;
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::attr::{AccessFlags, DoorbellMode, InitAttr, QpCap, QpType};
use uverbs_core::error::Error;
use uverbs_core::provider::{ContextOps, CqInit, CqeSize, NewQp, Provider, QpInit};
use uverbs_kernel_abi::mlx5::*;
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::write::IB_USER_VERBS_CMD_FLAG_EXTENDED;
use uverbs_mlx5_prm::cmd::caps::cmd_hca_cap::{DP_ORDERING_OOO_ALL_DC, DP_ORDERING_OOO_ALL_RC};
use zerocopy::FromBytes;

use super::door::{Door, Sent};
use crate::{Context, Mlx5, OutOfOrderCaps};

fn open() -> (Arc<Door>, Context) {
    let door = Door::new();
    let context = Mlx5::open(door.core()).unwrap();
    (door, context)
}

fn request<T: FromBytes>(sent: &Sent) -> T {
    T::read_from_bytes(sent.bytes(UVERBS_ATTR_UHW_IN)).unwrap()
}

fn qp_init(context: &Context, cap: QpCap, doorbell: DoorbellMode) -> QpInit {
    let pd = context.alloc_pd().unwrap();
    let (cq, _) = context.create_cq(&CqInit::new(10)).unwrap();
    let mut init = QpInit::new(pd, Arc::clone(&cq), cq);
    init.cap = cap;
    init.doorbell = doorbell;
    init
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn the_handshake_asks_for_dynamic_uars_user_indexes_and_devx() {
    let (door, context) = open();
    let sent = door.sent(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT);
    let asked: mlx5_ib_alloc_ucontext_req_v2 = request(&sent[0]);
    assert_eq!(
        asked,
        mlx5_ib_alloc_ucontext_req_v2 {
            total_num_bfregs: 16,
            num_low_latency_bfregs: 4,
            max_cqe_version: 1,
            lib_caps: 3,
            flags: 1,
            ..Default::default()
        }
    );
    let pages = door.sent(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC);
    assert_eq!(pages[0].number(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE), 1, "NC");
    assert_eq!(context.query_device().unwrap().max_sge, 30);
    drop(context);
    // Closing the file frees the pages.
    assert_eq!(door.sent(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY).len(), 0);
}

#[test]
fn a_kernel_that_is_too_old_is_named() {
    let door = Door::new();
    door.answers.lock().unwrap().context.tot_bfregs = 16;
    let error = Mlx5::open(door.core()).unwrap_err();
    assert!(matches!(&error, Error::Unsupported { what, .. } if what.contains("5.8")), "{error}");
    let door = Door::new();
    door.answers.lock().unwrap().context.cqe_version = 0;
    let error = Mlx5::open(door.core()).unwrap_err();
    assert!(matches!(&error, Error::Unsupported { what, .. } if what.contains('0')), "{error}");
    let door = Door::new();
    door.refuse(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, Errno::EOPNOTSUPP);
    assert_eq!(Mlx5::open(door.core()).unwrap_err().errno(), Some(Errno::EOPNOTSUPP));
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn a_completion_queue() {
    let (door, context) = open();
    for (size, bytes) in [(CqeSize::Bytes64, 64), (CqeSize::Bytes128, 128)] {
        let mut init = CqInit::new(100);
        init.cqe_size = size;
        let (core, cq) = context.create_cq(&init).unwrap();
        let sent = door.sent(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE).pop().unwrap();
        let asked: mlx5_ib_create_cq = request(&sent);
        let raw = cq.raw_parts();
        assert_eq!(asked.buf_addr, raw.buf.expose_provenance() as u64);
        assert_eq!(asked.db_addr, raw.dbrec.expose_provenance() as u64);
        assert_eq!((asked.cqe_size, asked.flags), (bytes, MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX));
        assert_eq!(u32::from(asked.uar_page_index), context.uars.non_cached().page_id());
        // One less than the CQEs of the ring.
        assert_eq!(sent.number(UVERBS_ATTR_CREATE_CQ_CQE) as u32, 127);
        // The requested capacity, and the rest of the ring for bursts that post.
        assert_eq!((core.capacity(), core.lag()), (100, 28));
        assert_eq!((core.cqn(), raw.bytes), (0x777, 128 * bytes as usize));
        drop((core, cq));
    }
    assert_eq!(door.sent(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY).len(), 2);
    assert!(matches!(context.create_cq(&CqInit::new(0)), Err(Error::Limit { limit: 1, .. })));
    assert!(matches!(context.create_cq(&CqInit::new(u32::MAX)), Err(Error::Limit { .. })));
    let mut init = CqInit::new(1);
    init.comp_vector = 8;
    let error = context.create_cq(&init).unwrap_err();
    assert!(matches!(error, Error::Limit { what: "comp_vector", limit: 7, .. }), "{error}");
    init.comp_vector = 7;
    drop(context.create_cq(&init).unwrap());
    door.refuse(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, Errno::EINVAL);
    let error = context.create_cq(&CqInit::new(1)).unwrap_err();
    assert_eq!((error.verb(), error.errno()), (Some("create_cq"), Some(Errno::EINVAL)));
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn a_page_number_of_more_than_16_bits_is_an_attribute() {
    let door = Door::new();
    door.answers.lock().unwrap().page_id = 0x1_0000;
    let context = Mlx5::open(door.core()).unwrap();
    drop(context.create_cq(&CqInit::new(1)).unwrap());
    let sent = door.sent(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE).pop().unwrap();
    let asked: mlx5_ib_create_cq = request(&sent);
    assert_eq!((asked.flags, asked.uar_page_index), (0, 0));
    let number = sent.number(MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX);
    assert_eq!(number, u64::from(context.uars.non_cached().page_id()));
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn a_device_without_doorbell_pages_is_named_and_queues_share_the_last_one() {
    for errno in [Errno::ENOMEM, Errno::ENOSPC, Errno::EAGAIN, Errno::EOPNOTSUPP] {
        let (door, context) = open();
        door.refuse(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, errno);
        let init = qp_init(&context, QpCap::default(), DoorbellMode::BlueFlame);
        drop(context.create_qp(&init).unwrap());
        let sent = door.sent(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE).pop().unwrap();
        let asked: mlx5_ib_create_qp = request(&sent);
        assert_eq!(asked.bfreg_index, context.uars.non_cached().page_id());
    }
    for errno in [Errno::ENOMEM, Errno::ENOSPC, Errno::EAGAIN] {
        let door = Door::new();
        door.refuse(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, errno);
        let error = Mlx5::open(door.core()).unwrap_err();
        assert_eq!((error.verb(), error.errno()), (Some("alloc_uar"), Some(errno)));
        assert!(error.to_string().contains("PF_LOG_BAR_SIZE"), "{error}");
    }
    let (door, context) = open();
    door.refuse(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, Errno::EIO);
    let init = qp_init(&context, QpCap::default(), DoorbellMode::BlueFlame);
    assert_eq!(context.create_qp(&init).unwrap_err().errno(), Some(Errno::EIO));
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn a_queue_pair() {
    let (door, context) = open();
    let cap = QpCap {
        max_send_wr: 5,
        max_recv_wr: 5,
        max_send_sge: 1,
        max_recv_sge: 3,
        max_inline_data: 29,
    };
    let init = qp_init(&context, cap, DoorbellMode::BlueFlame);
    let NewQp { core, sq, rq } = context.create_qp(&init).unwrap();
    let sent = door.sent(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE).pop().unwrap();
    let asked: mlx5_ib_create_qp = request(&sent);
    let (send, recv) = (sq.raw_parts(), rq.raw_parts());
    assert_eq!(asked.buf_addr, recv.buf.expose_provenance() as u64);
    assert_eq!(asked.buf_addr % 4096, 0);
    assert_eq!((asked.sq_wqe_count, asked.rq_wqe_count, asked.rq_wqe_shift), (16, 8, 6));
    // The kernel computes the same offset of the send queue.
    assert_eq!(send.buf, recv.buf.wrapping_add(8 << 6));
    assert_eq!(asked.db_addr, send.dbrec.expose_provenance() as u64);
    assert_eq!(send.dbrec, recv.dbrec);
    assert_eq!(asked.flags, MLX5_QP_FLAG_UAR_PAGE_INDEX);
    assert_eq!(asked.uidx, core.shared().user_index.value());
    assert_eq!((asked.sq_buf_addr, asked.ece_options), (0, 0));
    let page = door.sent(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC).pop().unwrap();
    assert_eq!(page.number(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE), 0, "BF");
    assert_eq!(
        *door.pages.lock().unwrap(),
        [context.uars.non_cached().page_id(), asked.bfreg_index]
    );
    assert_eq!(send.uar.addr() % 4096, 0x800);
    assert_eq!((core.qpn(), send.qpn, recv.qpn), (0xab_cdef, 0xab_cdef, 0xab_cdef));
    assert_eq!(
        *core.cap(),
        QpCap {
            max_send_wr: 8,
            max_recv_wr: 8,
            max_send_sge: 6,
            max_recv_sge: 4,
            max_inline_data: 92,
        }
    );
    assert_eq!((core.shared().send.units(), core.shared().recv.units()), (16, 8));
    drop(core);
    assert_eq!(door.sent(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY).len(), 1);
    // The queue sides keep the rings.
    assert!(rq.dump(0).starts_with("receive"), "{}", rq.dump(0));
    drop((sq, rq));
}

/// Half of a ring with twice the places, and a flag for the driver at each change to INIT.
#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn receives_that_complete_out_of_order() {
    let (door, context) = open();
    let cap = QpCap { max_send_wr: 1, max_recv_wr: 5, max_recv_sge: 1, ..QpCap::default() };
    let mut init = qp_init(&context, cap, DoorbellMode::NonCached);
    init.out_of_order = true;
    let unsupported = |error| assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    unsupported(context.create_qp(&init).unwrap_err());
    assert_eq!(context.out_of_order_caps(), Ok(None));

    let door = {
        drop((context, init, door));
        Door::new()
    };
    let mut caps = vec![0; 16 + 4096];
    DP_ORDERING_OOO_ALL_RC.set(&mut caps[16..], 1);
    DP_ORDERING_OOO_ALL_DC.set(&mut caps[16..], 1);
    {
        let mut answers = door.answers.lock().unwrap();
        (answers.driver.flags, answers.caps) = (MLX5_IB_QUERY_DEV_RESP_FLAGS_OOO_DP, caps);
    }
    let context = Mlx5::open(door.core()).unwrap();
    let most = OutOfOrderCaps { rc: 16384, dc: 32768, ..Default::default() };
    assert_eq!(context.out_of_order_caps(), Ok(Some(most)));
    let mut init = qp_init(&context, cap, DoorbellMode::NonCached);
    init.out_of_order = true;
    let NewQp { core, .. } = context.create_qp(&init).unwrap();
    let sent = door.sent(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE).pop().unwrap();
    let asked: mlx5_ib_create_qp = request(&sent);
    assert_eq!((asked.rq_wqe_count, core.cap().max_recv_wr), (16, 8));
    let change = || {
        let all = door.sent(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE).pop().unwrap();
        let command = all.number(UVERBS_ATTR_WRITE_CMD) as u32;
        let own = all.has(UVERBS_ATTR_UHW_IN).then(|| request::<mlx5_ib_modify_qp>(&all));
        (command, own.map(|own| (own.comp_mask, own.ece_options)))
    };
    let to_init = InitAttr { port: 1, pkey_index: 0, access: AccessFlags::empty() };
    core.bring(&to_init).unwrap();
    assert_eq!(change(), (IB_USER_VERBS_CMD_FLAG_EXTENDED | 26, Some((1, 0))));
    core.fail().unwrap();
    assert_eq!(change(), (26, None));

    init.qp_type = QpType::Uc;
    unsupported(context.create_qp(&init).unwrap_err());
    (init.qp_type, init.cap.max_recv_wr) = (QpType::Rc, 16384);
    assert_eq!(context.create_qp(&init).unwrap().core.cap().max_recv_wr, 16384);
    init.cap.max_recv_wr = 16385;
    let error = context.create_qp(&init).unwrap_err();
    assert!(matches!(error, Error::Limit { limit: 16384, .. }), "{error}");
    init.cap.max_recv_wr = 1;
    assert_eq!(context.create_qp(&init).unwrap().core.cap().max_recv_wr, 2);
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn registers_are_dedicated_recycled_and_remember_their_half() {
    let (door, context) = open();
    let init = qp_init(&context, QpCap::default(), DoorbellMode::BlueFlame);
    let pages = || door.sent(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC).len();
    let make = || context.create_qp(&init).unwrap();
    let (first, second, third) = (make(), make(), make());
    // The non-cached page, and two registers on each other page.
    assert_eq!(pages(), 3);
    let offset = |qp: &NewQp<Mlx5>| qp.sq.raw_parts().uar.addr() % 4096;
    assert_eq!([offset(&first), offset(&second), offset(&third)], [0x800, 0xa00, 0x800]);
    let used = first.sq.raw_parts().uar;
    ring_once(first);
    drop((second, third));
    // First in, first out: the fourth register is still new, then the first comes again.
    let fourth = make();
    assert_eq!(offset(&fourth), 0xa00);
    let again = make();
    assert_eq!(pages(), 3);
    assert_eq!(again.sq.raw_parts().uar.addr(), used.addr() + 0x100);
    drop((context, fourth, again, init));
    let order: Vec<_> = door.sent.lock().unwrap().iter().rev().take(2).map(|s| s.object).collect();
    assert!(!order.contains(&UVERBS_OBJECT_QP));
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn queues_beyond_the_registers_ring_on_the_non_cached_page() {
    let (door, context) = open();
    let init = qp_init(&context, QpCap::default(), DoorbellMode::BlueFlame);
    let mut qps: Vec<_> = (0..20).map(|_| context.create_qp(&init).unwrap()).collect();
    let pages = || door.sent(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC).len();
    assert_eq!(pages(), 1 + 8, "16 registers, two a page");
    let uar = |qp: &NewQp<Mlx5>| qp.sq.raw_parts().uar.addr();
    let own: HashSet<_> = qps[..16].iter().map(uar).collect();
    assert_eq!(own.len(), 16);
    let shared: HashSet<_> = qps[16..].iter().map(uar).collect();
    assert_eq!(shared.len(), 1);
    let asked: mlx5_ib_create_qp =
        request(&door.sent(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE).pop().unwrap());
    assert_eq!(asked.bfreg_index, context.uars.non_cached().page_id());
    // A freed register is reused.
    let freed = uar(&qps[3]);
    drop(qps.swap_remove(3));
    assert_eq!(uar(&context.create_qp(&init).unwrap()), freed);
    assert_eq!(pages(), 1 + 8);
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn a_host_with_larger_pages_gets_all_registers_of_a_page() {
    let door = Door::new();
    {
        let mut answers = door.answers.lock().unwrap();
        (answers.page_bytes, answers.context.num_uars_per_page) = (0x4000, 4);
    }
    let context = Mlx5::open(door.core()).unwrap();
    let init = qp_init(&context, QpCap::default(), DoorbellMode::BlueFlame);
    let qps: Vec<_> = (0..9).map(|_| context.create_qp(&init).unwrap()).collect();
    let pages = door.pages.lock().unwrap().clone();
    assert_eq!(pages.len(), 3);
    let start = qps[0].sq.raw_parts().uar.addr() - 0x800;
    let sent = door.sent(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
    for (at, (qp, sent)) in qps.iter().zip(&sent).take(8).enumerate() {
        let asked: mlx5_ib_create_qp = request(sent);
        assert_eq!(asked.bfreg_index, pages[1] + at as u32 / 2);
        let offset = at / 2 * 4096 + 0x800 + at % 2 * 0x200;
        assert_eq!(qp.sq.raw_parts().uar.addr() - start, offset);
    }
    assert_eq!(request::<mlx5_ib_create_qp>(&sent[8]).bfreg_index, pages[2]);
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn a_doorbell_page_that_is_too_short_is_refused_and_given_back() {
    let door = Door::new();
    door.answers.lock().unwrap().page_bytes = 64;
    let core = door.core();
    assert!(matches!(Mlx5::open(Arc::clone(&core)), Err(Error::Unsupported { .. })));
    assert_eq!(door.sent(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY).len(), 1);
}

/// Posts one send, and drops the queue pair.
fn ring_once(mut qp: NewQp<Mlx5>) {
    #![allow(unsafe_code, reason = "posts")]
    use uverbs_core::provider::SendOps;
    use uverbs_core::queues::work::{Data, SendOp, Wr};

    qp.sq.enable(true);
    let mut at = qp.sq.begin();
    // SAFETY: no memory is named, and there is no device.
    unsafe { qp.sq.post(&mut at, Wr::new(1), SendOp::Send, Data::Inline(b"x")) }.unwrap();
    // SAFETY: no memory is named, and there is no device.
    unsafe { qp.sq.ring(at) };
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn without_blue_flame_the_non_cached_page_is_taken() {
    let (door, context) = open();
    let init = qp_init(&context, QpCap::default(), DoorbellMode::NonCached);
    let asked = |door: &Door| -> mlx5_ib_create_qp {
        request(&door.sent(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE).pop().unwrap())
    };
    let (one, two) = (context.create_qp(&init).unwrap(), context.create_qp(&init).unwrap());
    assert_eq!(asked(&door).bfreg_index, context.uars.non_cached().page_id());
    assert_eq!(one.sq.raw_parts().uar, two.sq.raw_parts().uar);
    assert_eq!(one.sq.raw_parts().uar.addr() % 4096, 0x800);
    assert_eq!(door.sent(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC).len(), 1);
    // A host without write-combining.
    let init = qp_init(&context, QpCap::default(), DoorbellMode::BlueFlame);
    door.refuse(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, Errno::EOPNOTSUPP);
    drop(context.create_qp(&init).unwrap());
    assert_eq!(asked(&door).bfreg_index, context.uars.non_cached().page_id());
    // Other errors are returned.
    door.answers.lock().unwrap().refuse.clear();
    door.refuse(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, Errno::EINVAL);
    assert_eq!(context.create_qp(&init).unwrap_err().errno(), Some(Errno::EINVAL));
    // A device that reports no BlueFlame, or an impossible size.
    for bytes in [0, 100, 4096, u32::MAX] {
        let door = Door::new();
        door.answers.lock().unwrap().context.bf_reg_size = bytes;
        let context = Mlx5::open(door.core()).unwrap();
        let init = qp_init(&context, QpCap::default(), DoorbellMode::BlueFlame);
        drop(context.create_qp(&init).unwrap());
        assert_eq!(asked(&door).bfreg_index, context.uars.non_cached().page_id());
    }
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn refusals_of_a_queue_pair_give_everything_back() {
    let (door, context) = open();
    let init = qp_init(&context, QpCap::default(), DoorbellMode::BlueFlame);
    let over = QpCap { max_send_sge: 31, ..QpCap::default() };
    let error = context.create_qp(&qp_init(&context, over, DoorbellMode::BlueFlame)).unwrap_err();
    assert!(matches!(error, Error::Limit { what: "max_send_sge", limit: 30, .. }), "{error}");
    door.refuse(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, Errno::ENOMEM);
    let error = context.create_qp(&init).unwrap_err();
    assert_eq!((error.verb(), error.errno()), (Some("create_qp"), Some(Errno::ENOMEM)));
    door.answers.lock().unwrap().refuse.clear();
    // Index 0 and the register are free again.
    let NewQp { core, .. } = context.create_qp(&init).unwrap();
    assert_eq!(core.shared().user_index.value(), 0);
    assert_eq!(door.sent(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC).len(), 2);
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn queues_of_no_size() {
    let (door, context) = open();
    let cap = QpCap { max_send_wr: 0, max_recv_wr: 0, ..QpCap::default() };
    let NewQp { core, sq, rq } =
        context.create_qp(&qp_init(&context, cap, DoorbellMode::BlueFlame)).unwrap();
    let sent = door.sent(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE).pop().unwrap();
    let asked: mlx5_ib_create_qp = request(&sent);
    assert_eq!((asked.sq_wqe_count, asked.rq_wqe_count), (0, 0));
    assert_eq!((core.cap().max_send_wr, core.cap().max_recv_wr), (0, 0));
    assert_eq!((sq.raw_parts().bytes, rq.raw_parts().bytes), (0, 0));
}
