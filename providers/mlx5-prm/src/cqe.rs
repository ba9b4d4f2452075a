//! Completion queue entries (CQEs).
//!
//! The device writes the last 64 bytes of a CQE, `op_own` last. A reader that finds the expected
//! owner bit there may read the rest. A CQE of 128 bytes has the described 64 bytes in its second
//! half.

use crate::bits::{bits, layout, named};
use crate::opcode::Opcode;
use crate::syndrome::Syndrome;
use crate::tag::ibv_tmh;
use core::mem::offset_of;
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

/// Owner bit of `op_own`.
pub const MLX5_CQE_OWNER_MASK: u8 = 1;
/// `op_own` value: up to 32 bytes of the message are in the CQE.
pub const MLX5_INLINE_SCATTER_32: u8 = 0x4;
/// `op_own` value: up to 64 bytes of the message are before the described 64 bytes.
pub const MLX5_INLINE_SCATTER_64: u8 = 0x8;
/// `op_own` value: a title, which mini CQEs follow.
pub const MLX5_CQE_COMPRESSED: u8 = 0xc;
/// Mini CQEs in the space of a CQE.
pub const MINI_CQES: usize = 8;
/// `hds_ip_ext` value: L2 good.
pub const MLX5_CQE_L2_OK: u8 = 1 << 0;
/// `hds_ip_ext` value: L3 checksum good.
pub const MLX5_CQE_L3_OK: u8 = 1 << 1;
/// `hds_ip_ext` value: L4 checksum good.
pub const MLX5_CQE_L4_OK: u8 = 1 << 2;
/// L3 type: none.
pub const MLX5_CQE_L3_HDR_TYPE_NONE: u8 = 0;
/// L3 type: IPv6.
pub const MLX5_CQE_L3_HDR_TYPE_IPV6: u8 = 1;
/// L3 type: IPv4.
pub const MLX5_CQE_L3_HDR_TYPE_IPV4: u8 = 2;
/// `success` value of a tag-matching completion.
pub const MLX5_TMC_SUCCESS: u32 = 0x8000_0000;

named! {
    /// Kind of CQE (mlx5dv.h, `MLX5_CQE_*`).
    pub struct CqeOpcode(u8) {
        /// A send WQE is done.
        REQ = 0,
        /// RDMA write with immediate arrived.
        RESP_WR_IMM = 1,
        /// Send arrived.
        RESP_SEND = 2,
        /// Send with immediate arrived.
        RESP_SEND_IMM = 3,
        /// Send with invalidate arrived.
        RESP_SEND_INV = 4,
        /// Last CQE in the old ring of a resized CQ.
        RESIZE_CQ = 5,
        /// Completion without packet.
        NO_PACKET = 6,
        /// Signature error.
        SIG_ERR = 12,
        /// A send WQE failed.
        REQ_ERR = 13,
        /// A receive WQE failed.
        RESP_ERR = 14,
        /// Never written; software fills a new ring with it.
        INVALID = 15,
    }
}

bits! {
    /// Last byte of a CQE.
    pub struct OpOwn(u8) {
        /// [`CqeOpcode`].
        7:4 opcode with_opcode: u8;
        /// 0 none, 1 [`MLX5_INLINE_SCATTER_32`], 2 [`MLX5_INLINE_SCATTER_64`], 3 compressed.
        3:2 format with_format: u8;
        /// Solicited event.
        1 se with_se;
        /// Owner bit, which toggles with each lap.
        0 owner with_owner;
    }
}

bits! {
    /// Opcode, and queue number.
    pub struct SopDropQpn(u32) {
        /// [`Opcode`] of the send WQE; 0 on the receive side.
        31:24 sop with_sop: u8;
        /// Queue number.
        23:0 qpn with_qpn: u32;
    }
}

bits! {
    /// Sender of a message.
    pub struct FlagsRqpn(u32) {
        /// Kind of L3 header on RoCE, otherwise 1 for a GRH; 0 without.
        29:28 grh with_grh: u8;
        /// Service level.
        27:24 sl with_sl: u8;
        /// Remote queue.
        23:0 rqpn with_rqpn: u32;
    }
}

bits! {
    /// Shared receive queue (CQE version 0) or user index of the queue (version 1).
    pub struct SrqnUidx(u32) {
        /// The number.
        23:0 number with_number: u32;
    }
}

bits! {
    /// Path of a message.
    pub struct MlPath(u8) {
        /// Destination path bits.
        6:0 path with_path: u8;
    }
}

bits! {
    /// Checks that a packet passed.
    pub struct HdsIpExt(u8) {
        /// L4 checksum good.
        2 l4_ok with_l4_ok;
        /// L3 checksum good.
        1 l3_ok with_l3_ok;
        /// L2 good.
        0 l2_ok with_l2_ok;
    }
}

