//! Structs of work requests, completions and extended queue pairs (`ibv_wr_*`).

use std::ffi::{c_int, c_void};

use uverbs_core::queues::work::Sge;

use super::{ibv_ah, ibv_mr, ibv_mw, ibv_qp};

pub const IBV_SEND_FENCE: u32 = 1;
pub const IBV_SEND_SIGNALED: u32 = 2;
pub const IBV_SEND_SOLICITED: u32 = 4;
pub const IBV_SEND_INLINE: u32 = 8;
pub const IBV_SEND_IP_CSUM: u32 = 16;

pub const IBV_WR_RDMA_WRITE: u32 = 0;
pub const IBV_WR_RDMA_WRITE_WITH_IMM: u32 = 1;
pub const IBV_WR_SEND: u32 = 2;
pub const IBV_WR_SEND_WITH_IMM: u32 = 3;
pub const IBV_WR_RDMA_READ: u32 = 4;
pub const IBV_WR_ATOMIC_CMP_AND_SWP: u32 = 5;
pub const IBV_WR_ATOMIC_FETCH_AND_ADD: u32 = 6;
pub const IBV_WR_LOCAL_INV: u32 = 7;
pub const IBV_WR_BIND_MW: u32 = 8;
pub const IBV_WR_SEND_WITH_INV: u32 = 9;

pub const IBV_WC_SUCCESS: u32 = 0;
pub const IBV_WC_SEND: u32 = 0;
pub const IBV_WC_RDMA_WRITE: u32 = 1;
pub const IBV_WC_RDMA_READ: u32 = 2;
pub const IBV_WC_COMP_SWAP: u32 = 3;
pub const IBV_WC_FETCH_ADD: u32 = 4;
pub const IBV_WC_BIND_MW: u32 = 5;
pub const IBV_WC_LOCAL_INV: u32 = 6;
pub const IBV_WC_FLUSH: u32 = 8;
pub const IBV_WC_ATOMIC_WRITE: u32 = 9;
pub const IBV_WC_DRIVER1: u32 = 135;
pub const IBV_WC_DRIVER2: u32 = 136;
pub const IBV_WC_DRIVER3: u32 = 137;
pub const IBV_WC_RECV: u32 = 128;
pub const IBV_WC_RECV_RDMA_WITH_IMM: u32 = 129;
pub const IBV_WC_TM_ADD: u32 = 130;
pub const IBV_WC_TM_DEL: u32 = 131;
pub const IBV_WC_TM_SYNC: u32 = 132;
pub const IBV_WC_TM_RECV: u32 = 133;
pub const IBV_WC_TM_NO_TAG: u32 = 134;

pub const IBV_WC_GRH: u32 = 1;
pub const IBV_WC_WITH_IMM: u32 = 2;
pub const IBV_WC_IP_CSUM_OK: u32 = 4;
pub const IBV_WC_WITH_INV: u32 = 8;
pub const IBV_WC_TM_SYNC_REQ: u32 = 16;
pub const IBV_WC_TM_MATCH: u32 = 32;
pub const IBV_WC_TM_DATA_VALID: u32 = 64;

pub const IBV_WR_TAG_ADD: u32 = 0;
pub const IBV_WR_TAG_DEL: u32 = 1;
pub const IBV_WR_TAG_SYNC: u32 = 2;

pub const IBV_OPS_SIGNALED: c_int = 1;
pub const IBV_OPS_TM_SYNC: c_int = 2;

