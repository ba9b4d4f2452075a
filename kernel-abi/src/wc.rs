//! Work requests and completions that pass through the kernel (`ib_user_verbs.h`).
//!
//! Only drivers without queues in user space post and poll this way.

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use crate::union;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, big_endian};

/// One entry of a scatter list; they follow the work requests of a post.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_sge {
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    pub lkey: u32,
}

/// One send, in a [`ib_uverbs_post_send`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_send_wr {
    pub wr_id: u64,
    pub num_sge: u32,
    /// `IB_UVERBS_WR_*`.
    pub opcode: u32,
    /// `IB_SEND_*`.
    pub send_flags: u32,
    /// C union: [`Self::imm_data`] or [`Self::invalidate_rkey`].
    pub ex: [u8; 4],
    /// C union: [`Self::rdma`], [`Self::atomic`] or [`Self::ud`].
    pub wr: [u8; 32],
}

/// `ib_uverbs_send_wr::wr` of RDMA READ and WRITE.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_send_wr_rdma {
    pub remote_addr: u64,
    pub rkey: u32,
    pub reserved: u32,
}

/// `ib_uverbs_send_wr::wr` of atomics.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_send_wr_atomic {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
    pub reserved: u32,
}

/// `ib_uverbs_send_wr::wr` of datagrams.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_send_wr_ud {
    /// Handle of the address handle.
    pub ah: u32,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
    pub reserved: u32,
}

impl ib_uverbs_send_wr {
    /// `ex` as immediate data.
    pub fn imm_data(&self) -> big_endian::U32 {
        big_endian::U32::from_bytes(self.ex)
    }

    /// `ex` as the invalidated key.
    pub fn invalidate_rkey(&self) -> u32 {
        u32::from_ne_bytes(self.ex)
    }

    /// `wr` of an RDMA READ or WRITE.
    pub fn rdma(&self) -> ib_uverbs_send_wr_rdma {
        union::view(&self.wr)
    }

    /// Sets `wr` to the operands of an RDMA READ or WRITE.
    pub fn set_rdma(&mut self, rdma: ib_uverbs_send_wr_rdma) {
        union::fill(&mut self.wr, rdma);
    }

    /// `wr` of an atomic.
    pub fn atomic(&self) -> ib_uverbs_send_wr_atomic {
        union::view(&self.wr)
    }

    /// Sets `wr` to the operands of an atomic.
    pub fn set_atomic(&mut self, atomic: ib_uverbs_send_wr_atomic) {
        union::fill(&mut self.wr, atomic);
    }

    /// `wr` of a datagram.
    pub fn ud(&self) -> ib_uverbs_send_wr_ud {
        union::view(&self.wr)
    }

    /// Sets `wr` to the destination of a datagram.
    pub fn set_ud(&mut self, ud: ib_uverbs_send_wr_ud) {
        union::fill(&mut self.wr, ud);
    }
}

/// Request of `POST_SEND`. The requests (`send_wr[]`), then the scatter lists, follow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_post_send {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
    pub qp_handle: u32,
    pub wr_count: u32,
    pub sge_count: u32,
    /// Bytes of one request.
    pub wqe_size: u32,
}

/// Response of `POST_SEND`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_post_send_resp {
    /// Number of the first failed request, from 1; 0: none failed.
    pub bad_wr: u32,
}

/// One receive, in a [`ib_uverbs_post_recv`] or [`ib_uverbs_post_srq_recv`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_recv_wr {
    pub wr_id: u64,
    pub num_sge: u32,
    pub reserved: u32,
}

/// Request of `POST_RECV`. The requests (`recv_wr[]`), then the scatter lists, follow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_post_recv {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
    pub qp_handle: u32,
    pub wr_count: u32,
    pub sge_count: u32,
    /// Bytes of one request.
    pub wqe_size: u32,
}

/// Response of `POST_RECV`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_post_recv_resp {
    /// Number of the first failed request, from 1; 0: none failed.
    pub bad_wr: u32,
}

/// Request of `POST_SRQ_RECV`. The requests (`recv[]`), then the scatter lists, follow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_post_srq_recv {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
    pub srq_handle: u32,
    pub wr_count: u32,
    pub sge_count: u32,
    /// Bytes of one request.
    pub wqe_size: u32,
}

/// Response of `POST_SRQ_RECV`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_post_srq_recv_resp {
    /// Number of the first failed request, from 1; 0: none failed.
    pub bad_wr: u32,
}

/// Request of `POLL_CQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_poll_cq {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
    pub cq_handle: u32,
    /// Most completions wanted.
    pub ne: u32,
}

/// Response of `POLL_CQ`. `count` completions (`wc[]`) follow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_poll_cq_resp {
    pub count: u32,
    pub reserved: u32,
}

