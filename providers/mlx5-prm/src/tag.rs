//! Tag matching: the segment that changes the list, the header that travels.

use crate::bits::{bits, layout};
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
        /// Completion wanted.
        7 cqe_req with_cqe_req;
        /// `sw_cnt` counts.
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
        /// Entry of the list.
        pub index: U16,
        /// Zero.
        pub rsvd0: [u8; 2],
        /// Unexpected messages software has handled.
        pub sw_cnt: U16,
        /// Zero.
        pub rsvd1: [u8; 8],
        /// Tag to append.
        pub append_tag: U64,
        /// Bits of the tag that are compared.
        pub append_mask: U64,
    }
}

layout! {
    /// Tag-matching header of a message (rdma-core `infiniband/tm_types.h`).
    pub struct ibv_tmh[16] {
        /// 0 no tag, 1 rendezvous, 2 end, 3 eager.
        pub opcode: u8,
        /// Zero.
        pub reserved: [u8; 3],
        /// User data.
        pub app_ctx: U32,
        /// Tag.
        pub tag: U64,
    }
}