bits! {
    /// Headers of a packet.
    pub struct L4HdrType(u8) {
        /// L4 type.
        6:4 l4_hdr_type with_l4_hdr_type: u8;
        /// L3 type, `MLX5_CQE_L3_HDR_TYPE_*`.
        3:2 l3_hdr_type with_l3_hdr_type: u8;
        /// A VLAN tag was stripped into `vlan_info`.
        0 cv with_cv;
    }
}

layout! {
    /// The described 64 bytes of a CQE (mlx5dv.h; PRM "Completion Queue Entry"). The first 32 bytes
    /// have three uses. The fields are for a message; [`tm_cqe`](Self::tm_cqe) and
    /// [`tmh`](Self::tmh) are for tag matching.
    pub struct mlx5_cqe64[64] {
        /// Zero.
        pub rsvd0: [u8; 2],
        /// WQE of a striding queue.
        pub wqe_id: U16,
        /// Zero, or hash result.
        pub rsvd4: [u8; 13],
        /// Path bits.
        pub ml_path: u8 as MlPath,
        /// Zero, or checksum.
        pub rsvd20: [u8; 4],
        /// Source LID.
        pub slid: U16,
        /// Sender.
        pub flags_rqpn: U32 as FlagsRqpn,
        /// Checks.
        pub hds_ip_ext: u8 as HdsIpExt,
        /// Headers.
        pub l4_hdr_type_etc: u8 as L4HdrType,
        /// VLAN tag.
        pub vlan_info: U16,
        /// SRQ number or user index.
        pub srqn_uidx: U32 as SrqnUidx,
        /// Immediate data, invalidated rkey, or P_Key index in the low 16 bits.
        pub imm_inval_pkey: U32,
        /// Application: 1 tag matching.
        pub app: u8,
        /// Operation of the application.
        pub app_op: u8,
        /// Data of the application.
        pub app_info: U16,
        /// Bytes received, read or fetched.
        pub byte_cnt: U32,
        /// Device clock.
        pub timestamp: U64,
        /// Opcode and queue.
        pub sop_drop_qpn: U32 as SopDropQpn,
        /// Send: index of the WQE's first WQEBB. Receive: index of the WQE.
        pub wqe_counter: U16,
        /// Signature, on queues with signatures.
        pub signature: u8,
        /// Kind and owner.
        pub op_own: u8 as OpOwn,
    }
}

impl mlx5_cqe64 {
    /// Size in bytes.
    pub const SIZE: usize = size_of::<Self>();
    /// Offset of `imm_inval_pkey`.
    pub const IMM_INVAL_PKEY_OFFSET: usize = offset_of!(Self, imm_inval_pkey);
    /// Offset of `byte_cnt`.
    pub const BYTE_CNT_OFFSET: usize = offset_of!(Self, byte_cnt);
    /// Offset of `timestamp`.
    pub const TIMESTAMP_OFFSET: usize = offset_of!(Self, timestamp);
    /// Offset of `sop_drop_qpn`.
    pub const SOP_DROP_QPN_OFFSET: usize = offset_of!(Self, sop_drop_qpn);
    /// Offset of `wqe_counter`.
    pub const WQE_COUNTER_OFFSET: usize = offset_of!(Self, wqe_counter);
    /// Offset of `signature`.
    pub const SIGNATURE_OFFSET: usize = offset_of!(Self, signature);
    /// Offset of `op_own`.
    pub const OP_OWN_OFFSET: usize = offset_of!(Self, op_own);

    /// Kind and owner.
    #[inline]
    #[must_use]
    pub const fn op_own(&self) -> OpOwn {
        OpOwn(self.op_own)
    }

    /// Kind.
    #[inline]
    #[must_use]
    pub const fn opcode(&self) -> CqeOpcode {
        CqeOpcode(self.op_own().opcode())
    }

    /// Opcode and queue.
    #[inline]
    #[must_use]
    pub const fn sop_drop_qpn(&self) -> SopDropQpn {
        SopDropQpn(self.sop_drop_qpn.get())
    }

    /// Opcode of the send WQE, for [`CqeOpcode::REQ`].
    #[inline]
    #[must_use]
    pub const fn send_opcode(&self) -> Opcode {
        Opcode(self.sop_drop_qpn().sop())
    }

    /// Sender.
    #[inline]
    #[must_use]
    pub const fn flags_rqpn(&self) -> FlagsRqpn {
        FlagsRqpn(self.flags_rqpn.get())
    }

    /// View of a failed WQE's CQE.
    #[inline]
    #[must_use]
    pub fn as_err(&self) -> &mlx5_err_cqe {
        zerocopy::transmute_ref!(self)
    }

    /// View of a signature error's CQE.
    #[inline]
    #[must_use]
    pub fn as_sig_err(&self) -> &mlx5_sigerr_cqe {
        zerocopy::transmute_ref!(self)
    }

