//! Enhanced connection establishment: what queue pairs are made with, and what a change of state
//! asks for and is answered.

use std::mem::offset_of;

use uverbs_kernel_abi::mlx5::*;
use uverbs_kernel_abi::objects::{UVERBS_ATTR_UHW_IN, UVERBS_ATTR_UHW_OUT};
use uverbs_kernel_abi::qp::*;

use super::case;
use crate::case::{Case, World};
use crate::cmd::Cmd;
use crate::rig::Rig;
use crate::want::{EINVAL, EOPNOTSUPP, Outcome, Want};

const CREATE: &str = "hw/mlx5/qp.c:create_user_qp";
const MODIFY: &str = "hw/mlx5/qp.c:mlx5_ib_modify_qp";
const VERSION: u32 = 1 << 28;

/// RESET to INIT by the extended command, with the driver's part.
fn init(rig: &Rig, own: &mlx5_ib_modify_qp) -> Cmd {
    let request = ib_uverbs_ex_modify_qp { base: rig.to_init(), ..Default::default() };
    rig.modify_ex(&request).input(&rig.memory, UVERBS_ATTR_UHW_IN, own).output(
        &rig.memory,
        UVERBS_ATTR_UHW_OUT,
        size_of::<mlx5_ib_modify_qp_resp>(),
    )
}

/// Driver's answer to the transition to INIT, in words.
fn answered(rig: &Rig, own: &mlx5_ib_modify_qp) -> Outcome {
    let cmd = init(rig, own);
    rig.send(&cmd)?;
    let answer: mlx5_ib_modify_qp_resp = rig.answer(&cmd, UVERBS_ATTR_UHW_OUT);
    Ok(format!("{} {} {:#x}", answer.response_length, answer.dctn, answer.ece_options))
}

/// ECE options that the driver answers when a queue pair is made with `options`.
fn created(rig: &Rig, options: u32) -> Outcome {
    let cmd = rig.create_qp();
    let addr = cmd.find(UVERBS_ATTR_UHW_IN).expect("driver data").data;
    rig.memory.edit(addr, |request: &mut mlx5_ib_create_qp| request.ece_options = options);
    rig.send(&cmd)?;
    let answer: mlx5_ib_create_qp_resp = rig.answer(&cmd, UVERBS_ATTR_UHW_OUT);
    Ok(format!("{:#x}", answer.ece_options))
}

pub(super) fn cases() -> Vec<Case> {
    let own = |ece_options| mlx5_ib_modify_qp { ece_options, ..Default::default() };
    let asks = |name, want, own: mlx5_ib_modify_qp| {
        case("options of connections", name, MODIFY, want, move |rig: &Rig| answered(rig, &own))
    };
    let made = |name, want, options| {
        case("options of connections", name, CREATE, want, move |rig: &Rig| created(rig, options))
    };
    let all = vec![
        made("made without options", Want::Is("0x0"), 0),
        made("made with the trigger", Want::Is("0x10000000"), VERSION),
        asks("INIT without options", Want::Is("16 0 0x0"), own(0)),
        asks("INIT with the version", Want::Is("16 0 0x10000000"), own(VERSION)),
        asks(
            "INIT with options that aren't there",
            Want::Is("16 0 0x10000000"),
            own(VERSION | 0xff),
        ),
        asks("a mask", EOPNOTSUPP, mlx5_ib_modify_qp { comp_mask: 1, ..own(0) }),
        asks("reserved bytes of bursts", EOPNOTSUPP, {
            let burst_info = mlx5_ib_burst_info { reserved: 1, ..Default::default() };
            mlx5_ib_modify_qp { burst_info, ..own(0) }
        }),
        case("options of connections", "a short request", MODIFY, EINVAL, move |rig: &Rig| {
            let short = offset_of!(mlx5_ib_modify_qp, ece_options) as u16;
            rig.run(&init(rig, &own(0)).edit(UVERBS_ATTR_UHW_IN, |attr| attr.len = short))
        }),
        case("options of connections", "a long request", MODIFY, EOPNOTSUPP, move |rig: &Rig| {
            let cmd = init(rig, &own(0)).without(UVERBS_ATTR_UHW_IN);
            rig.run(&cmd.input(&rig.memory, UVERBS_ATTR_UHW_IN, &[0u32, 0, 0, 0, 1, 0]))
        }),
        case("options of connections", "little room", MODIFY, Want::Ok, move |rig: &Rig| {
            rig.run(&init(rig, &own(0)).edit(UVERBS_ATTR_UHW_OUT, |attr| attr.len = 8))
        }),
    ];
    all.into_iter().map(|case| case.only(World::Mlx5, "the driver's data")).collect()
}
