//! DEVX (`hw/mlx5/devx.c`): firmware commands that a program sends past the verbs.
//!
//! - General commands (`UVERBS_HANDLER(MLX5_IB_METHOD_DEVX_OTHER)`): providers query capabilities
//!   when they open a device.
//! - Creation of objects (`MLX5_IB_METHOD_DEVX_OBJ_CREATE`): only libmlx5's indirect key is
//!   supported.
//! - Changes of objects (`MLX5_IB_METHOD_DEVX_OBJ_MODIFY`): only the reset of a DC initiator's
//!   stream is supported.

use nix::errno::Errno;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT,
    MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN,
    MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE,
    MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT,
};
use uverbs_mlx5_prm::cmd::caps::cmd_hca_cap;
use uverbs_mlx5_prm::cmd::hca::query_hca_cap_out;
use uverbs_mlx5_prm::cmd::header;
use uverbs_mlx5_prm::cmd::mkey::{create_mkey_in, create_mkey_out, mkc};
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::qp::{
    RTS2RTS_DCI_STREAM_CHANNEL_ID, RTS2RTS_OPT_PARAM_MASK_95_32, RTS2RTS_QPC_EXT, rst2init_qp_in,
};

use crate::board::profile::tell_copies;
use crate::hca::number::{Pdn, Qpn};
use crate::hca::{ANY_QPN, Indirect, MkeyContext};
use crate::kernel::call::Call;
use crate::kernel::state::objects::{Mw, Object};

/// Bytes of `general_obj_in_cmd_hdr` and of `general_obj_out_cmd_hdr` (PRM 12.1).
pub(crate) const HEADER: usize = 16;

/// Shift of the capability type in `op_mod` of QUERY_HCA_CAP (bit 0: current values).
const KIND_SHIFT: u64 = 1;

