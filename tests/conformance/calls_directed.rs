//! The methods of XRC and of dynamic connections, whose posts name their peer.

use uverbs_kernel_abi::objects::*;

use crate::calls::{BASE, COMMAND, REQUEST, RESPONSE, attr, unless};
use crate::cases::{dc, xrc};
use crate::sweep::Kind::{Const, Idr, New, Out, OutGrows};
use crate::sweep::{Attr, Call};
use crate::want::{EINVAL, ENOENT, Want};

/// Attributes of QP.CREATE for a queue pair that only sends.
const INITIATOR: &[Attr] = &[
    attr(UVERBS_ATTR_CREATE_QP_HANDLE, New),
    unless(ENOENT, UVERBS_ATTR_CREATE_QP_PD_HANDLE, Idr),
    unless(ENOENT, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, Idr),
    attr(UVERBS_ATTR_CREATE_QP_TYPE, Const),
    attr(UVERBS_ATTR_CREATE_QP_RESP_CAP, OutGrows),
    attr(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, Out),
];

pub(crate) static CALLS: &[Call] = &[
    Call {
        name: "SRQ.CREATE of XRC",
        source: "core/uverbs_std_types_srq.c:UVERBS_METHOD_SRQ_CREATE",
        make: xrc::queue,
        on_rxe: None,
        attrs: &[
            attr(UVERBS_ATTR_CREATE_SRQ_HANDLE, New),
            attr(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, Idr),
            attr(UVERBS_ATTR_CREATE_SRQ_TYPE, Const),
            unless(ENOENT, UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, Idr),
            unless(ENOENT, UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, Idr),
            unless(ENOENT, UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, Out),
        ],
        marks: Want::Is("wrote [b, c, 1001, d]"),
        ..BASE
    },
    Call {
        name: "QP.CREATE of an XRC target",
        source: "core/uverbs_std_types_qp.c:UVERBS_METHOD_QP_CREATE",
        make: xrc::new_target,
        on_rxe: None,
        attrs: &[
            attr(UVERBS_ATTR_CREATE_QP_HANDLE, New),
            unless(ENOENT, UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, Idr),
            attr(UVERBS_ATTR_CREATE_QP_TYPE, Const),
            attr(UVERBS_ATTR_CREATE_QP_RESP_CAP, OutGrows),
            attr(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, Out),
        ],
        marks: Want::Is("wrote [d, e, 1001]"),
        ..BASE
    },
    Call {
        name: "QP.CREATE of an XRC initiator",
        source: "core/uverbs_std_types_qp.c:UVERBS_METHOD_QP_CREATE",
        make: xrc::new_initiator,
        on_rxe: None,
        attrs: INITIATOR,
        marks: Want::Is("wrote [d, e, 1001]"),
        ..BASE
    },
    Call {
        name: "QP.CREATE of a DC initiator",
        source: "hw/mlx5/qp.c:process_vendor_flags",
        make: dc::new_initiator,
        on_rxe: None,
        attrs: INITIATOR,
        marks: Want::Is("wrote [d, e, 1001]"),
        ..BASE
    },
    Call {
        name: "QP.CREATE of a DC target",
        source: "hw/mlx5/qp.c:create_dct",
        make: dc::new_target,
        on_rxe: None,
        attrs: &[
            attr(UVERBS_ATTR_CREATE_QP_HANDLE, New),
            unless(ENOENT, UVERBS_ATTR_CREATE_QP_PD_HANDLE, Idr),
            unless(ENOENT, UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, Idr),
            unless(EINVAL, UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, Idr),
            attr(UVERBS_ATTR_CREATE_QP_TYPE, Const),
            attr(UVERBS_ATTR_CREATE_QP_RESP_CAP, OutGrows),
            attr(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, Out),
        ],
        marks: Want::Is("wrote [d, e, 1001]"),
        ..BASE
    },
    Call {
        name: "OPEN_XRCD",
        source: "core/uverbs_cmd.c:ib_uverbs_open_xrcd",
        make: xrc::open_domain,
        on_rxe: None,
        attrs: &[COMMAND, REQUEST, RESPONSE],
        marks: Want::Is("wrote [1]"),
        ..BASE
    },
    Call {
        name: "XRCD.DESTROY",
        source: "core/uverbs_std_types.c:UVERBS_METHOD_XRCD_DESTROY",
        make: xrc::close_domain,
        on_rxe: None,
        attrs: &[attr(UVERBS_ATTR_DESTROY_XRCD_HANDLE, Idr)],
        ..BASE
    },
    Call {
        name: "OPEN_QP",
        source: "core/uverbs_cmd.c:ib_uverbs_open_qp",
        make: xrc::open_target,
        on_rxe: None,
        attrs: &[COMMAND, REQUEST, RESPONSE],
        marks: Want::Is("wrote [1]"),
        ..BASE
    },
];
