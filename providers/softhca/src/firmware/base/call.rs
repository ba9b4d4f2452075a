//! A command's input and output, and the reasons to refuse a command.

use uverbs_mlx5_prm::cmd::header::cmd_out;
use uverbs_mlx5_prm::cmd::opcode::CmdStatus;

use crate::hca::{HcaError, Noun};

/// One command.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) input: &'a [u8],
    /// Zeroed before the command runs.
    pub(crate) output: &'a mut [u8],
    pub(crate) op_mod: u16,
}

/// Reason why a command was refused. It had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: CmdStatus,
    /// Reason for the log.
    pub(crate) why: &'static str,
}

impl Refusal {
    /// Every number of this kind of object is in use.
    pub(crate) const NO_NUMBER: Self = Self::new(CmdStatus::NO_RES_ERR, "no number is left");

    pub(crate) const fn new(status: CmdStatus, why: &'static str) -> Self {
        Self { status, why }
    }

    pub(crate) const fn param(why: &'static str) -> Self {
        Self::new(CmdStatus::BAD_PARAM_ERR, why)
    }

    pub(crate) const fn resource(why: &'static str) -> Self {
        Self::new(CmdStatus::BAD_RES_ERR, why)
    }

    /// Writes the command's answer: status and syndrome, zeros behind them.
    pub(crate) fn answer(&self, output: &mut [u8]) {
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
            HcaError::Busy { .. } => Self::new(CmdStatus::RES_BUSY, "still in use"),
            HcaError::BadState { .. } => {
                Self::new(CmdStatus::BAD_QP_STATE_ERR, "not from this state")
            }
            HcaError::Limit { what, .. } => Self::new(CmdStatus::LIM_ERR, what),
            HcaError::BadParam { what, .. } => Self::param(what),
        }
    }
}
