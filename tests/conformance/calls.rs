//! The methods that the project uses: a command that works, and the attributes as Linux declares
//! them (`DECLARE_UVERBS_NAMED_METHOD` in `drivers/infiniband/core/uverbs_std_types_*.c`, and
//! mlx5_ib's own).

use uverbs_kernel_abi::mlx5::*;
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::write::*;

use crate::cases::{cq_change, devx, dm};
use crate::rig::Rig;
use crate::sweep::Kind::{
    Const, Fd, Flags, Idr, In, InFrom, InGrows, New, NewFd, Out, OutFrom, OutGrows,
};
use crate::sweep::{Attr, Call};
use crate::want::{EINVAL, ENOENT, ENOSPC, Want};

pub(crate) const fn attr(id: u16, kind: crate::sweep::Kind) -> Attr {
    Attr { id, kind, absent: EINVAL }
}

pub(crate) const fn optional(id: u16, kind: crate::sweep::Kind) -> Attr {
    Attr { id, kind, absent: Want::Ok }
}

pub(crate) const fn unless(absent: Want, id: u16, kind: crate::sweep::Kind) -> Attr {
    Attr { id, kind, absent }
}

/// Room of a write command's response, which its handler wants to be of a size.
pub(crate) const RESPONSE: Attr = unless(ENOSPC, UVERBS_ATTR_CORE_OUT, OutFrom(0));
pub(crate) const REQUEST: Attr = unless(ENOSPC, UVERBS_ATTR_CORE_IN, InFrom(4));
/// Extended commands have no least sizes: `uapi_create_write` (`core/uverbs_uapi.c`) takes them
/// over from others only.
const REQUEST_EX: Attr = optional(UVERBS_ATTR_CORE_IN, InFrom(4));
const RESPONSE_EX: Attr = optional(UVERBS_ATTR_CORE_OUT, OutFrom(0));
pub(crate) const COMMAND: Attr = attr(UVERBS_ATTR_WRITE_CMD, Const);

pub(crate) const BASE: Call = Call {
    name: "",
    source: "",
    make: |rig| rig.cmd(0, 0),
    context: true,
    on_rxe: Some((0, 0)),
    attrs: &[],
    marks: Want::Is("wrote []"),
    exceptions: &[],
};

/// All of them.
pub(crate) fn calls() -> impl Iterator<Item = &'static Call> {
    CALLS.iter().chain(crate::calls_directed::CALLS)
}