/// `ibv_sge`, which is [`Sge`] of the core.
pub type ibv_sge = Sge;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ibv_data_buf {
    pub addr: *const c_void,
    pub length: usize,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ibv_wc {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// Immediate data in network byte order, or the invalidated rkey with `IBV_WC_WITH_INV`.
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: u32,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ibv_send_wr_rdma {
    pub remote_addr: u64,
    pub rkey: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ibv_send_wr_atomic {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ibv_send_wr_ud {
    pub ah: *const ibv_ah,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
#[expect(missing_debug_implementations, reason = "which member counts is not in it")]
pub union SendWr {
    pub rdma: ibv_send_wr_rdma,
    pub atomic: ibv_send_wr_atomic,
    pub ud: ibv_send_wr_ud,
}

#[derive(Clone, Copy)]
#[repr(C)]
#[expect(missing_debug_implementations, reason = "it has a union")]
pub struct ibv_send_wr {
    pub wr_id: u64,
    pub next: *const ibv_send_wr,
    pub sg_list: *const ibv_sge,
    pub num_sge: c_int,
    pub opcode: u32,
    pub send_flags: u32,
    /// Immediate data in network byte order, or the rkey to invalidate with `IBV_WR_SEND_WITH_INV`.
    pub imm_data: u32,
    pub wr: SendWr,
    /// `qp_type.xrc.remote_srqn`.
    pub xrc_srqn: u32,
    pub bind_mw: BindMw,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BindMw {
    pub mw: *const ibv_mw,
    pub rkey: u32,
    pub bind_info: ibv_mw_bind_info,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ibv_mw_bind_info {
    pub mr: *const ibv_mr,
    pub addr: u64,
    pub length: u64,
    pub mw_access_flags: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ibv_recv_wr {
    pub wr_id: u64,
    pub next: *const ibv_recv_wr,
    pub sg_list: *const ibv_sge,
    pub num_sge: c_int,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ibv_ops_wr_tm_add {
    pub recv_wr_id: u64,
    pub sg_list: *const ibv_sge,
    pub num_sge: c_int,
    pub tag: u64,
    pub mask: u64,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ibv_ops_wr_tm {
    pub unexpected_cnt: u32,
    pub handle: u32,
    pub add: ibv_ops_wr_tm_add,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ibv_ops_wr {
    pub wr_id: u64,
    pub next: *mut ibv_ops_wr,
    pub opcode: u32,
    pub flags: c_int,
    pub tm: ibv_ops_wr_tm,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ibv_wc_tm_info {
    pub tag: u64,
    pub r#priv: u32,
}

type Imm = unsafe extern "C" fn(*const ibv_qp_ex, u32);
type Remote = unsafe extern "C" fn(*const ibv_qp_ex, u32, u64);
type Pieces<T> = unsafe extern "C" fn(*const ibv_qp_ex, usize, *const T);

#[derive(Debug)]
#[repr(C)]
pub struct ibv_qp_ex {
    pub qp_base: ibv_qp,
    pub comp_mask: u64,
    pub wr_id: u64,
    pub wr_flags: u32,
    pub wr_atomic_cmp_swp: Option<unsafe extern "C" fn(*const ibv_qp_ex, u32, u64, u64, u64)>,
    pub wr_atomic_fetch_add: Option<unsafe extern "C" fn(*const ibv_qp_ex, u32, u64, u64)>,
    pub wr_bind_mw:
        Option<unsafe extern "C" fn(*const ibv_qp_ex, *const ibv_mw, u32, *const ibv_mw_bind_info)>,
    pub wr_local_inv: Option<Imm>,
    pub wr_rdma_read: Option<Remote>,
    pub wr_rdma_write: Option<Remote>,
    pub wr_rdma_write_imm: Option<unsafe extern "C" fn(*const ibv_qp_ex, u32, u64, u32)>,
    pub wr_send: Option<unsafe extern "C" fn(*const ibv_qp_ex)>,
    pub wr_send_imm: Option<Imm>,
    pub wr_send_inv: Option<Imm>,
    pub wr_send_tso: Option<unsafe extern "C" fn(*const ibv_qp_ex)>,
    pub wr_set_ud_addr: Option<unsafe extern "C" fn(*const ibv_qp_ex, *const ibv_ah, u32, u32)>,
    pub wr_set_xrc_srqn: Option<unsafe extern "C" fn(*const ibv_qp_ex, u32)>,
    pub wr_set_inline_data: Option<unsafe extern "C" fn(*const ibv_qp_ex, *const c_void, usize)>,
    pub wr_set_inline_data_list: Option<Pieces<ibv_data_buf>>,
    pub wr_set_sge: Option<unsafe extern "C" fn(*const ibv_qp_ex, u32, u64, u32)>,
    pub wr_set_sge_list: Option<Pieces<ibv_sge>>,
    pub wr_start: Option<unsafe extern "C" fn(*const ibv_qp_ex)>,
    pub wr_complete: Option<unsafe extern "C" fn(*const ibv_qp_ex) -> c_int>,
    pub wr_abort: Option<unsafe extern "C" fn(*const ibv_qp_ex)>,
    pub wr_atomic_write: Option<unsafe extern "C" fn(*const ibv_qp_ex, u32, u64, *const c_void)>,
    pub wr_flush: Option<unsafe extern "C" fn(*const ibv_qp_ex, u32, u64, usize, u8, u8)>,
}
