//! DEVX general commands (`UVERBS_HANDLER(MLX5_IB_METHOD_DEVX_OTHER)` in `hw/mlx5/devx.c`): providers ask for
//! capabilities in this way when they open a device.

use nix::errno::Errno;
use uverbs_kernel_abi::mlx5::{MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT};

use crate::kernel::call::Call;

/// Bytes of `general_obj_in_cmd_hdr` and of `general_obj_out_cmd_hdr` (PRM 12.1).
pub(crate) const HEADER: usize = 16;

/// `MLX5_CMD_OP_QUERY_HCA_CAP`.
const QUERY_HCA_CAP: u16 = 0x100;

/// DEVX.OTHER: QUERY_HCA_CAP says that no optional capability is there; the kernel refuses commands that are not
/// general ones, and so are all others refused here.
pub(crate) fn other(call: &mut Call<'_>) -> Result<(), Errno> {
    match call.file.context {
        Some(context) if context.devx => {}
        _ => return Err(Errno::EINVAL),
    }
    let command = call.bytes(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN)?.ok_or(Errno::ENOENT)?;
    let opcode = match command.as_slice() {
        [high, low, ..] => u16::from_be_bytes([*high, *low]),
        _ => return Err(Errno::EINVAL),
    };
    if opcode != QUERY_HCA_CAP {
        return Err(Errno::EINVAL);
    }
    // Status 0, syndrome 0, and nothing but zeros behind them.
    let answer = vec![0; call.len(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT)];
    call.output_bytes(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, &answer)
}
