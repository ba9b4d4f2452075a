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
use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::caps::{DMA_MMO_SQ, LOG_DMA_MMO_MAX_SIZE, cmd_hca_cap};
use uverbs_mlx5_prm::cmd::hca::query_hca_cap_out;
use uverbs_mlx5_prm::cmd::header;
use uverbs_mlx5_prm::cmd::mkey::{create_mkey_in, create_mkey_out, mkc};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::qp::rst2init_qp_in;

use crate::firmware::base::call::{Call as Command, Refusal};
use crate::firmware::device::caps::{Capabilities, kind};
use crate::firmware::objects::{mkey, qp};
use crate::kernel::call::Call;
use crate::kernel::state::objects::{Mw, Object};

/// Bytes of `general_obj_in_cmd_hdr` and of `general_obj_out_cmd_hdr` (PRM 12.1).
pub(crate) const HEADER: usize = 16;

/// General capabilities that DEVX reports. The others need commands that only the PCI function has.
const OFFERED: [Field; 3] = [cmd_hca_cap::QPC_EXTENSION, DMA_MMO_SQ, LOG_DMA_MMO_MAX_SIZE];

/// Refuses a client that did not open the device for DEVX (`devx_get_uid`).
fn check_devx(call: &Call<'_>) -> Result<(), Errno> {
    match call.file.context {
        Some(context) if context.devx => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// DEVX.OTHER: QUERY_HCA_CAP only. The kernel refuses commands that are not general ones; this
/// device refuses all other commands, too.
pub(crate) fn other(call: &mut Call<'_>) -> Result<(), Errno> {
    check_devx(call)?;
    let command = call.bytes(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN)?.ok_or(Errno::ENOENT)?;
    if header::cmd_in::OPCODE.get(&command) != u64::from(CmdOpcode::QUERY_HCA_CAP.0) {
        return Err(Errno::EINVAL);
    }
    let op_mod = header::cmd_in::OP_MOD.get(&command) as u16;
    let mut output = [0; query_hca_cap_out::SIZE];
    Capabilities {
        profile: &call.device.profile,
        config: call.device.hca.config(),
        atomic_mode: 0,
        log_uars_in_page: 0,
    }
    .query(&mut Command { input: &command, output: &mut output, op_mod });
    // Status 0, syndrome 0, and zeros behind them.
    let mut answer = vec![0; call.len(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT)];
    if kind::of(op_mod) == kind::GENERAL {
        let known = query_hca_cap_out::CAPABILITY.of(&output);
        let general = query_hca_cap_out::CAPABILITY.of_mut(&mut answer);
        OFFERED.iter().for_each(|field| field.set(general, field.get(known)));
    }
    call.output_bytes(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, &answer)
}

/// Bytes of CREATE_MKEY up to the end of the key's context, which the kernel reads
/// (`devx_handle_mkey_create`).
const SHORTEST: usize = 16 + mkc::SIZE;

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
        Err(refusal) => refusal.answer(&mut answer),
    }
    call.output_bytes(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, &answer[..room])?;
    made.map(drop).map_err(|_| Errno::EREMOTEIO)
}

/// Creates the key. Returns its index.
fn create_mkey(call: &mut Call<'_>, context: &[u8]) -> Result<u32, Refusal> {
    if !mkey::is_free_list(context) {
        return Err(Refusal::param("no key of this kind in process"));
    }
    let pd = call.file.objects.pd_of(mkc::PD.get32(context));
    let pd = pd.ok_or(Refusal::resource("no such protection domain"))?;
    let key = mkey::create_free(&mut call.device.hca, context)?;
    let handle = call.object(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE).unwrap_or_default();
    call.file.objects.hold(pd);
    call.put_object(handle, Object::Mw(Mw { pd, key }));
    Ok(key.index())
}

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
    let done = match qp::is_stream_reset(&command) {
        true => qp::reset_stream(&mut call.device.hca, &command),
        false => Err(Refusal::param("no such change in process")),
    };
    let mut answer = vec![0; call.len(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT)];
    if let Err(refusal) = done {
        refusal.answer(&mut answer);
    }
    call.output_bytes(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, &answer)?;
    done.map_err(|_| Errno::EREMOTEIO)
}
