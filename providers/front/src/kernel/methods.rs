//! The command table: ioctl methods with their attributes, and write commands.
//!
//! Attributes, lengths and mandatory flags follow the `DECLARE_UVERBS_NAMED_METHOD` in
//! `drivers/infiniband/core/uverbs_std_types_*.c` and
//! `drivers/infiniband/hw/mlx5/{main,devx,std_types}.c`.

use uverbs_kernel_abi::cq::ib_uverbs_destroy_cq_resp;
use uverbs_kernel_abi::gid::ib_uverbs_gid_entry;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE, MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX,
    MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX,
    MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT,
    MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE,
    MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT,
    MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN,
    MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE,
    MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT,
    MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE, MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP,
    MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX, MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET,
    MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE, MLX5_IB_ATTR_GET_DATA_DIRECT_SYSFS_PATH,
    MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE,
    MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH, MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX,
    MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET, MLX5_IB_ATTR_QUERY_PD_HANDLE,
    MLX5_IB_ATTR_QUERY_PD_RESP_PDN, MLX5_IB_ATTR_REG_DMABUF_MR_ACCESS_FLAGS,
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH,
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID,
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE,
    MLX5_IB_METHOD_DEVX_OBJ_CREATE, MLX5_IB_METHOD_DEVX_OBJ_DESTROY,
    MLX5_IB_METHOD_DEVX_OBJ_MODIFY, MLX5_IB_METHOD_DEVX_OBJ_QUERY, MLX5_IB_METHOD_DEVX_OTHER,
    MLX5_IB_METHOD_DM_MAP_OP_ADDR, MLX5_IB_METHOD_DM_QUERY, MLX5_IB_METHOD_FLOW_MATCHER_DESTROY,
    MLX5_IB_METHOD_GET_DATA_DIRECT_SYSFS_PATH, MLX5_IB_METHOD_PD_QUERY,
    MLX5_IB_METHOD_UAR_OBJ_ALLOC, MLX5_IB_METHOD_UAR_OBJ_DESTROY, MLX5_IB_OBJECT_DEVX,
    MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_OBJECT_UAR,
    mlx5_ib_alloc_ucontext_resp,
};
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::port::ib_uverbs_query_port_resp_ex;
use uverbs_kernel_abi::qp::{ib_uverbs_destroy_qp_resp, ib_uverbs_qp_cap};
use uverbs_kernel_abi::srq::ib_uverbs_destroy_srq_resp;
use uverbs_kernel_abi::wc::ib_uverbs_sge;

use crate::kernel::attr::{AttrSpec as A, Use};
use crate::kernel::call::{Call, Method, Table, Write};
use crate::kernel::verbs::device::{context, devx, event, port, uar, write};
use crate::kernel::verbs::memory::{dm, dmabuf, mr, mw, pd};
use crate::kernel::verbs::packets::{ah, counters, flow, matcher, mcast};
use crate::kernel::verbs::queues::{cq, qp, qp_modify, rss, srq, wq, xrc};

/// All methods and write commands.
pub(crate) static TABLE: Table =
    Table { methods: METHODS, writes: WRITES, instead: &[], objects: &[] };

/// Write commands of INVOKE_WRITE.
const WRITES: &[Write] = &[
    context::QUERY_DEVICE,
    context::EX_QUERY_DEVICE,
    pd::ALLOC_PD,
    mr::REG_MR,
    mr::REREG_MR,
    mw::ALLOC_MW,
    ah::CREATE_AH,
    event::CREATE_COMP_CHANNEL,
    cq::RESIZE_CQ,
    cq::EX_MODIFY_CQ,
    qp_modify::MODIFY_QP,
    qp_modify::EX_MODIFY_QP,
    qp_modify::QUERY_QP,
    flow::EX_CREATE_FLOW,
    wq::EX_MODIFY_WQ,
    rss::EX_CREATE_RWQ_IND_TBL,
    mcast::ATTACH_MCAST,
    mcast::DETACH_MCAST,
    srq::MODIFY_SRQ,
    srq::QUERY_SRQ,
    xrc::OPEN_XRCD,
    xrc::OPEN_QP,
];

