//! Changes of a queue pair in RTS, and in INIT, that the verbs have no attribute for (PRM
//! "RTS2RTS_QP", "INIT2INIT_QP").
//!
//! # Safety
//!
//! What is sent are numbers.
#![allow(unsafe_code, reason = "sends a command")]

use uverbs_core::attr::QpState;
use uverbs_core::errno::Errno;
use uverbs_core::error::Error;
use uverbs_core::objects::qp::QpCore;
use uverbs_mlx5_prm::cmd::caps::RTS2RTS_QP_UDP_SPORT;
use uverbs_mlx5_prm::cmd::header;
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::qp::{
    RTS2RTS_BYTES, RTS2RTS_OPT_PARAM_MASK_95_32, ads, qpc, rst2init_qp_in,
};

use crate::{Context, devx};

/// The UDP port, in `opt_param_mask_95_32` (rdma-core `mlx5_ifc.h`,
/// `MLX5_QPC_OPT_MASK_32_UDP_SPORT`).
const UDP_SPORT: u64 = 1 << 2;
/// Bytes of the answer.
const ANSWER: usize = 16;

/// RTS2RTS_QP, and the state that it is for.
pub(crate) const IN_RTS: (CmdOpcode, QpState) = (CmdOpcode::RTS2RTS_QP, QpState::ReadyToSend);

/// Sends this command, which is for this state, and of which `fill` writes what is to change.
pub(crate) fn change(
    verb: &'static str,
    qp: &QpCore,
    (opcode, needs): (CmdOpcode, QpState),
    fill: impl FnOnce(&mut [u8]),
) -> Result<(), Error> {
    let state = qp.state();
    if state != needs {
        return Err(Error::State { verb, state, needs });
    }
    let (mut request, mut answer) = ([0; RTS2RTS_BYTES], [0; ANSWER]);
    header::cmd_in::OPCODE.set(&mut request, opcode.0.into());
    rst2init_qp_in::QPN.set(&mut request, qp.qpn().into());
    fill(&mut request);
    let uverbs = qp.pd().context().uverbs();
    // SAFETY: its own queue pair; the command holds numbers.
    let sent = unsafe { devx::modify(uverbs, qp.handle(), &request, &mut answer) };
    sent.map_err(|error| Error::kernel(verb, told(error.to_errno(), &answer)))
}

/// The errno of the device's status, where the device refused (rdma-core `mlx5.c`,
/// `mlx5_get_cmd_status_err`).
pub(crate) fn told(errno: Errno, answer: &[u8]) -> Errno {
    if errno != Errno::EREMOTEIO {
        return errno;
    }
    match CmdStatus(header::cmd_out::STATUS.get(answer) as u8) {
        CmdStatus::INT_ERR | CmdStatus::BAD_SYS_STATE_ERR => Errno::EIO,
        _ => Errno::EINVAL,
    }
}

impl Context {
    /// Has a queue pair send from this UDP port on, in RoCE v2: the network takes its packets for
    /// another flow.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] of a device that can't; [`Error::State`] unless in RTS.
    #[doc(alias = "mlx5dv_modify_qp_udp_sport")]
    pub fn set_udp_port(&self, qp: &QpCore, port: u16) -> Result<(), Error> {
        const VERB: &str = "modify_qp_udp_sport";
        if !self.general_caps().is_ok_and(|list| RTS2RTS_QP_UDP_SPORT.is_set(&list)) {
            let what = "another UDP port of a queue pair in RTS".to_owned();
            return Err(Error::Unsupported { verb: VERB, what });
        }
        change(VERB, qp, IN_RTS, |request| {
            RTS2RTS_OPT_PARAM_MASK_95_32.set(request, UDP_SPORT);
            let context = rst2init_qp_in::QPC.of_mut(request);
            ads::UDP_SPORT.set(qpc::PRIMARY_ADDRESS_PATH.of_mut(context), port.into());
        })
    }
}
