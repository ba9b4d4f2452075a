//! Function tables of an open device, which the inline functions of `verbs.h` call.

use std::ptr::null_mut;

use uverbs::provider::{AnyContext, AnySrq};

use crate::device::counters;
use crate::device::port;
use crate::device::query_device;
use crate::memory::dm;
use crate::memory::mr;
use crate::memory::mw;
use crate::memory::parent_domain;
use crate::poll::basic;
use crate::post::recv;
use crate::post::recv::Receives;
use crate::post::recv_side::RecvSide;
use crate::post::single;
use crate::post::tags;
use crate::queues::cq;
use crate::queues::flow;
use crate::queues::make_cq;
use crate::queues::make_qp;
use crate::queues::rss;
use crate::queues::srq;
use crate::queues::wq;
use crate::queues::xrc_target;
use crate::queues::xrcd;
use crate::sys::{Mutex, ibv_context, ibv_context_ops, verbs_context};

/// `abi_compat` of a context with an extended table in front (`__VERBS_ABI_IS_EXTENDED`).
const EXTENDED: usize = usize::MAX;

/// C's first table, for the queues of a provider.
fn operations<R, Q>() -> ibv_context_ops
where
    R: Receives<RecvSide>,
    Q: Receives<AnySrq>,
{
    ibv_context_ops {
        _compat_0: [None; 7],
        alloc_mw: Some(mw::alloc_mw),
        bind_mw: Some(single::bind_mw),
        dealloc_mw: Some(mw::dealloc_mw),
        _compat_create_cq: None,
        poll_cq: Some(basic::poll_cq),
        req_notify_cq: Some(cq::req_notify_cq),
        _compat_1: [None; 7],
        post_srq_recv: Some(recv::post_srq_recv::<Q>),
        _compat_2: [None; 4],
        post_send: Some(single::post_send),
        post_recv: Some(recv::post_recv::<R>),
        _compat_3: [None; 5],
    }
}

/// Tables of an open device, as far as all devices of a provider share them. The inline functions
/// return `EOPNOTSUPP` for an empty slot.
pub(crate) fn of(device: &AnyContext) -> verbs_context {
    let ops = match device {
        AnyContext::Mlx5(_) => operations::<uverbs_mlx5::Rq, uverbs_mlx5::Srq>(),
        AnyContext::Rxe(_) => operations::<uverbs_rxe::Rq, uverbs_rxe::Srq>(),
        AnyContext::Siw(_) => operations::<uverbs_siw::Rq, uverbs_siw::Srq>(),
        AnyContext::Rdmavt(_) => operations::<uverbs_rdmavt::Rq, uverbs_rdmavt::Srq>(),
        AnyContext::Efa(_) => operations::<uverbs_efa::Rq, uverbs_efa::Srq>(),
    };
    // C's soft-RoCE provider leaves these slots empty.
    let of_mlx5 = matches!(device, AnyContext::Mlx5(_));
    verbs_context {
        free_buf: None,
        alloc_buf: None,
        dm_export_dmabuf_fd: None,
        reg_mr_ex: None,
        dealloc_dmah: None,
        alloc_dmah: None,
        query_port: Some(port::query_port_sized),
        advise_mr: Some(mr::advise_mr),
        alloc_null_mr: Some(mr::alloc_null_mr),
        read_counters: of_mlx5.then_some(counters::read_counters),
        attach_counters_point_flow: of_mlx5.then_some(counters::attach_counters_point_flow),
        create_counters: of_mlx5.then_some(counters::create_counters),
        destroy_counters: of_mlx5.then_some(counters::destroy_counters),
        reg_dm_mr: Some(mr::reg_dm_mr),
        alloc_dm: Some(dm::alloc_dm),
        free_dm: Some(dm::free_dm),
        modify_flow_action_esp: None,
        destroy_flow_action: None,
        create_flow_action_esp: None,
        modify_qp_rate_limit: None,
        alloc_parent_domain: of_mlx5.then_some(parent_domain::alloc_parent_domain),
        dealloc_td: of_mlx5.then_some(parent_domain::dealloc_td),
        alloc_td: of_mlx5.then_some(parent_domain::alloc_td),
        modify_cq: Some(cq::modify_cq),
        post_srq_ops: of_mlx5.then_some(tags::post_srq_ops),
        destroy_rwq_ind_table: of_mlx5.then_some(rss::destroy_rwq_ind_table),
        create_rwq_ind_table: of_mlx5.then_some(rss::create_rwq_ind_table),
        destroy_wq: of_mlx5.then_some(wq::destroy_wq),
        modify_wq: of_mlx5.then_some(wq::modify_wq),
        create_wq: of_mlx5.then_some(wq::create_wq),
        query_rt_values: of_mlx5.then_some(query_device::query_rt_values),
        create_cq_ex: Some(make_cq::create_cq_ex),
        r#priv: null_mut(),
        query_device_ex: Some(query_device::query_device_ex),
        ibv_destroy_flow: of_mlx5.then_some(flow::destroy_flow),
        ABI_placeholder2: None,
        ibv_create_flow: of_mlx5.then_some(flow::create_flow),
        ABI_placeholder1: None,
        open_qp: Some(xrc_target::open_qp),
        create_qp_ex: Some(make_qp::create_qp_ex),
        get_srq_num: Some(srq::get_srq_num),
        create_srq_ex: Some(srq::create_srq_ex),
        open_xrcd: Some(xrcd::open_xrcd),
        close_xrcd: Some(xrcd::close_xrcd),
        _ABI_placeholder3: 0,
        sz: size_of::<verbs_context>(),
        context: ibv_context {
            device: null_mut(),
            ops,
            cmd_fd: -1,
            async_fd: -1,
            num_comp_vectors: 0,
            mutex: Mutex::default(),
            abi_compat: std::ptr::without_provenance_mut(EXTENDED),
        },
    }
}
