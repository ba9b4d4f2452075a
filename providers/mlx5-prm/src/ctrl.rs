//! The control segment, the first 16 bytes of every send WQE.

use crate::{
    bits::{bits, layout},
    opcode::Opcode,
};
use zerocopy::byteorder::big_endian::{U16, U32};

/// Bytes of a WQEBB (WQE basic block), the unit of `wqe_index` and of the producer counter.
pub const MLX5_SEND_WQE_BB: usize = 64;
/// log2 of [`MLX5_SEND_WQE_BB`].
pub const MLX5_SEND_WQE_SHIFT: u32 = 6;
/// Bytes of one DS unit (octoword).
pub const DS_BYTES: usize = 16;
/// Largest `ds`: the field has 6 bits.
pub const DS_MAX: u8 = 63;
/// WQEBBs of the largest WQE.
pub const WQE_BB_MAX: usize = (DS_MAX as usize * DS_BYTES).div_ceil(MLX5_SEND_WQE_BB);

/// `fm_ce_se` value: completion for any outcome.
pub const MLX5_WQE_CTRL_CQ_UPDATE: u8 = 2 << 2;
/// `fm_ce_se` value: solicited event at the responder.
pub const MLX5_WQE_CTRL_SOLICITED: u8 = 1 << 1;
/// `fm_ce_se` value: fence after all RDMA reads and atomics, and after local operations.
pub const MLX5_WQE_CTRL_FENCE: u8 = 4 << 5;
/// `fm_ce_se` value: fence after local operations (UMR) of this queue.
pub const MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE: u8 = 1 << 5;

bits! {
    /// Word 0 of the control segment.
    pub struct OpmodIdxOpcode(u32) {
        /// Opcode modifier.
        31:24 opmod with_opmod: u8;
        /// Index of the first WQEBB, modulo 65536 for any size of the queue.
        23:8 wqe_index with_wqe_index: u16;
        /// [`Opcode`].
        7:0 opcode with_opcode: u8;
    }
}

bits! {
    /// Word 1 of the control segment.
    pub struct QpnDs(u32) {
        /// Queue the WQE was posted to.
        31:8 qpn with_qpn: u32;
        /// Length of the WQE in units of 16 bytes, control segment included.
        5:0 ds with_ds: u8;
    }
}

bits! {
    /// Fence mode, completion mode, solicited event.
    pub struct FmCeSe(u8) {
        /// Fence mode, `FmCeSe::FENCE_*`.
        7:5 fm with_fm: u8;
        /// Completion mode, `FmCeSe::CE_*`.
        3:2 ce with_ce: u8;
        /// Solicited event.
        1 se with_se;
    }
}

impl FmCeSe {
    /// `fm`: no fence.
    pub const FENCE_NONE: u8 = 0;
    /// `fm`: wait for earlier local operations.
    pub const FENCE_INITIATOR_SMALL: u8 = 1;
    /// `fm`: wait for earlier RDMA reads and atomics.
    pub const FENCE_READ_ATOMIC: u8 = 2;
    /// `fm`: strong ordering.
    pub const FENCE_STRONG_ORDERING: u8 = 3;
    /// `fm`: both 1 and 2, as `IBV_SEND_FENCE` uses it.
    pub const FENCE_SMALL_AND_FENCE: u8 = 4;

    /// `ce`: CQE only on error.
    pub const CE_ERROR: u8 = 0;
    /// `ce`: CQE only on the first error.
    pub const CE_FIRST_ERROR: u8 = 1;
    /// `ce`: CQE always.
    pub const CE_CQE: u8 = 2;
    /// `ce`: CQE and event queue entry always.
    pub const CE_CQE_AND_EQE: u8 = 3;
}

layout! {
    /// Control segment (mlx5dv.h; PRM "Control Segment").
    pub struct mlx5_wqe_ctrl_seg[16] {
        /// Modifier, index, opcode.
        pub opmod_idx_opcode: U32 as OpmodIdxOpcode,
        /// Queue number, length.
        pub qpn_ds: U32 as QpnDs,
        /// [`signature`] of the WQE on queues with signatures, otherwise ignored.
        pub signature: u8,
        /// DCI stream; zero without streams.
        pub dci_stream_channel_id: U16,
        /// Fence, completion, event.
        pub fm_ce_se: u8 as FmCeSe,
        /// Immediate data, rkey to invalidate, or mkey of a UMR.
        pub imm: U32,
    }
}

impl mlx5_wqe_ctrl_seg {
    /// Builds a control segment without signature and stream.
    #[inline]
    #[must_use]
    pub const fn new(word0: OpmodIdxOpcode, word1: QpnDs, flags: FmCeSe, imm: u32) -> Self {
        Self {
            opmod_idx_opcode: U32::new(word0.0),
            qpn_ds: U32::new(word1.0),
            signature: 0,
            dci_stream_channel_id: U16::ZERO,
            fm_ce_se: flags.0,
            imm: U32::new(imm),
        }
    }

    /// Word 0.
    #[inline]
    #[must_use]
    pub const fn word0(&self) -> OpmodIdxOpcode {
        OpmodIdxOpcode(self.opmod_idx_opcode.get())
    }

    /// Word 1.
    #[inline]
    #[must_use]
    pub const fn word1(&self) -> QpnDs {
        QpnDs(self.qpn_ds.get())
    }

    /// Flag byte.
    #[inline]
    #[must_use]
    pub const fn flags(&self) -> FmCeSe {
        FmCeSe(self.fm_ce_se)
    }

    /// Opcode.
    #[inline]
    #[must_use]
    pub const fn opcode(&self) -> Opcode {
        Opcode(self.word0().opcode())
    }
}

/// Signature of `bytes`: the complement of their exclusive or. If the signature field of a WQE is
/// set to this value, computed over a zero field, the signature of the WQE's bytes is 0.
#[must_use]
pub fn signature(bytes: &[u8]) -> u8 {
    !bytes.iter().fold(0, |sum, byte| sum ^ byte)
}
