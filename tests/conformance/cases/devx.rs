//! Objects by DEVX: libmlx5's indirect key; and a stream of an initiator that goes on.

use nix::errno::Errno;
use uverbs_kernel_abi::mlx5::*;
use uverbs_kernel_abi::objects::*;
use uverbs_mlx5_prm::cmd::header::cmd_in;
use uverbs_mlx5_prm::cmd::mkey::{create_mkey_in, mkc};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::qp::{
    RTS2RTS_BYTES, RTS2RTS_DCI_STREAM_CHANNEL_ID, RTS2RTS_OPT_PARAM_MASK_95_32, RTS2RTS_QPC_EXT,
    rst2init_qp_in,
};

use super::{case, dc};
use crate::case::{Case, World};
use crate::cmd::Cmd;
use crate::rig::Rig;
use crate::want::{EINVAL, ENOENT, EREMOTEIO, Outcome, Want};

const CREATE: &str = "hw/mlx5/devx.c:MLX5_IB_METHOD_DEVX_OBJ_CREATE";
const MKEY: &str = "hw/mlx5/devx.c:devx_handle_mkey_create";
const MODIFY: &str = "hw/mlx5/devx.c:MLX5_IB_METHOD_DEVX_OBJ_MODIFY";
const VALID: &str = "hw/mlx5/devx.c:devx_is_valid_obj_id";
const DESTROY: &str = "hw/mlx5/devx.c:devx_obj_cleanup";

/// Bytes of CREATE_MKEY up to the end of the key's context.
const SHORTEST: usize = 80;

/// CREATE_MKEY as rdma-core `verbs.c:_mlx5dv_create_mkey` sends it.
fn request(rig: &Rig) -> Vec<u8> {
    let query = rig
        .cmd(UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY)
        .handle(MLX5_IB_ATTR_QUERY_PD_HANDLE, rig.pd())
        .output(&rig.memory, MLX5_IB_ATTR_QUERY_PD_RESP_PDN, 4);
    // A random program may have destroyed the domain.
    let answer = rig.send(&query).map(|_| rig.answer(&query, MLX5_IB_ATTR_QUERY_PD_RESP_PDN));
    let pdn: u32 = answer.unwrap_or_default();
    let mut bytes = vec![0; create_mkey_in::SIZE];
    cmd_in::OPCODE.set(&mut bytes, CmdOpcode::CREATE_MKEY.0.into());
    let context = create_mkey_in::MEMORY_KEY_MKEY_ENTRY.of_mut(&mut bytes);
    for (field, value) in [
        (mkc::ACCESS_MODE_1_0, 2),
        (mkc::FREE, 1),
        (mkc::UMR_EN, 1),
        (mkc::LR, 1),
        (mkc::PD, pdn.into()),
        (mkc::QPN, 0xff_ffff),
        (mkc::TRANSLATIONS_OCTWORD_SIZE, 4),
    ] {
        field.set(context, value);
    }
    bytes
}

/// DEVX_OBJ.CREATE of this command.
fn with(rig: &Rig, request: &[u8]) -> Cmd {
    rig.cmd(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE)
        .handle(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, 0u32)
        .bytes(&rig.memory, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, request)
        .output(&rig.memory, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, 16)
}

pub(crate) fn create(rig: &Rig) -> Cmd {
    with(rig, &request(rig))
}

fn destroy(rig: &Rig, handle: u64) -> Outcome {
    let cmd = rig.cmd(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY);
    rig.run(&cmd.handle(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, handle))
}

/// RTS2RTS_QP of this number, which lets stream 5 go on, as rdma-core
/// `mlx5.c:mlx5dv_dci_stream_id_reset` sends it.
fn reset_stream(rig: &Rig, handle: u64, qpn: u32) -> Cmd {
    let mut request = vec![0; RTS2RTS_BYTES];
    cmd_in::OPCODE.set(&mut request, CmdOpcode::RTS2RTS_QP.0.into());
    rst2init_qp_in::QPN.set(&mut request, qpn.into());
    RTS2RTS_QPC_EXT.set(&mut request, 1);
    RTS2RTS_OPT_PARAM_MASK_95_32.set(&mut request, 1);
    RTS2RTS_DCI_STREAM_CHANNEL_ID.set(&mut request, 5);
    change(rig, handle, &request)
}