/// Handler of a method whose destroy attribute does everything
/// (`DECLARE_UVERBS_NAMED_METHOD_DESTROY`).
fn done(_: &mut Call<'_>) -> Result<(), nix::errno::Errno> {
    Ok(())
}

const fn destroy(object: u16, method: u16, attrs: &'static [A]) -> Method {
    Method { object, method, attrs, handler: done }
}

/// Ioctl methods.
pub(crate) static METHODS: &[Method] = &[
    Method {
        object: UVERBS_OBJECT_DEVICE,
        method: UVERBS_METHOD_INVOKE_WRITE,
        attrs: &[
            A::const_in(UVERBS_ATTR_WRITE_CMD),
            A::ptr_in_min(UVERBS_ATTR_CORE_IN, 4).optional(),
            A::ptr_out_min(UVERBS_ATTR_CORE_OUT, 0).optional(),
            A::UHW_IN,
            A::UHW_OUT,
        ],
        handler: write::invoke,
    },
    Method {
        object: UVERBS_OBJECT_DEVICE,
        method: UVERBS_METHOD_GET_CONTEXT,
        attrs: &[
            A::ptr_out(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, 4).optional(),
            A::ptr_out(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, 8).optional(),
            A::UHW_IN,
            A::UHW_OUT,
        ],
        handler: context::get_context,
    },
    Method {
        object: UVERBS_OBJECT_DEVICE,
        method: UVERBS_METHOD_QUERY_CONTEXT,
        attrs: &[
            A::ptr_out(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, 4).optional(),
            A::ptr_out(UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, 8).optional(),
            A::struct_out(
                MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX,
                size_of::<mlx5_ib_alloc_ucontext_resp>(),
                size_of::<mlx5_ib_alloc_ucontext_resp>(),
            ),
        ],
        handler: context::query_context,
    },
    Method {
        object: UVERBS_OBJECT_DEVICE,
        method: UVERBS_METHOD_QUERY_PORT,
        attrs: &[
            A::const_in(UVERBS_ATTR_QUERY_PORT_PORT_NUM),
            A::struct_out(
                UVERBS_ATTR_QUERY_PORT_RESP,
                size_of::<ib_uverbs_query_port_resp_ex>(),
                size_of::<ib_uverbs_query_port_resp_ex>(),
            ),
        ],
        handler: port::query,
    },
    Method {
        object: UVERBS_OBJECT_DEVICE,
        method: UVERBS_METHOD_QUERY_PORT_SPEED,
        attrs: &[
            A::const_in(UVERBS_ATTR_QUERY_PORT_SPEED_PORT_NUM),
            A::ptr_out(UVERBS_ATTR_QUERY_PORT_SPEED_RESP, 8),
        ],
        handler: port::query_speed,
    },
    Method {
        object: UVERBS_OBJECT_DEVICE,
        method: UVERBS_METHOD_QUERY_GID_ENTRY,
        attrs: &[
            A::const_in(UVERBS_ATTR_QUERY_GID_ENTRY_PORT),
            A::const_in(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX),
            A::flags_in(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS),
            A::struct_out(
                UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY,
                size_of::<ib_uverbs_gid_entry>(),
                size_of::<ib_uverbs_gid_entry>(),
            ),
        ],
        handler: port::query_gid_entry,
    },
    Method {
        object: UVERBS_OBJECT_DEVICE,
        method: UVERBS_METHOD_QUERY_GID_TABLE,
        attrs: &[
            A::const_in(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE),
            A::flags_in(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS).optional(),
            A::ptr_out_min(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, 0),
            A::ptr_out(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, 8),
        ],
        handler: port::query_gid_table,
    },
    Method {
        object: UVERBS_OBJECT_ASYNC_EVENT,
        method: UVERBS_METHOD_ASYNC_EVENT_ALLOC,
        attrs: &[A::fd(
            UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE,
            UVERBS_OBJECT_ASYNC_EVENT,
            Use::New,
        )],
        handler: event::alloc,
    },
    destroy(
        UVERBS_OBJECT_PD,
        UVERBS_METHOD_PD_DESTROY,
        &[A::idr(UVERBS_ATTR_DESTROY_PD_HANDLE, UVERBS_OBJECT_PD, Use::Destroy)],
    ),
    destroy(
        UVERBS_OBJECT_XRCD,
        UVERBS_METHOD_XRCD_DESTROY,
        &[A::idr(UVERBS_ATTR_DESTROY_XRCD_HANDLE, UVERBS_OBJECT_XRCD, Use::Destroy)],
    ),
    destroy(
        UVERBS_OBJECT_AH,
        UVERBS_METHOD_AH_DESTROY,
        &[A::idr(UVERBS_ATTR_DESTROY_AH_HANDLE, UVERBS_OBJECT_AH, Use::Destroy)],
    ),
    destroy(
        UVERBS_OBJECT_MR,
        UVERBS_METHOD_MR_DESTROY,
        &[A::idr(UVERBS_ATTR_DESTROY_MR_HANDLE, UVERBS_OBJECT_MR, Use::Destroy)],
    ),
    Method {
        object: UVERBS_OBJECT_MR,
        method: UVERBS_METHOD_ADVISE_MR,
        attrs: &[
            A::idr(UVERBS_ATTR_ADVISE_MR_PD_HANDLE, UVERBS_OBJECT_PD, Use::Read),
            A::const_in(UVERBS_ATTR_ADVISE_MR_ADVICE),
            A::flags_in(UVERBS_ATTR_ADVISE_MR_FLAGS),
            A::ptr_in_min(UVERBS_ATTR_ADVISE_MR_SGE_LIST, size_of::<ib_uverbs_sge>()),
        ],
        handler: mr::advise,
    },
    Method {
        object: UVERBS_OBJECT_MR,
        method: UVERBS_METHOD_DM_MR_REG,
        attrs: &[
            A::idr(UVERBS_ATTR_REG_DM_MR_HANDLE, UVERBS_OBJECT_MR, Use::New),
            A::ptr_in(UVERBS_ATTR_REG_DM_MR_OFFSET, 8),
            A::ptr_in(UVERBS_ATTR_REG_DM_MR_LENGTH, 8),
            A::idr(UVERBS_ATTR_REG_DM_MR_PD_HANDLE, UVERBS_OBJECT_PD, Use::Read),
            A::flags_in(UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS).optional(),
            A::idr(UVERBS_ATTR_REG_DM_MR_DM_HANDLE, UVERBS_OBJECT_DM, Use::Read),
            A::ptr_out(UVERBS_ATTR_REG_DM_MR_RESP_LKEY, 4),
            A::ptr_out(UVERBS_ATTR_REG_DM_MR_RESP_RKEY, 4),
        ],
        handler: dm::register,
    },
    Method {
        object: UVERBS_OBJECT_MR,
        method: UVERBS_METHOD_REG_DMABUF_MR,
        attrs: &[
            A::idr(UVERBS_ATTR_REG_DMABUF_MR_HANDLE, UVERBS_OBJECT_MR, Use::New),
            A::idr(UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, UVERBS_OBJECT_PD, Use::Read),
            A::ptr_in(UVERBS_ATTR_REG_DMABUF_MR_OFFSET, 8),
            A::ptr_in(UVERBS_ATTR_REG_DMABUF_MR_LENGTH, 8),
            A::ptr_in(UVERBS_ATTR_REG_DMABUF_MR_IOVA, 8),
            A::ptr_in(UVERBS_ATTR_REG_DMABUF_MR_FD, 4),
            A::flags_in(UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS),
            A::flags_in(MLX5_IB_ATTR_REG_DMABUF_MR_ACCESS_FLAGS).optional(),
            A::ptr_out(UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, 4),
            A::ptr_out(UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, 4),
        ],
        handler: dmabuf::register,
    },
    Method {
        object: UVERBS_OBJECT_DM,
        method: UVERBS_METHOD_DM_ALLOC,
        attrs: &[
            A::idr(UVERBS_ATTR_ALLOC_DM_HANDLE, UVERBS_OBJECT_DM, Use::New),
            A::ptr_in(UVERBS_ATTR_ALLOC_DM_LENGTH, 8),
            A::ptr_in(UVERBS_ATTR_ALLOC_DM_ALIGNMENT, 4),
            A::ptr_out(MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, 8),
            A::ptr_out(MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, 2).optional(),
            A::const_in(MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE).optional(),
        ],
        handler: dm::alloc,
    },
    Method {
        object: UVERBS_OBJECT_DM,
        method: MLX5_IB_METHOD_DM_MAP_OP_ADDR,
        attrs: &[
            A::idr(MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE, UVERBS_OBJECT_DM, Use::Read),
            A::ptr_in(MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP, 1),
            A::ptr_out(MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET, 8),
            A::ptr_out(MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX, 2),
        ],
        handler: dm::map_operation,
    },
    Method {
        object: UVERBS_OBJECT_DM,
        method: MLX5_IB_METHOD_DM_QUERY,
        attrs: &[
            A::idr(MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE, UVERBS_OBJECT_DM, Use::Read),
            A::ptr_out(MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET, 8),
            A::ptr_out(MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX, 2),
            A::ptr_out(MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH, 8),
        ],
        handler: dm::query,
    },
    destroy(
        UVERBS_OBJECT_DM,
        UVERBS_METHOD_DM_FREE,
        &[A::idr(UVERBS_ATTR_FREE_DM_HANDLE, UVERBS_OBJECT_DM, Use::Destroy)],
    ),
    Method {
        object: UVERBS_OBJECT_DEVICE,
        method: MLX5_IB_METHOD_GET_DATA_DIRECT_SYSFS_PATH,
        attrs: &[A::ptr_out_min(MLX5_IB_ATTR_GET_DATA_DIRECT_SYSFS_PATH, 0)],
        handler: dmabuf::data_direct_path,
    },
    Method {
        object: UVERBS_OBJECT_PD,
        method: MLX5_IB_METHOD_PD_QUERY,
        attrs: &[
            A::idr(MLX5_IB_ATTR_QUERY_PD_HANDLE, UVERBS_OBJECT_PD, Use::Read),
            A::ptr_out(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, 4),
        ],
        handler: pd::query,
    },
    Method {
        object: UVERBS_OBJECT_MR,
        method: UVERBS_METHOD_QUERY_MR,
        attrs: &[
            A::idr(UVERBS_ATTR_QUERY_MR_HANDLE, UVERBS_OBJECT_MR, Use::Read),
            A::ptr_out(UVERBS_ATTR_QUERY_MR_RESP_LKEY, 4),
            A::ptr_out(UVERBS_ATTR_QUERY_MR_RESP_RKEY, 4),
            A::ptr_out(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, 8),
            A::ptr_out(UVERBS_ATTR_QUERY_MR_RESP_IOVA, 8).optional(),
        ],
        handler: mr::query,
    },
    destroy(
        UVERBS_OBJECT_MW,
        UVERBS_METHOD_MW_DESTROY,
        &[A::idr(UVERBS_ATTR_DESTROY_MW_HANDLE, UVERBS_OBJECT_MW, Use::Destroy)],
    ),
    Method {
        object: UVERBS_OBJECT_CQ,
        method: UVERBS_METHOD_CQ_CREATE,
        attrs: &[
            A::idr(UVERBS_ATTR_CREATE_CQ_HANDLE, UVERBS_OBJECT_CQ, Use::New),
            A::ptr_in(UVERBS_ATTR_CREATE_CQ_CQE, 4),
            A::ptr_in(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 8),
            A::fd(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, UVERBS_OBJECT_COMP_CHANNEL, Use::Read)
                .optional(),
            A::ptr_in(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 4),
            A::flags_in(UVERBS_ATTR_CREATE_CQ_FLAGS).optional(),
            A::ptr_out(UVERBS_ATTR_CREATE_CQ_RESP_CQE, 4),
            A::fd(UVERBS_ATTR_CREATE_CQ_EVENT_FD, UVERBS_OBJECT_ASYNC_EVENT, Use::Read).optional(),
            A::UHW_IN,
            A::UHW_OUT,
            A::ptr_in(MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX, 4).optional(),
        ],
        handler: cq::create,
    },
    Method {
        object: UVERBS_OBJECT_CQ,
        method: UVERBS_METHOD_CQ_DESTROY,
        attrs: &[
            A::idr(UVERBS_ATTR_DESTROY_CQ_HANDLE, UVERBS_OBJECT_CQ, Use::Destroy),
            A::ptr_out(UVERBS_ATTR_DESTROY_CQ_RESP, size_of::<ib_uverbs_destroy_cq_resp>()),
        ],
        handler: cq::destroy,
    },
    Method {
        object: UVERBS_OBJECT_QP,
        method: UVERBS_METHOD_QP_CREATE,
        attrs: &[
            A::idr(UVERBS_ATTR_CREATE_QP_HANDLE, UVERBS_OBJECT_QP, Use::New),
            A::idr(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, UVERBS_OBJECT_XRCD, Use::Read).optional(),
            A::idr(UVERBS_ATTR_CREATE_QP_PD_HANDLE, UVERBS_OBJECT_PD, Use::Read).optional(),
            A::idr(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, UVERBS_OBJECT_SRQ, Use::Read).optional(),
            A::idr(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, UVERBS_OBJECT_CQ, Use::Read).optional(),
            A::idr(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, UVERBS_OBJECT_CQ, Use::Read).optional(),
            A::idr(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, UVERBS_OBJECT_RWQ_IND_TBL, Use::Read)
                .optional(),
            A::ptr_in(UVERBS_ATTR_CREATE_QP_USER_HANDLE, 8),
            A::struct_in(
                UVERBS_ATTR_CREATE_QP_CAP,
                size_of::<ib_uverbs_qp_cap>(),
                size_of::<ib_uverbs_qp_cap>(),
            ),
            A::const_in(UVERBS_ATTR_CREATE_QP_TYPE),
            A::flags_in(UVERBS_ATTR_CREATE_QP_FLAGS).optional(),
            A::ptr_in(UVERBS_ATTR_CREATE_QP_SOURCE_QPN, 4).optional(),
            A::fd(UVERBS_ATTR_CREATE_QP_EVENT_FD, UVERBS_OBJECT_ASYNC_EVENT, Use::Read).optional(),
            A::struct_out(
                UVERBS_ATTR_CREATE_QP_RESP_CAP,
                size_of::<ib_uverbs_qp_cap>(),
                size_of::<ib_uverbs_qp_cap>(),
            ),
            A::ptr_out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, 4),
            A::UHW_IN,
            A::UHW_OUT,
        ],
        handler: qp::create,
    },
    Method {
        object: UVERBS_OBJECT_QP,
        method: UVERBS_METHOD_QP_DESTROY,
        attrs: &[
            A::idr(UVERBS_ATTR_DESTROY_QP_HANDLE, UVERBS_OBJECT_QP, Use::Destroy),
            A::ptr_out(UVERBS_ATTR_DESTROY_QP_RESP, size_of::<ib_uverbs_destroy_qp_resp>()),
        ],
        handler: qp::destroy,
    },
    Method {
        object: UVERBS_OBJECT_SRQ,
        method: UVERBS_METHOD_SRQ_CREATE,
        attrs: &[
            A::idr(UVERBS_ATTR_CREATE_SRQ_HANDLE, UVERBS_OBJECT_SRQ, Use::New),
            A::idr(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, UVERBS_OBJECT_PD, Use::Read),
            A::const_in(UVERBS_ATTR_CREATE_SRQ_TYPE),
            A::ptr_in(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, 8),
            A::ptr_in(UVERBS_ATTR_CREATE_SRQ_MAX_WR, 4),
            A::ptr_in(UVERBS_ATTR_CREATE_SRQ_MAX_SGE, 4),
            A::ptr_in(UVERBS_ATTR_CREATE_SRQ_LIMIT, 4),
            A::idr(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, UVERBS_OBJECT_XRCD, Use::Read).optional(),
            A::idr(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, UVERBS_OBJECT_CQ, Use::Read).optional(),
            A::ptr_in(UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS, 4).optional(),
            A::fd(UVERBS_ATTR_CREATE_SRQ_EVENT_FD, UVERBS_OBJECT_ASYNC_EVENT, Use::Read).optional(),
            A::ptr_out(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, 4),
            A::ptr_out(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, 4),
            A::ptr_out(UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, 4).optional(),
            A::UHW_IN,
            A::UHW_OUT,
        ],
        handler: srq::create,
    },
    Method {
        object: UVERBS_OBJECT_SRQ,
        method: UVERBS_METHOD_SRQ_DESTROY,
        attrs: &[
            A::idr(UVERBS_ATTR_DESTROY_SRQ_HANDLE, UVERBS_OBJECT_SRQ, Use::Destroy),
            A::ptr_out(UVERBS_ATTR_DESTROY_SRQ_RESP, size_of::<ib_uverbs_destroy_srq_resp>()),
        ],
        handler: srq::destroy,
    },
    Method {
        object: UVERBS_OBJECT_WQ,
        method: UVERBS_METHOD_WQ_CREATE,
        attrs: &[
            A::idr(UVERBS_ATTR_CREATE_WQ_HANDLE, UVERBS_OBJECT_WQ, Use::New),
            A::idr(UVERBS_ATTR_CREATE_WQ_PD_HANDLE, UVERBS_OBJECT_PD, Use::Read),
            A::const_in(UVERBS_ATTR_CREATE_WQ_TYPE),
            A::ptr_in(UVERBS_ATTR_CREATE_WQ_USER_HANDLE, 8),
            A::ptr_in(UVERBS_ATTR_CREATE_WQ_MAX_WR, 4),
            A::ptr_in(UVERBS_ATTR_CREATE_WQ_MAX_SGE, 4),
            A::flags_in(UVERBS_ATTR_CREATE_WQ_FLAGS),
            A::idr(UVERBS_ATTR_CREATE_WQ_CQ_HANDLE, UVERBS_OBJECT_CQ, Use::Read),
            A::fd(UVERBS_ATTR_CREATE_WQ_EVENT_FD, UVERBS_OBJECT_ASYNC_EVENT, Use::Read).optional(),
            A::ptr_out(UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, 4),
            A::ptr_out(UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, 4),
            A::ptr_out(UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, 4).optional(),
            A::UHW_IN,
            A::UHW_OUT,
        ],
        handler: wq::create,
    },
    Method {
        object: UVERBS_OBJECT_WQ,
        method: UVERBS_METHOD_WQ_DESTROY,
        attrs: &[
            A::idr(UVERBS_ATTR_DESTROY_WQ_HANDLE, UVERBS_OBJECT_WQ, Use::Destroy),
            A::ptr_out(UVERBS_ATTR_DESTROY_WQ_RESP, 4),
        ],
        handler: wq::destroy,
    },
    destroy(
        UVERBS_OBJECT_RWQ_IND_TBL,
        UVERBS_METHOD_RWQ_IND_TBL_DESTROY,
        &[A::idr(UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE, UVERBS_OBJECT_RWQ_IND_TBL, Use::Destroy)],
    ),
    destroy(
        UVERBS_OBJECT_FLOW,
        UVERBS_METHOD_FLOW_DESTROY,
        &[A::idr(UVERBS_ATTR_DESTROY_FLOW_HANDLE, UVERBS_OBJECT_FLOW, Use::Destroy)],
    ),
    matcher::CREATE_RULE,
    matcher::CREATE,
    destroy(
        MLX5_IB_OBJECT_FLOW_MATCHER,
        MLX5_IB_METHOD_FLOW_MATCHER_DESTROY,
        &[A::idr(
            MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE,
            MLX5_IB_OBJECT_FLOW_MATCHER,
            Use::Destroy,
        )],
    ),
    Method {
        object: UVERBS_OBJECT_COUNTERS,
        method: UVERBS_METHOD_COUNTERS_CREATE,
        attrs: &[A::idr(UVERBS_ATTR_CREATE_COUNTERS_HANDLE, UVERBS_OBJECT_COUNTERS, Use::New)],
        handler: counters::create,
    },
    destroy(
        UVERBS_OBJECT_COUNTERS,
        UVERBS_METHOD_COUNTERS_DESTROY,
        &[A::idr(UVERBS_ATTR_DESTROY_COUNTERS_HANDLE, UVERBS_OBJECT_COUNTERS, Use::Destroy)],
    ),
    Method {
        object: UVERBS_OBJECT_COUNTERS,
        method: UVERBS_METHOD_COUNTERS_READ,
        attrs: &[
            A::idr(UVERBS_ATTR_READ_COUNTERS_HANDLE, UVERBS_OBJECT_COUNTERS, Use::Read),
            A::ptr_out_min(UVERBS_ATTR_READ_COUNTERS_BUFF, 0),
            A::flags_in(UVERBS_ATTR_READ_COUNTERS_FLAGS),
        ],
        handler: counters::read,
    },
    Method {
        object: MLX5_IB_OBJECT_UAR,
        method: MLX5_IB_METHOD_UAR_OBJ_ALLOC,
        attrs: &[
            A::idr(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, MLX5_IB_OBJECT_UAR, Use::New),
            A::const_in(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE),
            A::ptr_out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, 8),
            A::ptr_out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, 4),
            A::ptr_out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, 4),
        ],
        handler: uar::alloc,
    },
    destroy(
        MLX5_IB_OBJECT_UAR,
        MLX5_IB_METHOD_UAR_OBJ_DESTROY,
        &[A::idr(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, MLX5_IB_OBJECT_UAR, Use::Destroy)],
    ),
    Method {
        object: MLX5_IB_OBJECT_DEVX,
        method: MLX5_IB_METHOD_DEVX_OTHER,
        attrs: &[
            A::ptr_in_min(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, devx::HEADER).read_early(),
            A::ptr_out_min(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, devx::HEADER),
        ],
        handler: devx::other,
    },
    Method {
        object: MLX5_IB_OBJECT_DEVX_OBJ,
        method: MLX5_IB_METHOD_DEVX_OBJ_CREATE,
        attrs: &[
            A::idr(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, MLX5_IB_OBJECT_DEVX_OBJ, Use::New),
            A::ptr_in_min(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, devx::HEADER).read_early(),
            A::ptr_out_min(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, devx::HEADER),
        ],
        handler: devx::create,
    },
    Method {
        object: MLX5_IB_OBJECT_DEVX_OBJ,
        method: MLX5_IB_METHOD_DEVX_OBJ_MODIFY,
        attrs: &[
            A::any_idr(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE),
            A::ptr_in_min(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, devx::HEADER).read_early(),
            A::ptr_out_min(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, devx::HEADER),
        ],
        handler: devx::modify,
    },
    Method {
        object: MLX5_IB_OBJECT_DEVX_OBJ,
        method: MLX5_IB_METHOD_DEVX_OBJ_QUERY,
        attrs: &[
            A::any_idr(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE),
            A::ptr_in_min(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, devx::HEADER).read_early(),
            A::ptr_out_min(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, devx::HEADER),
        ],
        handler: devx::query,
    },
    destroy(
        MLX5_IB_OBJECT_DEVX_OBJ,
        MLX5_IB_METHOD_DEVX_OBJ_DESTROY,
        &[A::idr(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, MLX5_IB_OBJECT_DEVX_OBJ, Use::Destroy)],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_method_or_attribute_stands_twice() {
        for (at, method) in METHODS.iter().enumerate() {
            let later = &METHODS[at + 1..];
            assert!(
                later
                    .iter()
                    .all(|other| (other.object, other.method) != (method.object, method.method))
            );
            for (at, attr) in method.attrs.iter().enumerate() {
                assert!(method.attrs[at + 1..].iter().all(|other| other.id != attr.id));
            }
        }
        for (at, write) in WRITES.iter().enumerate() {
            assert!(WRITES[at + 1..].iter().all(|other| other.command != write.command));
        }
    }
}
