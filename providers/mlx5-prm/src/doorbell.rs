//! Doorbell records in memory, and doorbells on a UAR page.

use crate::bits::{bits, layout};
use zerocopy::byteorder::big_endian::U32;

/// Word of a queue's doorbell record: receive counter.
pub const MLX5_RCV_DBR: usize = 0;
/// Word of a queue's doorbell record: send counter.
pub const MLX5_SND_DBR: usize = 1;
/// Word of a CQ's doorbell record: consumer index (rdma-core mlx5.h).
pub const MLX5_CQ_SET_CI: usize = 0;
/// Word of a CQ's doorbell record: arm request (rdma-core mlx5.h).
pub const MLX5_CQ_ARM_DB: usize = 1;
/// Bytes of a doorbell record.
pub const DOORBELL_RECORD: usize = 8;

/// Mask of a CQ's consumer index.
pub const CI_MASK: u32 = 0x00ff_ffff;
/// Mask of a WQE counter.
pub const WQE_COUNTER_MASK: u32 = 0xffff;
/// Mask of an object number (QPN, CQN, SRQN).
pub const NUMBER_MASK: u32 = 0x00ff_ffff;

/// Offset of the CQ doorbell on a UAR page.
pub const MLX5_CQ_DOORBELL: usize = 0x20;
/// Offset of the EQ doorbell that arms (Linux `drivers/net/ethernet/mellanox/mlx5/core/eq.c`).
pub const EQ_DOORBELL_ARM: usize = 0x40;
/// Offset of the EQ doorbell that only moves the consumer index (same file, `eq_update_ci`).
pub const EQ_DOORBELL_CI: usize = 0x48;
/// Offset of the first BlueFlame register on a UAR page (rdma-core mlx5.h).
pub const MLX5_BF_OFFSET: usize = 0x800;
/// BlueFlame registers of one UAR page (Linux `MLX5_BFREGS_PER_UAR`).
pub const BFREGS_PER_UAR: usize = 4;
/// BlueFlame registers of a page for user queues; the others are for the kernel's fast path (Linux
/// `MLX5_NON_FP_BFREGS_PER_UAR`).
pub const NON_FP_BFREGS_PER_UAR: usize = 2;
/// Bytes of a UAR page, for any page size of the host (rdma-core `MLX5_ADAPTER_PAGE_SIZE`).
pub const MLX5_ADAPTER_PAGE_SIZE: usize = 4096;
/// log2 of [`MLX5_ADAPTER_PAGE_SIZE`].
pub const MLX5_ADAPTER_PAGE_SHIFT: u32 = 12;

/// CQ arm command: event for the next CQE that is solicited or an error.
pub const MLX5_CQ_DB_REQ_NOT_SOL: u32 = 1 << 24;
/// CQ arm command: event for the next CQE.
pub const MLX5_CQ_DB_REQ_NOT: u32 = 0 << 24;

/// Offset on the UAR page of BlueFlame register `n`, with `bf_reg_size` bytes each (from the
/// context). A register has two halves, used in turn: see [`bf_toggle`].
#[inline]
#[must_use]
pub const fn bfreg_offset(n: usize, bf_reg_size: usize) -> usize {
    MLX5_BF_OFFSET + n * bf_reg_size
}

/// Offset of the other half of a BlueFlame register. The halves alternate, so that stores of
/// successive WQEs are not combined.
#[inline]
#[must_use]
pub const fn bf_toggle(offset: usize, bf_reg_size: usize) -> usize {
    offset ^ (bf_reg_size / 2)
}

bits! {
    /// Arm word of a CQ, in its record and as the first word of its doorbell.
    pub struct CqArm(u32) {
        /// Arm sequence number, incremented after each event.
        29:28 sn with_sn: u8;
        /// Only a solicited or failed completion raises the event.
        24 solicited with_solicited;
        /// Consumer index.
        23:0 ci with_ci: u32;
    }
}

bits! {
    /// Doorbell of an event queue.
    pub struct EqDoorbell(u32) {
        /// Event queue.
        31:24 eqn with_eqn: u8;
        /// Consumer index.
        23:0 ci with_ci: u32;
    }
}

layout! {
    /// Doorbell of a CQ, written as one 8-byte store at [`MLX5_CQ_DOORBELL`].
    pub struct mlx5_cq_doorbell[8] {
        /// Arm word.
        pub arm: U32 as CqArm,
        /// CQ number.
        pub cqn: U32,
    }
}

impl mlx5_cq_doorbell {
    /// Builds the doorbell of CQ `cqn`.
    #[inline]
    #[must_use]
    pub const fn new(arm: CqArm, cqn: u32) -> Self {
        Self { arm: U32::new(arm.0), cqn: U32::new(cqn) }
    }

    /// Arm word.
    #[inline]
    #[must_use]
    pub const fn arm(&self) -> CqArm {
        CqArm(self.arm.get())
    }
}

layout! {
    /// Doorbell record of a QP, an RQ or an SRQ (which uses `rcv` only).
    pub struct mlx5_qp_dbr[8] {
        /// Receive WQEs posted, low 16 bits.
        pub rcv: U32,
        /// Send WQEBBs posted, low 16 bits.
        pub snd: U32,
    }
}

layout! {
    /// Doorbell record of a CQ.
    pub struct mlx5_cq_dbr[8] {
        /// Consumer index, low 24 bits.
        pub set_ci: U32,
        /// Arm word.
        pub arm: U32 as CqArm,
    }
}