    /// First bytes as a tag-matching result.
    #[must_use]
    pub fn tm_cqe(&self) -> mlx5_tm_cqe {
        // Always succeeds: 64 bytes hold 20.
        mlx5_tm_cqe::read_from_prefix(self.as_bytes()).map_or_else(|_| Default::default(), |x| x.0)
    }

    /// First bytes as a tag-matching header.
    #[must_use]
    pub fn tmh(&self) -> ibv_tmh {
        // Always succeeds: 64 bytes hold 16.
        ibv_tmh::read_from_prefix(self.as_bytes()).map_or_else(|_| Default::default(), |x| x.0)
    }
}

layout! {
    /// A mini CQE of a compressed block (Linux `include/linux/mlx5/device.h`). Fields that it lacks
    /// are the title's. The named fields are for responses with a checksum; [`send`](Self::send)
    /// reads a request's.
    pub struct mlx5_mini_cqe8[8] {
        /// Checksum of the packet.
        pub checksum: U16,
        /// Stride of a striding queue.
        pub stridx: U16,
        /// Bytes received, read or fetched.
        pub byte_cnt: U32,
    }
}

impl mlx5_mini_cqe8 {
    /// A send WQE's first WQEBB, and its opcode (`s_wqe_info`).
    #[inline]
    #[must_use]
    pub const fn send(&self) -> (u16, u8) {
        (self.checksum.get(), (self.stridx.get() >> 8) as u8)
    }

    /// Builds the mini CQE of a send WQE.
    #[inline]
    #[must_use]
    pub const fn of_send(counter: u16, opcode: u8, byte_cnt: u32) -> Self {
        Self {
            checksum: U16::new(counter),
            stridx: U16::new((opcode as u16) << 8),
            byte_cnt: U32::new(byte_cnt),
        }
    }
}

layout! {
    /// Tag-matching result in the first bytes of a CQE (mlx5dv.h).
    pub struct mlx5_tm_cqe[20] {
        /// [`MLX5_TMC_SUCCESS`] or 0.
        pub success: U32,
        /// Phase of the device's tag list.
        pub hw_phase_cnt: U16,
        /// Zero.
        pub rsvd0: [u8; 12],
        /// C's padding for alignment.
        pub pad_tail: [u8; 2],
    }
}

layout! {
    /// CQE of a failed WQE (mlx5dv.h; PRM "Completion with Error").
    pub struct mlx5_err_cqe[64] {
        /// Zero.
        pub rsvd0: [u8; 32],
        /// SRQ number or user index.
        pub srqn: U32 as SrqnUidx,
        /// Zero.
        pub rsvd1: [u8; 18],
        /// Vendor syndrome.
        pub vendor_err_synd: u8,
        /// [`Syndrome`].
        pub syndrome: u8,
        /// Opcode and queue.
        pub s_wqe_opcode_qpn: U32 as SopDropQpn,
        /// As in [`mlx5_cqe64::wqe_counter`].
        pub wqe_counter: U16,
        /// Signature, on queues with signatures.
        pub signature: u8,
        /// Kind and owner.
        pub op_own: u8 as OpOwn,
    }
}

impl mlx5_err_cqe {
    /// Offset of `syndrome`.
    pub const SYNDROME_OFFSET: usize = offset_of!(Self, syndrome);
    /// Offset of `vendor_err_synd`.
    pub const VENDOR_ERR_SYND_OFFSET: usize = offset_of!(Self, vendor_err_synd);

    /// Error syndrome.
    #[inline]
    #[must_use]
    pub const fn syndrome(&self) -> Syndrome {
        Syndrome(self.syndrome)
    }

    /// View of the bytes as a plain CQE.
    #[inline]
    #[must_use]
    pub fn as_cqe64(&self) -> &mlx5_cqe64 {
        zerocopy::transmute_ref!(self)
    }
}

layout! {
    /// CQE of a signature error (rdma-core cq.c).
    pub struct mlx5_sigerr_cqe[64] {
        /// Zero.
        pub rsvd0: [u8; 16],
        /// Expected signature: guard in the high, application tag in the low 16 bits.
        pub expected_trans_sig: U32,
        /// Signature found.
        pub actual_trans_sig: U32,
        /// Expected reference tag.
        pub expected_ref_tag: U32,
        /// Reference tag found.
        pub actual_ref_tag: U32,
        /// Failed checks.
        pub syndrome: U16,
        /// Kind of signature.
        pub sig_type: u8,
        /// Memory or wire.
        pub domain: u8,
        /// Key.
        pub mkey: U32,
        /// Offset in the data.
        pub sig_err_offset: U64,
        /// Zero.
        pub rsvd30: [u8; 14],
        /// Signature of the CQE.
        pub signature: u8,
        /// Kind and owner.
        pub op_own: u8 as OpOwn,
    }
}
