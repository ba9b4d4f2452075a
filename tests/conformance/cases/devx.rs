//! Objects by DEVX: libmlx5's indirect key.

use uverbs_kernel_abi::mlx5::*;
use uverbs_kernel_abi::objects::*;
use uverbs_mlx5_prm::cmd::header::cmd_in;
use uverbs_mlx5_prm::cmd::mkey::{create_mkey_in, mkc};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;

use super::case;
use crate::case::{Case, World};
use crate::cmd::Cmd;
use crate::rig::Rig;
use crate::want::{EINVAL, ENOENT, Outcome, Want};

const CREATE: &str = "hw/mlx5/devx.c:MLX5_IB_METHOD_DEVX_OBJ_CREATE";
const MKEY: &str = "hw/mlx5/devx.c:devx_handle_mkey_create";
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
        on_mlx5("a domain as object", DESTROY, EINVAL, |rig| destroy(rig, rig.pd().into())),
    ]
}