/// One completion, in a [`ib_uverbs_poll_cq_resp`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_wc {
    pub wr_id: u64,
    /// `IB_WC_*`.
    pub status: u32,
    /// `IB_UVERBS_WC_*` or, from 128 on, a receive.
    pub opcode: u32,
    pub vendor_err: u32,
    /// Bytes.
    pub byte_len: u32,
    /// C union: [`Self::imm_data`] or [`Self::invalidate_rkey`].
    pub ex: [u8; 4],
    pub qp_num: u32,
    pub src_qp: u32,
    /// `IB_WC_GRH`, `IB_WC_WITH_IMM` and other flags of the kernel.
    pub wc_flags: u32,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
    pub port_num: u8,
    pub reserved: u8,
}

impl ib_uverbs_wc {
    /// `ex` as immediate data.
    pub fn imm_data(&self) -> big_endian::U32 {
        big_endian::U32::from_bytes(self.ex)
    }

    /// `ex` as the invalidated key.
    pub fn invalidate_rkey(&self) -> u32 {
        u32::from_ne_bytes(self.ex)
    }
}

// `ib_uverbs_send_wr::opcode`.
pub const IB_UVERBS_WR_RDMA_WRITE: u32 = 0;
pub const IB_UVERBS_WR_RDMA_WRITE_WITH_IMM: u32 = 1;
pub const IB_UVERBS_WR_SEND: u32 = 2;
pub const IB_UVERBS_WR_SEND_WITH_IMM: u32 = 3;
pub const IB_UVERBS_WR_RDMA_READ: u32 = 4;
pub const IB_UVERBS_WR_ATOMIC_CMP_AND_SWP: u32 = 5;
pub const IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD: u32 = 6;
pub const IB_UVERBS_WR_LOCAL_INV: u32 = 7;
pub const IB_UVERBS_WR_BIND_MW: u32 = 8;
pub const IB_UVERBS_WR_SEND_WITH_INV: u32 = 9;
pub const IB_UVERBS_WR_TSO: u32 = 10;
pub const IB_UVERBS_WR_RDMA_READ_WITH_INV: u32 = 11;
pub const IB_UVERBS_WR_MASKED_ATOMIC_CMP_AND_SWP: u32 = 12;
pub const IB_UVERBS_WR_MASKED_ATOMIC_FETCH_AND_ADD: u32 = 13;

// `ib_uverbs_wc::opcode` of sends.
pub const IB_UVERBS_WC_SEND: u32 = 0;
pub const IB_UVERBS_WC_RDMA_WRITE: u32 = 1;
pub const IB_UVERBS_WC_RDMA_READ: u32 = 2;
pub const IB_UVERBS_WC_COMP_SWAP: u32 = 3;
pub const IB_UVERBS_WC_FETCH_ADD: u32 = 4;
pub const IB_UVERBS_WC_BIND_MW: u32 = 5;
pub const IB_UVERBS_WC_LOCAL_INV: u32 = 6;
pub const IB_UVERBS_WC_TSO: u32 = 7;

// `send_flags` (kernel: `enum ib_send_flags`).
pub const IB_SEND_FENCE: u32 = 1 << 0;
pub const IB_SEND_SIGNALED: u32 = 1 << 1;
pub const IB_SEND_SOLICITED: u32 = 1 << 2;
pub const IB_SEND_INLINE: u32 = 1 << 3;
pub const IB_SEND_IP_CSUM: u32 = 1 << 4;

// `wc_flags` (kernel: `enum ib_wc_flags`); the two that libibverbs numbers alike.
pub const IB_WC_GRH: u32 = 1 << 0;
pub const IB_WC_WITH_IMM: u32 = 1 << 1;

// `status` (kernel: `enum ib_wc_status`).
pub const IB_WC_SUCCESS: u32 = 0;
pub const IB_WC_LOC_LEN_ERR: u32 = 1;
pub const IB_WC_LOC_QP_OP_ERR: u32 = 2;
pub const IB_WC_LOC_EEC_OP_ERR: u32 = 3;
pub const IB_WC_LOC_PROT_ERR: u32 = 4;
pub const IB_WC_WR_FLUSH_ERR: u32 = 5;
pub const IB_WC_MW_BIND_ERR: u32 = 6;
pub const IB_WC_BAD_RESP_ERR: u32 = 7;
pub const IB_WC_LOC_ACCESS_ERR: u32 = 8;
pub const IB_WC_REM_INV_REQ_ERR: u32 = 9;
pub const IB_WC_REM_ACCESS_ERR: u32 = 10;
pub const IB_WC_REM_OP_ERR: u32 = 11;
pub const IB_WC_RETRY_EXC_ERR: u32 = 12;
pub const IB_WC_RNR_RETRY_EXC_ERR: u32 = 13;
pub const IB_WC_LOC_RDD_VIOL_ERR: u32 = 14;
pub const IB_WC_REM_INV_RD_REQ_ERR: u32 = 15;
pub const IB_WC_REM_ABORT_ERR: u32 = 16;
pub const IB_WC_INV_EECN_ERR: u32 = 17;
pub const IB_WC_INV_EEC_STATE_ERR: u32 = 18;
pub const IB_WC_FATAL_ERR: u32 = 19;
pub const IB_WC_RESP_TIMEOUT_ERR: u32 = 20;
pub const IB_WC_GENERAL_ERR: u32 = 21;
