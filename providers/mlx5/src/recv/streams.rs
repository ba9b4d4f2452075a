//! Streams of a DC initiator: limits of the device, and the reset of a stream that an error stopped
//! (rdma-core `mlx5.c:mlx5dv_dci_stream_id_reset`).

use uverbs_core::attr::DciStreams;
use uverbs_core::error::Error;
use uverbs_core::objects::qp::QpCore;
use uverbs_mlx5_prm::cmd::qp::{
    RTS2RTS_DCI_STREAM_CHANNEL_ID, RTS2RTS_OPT_PARAM_MASK_95_32, RTS2RTS_QPC_EXT,
};

use crate::Context;
use crate::create::rts::{IN_RTS, change};

const VERB: &str = "dci_stream_id_reset";
/// Bit of `opt_param_mask_95_32` for the stream (rdma-core `mlx5_ifc.h`,
/// `MLX5_QPC_OPT_MASK_32_DCI_STREAM_CHANNEL_ID`).
const DCI_STREAM: u64 = 1 << 0;

impl Context {
    /// Rejects more streams than the device has. The device is queried once, and only for an
    /// initiator with streams.
    pub(crate) fn check_streams(&self, asked: DciStreams) -> Result<(), Error> {
        // Kernels without streams leave zeros.
        let most = self.driver_caps()?.dci_streams_caps;
        if most.max_log_num_concurent == 0 {
            let what = "streams of DC initiators".to_owned();
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
}

/// Resets a stream that an error stopped.
///
/// # Errors
///
/// [`Error::State`] unless in RTS; the kernel's refusal, and the device's as `EINVAL`.
#[doc(alias = "mlx5dv_dci_stream_id_reset")]
pub fn reset_stream(initiator: &QpCore, stream: u16) -> Result<(), Error> {
    change(VERB, initiator, IN_RTS, |request| {
        for (field, value) in [
            (RTS2RTS_QPC_EXT, 1),
            (RTS2RTS_OPT_PARAM_MASK_95_32, DCI_STREAM),
            (RTS2RTS_DCI_STREAM_CHANNEL_ID, stream.into()),
        ] {
            field.set(request, value);
        }
    })
}
