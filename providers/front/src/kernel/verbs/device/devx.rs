//! DEVX (`hw/mlx5/devx.c`): firmware commands that a program sends past the verbs.
//!
//! - General commands (`UVERBS_HANDLER(MLX5_IB_METHOD_DEVX_OTHER)`): providers query capabilities
//!   when they open a device.
//! - Creation of objects (`MLX5_IB_METHOD_DEVX_OBJ_CREATE`): only libmlx5's indirect key is
//!   supported.
//! - Changes of objects (`MLX5_IB_METHOD_DEVX_OBJ_MODIFY`): only the reset of a DC initiator's
//!   stream, and the port of bonded ports.
//! - Queries of objects (`MLX5_IB_METHOD_DEVX_OBJ_QUERY`): only the port of bonded ports.
//!
//! A queue pair's port is its own, or for raw packets its TIS's.

use nix::errno::Errno;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT,
    MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN,
    MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE,
    MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT,
    MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, MLX5_IB_ATTR_DEVX_OTHER_CMD_IN,
    MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT,
};
use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::caps::{
    DMA_MMO_SQ, LAG_TX_PORT_AFFINITY, LOG_DMA_MMO_MAX_SIZE, NUM_LAG_PORTS,
    RTS2RTS_LAG_TX_PORT_AFFINITY, cmd_hca_cap,
};
use uverbs_mlx5_prm::cmd::general::{
    LAG_STATE, LAG_TX_REMAP_AFFINITY_1, LAG_TX_REMAP_AFFINITY_2, QUERY_LAG_BYTES,
};
use uverbs_mlx5_prm::cmd::hca::query_hca_cap_out;
use uverbs_mlx5_prm::cmd::header;
use uverbs_mlx5_prm::cmd::mkey::{create_mkey_in, create_mkey_out, mkc};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::qp::{qpc, query_qp_in, query_qp_out, rst2init_qp_in};
use uverbs_mlx5_prm::cmd::steering::{
    modify_tis_bitmask, modify_tis_in, query_tis_in, query_tis_out, tisc,
};

use crate::backend::command::{LAG_TX_PORT, Refusal, is_free_list, is_stream_reset};
use crate::backend::number::Key;
use crate::kernel::call::Call;
use crate::kernel::state::objects::{Mw, Object, Qp};

/// Bytes of `general_obj_in_cmd_hdr` and of `general_obj_out_cmd_hdr` (PRM 12.1).
pub(crate) const HEADER: usize = 16;

/// General capabilities that DEVX reports. The others need commands that only the PCI function has.
const OFFERED: [Field; 9] = [
    cmd_hca_cap::SQ_TS_FORMAT,
    RTS2RTS_LAG_TX_PORT_AFFINITY,
    LAG_TX_PORT_AFFINITY,
    NUM_LAG_PORTS,
    cmd_hca_cap::QPC_EXTENSION,
    cmd_hca_cap::LOG_MAX_RA_REQ_DC,
    cmd_hca_cap::LOG_MAX_RA_RES_DC,
    DMA_MMO_SQ,
    LOG_DMA_MMO_MAX_SIZE,
];

