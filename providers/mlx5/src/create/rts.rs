//! Changes of a queue pair in RTS and in INIT that have no verbs attribute (PRM "RTS2RTS_QP",
//! "INIT2INIT_QP").
//!
//! # Safety
//!
//! Commands contain numbers only.
#![allow(unsafe_code, reason = "sends a command")]

use uverbs_core::attr::QpState;
use uverbs_core::error::Error;
use uverbs_core::objects::qp::QpCore;
use uverbs_mlx5_prm::cmd::caps::RTS2RTS_QP_UDP_SPORT;
use uverbs_mlx5_prm::cmd::header;
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::qp::{
    RTS2RTS_BYTES, RTS2RTS_OPT_PARAM_MASK_95_32, ads, qpc, rst2init_qp_in,
};

use crate::{Context, devx};

/// Bit of `opt_param_mask_95_32` for the UDP port (rdma-core `mlx5_ifc.h`,
/// `MLX5_QPC_OPT_MASK_32_UDP_SPORT`).
const UDP_SPORT: u64 = 1 << 2;
/// Size of the response in bytes.
const ANSWER: usize = 16;

/// RTS2RTS_QP, and the state that it applies to.
pub(crate) const IN_RTS: (CmdOpcode, QpState) = (CmdOpcode::RTS2RTS_QP, QpState::ReadyToSend);

/// Sends a command that applies to a state. `fill` writes the fields to change.
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
    // SAFETY: the caller's queue pair; the command contains numbers only.
    let sent = unsafe { devx::modify(uverbs, qp.handle(), &request, &mut answer) };
    sent.map_err(|error| Error::kernel(verb, devx::told(error.to_errno(), &answer)))
}

impl Context {
    /// Sets the UDP source port of a queue pair's packets (RoCE v2), so that the network treats
    /// them as another flow.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the device can't change it; [`Error::State`] unless in RTS.
    #[doc(alias = "mlx5dv_modify_qp_udp_sport")]
    pub fn set_udp_port(&self, qp: &QpCore, port: u16) -> Result<(), Error> {
        const VERB: &str = "modify_qp_udp_sport";
        if !self.general_caps().is_ok_and(|list| RTS2RTS_QP_UDP_SPORT.is_set(&list)) {
            let what = "changing the UDP port of a queue pair in RTS".to_owned();
            return Err(Error::Unsupported { verb: VERB, what });
        }
        change(VERB, qp, IN_RTS, |request| {
            RTS2RTS_OPT_PARAM_MASK_95_32.set(request, UDP_SPORT);
            let context = rst2init_qp_in::QPC.of_mut(request);
            ads::UDP_SPORT.set(qpc::PRIMARY_ADDRESS_PATH.of_mut(context), port.into());
        })
    }
}
