//! DEVX (`hw/mlx5/devx.c`): commands that a program sends past the verbs.
//!
//! General ones (`UVERBS_HANDLER(MLX5_IB_METHOD_DEVX_OTHER)`): providers ask for capabilities in
//! this way when they open a device. And objects (`MLX5_IB_METHOD_DEVX_OBJ_CREATE`), of which there
//! is one here: libmlx5's indirect key.

use nix::errno::Errno;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT,
    MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, MLX5_IB_ATTR_DEVX_OTHER_CMD_IN,
    MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT,
};
use uverbs_mlx5_prm::cmd::header;
use uverbs_mlx5_prm::cmd::mkey::{create_mkey_in, create_mkey_out, mkc};
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};

use crate::hca::number::{Pdn, Qpn};
use crate::hca::{ANY_QPN, Indirect, MkeyContext};
use crate::kernel::call::Call;
use crate::kernel::state::objects::{Mw, Object};

/// Bytes of `general_obj_in_cmd_hdr` and of `general_obj_out_cmd_hdr` (PRM 12.1).
pub(crate) const HEADER: usize = 16;

/// `MLX5_CMD_OP_QUERY_HCA_CAP`.
const QUERY_HCA_CAP: u16 = 0x100;

/// DEVX.OTHER: QUERY_HCA_CAP says that no optional capability is there; the kernel refuses commands
/// that are not general ones, and so are all others refused here.
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

/// Bytes of CREATE_MKEY up to the end of the key's context, which the kernel looks into
/// (`devx_handle_mkey_create`).
const SHORTEST: usize = 16 + mkc::SIZE;
/// `MLX5_MKC_ACCESS_MODE_KLMS`.
const KLMS: u64 = 2;

/// DEVX_OBJ.CREATE: CREATE_MKEY of a free key that work requests give its parts. The kernel hands a
/// program's command on, and says `EREMOTEIO` with the device's answer if that refuses
/// (`mlx5_cmd_do`); commands that make no object it refuses itself.
pub(crate) fn create(call: &mut Call<'_>) -> Result<(), Errno> {
    match call.file.context {
        Some(context) if context.devx => {}
        _ => return Err(Errno::EINVAL),
    }
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

/// Makes the key, and gives its index.
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