static CALLS: &[Call] = &[
    Call {
        name: "DEVICE.GET_CONTEXT",
        source: "core/uverbs_std_types_device.c:UVERBS_METHOD_GET_CONTEXT",
        make: Rig::get_context,
        context: false,
        attrs: &[
            optional(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, Out),
            optional(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, Out),
        ],
        marks: Want::Driver {
            mlx5: &Want::Is("wrote [0, 1, 1001]"),
            rxe: &Want::Is("wrote [0, 1]"),
        },
        ..BASE
    },
    Call {
        name: "DEVICE.QUERY_CONTEXT",
        source: "core/uverbs_std_types_device.c:UVERBS_METHOD_QUERY_CONTEXT",
        make: |rig| {
            rig.cmd(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT)
                .output(&rig.memory, UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, 4)
                .output(&rig.memory, UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, 8)
                .output(&rig.memory, MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, 72)
        },
        on_rxe: None,
        attrs: &[
            optional(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, Out),
            optional(UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, Out),
            attr(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, OutGrows),
        ],
        marks: Want::Is("wrote [0, 1, 1000]"),
        ..BASE
    },
    Call {
        name: "DEVICE.QUERY_PORT",
        source: "core/uverbs_std_types_device.c:UVERBS_METHOD_QUERY_PORT",
        make: |rig| {
            rig.cmd(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT)
                .constant(UVERBS_ATTR_QUERY_PORT_PORT_NUM, 1)
                .output(&rig.memory, UVERBS_ATTR_QUERY_PORT_RESP, 48)
        },
        attrs: &[
            attr(UVERBS_ATTR_QUERY_PORT_PORT_NUM, Const),
            attr(UVERBS_ATTR_QUERY_PORT_RESP, OutGrows),
        ],
        marks: Want::Is("wrote [1]"),
        ..BASE
    },
    Call {
        name: "DEVICE.QUERY_GID_ENTRY",
        source: "core/uverbs_std_types_device.c:UVERBS_METHOD_QUERY_GID_ENTRY",
        make: |rig| {
            rig.cmd(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY)
                .constant(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, 1)
                .constant(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, 0)
                .input(&rig.memory, UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, &0u32)
                .output(&rig.memory, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, 32)
        },
        attrs: &[
            attr(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, Const),
            attr(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, Const),
            attr(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, Flags),
            attr(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, OutGrows),
        ],
        marks: Want::Is("wrote [3]"),
        ..BASE
    },
    Call {
        name: "DEVICE.QUERY_GID_TABLE",
        source: "core/uverbs_std_types_device.c:UVERBS_METHOD_QUERY_GID_TABLE",
        make: Rig::gid_table,
        attrs: &[
            attr(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, Const),
            optional(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, Flags),
            attr(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, OutFrom(0)),
            attr(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, Out),
        ],
        marks: Want::Is("wrote [2, 3]"),
        exceptions: &[
            (
                UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES,
                "grown",
                EINVAL,
                "uverbs_attr_ptr_get_array_size: no multiple of an entry",
            ),
            (
                UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES,
                "crosses into read-only",
                Want::Ok,
                "only entries that are in use are written",
            ),
        ],
        ..BASE
    },
    Call {
        name: "ASYNC_EVENT.ALLOC",
        source: "core/uverbs_std_types_async_fd.c:UVERBS_METHOD_ASYNC_EVENT_ALLOC",
        make: Rig::alloc_events,
        attrs: &[attr(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, NewFd)],
        ..BASE
    },
    Call {
        name: "PD.DESTROY",
        source: "core/uverbs_std_types.c:UVERBS_METHOD_PD_DESTROY",
        make: |rig| rig.destroy(UVERBS_OBJECT_PD, rig.pd()),
        attrs: &[attr(UVERBS_ATTR_DESTROY_PD_HANDLE, Idr)],
        ..BASE
    },
    Call {
        name: "PD.QUERY",
        source: "hw/mlx5/std_types.c:MLX5_IB_METHOD_PD_QUERY",
        make: |rig| {
            rig.cmd(UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY)
                .handle(MLX5_IB_ATTR_QUERY_PD_HANDLE, rig.pd())
                .output(&rig.memory, MLX5_IB_ATTR_QUERY_PD_RESP_PDN, 4)
        },
        on_rxe: None,
        attrs: &[
            attr(MLX5_IB_ATTR_QUERY_PD_HANDLE, Idr),
            attr(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, Out),
        ],
        marks: Want::Is("wrote [1001]"),
        ..BASE
    },
    Call {
        name: "AH.DESTROY",
        source: "core/uverbs_std_types.c:UVERBS_METHOD_AH_DESTROY",
        make: |rig| rig.destroy(UVERBS_OBJECT_AH, rig.ah()),
        attrs: &[attr(UVERBS_ATTR_DESTROY_AH_HANDLE, Idr)],
        ..BASE
    },
    Call {
        name: "MR.DESTROY",
        source: "core/uverbs_std_types_mr.c:UVERBS_METHOD_MR_DESTROY",
        make: |rig| rig.destroy(UVERBS_OBJECT_MR, rig.mr()),
        attrs: &[attr(UVERBS_ATTR_DESTROY_MR_HANDLE, Idr)],
        ..BASE
    },
    Call {
        name: "MW.DESTROY",
        source: "core/uverbs_std_types.c:UVERBS_METHOD_MW_DESTROY",
        make: |rig| rig.destroy(UVERBS_OBJECT_MW, rig.mw()),
        attrs: &[attr(UVERBS_ATTR_DESTROY_MW_HANDLE, Idr)],
        ..BASE
    },
    Call {
        name: "MR.QUERY_MR",
        source: "core/uverbs_std_types_mr.c:UVERBS_METHOD_QUERY_MR",
        make: |rig| {
            rig.cmd(UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR)
                .handle(UVERBS_ATTR_QUERY_MR_HANDLE, rig.mr())
                .output(&rig.memory, UVERBS_ATTR_QUERY_MR_RESP_LKEY, 4)
                .output(&rig.memory, UVERBS_ATTR_QUERY_MR_RESP_RKEY, 4)
                .output(&rig.memory, UVERBS_ATTR_QUERY_MR_RESP_LENGTH, 8)
                .output(&rig.memory, UVERBS_ATTR_QUERY_MR_RESP_IOVA, 8)
        },
        attrs: &[
            attr(UVERBS_ATTR_QUERY_MR_HANDLE, Idr),
            attr(UVERBS_ATTR_QUERY_MR_RESP_LKEY, Out),
            attr(UVERBS_ATTR_QUERY_MR_RESP_RKEY, Out),
            attr(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, Out),
            optional(UVERBS_ATTR_QUERY_MR_RESP_IOVA, Out),
        ],
        marks: Want::Is("wrote [1, 2, 3, 4]"),
        ..BASE
    },
    Call {
        name: "CQ.CREATE",
        source: "core/uverbs_std_types_cq.c:UVERBS_METHOD_CQ_CREATE",
        make: |rig| {
            let cmd = rig.create_cq(15);
            cmd.handle(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, rig.channel() as u64)
                .handle(UVERBS_ATTR_CREATE_CQ_EVENT_FD, rig.events() as u64)
                .input(&rig.memory, UVERBS_ATTR_CREATE_CQ_FLAGS, &0u32)
        },
        attrs: &[
            attr(UVERBS_ATTR_CREATE_CQ_HANDLE, New),
            attr(UVERBS_ATTR_CREATE_CQ_CQE, In),
            attr(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, In),
            optional(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, Fd),
            attr(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, In),
            optional(UVERBS_ATTR_CREATE_CQ_FLAGS, Flags),
            attr(UVERBS_ATTR_CREATE_CQ_RESP_CQE, Out),
            optional(UVERBS_ATTR_CREATE_CQ_EVENT_FD, Fd),
        ],
        marks: Want::Is("wrote [6, 1001]"),
        ..BASE
    },
    Call {
        name: "CQ.DESTROY",
        source: "core/uverbs_std_types_cq.c:UVERBS_METHOD_CQ_DESTROY",
        make: |rig| rig.destroy(UVERBS_OBJECT_CQ, rig.cq()),
        attrs: &[attr(UVERBS_ATTR_DESTROY_CQ_HANDLE, Idr), attr(UVERBS_ATTR_DESTROY_CQ_RESP, Out)],
        marks: Want::Is("wrote [1]"),
        ..BASE
    },
    Call {
        name: "QP.CREATE",
        source: "core/uverbs_std_types_qp.c:UVERBS_METHOD_QP_CREATE",
        make: |rig| {
            let cmd = rig.create_qp();
            cmd.handle(UVERBS_ATTR_CREATE_QP_EVENT_FD, rig.events() as u64).input(
                &rig.memory,
                UVERBS_ATTR_CREATE_QP_FLAGS,
                &0u32,
            )
        },
        attrs: &[
            attr(UVERBS_ATTR_CREATE_QP_HANDLE, New),
            unless(ENOENT, UVERBS_ATTR_CREATE_QP_PD_HANDLE, Idr),
            unless(ENOENT, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, Idr),
            unless(ENOENT, UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, Idr),
            attr(UVERBS_ATTR_CREATE_QP_USER_HANDLE, In),
            attr(UVERBS_ATTR_CREATE_QP_CAP, InGrows),
            attr(UVERBS_ATTR_CREATE_QP_TYPE, Const),
            optional(UVERBS_ATTR_CREATE_QP_FLAGS, Flags),
            optional(UVERBS_ATTR_CREATE_QP_EVENT_FD, Fd),
            attr(UVERBS_ATTR_CREATE_QP_RESP_CAP, OutGrows),
            attr(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, Out),
        ],
        marks: Want::Is("wrote [d, e, 1001]"),
        ..BASE
    },
    Call {
        name: "QP.DESTROY",
        source: "core/uverbs_std_types_qp.c:UVERBS_METHOD_QP_DESTROY",
        make: |rig| rig.destroy(UVERBS_OBJECT_QP, rig.qp()),
        attrs: &[attr(UVERBS_ATTR_DESTROY_QP_HANDLE, Idr), attr(UVERBS_ATTR_DESTROY_QP_RESP, Out)],
        marks: Want::Is("wrote [1]"),
        ..BASE
    },
    Call {
        name: "SRQ.CREATE",
        source: "core/uverbs_std_types_srq.c:UVERBS_METHOD_SRQ_CREATE",
        make: |rig| rig.create_srq().handle(UVERBS_ATTR_CREATE_SRQ_EVENT_FD, rig.events() as u64),
        attrs: &[
            attr(UVERBS_ATTR_CREATE_SRQ_HANDLE, New),
            attr(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, Idr),
            attr(UVERBS_ATTR_CREATE_SRQ_TYPE, Const),
            attr(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, In),
            attr(UVERBS_ATTR_CREATE_SRQ_MAX_WR, In),
            attr(UVERBS_ATTR_CREATE_SRQ_MAX_SGE, In),
            attr(UVERBS_ATTR_CREATE_SRQ_LIMIT, In),
            optional(UVERBS_ATTR_CREATE_SRQ_EVENT_FD, Fd),
            attr(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, Out),
            attr(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, Out),
        ],
        marks: Want::Is("wrote [b, c, 1001]"),
        ..BASE
    },
    Call {
        name: "SRQ.DESTROY",
        source: "core/uverbs_std_types_srq.c:UVERBS_METHOD_SRQ_DESTROY",
        make: |rig| rig.destroy(UVERBS_OBJECT_SRQ, rig.srq()),
        attrs: &[
            attr(UVERBS_ATTR_DESTROY_SRQ_HANDLE, Idr),
            attr(UVERBS_ATTR_DESTROY_SRQ_RESP, Out),
        ],
        marks: Want::Is("wrote [1]"),
        ..BASE
    },
    Call {
        name: "RESIZE_CQ",
        source: "core/uverbs_cmd.c:ib_uverbs_resize_cq",
        make: cq_change::resize,
        on_rxe: None,
        attrs: &[COMMAND, REQUEST, RESPONSE],
        marks: Want::Is("wrote [1]"),
        ..BASE
    },
    Call {
        name: "EX_MODIFY_CQ",
        source: "core/uverbs_cmd.c:ib_uverbs_ex_modify_cq",
        make: cq_change::modify,
        on_rxe: None,
        // Without a request nothing is to be changed.
        attrs: &[COMMAND, unless(EINVAL, UVERBS_ATTR_CORE_IN, InFrom(4))],
        ..BASE
    },
    Call {
        name: "MODIFY_SRQ",
        source: "core/uverbs_cmd.c:ib_uverbs_modify_srq",
        make: |rig| rig.modify_srq(&rig.modify_srq_request()),
        attrs: &[COMMAND, REQUEST],
        ..BASE
    },
    Call {
        name: "QUERY_SRQ",
        source: "core/uverbs_cmd.c:ib_uverbs_query_srq",
        make: |rig| rig.query_srq(rig.srq()),
        attrs: &[COMMAND, REQUEST, RESPONSE],
        marks: Want::Is("wrote [1]"),
        ..BASE
    },
    Call {
        name: "DM.ALLOC",
        source: "core/uverbs_std_types_dm.c:UVERBS_METHOD_DM_ALLOC",
        make: dm::alloc,
        on_rxe: None,
        attrs: &[
            attr(UVERBS_ATTR_ALLOC_DM_HANDLE, New),
            attr(UVERBS_ATTR_ALLOC_DM_LENGTH, In),
            attr(UVERBS_ATTR_ALLOC_DM_ALIGNMENT, In),
            attr(MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, Out),
            // Optional to the parser, and not to the handler (`handle_alloc_dm_memic`).
            unless(ENOENT, MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, Out),
        ],
        marks: Want::Is("wrote [1000, 1001]"),
        ..BASE
    },
    Call {
        name: "DM.QUERY",
        source: "hw/mlx5/dm.c:MLX5_IB_METHOD_DM_QUERY",
        make: dm::query,
        on_rxe: None,
        attrs: &[
            attr(MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE, Idr),
            attr(MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET, Out),
            attr(MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX, Out),
            attr(MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH, Out),
        ],
        marks: Want::Is("wrote [1001, 1002, 1003]"),
        ..BASE
    },
    Call {
        name: "DM.FREE",
        source: "core/uverbs_std_types_dm.c:UVERBS_METHOD_DM_FREE",
        make: dm::free,
        on_rxe: None,
        attrs: &[attr(UVERBS_ATTR_FREE_DM_HANDLE, Idr)],
        ..BASE
    },
    Call {
        name: "MR.DM_MR_REG",
        source: "core/uverbs_std_types_mr.c:UVERBS_METHOD_DM_MR_REG",
        make: dm::register,
        on_rxe: None,
        attrs: &[
            attr(UVERBS_ATTR_REG_DM_MR_HANDLE, New),
            attr(UVERBS_ATTR_REG_DM_MR_OFFSET, In),
            attr(UVERBS_ATTR_REG_DM_MR_LENGTH, In),
            attr(UVERBS_ATTR_REG_DM_MR_PD_HANDLE, Idr),
            unless(EINVAL, UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, Flags),
            attr(UVERBS_ATTR_REG_DM_MR_DM_HANDLE, Idr),
            attr(UVERBS_ATTR_REG_DM_MR_RESP_LKEY, Out),
            attr(UVERBS_ATTR_REG_DM_MR_RESP_RKEY, Out),
        ],
        marks: Want::Is("wrote [6, 7]"),
        ..BASE
    },
    Call {
        name: "UAR.ALLOC",
        source: "hw/mlx5/main.c:MLX5_IB_METHOD_UAR_OBJ_ALLOC",
        make: Rig::alloc_uar,
        on_rxe: None,
        attrs: &[
            attr(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, New),
            attr(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, Const),
            attr(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, Out),
            attr(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, Out),
            attr(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, Out),
        ],
        marks: Want::Is("wrote [1002, 1003, 1004]"),
        ..BASE
    },
    Call {
        name: "UAR.DESTROY",
        source: "hw/mlx5/main.c:MLX5_IB_METHOD_UAR_OBJ_DESTROY",
        make: |rig| rig.destroy(MLX5_IB_OBJECT_UAR, rig.uar().handle),
        on_rxe: None,
        attrs: &[attr(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, Idr)],
        ..BASE
    },
    Call {
        name: "DEVX.OTHER",
        source: "hw/mlx5/devx.c:MLX5_IB_METHOD_DEVX_OTHER",
        make: |rig| {
            // QUERY_HCA_CAP of the general capabilities.
            let mut request = [0u8; 16];
            request[0] = 1;
            rig.cmd(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER)
                .bytes(&rig.memory, MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, &request)
                .output(&rig.memory, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, 4112)
        },
        on_rxe: None,
        attrs: &[
            attr(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, InFrom(16)),
            attr(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, OutFrom(16)),
        ],
        marks: Want::Is("wrote [1001]"),
        ..BASE
    },
    Call {
        name: "DEVX_OBJ.CREATE",
        source: "hw/mlx5/devx.c:MLX5_IB_METHOD_DEVX_OBJ_CREATE",
        make: devx::create,
        on_rxe: None,
        attrs: &[
            attr(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, New),
            attr(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, InFrom(16)),
            attr(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, OutFrom(16)),
        ],
        marks: Want::Is("wrote [1002]"),
        ..BASE
    },
    Call {
        name: "DEVX_OBJ.MODIFY",
        source: "hw/mlx5/devx.c:MLX5_IB_METHOD_DEVX_OBJ_MODIFY",
        make: devx::modify,
        on_rxe: None,
        attrs: &[
            attr(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, Idr),
            attr(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, InFrom(16)),
            attr(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, OutFrom(16)),
        ],
        marks: Want::Is("wrote [1002]"),
        ..BASE
    },
    Call {
        name: "QUERY_DEVICE",
        source: "core/uverbs_cmd.c:ib_uverbs_query_device",
        make: |rig| rig.write(IB_USER_VERBS_CMD_QUERY_DEVICE, &0u64, 176),
        attrs: &[COMMAND, REQUEST, RESPONSE],
        marks: Want::Is("wrote [1]"),
        ..BASE
    },
    Call {
        name: "QUERY_DEVICE_EX",
        source: "core/uverbs_cmd.c:ib_uverbs_ex_query_device",
        make: |rig| {
            let command = IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_QUERY_DEVICE;
            rig.write(command, &0u64, 304)
        },
        attrs: &[COMMAND, REQUEST_EX, RESPONSE_EX],
        marks: Want::Is("wrote [1]"),
        ..BASE
    },
    Call {
        name: "ALLOC_PD",
        source: "core/uverbs_cmd.c:ib_uverbs_alloc_pd",
        make: Rig::alloc_pd,
        attrs: &[COMMAND, REQUEST, RESPONSE],
        marks: Want::Driver { mlx5: &Want::Is("wrote [1, 1001]"), rxe: &Want::Is("wrote [1]") },
        ..BASE
    },
    Call {
        name: "REG_MR",
        source: "core/uverbs_cmd.c:ib_uverbs_reg_mr",
        make: |rig| rig.reg_mr(&rig.reg_mr_request()),
        attrs: &[COMMAND, REQUEST, RESPONSE],
        marks: Want::Is("wrote [1]"),
        ..BASE
    },
    Call {
        name: "ALLOC_MW",
        source: "core/uverbs_cmd.c:ib_uverbs_alloc_mw",
        make: |rig| rig.alloc_mw(&rig.alloc_mw_request()),
        attrs: &[COMMAND, REQUEST, RESPONSE],
        marks: Want::Is("wrote [1]"),
        ..BASE
    },
    Call {
        name: "REREG_MR",
        source: "core/uverbs_cmd.c:ib_uverbs_rereg_mr",
        make: |rig| rig.rereg_mr(&rig.rereg_mr_request()),
        // At 6.12 and not at 6.1.
        on_rxe: Some((6, 12)),
        attrs: &[COMMAND, REQUEST, RESPONSE],
        marks: Want::Is("wrote [1]"),
        ..BASE
    },
    Call {
        name: "CREATE_AH",
        source: "core/uverbs_cmd.c:ib_uverbs_create_ah",
        make: |rig| rig.create_ah(&rig.create_ah_request()),
        attrs: &[COMMAND, REQUEST, RESPONSE],
        marks: Want::Is("wrote [1, 1001]"),
        ..BASE
    },
    Call {
        name: "CREATE_COMP_CHANNEL",
        source: "core/uverbs_cmd.c:ib_uverbs_create_comp_channel",
        make: Rig::create_channel,
        attrs: &[COMMAND, REQUEST, RESPONSE],
        marks: Want::Is("wrote [1]"),
        ..BASE
    },
    Call {
        name: "MODIFY_QP",
        source: "core/uverbs_cmd.c:ib_uverbs_modify_qp",
        make: |rig| rig.modify(&rig.to_init()),
        attrs: &[COMMAND, REQUEST],
        ..BASE
    },
    Call {
        name: "MODIFY_QP_EX",
        source: "core/uverbs_cmd.c:ib_uverbs_ex_modify_qp",
        make: |rig| {
            let base = rig.to_init();
            rig.modify_ex(&uverbs_kernel_abi::qp::ib_uverbs_ex_modify_qp {
                base,
                ..Default::default()
            })
        },
        attrs: &[
            COMMAND,
            // The zeros that take its place name handle 0.
            unless(EINVAL, UVERBS_ATTR_CORE_IN, InFrom(4)),
            RESPONSE_EX,
        ],
        marks: Want::Is("wrote [1]"),
        ..BASE
    },
    Call {
        name: "ATTACH_MCAST",
        source: "core/uverbs_cmd.c:ib_uverbs_attach_mcast",
        make: |rig| rig.attach(&rig.group()),
        attrs: &[COMMAND, REQUEST],
        ..BASE
    },
    Call {
        name: "DETACH_MCAST",
        source: "core/uverbs_cmd.c:ib_uverbs_detach_mcast",
        make: |rig| {
            // Refused where a random program destroyed the queue pair before.
            let _ = rig.send(&rig.attach(&rig.group()));
            rig.detach(&rig.group())
        },
        attrs: &[COMMAND, REQUEST],
        ..BASE
    },
    Call {
        name: "QUERY_QP",
        source: "core/uverbs_cmd.c:ib_uverbs_query_qp",
        make: |rig| rig.query_qp(rig.qp()),
        attrs: &[COMMAND, REQUEST, RESPONSE],
        marks: Want::Is("wrote [1]"),
        ..BASE
    },
];
