//! Segments of operations inside the device: signature values, memory copies, steering updates.

use crate::bits::layout;
use crate::ctrl::mlx5_wqe_ctrl_seg;
use crate::data::mlx5_wqe_data_seg;
use zerocopy::byteorder::big_endian::{U16, U32, U64};

layout! {
    /// Sets a protection signature value (rdma-core wqe.h).
    pub struct mlx5_wqe_set_psv_seg[16] {
        /// Number of the signature value.
        pub psv_index: U32,
        /// Error state; 0 clears it.
        pub syndrome: U16,
        /// Zero.
        pub reserved: [u8; 2],
        /// Initial value.
        pub transient_signature: U64,
    }
}

layout! {
    /// First segment of a memory copy (rdma-core wqe.h).
    pub struct mlx5_mmo_metadata_seg[16] {
        /// Control bits.
        pub mmo_control_31_0: U32,
        /// Key of the opaque buffer.
        pub local_key: U32,
        /// Address of the opaque buffer.
        pub local_address: U64,
    }
}

layout! {
    /// A whole memory copy WQE (rdma-core wqe.h).
    pub struct mlx5_mmo_wqe[64] {
        /// Control segment, [`crate::opcode::Opcode::MMO`].
        pub ctrl: mlx5_wqe_ctrl_seg,
        /// Control of the copy.
        pub mmo_meta: mlx5_mmo_metadata_seg,
        /// Source.
        pub src: mlx5_wqe_data_seg,
        /// Destination.
        pub dest: mlx5_wqe_data_seg,
    }
}

layout! {
    /// Head of a steering update (rdma-core wqe.h).
    pub struct mlx5_wqe_flow_update_ctrl_seg[48] {
        /// Entry to change.
        pub flow_idx_update: U32,
        /// New destination of the entry.
        pub dest_handle: U32,
        /// Zero.
        pub reserved0: [u8; 40],
    }
}

layout! {
    /// Arguments of a header modification (rdma-core wqe.h).
    pub struct mlx5_wqe_header_modify_argument_update_seg[64] {
        /// The arguments.
        pub argument_list: [u8; 64],
    }
}