/// DEVX_OBJ.MODIFY of this command.
fn change(rig: &Rig, handle: u64, request: &[u8]) -> Cmd {
    rig.cmd(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY)
        .handle(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, handle)
        .bytes(&rig.memory, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, request)
        .output(&rig.memory, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, 16)
}

/// An initiator in RTS, with streams or without: its handle and number.
fn initiator(rig: &Rig, streams: [u8; 2]) -> Result<(u64, u32), Errno> {
    let cmd = dc::with_streams(rig, streams);
    let handle = rig.send(&cmd)?[0].data;
    let number: u32 = rig.answer(&cmd, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM);
    dc::bring_up(rig, handle as u32)?;
    Ok((handle, number))
}

/// DEVX_OBJ.MODIFY for the table of calls: of an initiator with streams.
pub(crate) fn modify(rig: &Rig) -> Cmd {
    let (handle, number) = initiator(rig, [2, 2]).unwrap_or_default();
    reset_stream(rig, handle, number)
}

pub(super) fn cases() -> Vec<Case> {
    let on_mlx5 = |name, source, want, run: fn(&Rig) -> Outcome| {
        case("DEVX objects", name, source, want, run).only(World::Mlx5, "an object of mlx5's own")
    };
    vec![
        on_mlx5("a key, and its index", CREATE, Want::Is("status 0, index true"), |rig| {
            let cmd = create(rig);
            rig.send(&cmd)?;
            let answer: [u8; 16] = rig.answer(&cmd, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT);
            Ok(format!("status {}, index {}", answer[0], answer[9..12] != [0; 3]))
        }),
        on_mlx5("less than a key's context", MKEY, EINVAL, |rig| {
            rig.run(&with(rig, &request(rig)[..SHORTEST - 4]))
        }),
        on_mlx5("a command that makes nothing", CREATE, EINVAL, |rig| {
            let mut request = request(rig);
            cmd_in::OPCODE.set(&mut request, CmdOpcode::QUERY_MKEY.0.into());
            rig.run(&with(rig, &request))
        }),
        on_mlx5("destroyed", DESTROY, Want::Ok, |rig| {
            let made = rig.send(&create(rig))?;
            destroy(rig, made[0].data)
        }),
        on_mlx5("destroyed twice", DESTROY, ENOENT, |rig| {
            let made = rig.send(&create(rig))?;
            destroy(rig, made[0].data)?;
            destroy(rig, made[0].data)
        }),
        on_mlx5("a stream goes on", MODIFY, Want::Is("status 0"), |rig| {
            let (handle, number) = initiator(rig, [2, 2])?;
            let cmd = reset_stream(rig, handle, number);
            rig.send(&cmd)?;
            let answer: [u8; 16] = rig.answer(&cmd, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT);
            Ok(format!("status {}", answer[0]))
        }),
        on_mlx5("a stream of an initiator without", MODIFY, EREMOTEIO, |rig| {
            let (handle, number) = initiator(rig, [0, 0])?;
            rig.run(&reset_stream(rig, handle, number))
        }),
        on_mlx5("another queue pair's number", VALID, EINVAL, |rig| {
            let (handle, number) = initiator(rig, [2, 2])?;
            rig.run(&reset_stream(rig, handle, number ^ 1))
        }),
        on_mlx5("a domain as queue pair", VALID, EINVAL, |rig| {
            let (_, number) = initiator(rig, [2, 2])?;
            rig.run(&reset_stream(rig, rig.pd().into(), number))
        }),
        on_mlx5("a change that is none", MODIFY, EINVAL, |rig| {
            let (handle, _) = initiator(rig, [2, 2])?;
            let mut request = vec![0; RTS2RTS_BYTES];
            cmd_in::OPCODE.set(&mut request, CmdOpcode::QUERY_MKEY.0.into());
            rig.run(&change(rig, handle, &request))
        }),
        on_mlx5("a domain as object", DESTROY, EINVAL, |rig| destroy(rig, rig.pd().into())),
    ]
}
