//! Queue pairs (`ib_user_verbs.h`, `ib_user_ioctl_verbs.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use crate::ah::ib_uverbs_ah_attr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Sizes of a queue pair: requested in `UVERBS_ATTR_CREATE_QP_CAP`, actual in
/// `UVERBS_ATTR_CREATE_QP_RESP_CAP`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_qp_cap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    /// Bytes.
    pub max_inline_data: u32,
}

/// Request of `CREATE_QP`; `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_create_qp {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
    /// Comes back in events.
    pub user_handle: u64,
    pub pd_handle: u32,
    pub send_cq_handle: u32,
    pub recv_cq_handle: u32,
    pub srq_handle: u32,
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    /// Bytes.
    pub max_inline_data: u32,
    /// 1: every send completes.
    pub sq_sig_all: u8,
    /// `IB_UVERBS_QPT_*`.
    pub qp_type: u8,
    /// 1: `srq_handle` counts.
    pub is_srq: u8,
    pub reserved: u8,
}

/// Response of `CREATE_QP` and of `OPEN_QP`; `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_create_qp_resp {
    pub qp_handle: u32,
    pub qpn: u32,
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
    pub reserved: u32,
}

/// Request of extended `CREATE_QP`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_ex_create_qp {
    /// Comes back in events.
    pub user_handle: u64,
    pub pd_handle: u32,
    pub send_cq_handle: u32,
    pub recv_cq_handle: u32,
    pub srq_handle: u32,
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    /// Bytes.
    pub max_inline_data: u32,
    pub sq_sig_all: u8,
    pub qp_type: u8,
    pub is_srq: u8,
    pub reserved: u8,
    /// `IB_UVERBS_CREATE_QP_MASK_*`.
    pub comp_mask: u32,
    /// `IB_UVERBS_QP_CREATE_*`.
    pub create_flags: u32,
    pub rwq_ind_tbl_handle: u32,
    pub source_qpn: u32,
}

/// Response of extended `CREATE_QP`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_ex_create_qp_resp {
    pub base: ib_uverbs_create_qp_resp,
    pub comp_mask: u32,
    pub response_length: u32,
}

// `ib_uverbs_ex_create_qp::comp_mask`.
pub const IB_UVERBS_CREATE_QP_MASK_IND_TABLE: u32 = 1 << 0;

// Every bit of that mask.
pub const IB_UVERBS_CREATE_QP_SUP_COMP_MASK: u32 = IB_UVERBS_CREATE_QP_MASK_IND_TABLE;

// Types. DRIVER stands for the provider's types, such as mlx5's DCI and DCT.
pub const IB_UVERBS_QPT_RC: u8 = 2;
pub const IB_UVERBS_QPT_UC: u8 = 3;
pub const IB_UVERBS_QPT_UD: u8 = 4;
pub const IB_UVERBS_QPT_RAW_PACKET: u8 = 8;
pub const IB_UVERBS_QPT_XRC_INI: u8 = 9;
pub const IB_UVERBS_QPT_XRC_TGT: u8 = 10;
pub const IB_UVERBS_QPT_DRIVER: u8 = 0xff;

// `create_flags` and `UVERBS_ATTR_CREATE_QP_FLAGS`.
pub const IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK: u32 = 1 << 1;
pub const IB_UVERBS_QP_CREATE_SCATTER_FCS: u32 = 1 << 8;
pub const IB_UVERBS_QP_CREATE_CVLAN_STRIPPING: u32 = 1 << 9;
pub const IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING: u32 = 1 << 11;
pub const IB_UVERBS_QP_CREATE_SQ_SIG_ALL: u32 = 1 << 12;

/// Request of `OPEN_QP` (XRC target); `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_open_qp {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
    pub user_handle: u64,
    pub pd_handle: u32,
    pub qpn: u32,
    pub qp_type: u8,
    pub reserved: [u8; 7],
}

/// A path, in [`ib_uverbs_modify_qp`] and [`ib_uverbs_query_qp_resp`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_qp_dest {
    /// Network order.
    pub dgid: [u8; 16],
    pub flow_label: u32,
    pub dlid: u16,
    pub reserved: u16,
    /// Index in the port's GID table.
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    /// 1: the GRH fields count.
    pub is_global: u8,
    pub port_num: u8,
}

/// Request of `MODIFY_QP`; `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_modify_qp {
    pub dest: ib_uverbs_qp_dest,
    pub alt_dest: ib_uverbs_qp_dest,
    pub qp_handle: u32,
    /// `IB_QP_*`: valid fields.
    pub attr_mask: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: u32,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    /// `IB_QPS_*`.
    pub qp_state: u8,
    /// `IB_QPS_*`.
    pub cur_qp_state: u8,
    /// `IB_MTU_*`.
    pub path_mtu: u8,
    /// `IB_MIG_*`.
    pub path_mig_state: u8,
    pub en_sqd_async_notify: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    /// IBTA code of the RNR NAK timer.
    pub min_rnr_timer: u8,
    pub port_num: u8,
    /// 4.096 us * 2^n; 0 never.
    pub timeout: u8,
    pub retry_cnt: u8,
    /// 7: without end.
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub reserved: [u8; 2],
}

