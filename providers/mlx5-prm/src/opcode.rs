//! Send opcodes: the low byte of a control segment, and of `sop_drop_qpn` in the CQE.

use crate::bits::named;

named! {
    /// Operation of a send WQE (mlx5dv.h, `MLX5_OPCODE_*`).
    pub struct Opcode(u8) {
        /// No operation; completes in order.
        NOP = 0x00,
        /// Send, and invalidate an rkey at the responder; `imm` is the rkey.
        SEND_INVAL = 0x01,
        /// RDMA write.
        RDMA_WRITE = 0x08,
        /// RDMA write that consumes a receive; `imm` is the immediate data.
        RDMA_WRITE_IMM = 0x09,
        /// Send.
        SEND = 0x0a,
        /// Send with immediate data.
        SEND_IMM = 0x0b,
        /// Segmented Ethernet send.
        TSO = 0x0e,
        /// RDMA read.
        RDMA_READ = 0x10,
        /// Compare and swap, 8 bytes.
        ATOMIC_CS = 0x11,
        /// Fetch and add, 8 bytes.
        ATOMIC_FA = 0x12,
        /// Masked compare and swap.
        ATOMIC_MASKED_CS = 0x14,
        /// Masked fetch and add.
        ATOMIC_MASKED_FA = 0x15,
        /// Fast memory registration (older devices).
        FMR = 0x19,
        /// Local invalidation (older devices; newer ones use UMR).
        LOCAL_INVAL = 0x1b,
        /// Configuration command.
        CONFIG_CMD = 0x1f,
        /// Sets a protection signature value.
        SET_PSV = 0x20,
        /// User-mode memory registration; `imm` is the mkey.
        UMR = 0x25,
        /// Changes the tag-matching list of an SRQ.
        TAG_MATCHING = 0x28,
        /// Steering table update.
        FLOW_TBL_ACCESS = 0x2c,
        /// Memory-to-memory offload, selected by the opcode modifier.
        MMO = 0x2f,
    }
}

impl Opcode {
    /// True if the WQE goes to a peer, and so has its transport's address (address vector, XRC SRQ
    /// number, Ethernet segment).
    #[inline]
    #[must_use]
    pub const fn leaves_the_host(self) -> bool {
        matches!(
            self,
            Self::SEND_INVAL
                | Self::RDMA_WRITE
                | Self::RDMA_WRITE_IMM
                | Self::SEND
                | Self::SEND_IMM
                | Self::TSO
                | Self::RDMA_READ
                | Self::ATOMIC_CS
                | Self::ATOMIC_FA
                | Self::ATOMIC_MASKED_CS
                | Self::ATOMIC_MASKED_FA
        )
    }

    /// True if a remote address segment follows.
    #[inline]
    #[must_use]
    pub const fn has_raddr(self) -> bool {
        matches!(self, Self::RDMA_WRITE | Self::RDMA_WRITE_IMM | Self::RDMA_READ)
            || self.is_atomic()
    }

    /// True if an atomic segment follows the remote address segment.
    #[inline]
    #[must_use]
    pub const fn is_atomic(self) -> bool {
        matches!(
            self,
            Self::ATOMIC_CS | Self::ATOMIC_FA | Self::ATOMIC_MASKED_CS | Self::ATOMIC_MASKED_FA
        )
    }
}

/// Opcode modifier of [`Opcode::MMO`] that copies memory (rdma-core wqe.h).
pub const MLX5_OPC_MOD_MMO_DMA: u8 = 0x1;
