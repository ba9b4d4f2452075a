//! Queues of Amazon's Elastic Fabric Adapter (`efa_io_defs.h` of rdma-core 65): work requests and
//! completions, little-endian.
//!
//! Device and program share these. The types give the layout; values are copied in and out, and no
//! reference may point into a queue.

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Upper bits of a request's number, on queue pairs with 64-bit numbers.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct efa_io_req_id_ex {
    pub w: [u16; 3],
}

/// Head of a send work request.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct efa_io_tx_meta_desc {
    pub req_id: u16,
    /// Operation, immediate data, inline data.
    pub ctrl1: u8,
    /// Phase, first, last, completion.
    pub ctrl2: u8,
    pub dest_qp_num: u16,
    /// Bytes of inline data, or number of SGEs.
    pub length: u16,
    pub immediate_data: u32,
    pub ah: u16,
    /// Hints.
    pub ctrl3: u8,
    pub reserved: u8,
    pub qkey: u32,
    pub reserved2: [u8; 6],
    pub req_id_ex: efa_io_req_id_ex,
}

/// SGE of a send work request.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct efa_io_tx_buf_desc {
    pub length: u32,
    pub lkey: u32,
    pub buf_addr_lo: u32,
    pub buf_addr_hi: u32,
}

/// The peer's memory.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct efa_io_remote_mem_addr {
    pub length: u32,
    pub rkey: u32,
    pub buf_addr_lo: u32,
    pub buf_addr_hi: u32,
}

/// Data of an RDMA work request.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct efa_io_rdma_req {
    pub remote_mem: efa_io_remote_mem_addr,
    pub local_mem: [efa_io_tx_buf_desc; 1],
}

/// Data of an RDMA work request of 128 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct efa_io_rdma_req_128 {
    pub remote_mem: efa_io_remote_mem_addr,
    /// C union with `inline_data`.
    pub local_mem: [u8; 80],
}

impl Default for efa_io_rdma_req_128 {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Send work request of 64 bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct efa_io_tx_wqe {
    pub meta: efa_io_tx_meta_desc,
    /// C union: SGEs, inline data, or [`efa_io_rdma_req`].
    pub data: [u8; 32],
}

/// Send work request of 128 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct efa_io_tx_wqe_128 {
    pub meta: efa_io_tx_meta_desc,
    /// C union: SGEs, inline data, or [`efa_io_rdma_req_128`].
    pub data: [u8; 96],
}

impl Default for efa_io_tx_wqe_128 {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// SGE of a receive.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct efa_io_rx_desc {
    pub buf_addr_lo: u32,
    pub buf_addr_hi: u32,
    pub req_id: u16,
    pub length: u16,
    /// Key, first, last.
    pub lkey_ctrl: u32,
}

/// Head of a completion.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct efa_io_cdesc_common {
    pub req_id: u16,
    /// `EFA_IO_COMP_STATUS_*`.
    pub status: u8,
    /// Phase, queue, immediate data, operation, unsolicited.
    pub flags: u8,
    pub qp_num: u16,
}

/// Completion of a send.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct efa_io_tx_cdesc {
    pub common: efa_io_cdesc_common,
    pub req_id_ex: efa_io_req_id_ex,
    pub reserved: [u8; 4],
}

/// Completion of a receive.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct efa_io_rx_cdesc {
    pub common: efa_io_cdesc_common,
    /// Lower half.
    pub length: u16,
    /// Address handle of the sender; 0xFFFF if unknown.
    pub ah: u16,
    pub src_qp_num: u16,
    pub imm: u32,
}

/// Addition to the completion of an RDMA WRITE with immediate data.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct efa_io_rx_cdesc_rdma_write {
    /// Upper half.
    pub length_hi: u16,
}

/// Completion of a receive, of 32 bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct efa_io_rx_cdesc_ex {
    pub base: efa_io_rx_cdesc,
    /// C union: [`efa_io_rx_cdesc_rdma_write`], or the sender's GID.
    pub u: [u8; 16],
}

// Limits.
pub const EFA_IO_TX_DESC_NUM_RDMA_BUFS: u32 = 1;
pub const EFA_IO_TX_DESC_NUM_BUFS: u32 = 2;
pub const EFA_IO_TX_DESC_IMM_DATA_SIZE: u32 = 4;
pub const EFA_IO_TX_DESC_INLINE_MAX_SIZE: u32 = 0x20;
pub const EFA_IO_TX_DESC_INLINE_MAX_SIZE_128: u32 = 0x50;

