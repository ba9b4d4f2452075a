//! The command queue: its entries, and the mailboxes behind them (Linux
//! `include/linux/mlx5/device.h` and `drivers/net/ethernet/mellanox/mlx5/core/cmd.c`).

use crate::bits::{bits, layout};
use zerocopy::byteorder::big_endian::{U32, U64};

/// `type` of an entry (cmd.c, `MLX5_PCI_CMD_XPORT`).
pub const MLX5_PCI_CMD_XPORT: u8 = 7;
/// Bytes of input or output inside an entry.
pub const INLINE_BYTES: usize = 16;
/// Bytes of data in a mailbox (Linux `MLX5_CMD_DATA_BLOCK_SIZE`).
pub const MLX5_CMD_DATA_BLOCK_SIZE: usize = 512;
/// Alignment of a mailbox: the low 9 bits of its address are reserved (PRM "Command Queue Entry").
pub const MAILBOX_ALIGN: u64 = 512;

bits! {
    /// Owner and delivery status of an entry.
    pub struct StatusOwn(u8) {
        /// Delivery status.
        7:1 status with_status: u8;
        /// The device owns the entry.
        0 own with_own;
    }
}

layout! {
    /// An entry of the command queue.
    pub struct mlx5_cmd_layout[64] {
        /// [`MLX5_PCI_CMD_XPORT`].
        pub type_: u8,
        /// Zero.
        pub rsvd0: [u8; 3],
        /// Bytes of input.
        pub inlen: U32,
        /// Bus address of the first mailbox of the input.
        pub in_ptr: U64,
        /// First bytes of the input.
        pub in_: [u8; 16],
        /// First bytes of the output.
        pub out: [u8; 16],
        /// Bus address of the first mailbox of the output.
        pub out_ptr: U64,
        /// Bytes of output.
        pub outlen: U32,
        /// Token, equal in all mailboxes of the command.
        pub token: u8,
        /// Signature, if checksums are enabled.
        pub sig: u8,
        /// Zero.
        pub rsvd1: u8,
        /// Owner and status.
        pub status_own: u8 as StatusOwn,
    }
}

layout! {
    /// A mailbox.
    pub struct mlx5_cmd_prot_block[576] {
        /// Part of the input or output.
        pub data: [u8; 512],
        /// Zero.
        pub rsvd0: [u8; 48],
        /// Bus address of the next mailbox, 0 in the last one.
        pub next: U64,
        /// Number of the mailbox, from 0.
        pub block_num: U32,
        /// Zero.
        pub rsvd1: u8,
        /// The command's token.
        pub token: u8,
        /// Signature of the fields behind the data.
        pub ctrl_sig: u8,
        /// Signature of the whole mailbox.
        pub sig: u8,
    }
}
