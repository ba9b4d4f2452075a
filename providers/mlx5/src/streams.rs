//! Streams of an initiator of dynamic connections: how many a device has, and how one goes on that
//! an error stopped (rdma-core `mlx5.c:mlx5dv_dci_stream_id_reset`).
//!
//! # Safety
//!
//! What is sent are numbers.
#![allow(unsafe_code, reason = "sends a command")]

use uverbs_core::attr::{DciStreams, QpState};
use uverbs_core::errno::Errno;
use uverbs_core::error::Error;
use uverbs_core::objects::qp::QpCore;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT,
    MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, MLX5_IB_METHOD_DEVX_OBJ_MODIFY, MLX5_IB_OBJECT_DEVX_OBJ,
    mlx5_ib_dci_streams_caps, mlx5_ib_query_device_resp,
};
use uverbs_mlx5_prm::cmd::header;
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::qp::{
    RTS2RTS_BYTES, RTS2RTS_DCI_STREAM_CHANNEL_ID, RTS2RTS_OPT_PARAM_MASK_95_32, RTS2RTS_QPC_EXT,
    rst2init_qp_in,
};
use zerocopy::IntoBytes;

use crate::Context;

const VERB: &str = "dci_stream_id_reset";
/// The stream, in `opt_param_mask_95_32` (rdma-core `mlx5_ifc.h`,
/// `MLX5_QPC_OPT_MASK_32_DCI_STREAM_CHANNEL_ID`).
const DCI_STREAM: u64 = 1 << 0;
/// Bytes of the answer (PRM "RTS2RTS_QP").
const ANSWER: usize = 16;

impl Context {
    /// Refuses more streams than the device has. It is asked once, and of an initiator with streams
    /// alone.
    pub(crate) fn check_streams(&self, asked: DciStreams) -> Result<(), Error> {
        let most = self.most_streams()?;
        if most.max_log_num_concurent == 0 {
            let what = "streams of dynamic connections".to_owned();
            return Err(Error::Unsupported { verb: "create_qp", what });
        }
        for (what, value, limit) in [
            ("log_concurrent", asked.log_concurrent, most.max_log_num_concurent),
            ("log_errored", asked.log_errored, most.max_log_num_errored),
        ] {
            Error::limit("create_qp", what, value.into(), limit.into())?;
        }
        Ok(())
    }

    /// The driver's part of QUERY_DEVICE.
    fn most_streams(&self) -> Result<mlx5_ib_dci_streams_caps, Error> {
        if let Some(most) = self.streams.get() {
            return Ok(*most);
        }
        let mut answer = mlx5_ib_query_device_resp::default();
        self.core.uverbs().query_device_ex(answer.as_mut_bytes())?;
        // A kernel without them leaves zeros.
        Ok(*self.streams.get_or_init(|| answer.dci_streams_caps))
    }
}

/// Lets a stream go on that an error stopped.
///
/// # Errors
///
/// [`Error::State`] unless in RTS; the kernel's refusal, and the device's as `EINVAL`.
#[doc(alias = "mlx5dv_dci_stream_id_reset")]
pub fn reset_stream(initiator: &QpCore, stream: u16) -> Result<(), Error> {
    let (state, needs) = (initiator.state(), QpState::ReadyToSend);
    if state != needs {
        return Err(Error::State { verb: VERB, state, needs });
    }
    let mut request = [0; RTS2RTS_BYTES];
    header::cmd_in::OPCODE.set(&mut request, CmdOpcode::RTS2RTS_QP.0.into());
    for (field, value) in [
        (rst2init_qp_in::QPN, initiator.qpn().into()),
        (RTS2RTS_QPC_EXT, 1),
        (RTS2RTS_OPT_PARAM_MASK_95_32, DCI_STREAM),
        (RTS2RTS_DCI_STREAM_CHANNEL_ID, stream.into()),
    ] {
        field.set(&mut request, value);
    }
    let mut answer = [0; ANSWER];
    let uverbs = initiator.pd().context().uverbs();
    let command = uverbs
        .command(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY)
        .handle_in(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, initiator.handle())
        .input(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, &request)
        .output(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, &mut answer);
    // SAFETY: the command holds numbers.
    let sent = unsafe { command.send(&**uverbs.door(), VERB) };
    match sent {
        // The device's own word (rdma-core `mlx5.c:mlx5_get_cmd_status_err`).
        Err(Error::Kernel { errno: Errno::EREMOTEIO, .. }) => {
            let errno = match CmdStatus(header::cmd_out::STATUS.get(&answer) as u8) {
                CmdStatus::INT_ERR | CmdStatus::BAD_SYS_STATE_ERR => Errno::EIO,
                _ => Errno::EINVAL,
            };
            Err(Error::kernel(VERB, errno))
        }
        sent => sent.map(drop),
    }
}