/// Refuses a client that did not open the device for DEVX (`devx_get_uid`).
fn check_devx(call: &Call<'_>) -> Result<(), Errno> {
    match call.file.context {
        Some(context) if context.devx => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// DEVX.OTHER: QUERY_HCA_CAP and QUERY_LAG. The kernel refuses commands that are not general ones;
/// this device refuses all other commands, too.
pub(crate) fn other(call: &mut Call<'_>) -> Result<(), Errno> {
    check_devx(call)?;
    let command = call.bytes(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN)?.ok_or(Errno::ENOENT)?;
    match CmdOpcode(header::cmd_in::OPCODE.get(&command) as u16) {
        CmdOpcode::QUERY_HCA_CAP => {}
        CmdOpcode::QUERY_LAG => return query_lag(call),
        _ => return Err(Errno::EINVAL),
    }
    let mut output = [0; query_hca_cap_out::SIZE];
    call.device.hca.command(&command, &mut output);
    // Status and syndrome, and zeros behind them.
    let mut answer = vec![0; call.len(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT)];
    let told = answer.len().min(header::cmd_out::SIZE);
    answer[..told].copy_from_slice(&output[..told]);
    let status = check_status(&output);
    if status.is_ok() && header::cmd_in::OP_MOD.get(&command) >> 1 == GENERAL {
        let known = query_hca_cap_out::CAPABILITY.of(&output);
        let general = query_hca_cap_out::CAPABILITY.of_mut(&mut answer);
        OFFERED.iter().for_each(|field| field.set(general, field.get(known)));
    }
    call.output_bytes(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, &answer)?;
    status
}

/// QUERY_LAG: both ports carry their packets.
fn query_lag(call: &mut Call<'_>) -> Result<(), Errno> {
    let room = call.len(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT);
    let mut answer = vec![0; room.max(QUERY_LAG_BYTES)];
    if has_lag(call) {
        let context = &mut answer[8..];
        LAG_STATE.set(context, 1);
        LAG_TX_REMAP_AFFINITY_1.set(context, 1);
        LAG_TX_REMAP_AFFINITY_2.set(context, 2);
    }
    call.output_bytes(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, &answer[..room])
}

/// True if ports are bonded.
fn has_lag(call: &Call<'_>) -> bool {
    call.device.config.lag_ports > 1
}

/// Queue pair of a handle. `EINVAL` unless the command names the object that sends for it: the
/// queue pair, or a raw packet queue pair's TIS (`devx_is_valid_obj_id`). The array has the opcodes
/// for both, with the field of the object's number.
fn named<'a>(
    call: &'a Call<'_>,
    handle: u32,
    command: &[u8],
    [of_qp, of_tis]: [(CmdOpcode, Field); 2],
) -> Result<&'a Qp, Errno> {
    let qp = call.file.objects.qp(handle).map_err(|_| Errno::EINVAL)?;
    let ((opcode, field), number) = match &qp.raw {
        None => (of_qp, Some(qp.qpn.0)),
        Some(raw) => (of_tis, raw.tis),
    };
    let is_opcode = header::cmd_in::OPCODE.get(command) == u64::from(opcode.0);
    (is_opcode && number == Some(field.get32(command))).then_some(qp).ok_or(Errno::EINVAL)
}

/// DEVX_OBJ.QUERY: QUERY_QP of the queue pair that the handle names, or QUERY_TIS.
pub(crate) fn query(call: &mut Call<'_>) -> Result<(), Errno> {
    check_devx(call)?;
    let command = call.bytes(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN)?.ok_or(Errno::ENOENT)?;
    let handle = call.object(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE).unwrap_or_default();
    let (of_qp, of_tis) = (CmdOpcode::QUERY_QP, CmdOpcode::QUERY_TIS);
    let numbers = [(of_qp, query_qp_in::QPN), (of_tis, query_tis_in::TISN)];
    let qp = named(call, handle, &command, numbers)?;
    let is_raw = qp.raw.is_some();
    let port = if has_lag(call) { qp.lag_port } else { 0 };
    let room = call.len(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT);
    let mut answer = vec![0; room.max(query_qp_out::SIZE)];
    if is_raw {
        let context = query_tis_out::TIS_CONTEXT.of_mut(&mut answer);
        tisc::LAG_TX_PORT_AFFINITY.set(context, port.into());
    } else {
        qpc::LAG_TX_PORT_AFFINITY.set(query_qp_out::QPC.of_mut(&mut answer), port.into());
    }
    call.output_bytes(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, &answer[..room])
}

/// Capability kind of QUERY_HCA_CAP: general.
const GENERAL: u64 = 0;
/// Bytes of the shortest answer: status and syndrome.
const SHORTEST_ANSWER: usize = 8;
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
    let room = call.len(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT);
    let mut answer = vec![0; room.max(create_mkey_out::SIZE)];
    if let Err(refusal) = create_mkey(call, &command, &mut answer) {
        refusal.answer(&mut answer);
    }
    call.output_bytes(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, &answer[..room])?;
    check_status(&answer)
}

