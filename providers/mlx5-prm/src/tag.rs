//! Tag matching: the segment that changes the tag list, and the header of messages.

use crate::bits::{bits, layout, named};
use zerocopy::byteorder::big_endian::{U16, U32, U64};

bits! {
    /// Operation byte of a tag-matching segment (rdma-core qp.c, `set_tm_seg`).
    pub struct TmOpcode(u8) {
        /// 0 none, 1 append, 2 remove (rdma-core mlx5.h, `MLX5_TM_OPCODE_*`).
        7:4 op with_op: u8;
    }
}

bits! {
    /// Flag byte of a tag-matching segment (rdma-core mlx5.h, `MLX5_SRQ_FLAG_TM_*`).
    pub struct TmFlags(u8) {
        /// A completion is requested.
        7 cqe_req with_cqe_req;
        /// `sw_cnt` is valid.
        6 sw_cnt with_sw_cnt;
    }
}

layout! {
    /// Tag-matching segment (mlx5dv.h).
    pub struct mlx5_wqe_tm_seg[32] {
        /// Operation.
        pub opcode: u8 as TmOpcode,
        /// Flags.
        pub flags: u8 as TmFlags,
        /// Index in the tag list.
        pub index: U16,
        /// Zero.
        pub rsvd0: [u8; 2],
        /// Number of unexpected messages that software has handled.
        pub sw_cnt: U16,
        /// Zero.
        pub rsvd1: [u8; 8],
        /// Tag to append.
        pub append_tag: U64,
        /// Bits of the tag to compare.
        pub append_mask: U64,
    }
}

impl TmOpcode {
    /// The list is unchanged.
    pub const NOP: u8 = 0;
    /// Append a tag.
    pub const APPEND: u8 = 1;
    /// Remove a tag.
    pub const REMOVE: u8 = 2;
}

/// `app` of a completion: tag matching (rdma-core mlx5.h, `MLX5_CQE_APP_TAG_MATCHING`).
pub const MLX5_CQE_APP_TAG_MATCHING: u8 = 1;

named! {
    /// `app_op` of a tag-matching completion (rdma-core cq.c, `MLX5_CQE_APP_OP_TM_*`).
    pub struct TmAppOp(u8) {
        /// A message took a tag; its data is still to come.
        CONSUMED = 0x1,
        /// The data of a message that took a tag is received.
        EXPECTED = 0x2,
        /// A message matched no tag.
        UNEXPECTED = 0x3,
        /// A message without a tag.
        NO_TAG = 0x4,
        /// A tag was appended.
        APPEND = 0x5,
        /// A tag was removed, or was gone already.
        REMOVE = 0x6,
        /// The list is unchanged.
        NOOP = 0x7,
        /// A message took a tag, and software must fetch the data.
        CONSUMED_SW_RDNV = 0x9,
        /// A message took a tag, and its data is received.
        CONSUMED_MSG = 0xa,
        /// A message took a tag, its header is received, and software must fetch the data.
        CONSUMED_MSG_SW_RDNV = 0xb,
        /// A message that took a tag ended before its data was received.
        MSG_COMPLETION_CANCELED = 0xc,
    }
}

named! {
    /// `opcode` of [`ibv_tmh`] (rdma-core `infiniband/tm_types.h`, `IBV_TMH_*`).
    pub struct TmhOp(u8) {
        /// No tag.
        NO_TAG = 0,
        /// Rendezvous: the header alone; the data is to be fetched.
        RNDV = 1,
        /// The data of a rendezvous was fetched.
        FIN = 2,
        /// Header and data.
        EAGER = 3,
    }
}

layout! {
    /// Rendezvous header, behind the tag-matching header: position of the data (rdma-core
    /// `infiniband/tm_types.h`).
    pub struct ibv_rvh[16] {
        /// Address of the data.
        pub va: U64,
        /// Key of the data.
        pub rkey: U32,
        /// Length in bytes.
        pub len: U32,
    }
}

layout! {
    /// Tag-matching header of a message (rdma-core `infiniband/tm_types.h`).
    pub struct ibv_tmh[16] {
        /// [`TmhOp`].
        pub opcode: u8,
        /// Zero.
        pub reserved: [u8; 3],
        /// User data.
        pub app_ctx: U32,
        /// Tag.
        pub tag: U64,
    }
}
