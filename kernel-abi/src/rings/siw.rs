//! Data of Linux's software iWARP, `siw`, that crosses the kernel boundary (`siw-abi.h`).
//!
//! The queues are memory shared with the kernel, which reads and writes them at any time. These
//! types give the layout; values are copied in and out, and no reference may point into a queue.

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Response of `GET_CONTEXT`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct siw_uresp_alloc_ctx {
    pub dev_id: u32,
    pub pad: u32,
}

/// Response of `CREATE_CQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct siw_uresp_create_cq {
    pub cq_id: u32,
    /// Entries: a power of two.
    pub num_cqe: u32,
    /// Offset for mmap on the device file, or [`SIW_INVAL_UOBJ_KEY`].
    pub cq_key: u64,
}

/// Response of `CREATE_QP`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct siw_uresp_create_qp {
    pub qp_id: u32,
    /// Elements of the send queue: a power of two.
    pub num_sqe: u32,
    /// Elements of the receive queue: a power of two, or 0.
    pub num_rqe: u32,
    pub pad: u32,
    /// Offset for mmap on the device file, or [`SIW_INVAL_UOBJ_KEY`].
    pub sq_key: u64,
    /// Offset of the receive queue for mmap, or [`SIW_INVAL_UOBJ_KEY`]; unused with an SRQ.
    pub rq_key: u64,
}

/// Response of `CREATE_SRQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct siw_uresp_create_srq {
    /// Elements: a power of two.
    pub num_rqe: u32,
    pub pad: u32,
    /// Offset for mmap on the device file, or [`SIW_INVAL_UOBJ_KEY`].
    pub srq_key: u64,
}

/// Request of `REG_MR`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct siw_ureq_reg_mr {
    /// The lowest eight bits of the keys.
    pub stag_key: u8,
    pub reserved: [u8; 3],
    pub pad: u32,
}

/// Response of `REG_MR`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct siw_uresp_reg_mr {
    pub stag: u32,
    pub pad: u32,
}

/// One entry of a scatter list.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct siw_sge {
    pub laddr: u64,
    /// Bytes.
    pub length: u32,
    pub lkey: u32,
}

/// An element of a send queue. Inline data begins at the second entry of the list.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct siw_sqe {
    pub id: u64,
    /// `SIW_WQE_*`.
    pub flags: u16,
    pub num_sge: u8,
    /// `SIW_OP_*`.
    pub opcode: u8,
    pub rkey: u32,
    /// C union with `base_mr`, which only the kernel uses.
    pub raddr: u64,
    /// C union with `access`, which only the kernel uses.
    pub sge: [siw_sge; SIW_MAX_SGE as usize],
}

/// An element of a receive queue.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct siw_rqe {
    pub id: u64,
    /// `SIW_WQE_*`.
    pub flags: u16,
    pub num_sge: u8,
    pub opcode: u8,
    pub unused: u32,
    pub sge: [siw_sge; SIW_MAX_SGE as usize],
}

/// An entry of a completion queue.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct siw_cqe {
    pub id: u64,
    /// `SIW_WQE_*`.
    pub flags: u8,
    /// `SIW_OP_*`.
    pub opcode: u8,
    /// `SIW_WC_*`.
    pub status: u16,
    pub bytes: u32,
    /// C union with `inval_stag`.
    pub imm_data: u64,
    /// C union of `base_qp`, which only the kernel uses, and `qp_id`.
    pub base_qp: u64,
}

/// Behind the last entry of a completion queue.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct siw_cq_ctrl {
    /// `SIW_NOTIFY_*`.
    pub flags: u32,
    pub pad: u32,
}

pub const SIW_ABI_VERSION: u32 = 1;
pub const SIW_MAX_SGE: u32 = 6;
/// Bytes of inline data.
pub const SIW_MAX_INLINE: u32 = (SIW_MAX_SGE - 1) * size_of::<siw_sge>() as u32;
pub const SIW_UOBJ_MAX_KEY: u32 = 0x08ffff;
pub const SIW_INVAL_UOBJ_KEY: u32 = SIW_UOBJ_MAX_KEY + 1;

// `opcode`.
pub const SIW_OP_WRITE: u32 = 0;
pub const SIW_OP_READ: u32 = 1;
pub const SIW_OP_READ_LOCAL_INV: u32 = 2;
pub const SIW_OP_SEND: u32 = 3;
pub const SIW_OP_SEND_WITH_IMM: u32 = 4;
pub const SIW_OP_SEND_REMOTE_INV: u32 = 5;
pub const SIW_OP_FETCH_AND_ADD: u32 = 6;
pub const SIW_OP_COMP_AND_SWAP: u32 = 7;
pub const SIW_OP_RECEIVE: u32 = 8;
pub const SIW_OP_READ_RESPONSE: u32 = 9;
pub const SIW_OP_INVAL_STAG: u32 = 10;
pub const SIW_OP_REG_MR: u32 = 11;
pub const SIW_NUM_OPCODES: u32 = 12;

// `flags` of elements and entries.
pub const SIW_WQE_VALID: u32 = 1;
pub const SIW_WQE_INLINE: u32 = 1 << 1;
pub const SIW_WQE_SIGNALLED: u32 = 1 << 2;
pub const SIW_WQE_SOLICITED: u32 = 1 << 3;
pub const SIW_WQE_READ_FENCE: u32 = 1 << 4;
pub const SIW_WQE_REM_INVAL: u32 = 1 << 5;
pub const SIW_WQE_COMPLETED: u32 = 1 << 6;

// `flags` of `siw_cq_ctrl`.
pub const SIW_NOTIFY_NOT: u32 = 0;
pub const SIW_NOTIFY_SOLICITED: u32 = 1;
pub const SIW_NOTIFY_NEXT_COMPLETION: u32 = 1 << 1;
pub const SIW_NOTIFY_MISSED_EVENTS: u32 = 1 << 2;
pub const SIW_NOTIFY_ALL: u32 =
    SIW_NOTIFY_SOLICITED | SIW_NOTIFY_NEXT_COMPLETION | SIW_NOTIFY_MISSED_EVENTS;

// `status`.
pub const SIW_WC_SUCCESS: u32 = 0;
pub const SIW_WC_LOC_LEN_ERR: u32 = 1;
pub const SIW_WC_LOC_PROT_ERR: u32 = 2;
pub const SIW_WC_LOC_QP_OP_ERR: u32 = 3;
pub const SIW_WC_WR_FLUSH_ERR: u32 = 4;
pub const SIW_WC_BAD_RESP_ERR: u32 = 5;
pub const SIW_WC_LOC_ACCESS_ERR: u32 = 6;
pub const SIW_WC_REM_ACCESS_ERR: u32 = 7;
pub const SIW_WC_REM_INV_REQ_ERR: u32 = 8;
pub const SIW_WC_GENERAL_ERR: u32 = 9;
pub const SIW_NUM_WC_STATUS: u32 = 10;
