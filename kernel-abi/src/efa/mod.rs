//! Data of Amazon's Elastic Fabric Adapter that crosses the kernel boundary (`efa-abi.h` of
//! rdma-core 65). Older kernels know a part: they demand that the rest is 0, and answer less.

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

pub mod io;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Request of `GET_CONTEXT`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct efa_ibv_alloc_ucontext_cmd {
    /// `EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_*`: all that the provider knows.
    pub supported_caps: u32,
    pub reserved_20: [u8; 4],
}

/// Response of `GET_CONTEXT`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct efa_ibv_alloc_ucontext_resp {
    pub comp_mask: u32,
    /// `EFA_USER_CMDS_SUPP_UDATA_*`.
    pub cmds_supp_udata_mask: u32,
    /// Rings of a completion queue.
    pub sub_cqs_per_cq: u16,
    pub inline_buf_size: u16,
    /// Bytes of the largest send queue.
    pub max_llq_size: u32,
    /// Units of 64 bytes that a doorbell may announce; 0 is unlimited.
    pub max_tx_batch: u16,
    pub min_sq_wr: u16,
    /// Inline bytes with WQEs of 128 bytes; 0 if the device has no such WQEs.
    pub inline_buf_size_ex: u16,
    pub reserved_b0: [u8; 2],
}

/// Response of `ALLOC_PD`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct efa_ibv_alloc_pd_resp {
    pub comp_mask: u32,
    pub pdn: u16,
    pub reserved_30: [u8; 2],
}

/// Request of `CREATE_CQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct efa_ibv_create_cq {
    pub comp_mask: u32,
    /// Bytes: 16 or 32.
    pub cq_entry_size: u32,
    pub num_sub_cqs: u16,
    /// `EFA_CREATE_CQ_WITH_*`.
    pub flags: u8,
    pub reserved_58: [u8; 5],
}

/// Response of `CREATE_CQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct efa_ibv_create_cq_resp {
    /// `EFA_CREATE_CQ_RESP_DB_OFF`.
    pub comp_mask: u32,
    pub reserved_20: [u8; 4],
    pub q_mmap_key: u64,
    pub q_mmap_size: u64,
    pub cq_idx: u16,
    pub reserved_d0: [u8; 2],
    /// Offset of the doorbell in its page.
    pub db_off: u32,
    pub db_mmap_key: u64,
}

/// Request of `CREATE_QP`. Older kernels know the first 16 bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct efa_ibv_create_qp {
    pub comp_mask: u32,
    /// Bytes.
    pub rq_ring_size: u32,
    /// Bytes.
    pub sq_ring_size: u32,
    /// `EFA_QP_DRIVER_TYPE_SRD`; 0 for UD.
    pub driver_qp_type: u32,
    /// `EFA_CREATE_QP_WITH_*`.
    pub flags: u16,
    pub sl: u8,
    pub reserved_98: [u8; 5],
}

/// Response of `CREATE_QP`: offsets within pages, and keys for mmap.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct efa_ibv_create_qp_resp {
    pub comp_mask: u32,
    pub rq_db_offset: u32,
    pub sq_db_offset: u32,
    pub llq_desc_offset: u32,
    pub rq_mmap_key: u64,
    pub rq_mmap_size: u64,
    pub rq_db_mmap_key: u64,
    pub sq_db_mmap_key: u64,
    pub llq_desc_mmap_key: u64,
    /// Ring of the completion queue that sends complete to.
    pub send_sub_cq_idx: u16,
    pub recv_sub_cq_idx: u16,
    pub reserved_1e0: [u8; 4],
}

/// Response of `CREATE_AH`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct efa_ibv_create_ah_resp {
    pub comp_mask: u32,
    /// Number in work requests.
    pub efa_address_handle: u16,
    pub reserved_30: [u8; 2],
}

/// Response of `QUERY_DEVICE`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct efa_ibv_ex_query_device_resp {
    pub comp_mask: u32,
    pub max_sq_wr: u32,
    pub max_rq_wr: u32,
    pub max_sq_sge: u16,
    pub max_rq_sge: u16,
    /// Bytes.
    pub max_rdma_size: u32,
    /// `EFA_QUERY_DEVICE_CAPS_*`.
    pub device_caps: u32,
}

