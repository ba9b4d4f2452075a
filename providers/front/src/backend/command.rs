//! Firmware commands that a program sends through a front (DEVX), and refusals of commands.

use uverbs_mlx5_prm::cmd::header::cmd_out;
use uverbs_mlx5_prm::cmd::mkey::mkc;
use uverbs_mlx5_prm::cmd::opcode::CmdStatus;
use uverbs_mlx5_prm::cmd::qp::{RTS2RTS_OPT_PARAM_MASK_95_32, RTS2RTS_QPC_EXT, rst2init_qp_in};

use crate::backend::error::{HcaError, Noun};
use crate::backend::steering::Wrong;

/// Access mode of a memory key that is a list of ranges (`mkc.access_mode`, KLM).
pub const KLMS: u64 = 2;
/// Bit of `opt_param_mask` for the port of bonded ports (qp.h, `MLX5_QP_OPTPAR_LAG_TX_AFF`).
pub const LAG_TX_PORT: u64 = 1 << 15;
/// Bit for a stream to reset, in the upper part of the mask
/// (`MLX5_QPC_OPT_MASK_32_DCI_STREAM_CHANNEL_ID`).
pub const DCI_STREAM_95_32: u64 = 1 << 0;

/// Access mode of a memory key context.
pub fn access_mode(mkc: &[u8]) -> u64 {
    mkc::ACCESS_MODE_4_2.get(mkc) << 2 | mkc::ACCESS_MODE_1_0.get(mkc)
}

/// True for a free key over a list of ranges without signatures, as libmlx5 creates them.
pub fn is_free_list(mkc: &[u8]) -> bool {
    access_mode(mkc) == KLMS && mkc::FREE.is_set(mkc) && !mkc::BSF_EN.is_set(mkc)
}

/// True for RTS2RTS_QP that resets a stream and changes nothing else.
pub fn is_stream_reset(input: &[u8]) -> bool {
    RTS2RTS_QPC_EXT.is_set(input)
        && rst2init_qp_in::OPT_PARAM_MASK.get(input) == 0
        && RTS2RTS_OPT_PARAM_MASK_95_32.get(input) == DCI_STREAM_95_32
}

/// Reason why a command was refused. It had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Status of the answer.
    pub status: CmdStatus,
    /// Reason for the log.
    pub why: &'static str,
}

impl Refusal {
    /// Every number of this kind of object is in use.
    pub const NO_NUMBER: Self = Self::new(CmdStatus::NO_RES_ERR, "no number is left");

    /// A refusal with a status.
    pub const fn new(status: CmdStatus, why: &'static str) -> Self {
        Self { status, why }
    }

    /// An invalid parameter.
    pub const fn param(why: &'static str) -> Self {
        Self::new(CmdStatus::BAD_PARAM_ERR, why)
    }

    /// An object that does not exist.
    pub const fn resource(why: &'static str) -> Self {
        Self::new(CmdStatus::BAD_RES_ERR, why)
    }

    /// Writes the command's answer: status and syndrome, zeros behind them.
    pub fn answer(&self, output: &mut [u8]) {
        output.fill(0);
        cmd_out::STATUS.set(output, self.status.0.into());
        cmd_out::SYNDROME.set(output, self.syndrome().into());
    }

    /// Syndrome, which the driver prints: a hash of the reason (FNV-1a), so that it is constant and
    /// can be found in the log.
    const fn syndrome(&self) -> u32 {
        let bytes = self.why.as_bytes();
        let mut hash = 0x811c_9dc5u32;
        let mut at = 0;
        while at < bytes.len() {
            hash = (hash ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
            at += 1;
        }
        hash
    }
}

impl From<HcaError> for Refusal {
    fn from(error: HcaError) -> Self {
        match error {
            HcaError::BadHandle { noun: Noun::Mkey, .. } => Self::resource("no such memory key"),
            HcaError::BadHandle { noun: Noun::Cq, .. } => {
                Self::resource("no such completion queue")
            }
            HcaError::BadHandle { noun: Noun::Qp, .. } => Self::resource("no such queue pair"),
            HcaError::BadHandle { noun: Noun::Sq | Noun::Rq, .. } => {
                Self::resource("no such queue of raw packets")
            }
            HcaError::BadHandle { noun: Noun::Srq, .. } => {
                Self::resource("no such shared receive queue")
            }
            HcaError::BadHandle { noun: Noun::Dct, .. } => {
                Self::resource("no such target of dynamic connections")
            }
            HcaError::BadHandle { noun: Noun::PageFault, .. } => {
                Self::resource("no such page fault is open")
            }
            HcaError::DctState { .. } => {
                Self::new(CmdStatus::BAD_RES_STATE_ERR, "not for a target in this state")
            }
            HcaError::ObjectState { .. } => {
                Self::new(CmdStatus::BAD_RES_STATE_ERR, "not in this state of the object")
            }
            HcaError::Busy { .. } => Self::new(CmdStatus::RES_BUSY, "still in use"),
            HcaError::BadState { .. } => {
                Self::new(CmdStatus::BAD_QP_STATE_ERR, "not from this state")
            }
            HcaError::Limit { what, .. } => Self::new(CmdStatus::LIM_ERR, what),
            HcaError::BadParam { what, .. } => Self::param(what),
            HcaError::Unsupported { what } => Self::new(CmdStatus::BAD_OP_ERR, what),
            HcaError::System { .. } => Self::new(CmdStatus::INT_ERR, "a call of the system failed"),
            HcaError::Dead => Self::new(CmdStatus::INT_ERR, "the device failed"),
        }
    }
}

impl From<Wrong> for Refusal {
    fn from(wrong: Wrong) -> Self {
        match wrong {
            Wrong::Missing(why) => Self::resource(why),
            Wrong::Param(why) => Self::param(why),
            Wrong::Busy(why) => Self::new(CmdStatus::RES_BUSY, why),
            Wrong::Limit(why) => Self::new(CmdStatus::LIM_ERR, why),
            Wrong::Device(error) => error.into(),
        }
    }
}