/// Creates the key. Fills the answer, unless the front itself refuses.
fn create_mkey(call: &mut Call<'_>, command: &[u8], answer: &mut [u8]) -> Result<(), Refusal> {
    let context = create_mkey_in::MEMORY_KEY_MKEY_ENTRY.of(command);
    if !is_free_list(context) {
        return Err(Refusal::param("no key of this kind in process"));
    }
    let pd = call.file.objects.pd_of(mkc::PD.get32(context));
    let pd = pd.ok_or(Refusal::resource("no such protection domain"))?;
    call.device.hca.command(command, answer);
    if header::cmd_out::STATUS.get(answer) == 0 {
        let variant = mkc::MKEY_7_0.get(context) as u8;
        let key = Key::new(create_mkey_out::MKEY_INDEX.get32(answer), variant);
        let handle = call.object(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE).unwrap_or_default();
        call.file.objects.hold(pd);
        call.put_object(handle, Object::Mw(Mw { pd, key }));
    }
    Ok(())
}

/// `EREMOTEIO` if an answer is the device's refusal (`mlx5_cmd_do`).
fn check_status(answer: &[u8]) -> Result<(), Errno> {
    if header::cmd_out::STATUS.get(answer) == 0 { Ok(()) } else { Err(Errno::EREMOTEIO) }
}

/// DEVX_OBJ.MODIFY: RTS2RTS_QP of the queue pair that the handle names, or MODIFY_TIS
/// (`devx_is_obj_modify_cmd`). The kernel passes the command on; the device's errors are returned
/// as by [`create`].
pub(crate) fn modify(call: &mut Call<'_>) -> Result<(), Errno> {
    check_devx(call)?;
    let command = call.bytes(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN)?.ok_or(Errno::ENOENT)?;
    let handle = call.object(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE).unwrap_or_default();
    let (of_qp, of_tis) = (CmdOpcode::RTS2RTS_QP, CmdOpcode::MODIFY_TIS);
    let numbers = [(of_qp, rst2init_qp_in::QPN), (of_tis, modify_tis_in::TISN)];
    let is_raw = named(call, handle, &command, numbers)?.raw.is_some();
    let room = call.len(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT);
    let mut answer = vec![0; room.max(SHORTEST_ANSWER)];
    let done = match is_raw {
        true => modify_tis(call, handle, &command),
        false => rts2rts(call, handle, &command, &mut answer),
    };
    if let Err(refusal) = done {
        refusal.answer(&mut answer);
    }
    call.output_bytes(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, &answer[..room])?;
    check_status(&answer)
}

fn rts2rts(
    call: &mut Call<'_>,
    handle: u32,
    command: &[u8],
    answer: &mut [u8],
) -> Result<(), Refusal> {
    let mask = rst2init_qp_in::OPT_PARAM_MASK.get(command);
    if is_stream_reset(command) {
        call.device.hca.command(command, answer);
        Ok(())
    } else if mask == LAG_TX_PORT && has_lag(call) {
        let context = rst2init_qp_in::QPC.of(command);
        set_lag_port(call, handle, qpc::LAG_TX_PORT_AFFINITY.get(context) as u8)
    } else {
        Err(Refusal::param("no such change in process"))
    }
}

fn modify_tis(call: &mut Call<'_>, handle: u32, command: &[u8]) -> Result<(), Refusal> {
    // Commands of a shorter context end in zeros.
    let mut whole = command.to_vec();
    whole.resize(command.len().max(modify_tis_in::SIZE), 0);
    let mask = modify_tis_in::BITMASK.of(&whole);
    if !modify_tis_bitmask::LAG_TX_PORT_AFFINITY.is_set(mask) || !has_lag(call) {
        return Err(Refusal::param("no such change in process"));
    }
    let context = modify_tis_in::CTX.of(&whole);
    set_lag_port(call, handle, tisc::LAG_TX_PORT_AFFINITY.get(context) as u8)
}

/// Moves a queue pair to another of the bonded ports.
fn set_lag_port(call: &mut Call<'_>, handle: u32, port: u8) -> Result<(), Refusal> {
    if !(1..=call.device.config.lag_ports).contains(&port) {
        return Err(Refusal::param("no such port"));
    }
    if let Some(Object::Qp(qp)) = call.file.objects.get_mut(handle) {
        qp.lag_port = port;
    }
    Ok(())
}