// The ABI version of the device.
pub const EFA_UVERBS_ABI_VERSION: u32 = 1;

// Capabilities of the provider.
pub const EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_TX_BATCH: u32 = 1;
pub const EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_MIN_SQ_WR: u32 = 2;

// Commands with a driver part.
pub const EFA_USER_CMDS_SUPP_UDATA_QUERY_DEVICE: u32 = 1;
pub const EFA_USER_CMDS_SUPP_UDATA_CREATE_AH: u32 = 2;

// Flags of completion queues.
pub const EFA_CREATE_CQ_WITH_COMPLETION_CHANNEL: u8 = 1;
pub const EFA_CREATE_CQ_WITH_SGID: u8 = 2;
pub const EFA_CREATE_CQ_WITH_SQ_COMP_64_BIT_REQ_ID: u8 = 4;

// Valid fields of a completion queue's response.
pub const EFA_CREATE_CQ_RESP_DB_OFF: u32 = 1;

// Queue pairs.
/// `driver_qp_type` of a queue pair of type `IB_UVERBS_QPT_DRIVER`.
pub const EFA_QP_DRIVER_TYPE_SRD: u32 = 0;

// Flags of queue pairs.
pub const EFA_CREATE_QP_WITH_UNSOLICITED_WRITE_RECV: u16 = 1;
pub const EFA_CREATE_QP_WITH_SQ_64_BIT_REQ_ID: u16 = 2;

// Capabilities of the device.
pub const EFA_QUERY_DEVICE_CAPS_RDMA_READ: u32 = 1;
pub const EFA_QUERY_DEVICE_CAPS_RNR_RETRY: u32 = 2;
pub const EFA_QUERY_DEVICE_CAPS_CQ_NOTIFICATIONS: u32 = 4;
pub const EFA_QUERY_DEVICE_CAPS_CQ_WITH_SGID: u32 = 8;
pub const EFA_QUERY_DEVICE_CAPS_DATA_POLLING_128: u32 = 16;
pub const EFA_QUERY_DEVICE_CAPS_RDMA_WRITE: u32 = 0x20;
pub const EFA_QUERY_DEVICE_CAPS_UNSOLICITED_WRITE_RECV: u32 = 0x40;
pub const EFA_QUERY_DEVICE_CAPS_CQ_WITH_EXT_MEM: u32 = 0x80;
pub const EFA_QUERY_DEVICE_CAPS_COMP_CNTR: u32 = 0x100;
pub const EFA_QUERY_DEVICE_CAPS_SQ_64_BIT_REQ_ID: u32 = 0x200;

// Valid numbers of a region's response.
pub const EFA_QUERY_MR_VALIDITY_RECV_IC_ID: u16 = 1;
pub const EFA_QUERY_MR_VALIDITY_RDMA_READ_IC_ID: u16 = 2;
pub const EFA_QUERY_MR_VALIDITY_RDMA_RECV_IC_ID: u16 = 4;

// Method of MR, and its attributes.
pub const EFA_IB_METHOD_MR_QUERY: u16 = 0x1000;
pub const EFA_IB_ATTR_QUERY_MR_HANDLE: u16 = 0x1000;
pub const EFA_IB_ATTR_QUERY_MR_RESP_IC_ID_VALIDITY: u16 = 0x1001;
pub const EFA_IB_ATTR_QUERY_MR_RESP_RECV_IC_ID: u16 = 0x1002;
pub const EFA_IB_ATTR_QUERY_MR_RESP_RDMA_READ_IC_ID: u16 = 0x1003;
pub const EFA_IB_ATTR_QUERY_MR_RESP_RDMA_RECV_IC_ID: u16 = 0x1004;

// Attributes of completion counters.
pub const EFA_IB_ATTR_CREATE_COMP_CNTR_COMP_BUFFER: u16 = 0x1000;
pub const EFA_IB_ATTR_CREATE_COMP_CNTR_ERR_BUFFER: u16 = 0x1001;
