//! Completion queues that get another size, or moderation.

use uverbs_kernel_abi::cq::{
    ib_uverbs_cq_moderation, ib_uverbs_ex_modify_cq, ib_uverbs_resize_cq, ib_uverbs_resize_cq_resp,
};
use uverbs_kernel_abi::mlx5::mlx5_ib_resize_cq;
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::write::{
    IB_USER_VERBS_CMD_FLAG_EXTENDED, IB_USER_VERBS_CMD_RESIZE_CQ, IB_USER_VERBS_EX_CMD_MODIFY_CQ,
};

use super::case;
use super::mr::NO_OBJECT;
use crate::case::{Case, World};
use crate::cmd::Cmd;
use crate::rig::Rig;
use crate::want::{EFAULT, EINVAL, EOPNOTSUPP, Want};

const RESIZE: &str = "core/uverbs_cmd.c:ib_uverbs_resize_cq";
const MLX5: &str = "hw/mlx5/cq.c:mlx5_ib_resize_cq, resize_user";
const MODIFY: &str = "core/uverbs_cmd.c:ib_uverbs_ex_modify_cq; hw/mlx5/cq.c:mlx5_ib_modify_cq";
const GROUP: &str = "changed completion queues";
const ONLY: &str = "the driver's part is mlx5's";

/// RESIZE_CQ to room for 31.
pub(crate) fn resize(rig: &Rig) -> Cmd {
    let request = ib_uverbs_resize_cq { response: 0, cq_handle: rig.cq(), cqe: 31 };
    resize_by(rig, &request, &own(rig))
}

fn resize_by(rig: &Rig, request: &ib_uverbs_resize_cq, own: &mlx5_ib_resize_cq) -> Cmd {
    let room = size_of::<ib_uverbs_resize_cq_resp>();
    let cmd = rig.write(IB_USER_VERBS_CMD_RESIZE_CQ, request, room);
    match rig.is_mlx5() {
        true => cmd.input(&rig.memory, UVERBS_ATTR_UHW_IN, own),
        false => cmd.output(&rig.memory, UVERBS_ATTR_UHW_OUT, 16),
    }
}

/// mlx5's part: a ring of 32 entries.
fn own(rig: &Rig) -> mlx5_ib_resize_cq {
    let buf_addr = rig.memory.alloc(4096, 4096);
    mlx5_ib_resize_cq { buf_addr, cqe_size: 64, ..Default::default() }
}

/// Extended MODIFY_CQ.
pub(crate) fn modify(rig: &Rig) -> Cmd {
    modify_by(rig, &moderation(rig))
}

fn modify_by(rig: &Rig, request: &ib_uverbs_ex_modify_cq) -> Cmd {
    rig.write(IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_MODIFY_CQ, request, 0)
}

fn moderation(rig: &Rig) -> ib_uverbs_ex_modify_cq {
    let attr = ib_uverbs_cq_moderation { cq_count: 8, cq_period: 16 };
    ib_uverbs_ex_modify_cq { cq_handle: rig.cq(), attr_mask: 1, attr, reserved: 0 }
}

pub(super) fn cases() -> Vec<Case> {
    let mut all = sizes();
    all.extend(moderations());
    all
}

fn sizes() -> Vec<Case> {
    let entries = |cqe: u32, want| {
        case(GROUP, format!("{cqe} entries"), MLX5, want, move |rig: &Rig| {
            let request = ib_uverbs_resize_cq { response: 0, cq_handle: rig.cq(), cqe };
            let cmd = resize_by(rig, &request, &own(rig));
            rig.send(&cmd)?;
            let answer: ib_uverbs_resize_cq_resp = rig.answer(&cmd, UVERBS_ATTR_CORE_OUT);
            Ok(format!("entries {}", answer.cqe))
        })
    };
    let with = |name, want, change: fn(&mut mlx5_ib_resize_cq)| {
        case(GROUP, name, MLX5, want, move |rig: &Rig| {
            let mut own = own(rig);
            change(&mut own);
            let request = ib_uverbs_resize_cq { response: 0, cq_handle: rig.cq(), cqe: 31 };
            rig.run(&resize_by(rig, &request, &own))
        })
        .only(World::Mlx5, ONLY)
    };
    let of = |name, want, handle: fn(&Rig) -> u32| {
        case(GROUP, name, RESIZE, want, move |rig: &Rig| {
            let request = ib_uverbs_resize_cq { response: 0, cq_handle: handle(rig), cqe: 31 };
            rig.run(&resize_by(rig, &request, &own(rig)))
        })
    };
    vec![
        // rxe takes a ring of one more, and tells of all of it.
        entries(31, Want::Driver { mlx5: &Want::Is("entries 31"), rxe: &Want::Is("entries 31") }),
        entries(0, EINVAL),
        entries(1 << 30, EINVAL),
        entries(u32::MAX, EINVAL),
        entries(1, Want::Driver { mlx5: &Want::Is("entries 1"), rxe: &Want::Is("entries 1") }),
        with("reserved", EINVAL, |own| own.reserved0 = 1),
        with("reserved word", EINVAL, |own| own.reserved1 = 1),
        with("entries of no bytes", EINVAL, |own| own.cqe_size = 0),
        with("a ring that isn't mapped", EFAULT, |own| own.buf_addr = 4096),
        of("another size of no queue", NO_OBJECT, |_| 999),
        of("another size of a region", EINVAL, Rig::mr),
        case(GROUP, "the same size, and no ring", MLX5, Want::Ok, |rig| {
            let request = ib_uverbs_resize_cq { response: 0, cq_handle: rig.cq(), cqe: 15 };
            rig.run(&resize_by(rig, &request, &mlx5_ib_resize_cq::default()))
        })
        .only(World::Mlx5, ONLY),
    ]
}

fn moderations() -> Vec<Case> {
    let with = |name, want, change: fn(&Rig, &mut ib_uverbs_ex_modify_cq)| {
        case(GROUP, name, MODIFY, want, move |rig: &Rig| {
            let mut request = moderation(rig);
            change(rig, &mut request);
            rig.run(&modify_by(rig, &request))
        })
        .only(World::Mlx5, "the driver has no moderation, and no such command")
    };
    vec![
        with("moderation", Want::Ok, |_, _| ()),
        with("no moderation", Want::Ok, |_, modify| modify.attr = Default::default()),
        with("the longest period", Want::Ok, |_, modify| modify.attr.cq_period = 4095),
        with("a longer period", EINVAL, |_, modify| modify.attr.cq_period = 4096),
        with("the greatest count", Want::Ok, |_, modify| modify.attr.cq_count = u16::MAX),
        with("no attribute", EINVAL, |_, modify| modify.attr_mask = 0),
        with("an unknown attribute", EOPNOTSUPP, |_, modify| modify.attr_mask = 2),
        with("a reserved word", EINVAL, |_, modify| modify.reserved = 1),
        with("moderation of no queue", NO_OBJECT, |_, modify| modify.cq_handle = 999),
        with("moderation of a region", EINVAL, |rig, modify| modify.cq_handle = rig.mr()),
    ]
}