/// Request of extended `MODIFY_QP`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_ex_modify_qp {
    pub base: ib_uverbs_modify_qp,
    /// Kilobits per second; counts with `IB_QP_RATE_LIMIT`.
    pub rate_limit: u32,
    pub reserved: u32,
}

/// Response of extended `MODIFY_QP`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_ex_modify_qp_resp {
    pub comp_mask: u32,
    pub response_length: u32,
}

/// Request of `QUERY_QP`; `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_query_qp {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
    pub qp_handle: u32,
    /// `IB_QP_*`.
    pub attr_mask: u32,
}

/// Response of `QUERY_QP`; `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_query_qp_resp {
    pub dest: ib_uverbs_qp_dest,
    pub alt_dest: ib_uverbs_qp_dest,
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: u32,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub qp_state: u8,
    pub cur_qp_state: u8,
    pub path_mtu: u8,
    pub path_mig_state: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub sq_sig_all: u8,
    pub reserved: [u8; 5],
}

/// Response of `RDMA_USER_CM_CMD_INIT_QP_ATTR`: attributes for a transition of a connected queue
/// pair.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_qp_attr {
    /// `IB_QP_*`: fields that the kernel set.
    pub qp_attr_mask: u32,
    pub qp_state: u32,
    pub cur_qp_state: u32,
    pub path_mtu: u32,
    pub path_mig_state: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: u32,
    pub ah_attr: ib_uverbs_ah_attr,
    pub alt_ah_attr: ib_uverbs_ah_attr,
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub reserved: [u8; 5],
}

// `attr_mask` (kernel: `enum ib_qp_attr_mask`).
pub const IB_QP_STATE: u32 = 1 << 0;
pub const IB_QP_CUR_STATE: u32 = 1 << 1;
pub const IB_QP_EN_SQD_ASYNC_NOTIFY: u32 = 1 << 2;
pub const IB_QP_ACCESS_FLAGS: u32 = 1 << 3;
pub const IB_QP_PKEY_INDEX: u32 = 1 << 4;
pub const IB_QP_PORT: u32 = 1 << 5;
pub const IB_QP_QKEY: u32 = 1 << 6;
pub const IB_QP_AV: u32 = 1 << 7;
pub const IB_QP_PATH_MTU: u32 = 1 << 8;
pub const IB_QP_TIMEOUT: u32 = 1 << 9;
pub const IB_QP_RETRY_CNT: u32 = 1 << 10;
pub const IB_QP_RNR_RETRY: u32 = 1 << 11;
pub const IB_QP_RQ_PSN: u32 = 1 << 12;
pub const IB_QP_MAX_QP_RD_ATOMIC: u32 = 1 << 13;
pub const IB_QP_ALT_PATH: u32 = 1 << 14;
pub const IB_QP_MIN_RNR_TIMER: u32 = 1 << 15;
pub const IB_QP_SQ_PSN: u32 = 1 << 16;
pub const IB_QP_MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
pub const IB_QP_PATH_MIG_STATE: u32 = 1 << 18;
pub const IB_QP_CAP: u32 = 1 << 19;
pub const IB_QP_DEST_QPN: u32 = 1 << 20;
pub const IB_QP_RATE_LIMIT: u32 = 1 << 25;

// `qp_state` (kernel: `enum ib_qp_state`).
pub const IB_QPS_RESET: u8 = 0;
pub const IB_QPS_INIT: u8 = 1;
pub const IB_QPS_RTR: u8 = 2;
pub const IB_QPS_RTS: u8 = 3;
pub const IB_QPS_SQD: u8 = 4;
pub const IB_QPS_SQE: u8 = 5;
pub const IB_QPS_ERR: u8 = 6;

// `path_mig_state` (kernel: `enum ib_mig_state`).
pub const IB_MIG_MIGRATED: u8 = 0;
pub const IB_MIG_REARM: u8 = 1;
pub const IB_MIG_ARMED: u8 = 2;

/// Request of `DESTROY_QP`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_destroy_qp {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
    pub qp_handle: u32,
    pub reserved: u32,
}

/// Response of `DESTROY_QP` and of `UVERBS_METHOD_QP_DESTROY`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_destroy_qp_resp {
    /// Asynchronous events the owner must have acknowledged before it frees its side.
    pub events_reported: u32,
}