/// Refuses a client that did not open the device for DEVX (`devx_get_uid`).
fn check_devx(call: &Call<'_>) -> Result<(), Errno> {
    match call.file.context {
        Some(context) if context.devx => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// DEVX.OTHER: QUERY_HCA_CAP only. Its optional capabilities are extensions of the QP context, and
/// memory copies. The kernel refuses commands that are not general ones; this device refuses all
/// other commands, too.
pub(crate) fn other(call: &mut Call<'_>) -> Result<(), Errno> {
    check_devx(call)?;
    let command = call.bytes(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN)?.ok_or(Errno::ENOENT)?;
    if header::cmd_in::OPCODE.get(&command) != u64::from(CmdOpcode::QUERY_HCA_CAP.0) {
        return Err(Errno::EINVAL);
    }
    // Status 0, syndrome 0, and zeros behind them.
    let mut answer = vec![0; call.len(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT)];
    if header::cmd_in::OP_MOD.get(&command) >> KIND_SHIFT == 0 {
        let general = query_hca_cap_out::CAPABILITY.of_mut(&mut answer);
        cmd_hca_cap::QPC_EXTENSION.set(general, 1);
        tell_copies(general, call.device.hca.config());
    }
    call.output_bytes(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, &answer)
}

/// Bytes of CREATE_MKEY up to the end of the key's context, which the kernel reads
/// (`devx_handle_mkey_create`).
const SHORTEST: usize = 16 + mkc::SIZE;
/// `MLX5_MKC_ACCESS_MODE_KLMS`.
const KLMS: u64 = 2;

/// DEVX_OBJ.CREATE: CREATE_MKEY of a free indirect key, to which work requests give parts. The
/// kernel passes the program's command on. If the device refuses it, the kernel returns `EREMOTEIO`
/// with the device's answer (`mlx5_cmd_do`). The kernel itself refuses commands that create no
/// object.
pub(crate) fn create(call: &mut Call<'_>) -> Result<(), Errno> {
    check_devx(call)?;
    let mut command = call.bytes(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN)?.ok_or(Errno::ENOENT)?;
    let opcode = header::cmd_in::OPCODE.get(&command);
    if opcode != u64::from(CmdOpcode::CREATE_MKEY.0) || command.len() < SHORTEST {
        return Err(Errno::EINVAL);
    }
    command.resize(command.len().max(create_mkey_in::SIZE), 0);
    let made = create_mkey(call, create_mkey_in::MEMORY_KEY_MKEY_ENTRY.of(&command));
    let room = call.len(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT);
    let mut answer = vec![0; room.max(create_mkey_out::SIZE)];
    match made {
        Ok(index) => create_mkey_out::MKEY_INDEX.set(&mut answer, index.into()),
        Err(status) => header::cmd_out::STATUS.set(&mut answer, status.0.into()),
    }
    call.output_bytes(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, &answer[..room])?;
    made.map(drop).map_err(|_| Errno::EREMOTEIO)
}

/// Creates the key. Returns its index.
fn create_mkey(call: &mut Call<'_>, context: &[u8]) -> Result<u32, CmdStatus> {
    let mode = mkc::ACCESS_MODE_4_2.get(context) << 2 | mkc::ACCESS_MODE_1_0.get(context);
    if mode != KLMS || !mkc::FREE.is_set(context) || mkc::BSF_EN.is_set(context) {
        return Err(CmdStatus::BAD_PARAM_ERR);
    }
    let (pdn, qpn) = (mkc::PD.get32(context), mkc::QPN.get32(context));
    let pd = call.file.objects.pd_of(pdn).ok_or(CmdStatus::BAD_RES_ERR)?;
    let made = MkeyContext {
        pd: Pdn(pdn),
        free: true,
        umr: mkc::UMR_EN.is_set(context),
        remote_invalidate: mkc::EN_RINVAL.is_set(context),
        qpn: (qpn != ANY_QPN).then_some(Qpn(qpn)),
        indirect: Some(Indirect::default()),
        octowords: mkc::TRANSLATIONS_OCTWORD_SIZE.get32(context),
        ..MkeyContext::default()
    };
    let variant = mkc::MKEY_7_0.get(context) as u8;
    let key = call.device.hca.create_mkey_variant(made, variant);
    let key = key.map_err(|_| CmdStatus::NO_RES_ERR)?;
    let handle = call.object(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE).unwrap_or_default();
    call.file.objects.hold(pd);
    call.put_object(handle, Object::Mw(Mw { pd, key }));
    Ok(key.index())
}

/// Bit of a stream reset in `opt_param_mask_95_32` (rdma-core `mlx5_ifc.h`,
/// `MLX5_QPC_OPT_MASK_32_DCI_STREAM_CHANNEL_ID`).
const DCI_STREAM: u64 = 1 << 0;

/// DEVX_OBJ.MODIFY: RTS2RTS_QP of the queue pair that the handle names (`devx_is_obj_modify_cmd`,
/// `devx_is_valid_obj_id`). The kernel passes the command on; the device's errors are returned as
/// by [`create`].
pub(crate) fn modify(call: &mut Call<'_>) -> Result<(), Errno> {
    check_devx(call)?;
    let command = call.bytes(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN)?.ok_or(Errno::ENOENT)?;
    let handle = call.object(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE).unwrap_or_default();
    let opcode = header::cmd_in::OPCODE.get(&command);
    let qpn = call.file.objects.qp(handle).map_err(|_| Errno::EINVAL)?.qpn;
    if opcode != u64::from(CmdOpcode::RTS2RTS_QP.0) || rst2init_qp_in::QPN.get32(&command) != qpn.0
    {
        return Err(Errno::EINVAL);
    }
    let done = reset_stream(call, qpn, &command);
    let mut answer = vec![0; call.len(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT)];
    if let Err(status) = done {
        header::cmd_out::STATUS.set(&mut answer, status.0.into());
    }
    call.output_bytes(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, &answer)?;
    done.map_err(|_| Errno::EREMOTEIO)
}

/// Resets a stream, the only change that this command supports here.
fn reset_stream(call: &mut Call<'_>, qpn: Qpn, command: &[u8]) -> Result<(), CmdStatus> {
    let named = rst2init_qp_in::OPT_PARAM_MASK.get(command);
    let more = RTS2RTS_OPT_PARAM_MASK_95_32.get(command);
    if !RTS2RTS_QPC_EXT.is_set(command) || (named, more) != (0, DCI_STREAM) {
        return Err(CmdStatus::BAD_PARAM_ERR);
    }
    let stream = RTS2RTS_DCI_STREAM_CHANNEL_ID.get(command) as u16;
    call.device.hca.reset_stream(qpn, stream).map_err(|_| CmdStatus::BAD_PARAM_ERR)
}