// Queues.
pub const EFA_IO_SEND_QUEUE: u8 = 1;
pub const EFA_IO_RECV_QUEUE: u8 = 2;

// Operations.
pub const EFA_IO_SEND: u8 = 0;
pub const EFA_IO_RDMA_READ: u8 = 1;
pub const EFA_IO_RDMA_WRITE: u8 = 2;

// Hints.
pub const EFA_IO_PROCESSING_HINT_BURST_PPS_SENSITIVE: u8 = 1;

// Statuses.
pub const EFA_IO_COMP_STATUS_OK: u8 = 0;
pub const EFA_IO_COMP_STATUS_FLUSHED: u8 = 1;
pub const EFA_IO_COMP_STATUS_LOCAL_ERROR_QP_INTERNAL_ERROR: u8 = 2;
pub const EFA_IO_COMP_STATUS_LOCAL_ERROR_UNSUPPORTED_OP: u8 = 3;
pub const EFA_IO_COMP_STATUS_LOCAL_ERROR_INVALID_AH: u8 = 4;
pub const EFA_IO_COMP_STATUS_LOCAL_ERROR_INVALID_LKEY: u8 = 5;
pub const EFA_IO_COMP_STATUS_LOCAL_ERROR_BAD_LENGTH: u8 = 6;
pub const EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_ADDRESS: u8 = 7;
pub const EFA_IO_COMP_STATUS_REMOTE_ERROR_ABORT: u8 = 8;
pub const EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_DEST_QPN: u8 = 9;
pub const EFA_IO_COMP_STATUS_REMOTE_ERROR_RNR: u8 = 10;
pub const EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_LENGTH: u8 = 11;
pub const EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_STATUS: u8 = 12;
pub const EFA_IO_COMP_STATUS_LOCAL_ERROR_UNRESP_REMOTE: u8 = 13;
pub const EFA_IO_COMP_STATUS_REMOTE_ERROR_UNKNOWN_PEER: u8 = 14;
pub const EFA_IO_COMP_STATUS_LOCAL_ERROR_UNREACH_REMOTE: u8 = 15;
pub const EFA_IO_COMP_STATUS_REMOTE_ERROR_FEATURE_MISMATCH: u8 = 18;

// `ctrl1`.
pub const EFA_IO_TX_META_DESC_OP_TYPE_MASK: u8 = 15;
pub const EFA_IO_TX_META_DESC_HAS_IMM_MASK: u8 = 16;
pub const EFA_IO_TX_META_DESC_INLINE_MSG_MASK: u8 = 0x20;
pub const EFA_IO_TX_META_DESC_META_EXTENSION_MASK: u8 = 0x40;
pub const EFA_IO_TX_META_DESC_META_DESC_MASK: u8 = 0x80;

// `ctrl2`.
pub const EFA_IO_TX_META_DESC_PHASE_MASK: u8 = 1;
pub const EFA_IO_TX_META_DESC_FIRST_MASK: u8 = 4;
pub const EFA_IO_TX_META_DESC_LAST_MASK: u8 = 8;
pub const EFA_IO_TX_META_DESC_COMP_REQ_MASK: u8 = 16;

// `ctrl3`.
pub const EFA_IO_TX_META_DESC_PROCESSING_HINTS_MASK: u8 = 3;

// `lkey` of a send.
pub const EFA_IO_TX_BUF_DESC_LKEY_MASK: u32 = 0xffffff;

// `lkey_ctrl` of a receive.
pub const EFA_IO_RX_DESC_LKEY_MASK: u32 = 0xffffff;
pub const EFA_IO_RX_DESC_FIRST_MASK: u32 = 0x40000000;
pub const EFA_IO_RX_DESC_LAST_MASK: u32 = 0x80000000;

// `flags` of a completion.
pub const EFA_IO_CDESC_COMMON_PHASE_MASK: u8 = 1;
pub const EFA_IO_CDESC_COMMON_Q_TYPE_MASK: u8 = 6;
pub const EFA_IO_CDESC_COMMON_HAS_IMM_MASK: u8 = 8;
pub const EFA_IO_CDESC_COMMON_OP_TYPE_MASK: u8 = 0x70;
pub const EFA_IO_CDESC_COMMON_UNSOLICITED_MASK: u8 = 0x80;
