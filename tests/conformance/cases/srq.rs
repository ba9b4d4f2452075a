//! Shared receive queues.

use uverbs_kernel_abi::mlx5::mlx5_ib_create_srq;
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::srq::*;

use super::case;
use super::mr::NO_OBJECT;
use crate::case::{Case, World};
use crate::rig::Rig;
use crate::want::{Driver, EBUSY, EINVAL, ENOENT, Want};

const CREATE: &str = "core/uverbs_std_types_srq.c:UVERBS_METHOD_SRQ_CREATE";
const MLX5: &str = "hw/mlx5/srq.c:mlx5_ib_create_srq";
const MODIFY: &str = "hw/mlx5/srq.c:mlx5_ib_modify_srq; sw/rxe/rxe_verbs.c:rxe_modify_srq";
const QUERY: &str = "core/uverbs_cmd.c:ib_uverbs_query_srq";
const USED: &str = "core/verbs.c:ib_destroy_srq_user";

const fn driver(mlx5: &'static Want, rxe: &'static Want) -> Want {
    Want::Driver { mlx5, rxe }
}

pub(super) fn cases() -> Vec<Case> {
    let mut all = creation();
    all.extend(changes());
    all.extend(users());
    all
}

fn creation() -> Vec<Case> {
    let kind = |name, kind: u64, want| {
        case("shared receive queues", name, CREATE, want, move |rig: &Rig| {
            rig.run(&rig.create_srq().edit(UVERBS_ATTR_CREATE_SRQ_TYPE, |attr| attr.data = kind))
        })
    };
    let with = |name: &str, id, value: u32, want| {
        case("shared receive queues", name, CREATE, want, move |rig: &Rig| {
            rig.run(&rig.create_srq().edit(id, |attr| attr.data = value.into()))
        })
    };
    let request = |name, want, change: fn(&mut mlx5_ib_create_srq)| {
        let run = move |rig: &Rig| {
            let mut request = rig.srq_request();
            change(&mut request);
            let cmd = rig.create_srq().without(UVERBS_ATTR_UHW_IN);
            rig.run(&cmd.input(&rig.memory, UVERBS_ATTR_UHW_IN, &request))
        };
        case("shared receive queues", name, MLX5, want, run).only(World::Mlx5, "the driver's data")
    };
    let sizes = |name, max_wr: u32, max_sge: u32, want| {
        case("shared receive queues", name, CREATE, want, move |rig: &Rig| {
            let cmd = rig.create_srq();
            let cmd = cmd.edit(UVERBS_ATTR_CREATE_SRQ_MAX_WR, |attr| attr.data = max_wr.into());
            let cmd = cmd.edit(UVERBS_ATTR_CREATE_SRQ_MAX_SGE, |attr| attr.data = max_sge.into());
            rig.send(&cmd)?;
            let handle = UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR;
            let room = rig.answer::<u32>(&cmd, handle);
            let list = rig.answer::<u32>(&cmd, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE);
            Ok(format!("{room} {list}"))
        })
    };
    vec![
        kind("of XRC without a CQ", IB_UVERBS_SRQT_XRC.into(), ENOENT),
        kind("of tags without a CQ", IB_UVERBS_SRQT_TM.into(), ENOENT),
        kind("of no type", 3, EINVAL),
        kind("of a type in the high half", 1 << 32, EINVAL),
        with("of too many", UVERBS_ATTR_CREATE_SRQ_MAX_WR, u32::MAX, EINVAL),
        with("of lists too long", UVERBS_ATTR_CREATE_SRQ_MAX_SGE, 1000, EINVAL),
        sizes("sizes are rounded", 9, 2, driver(&Want::Is("15 2"), &Want::Is("15 2"))).from(
            Driver::Rxe,
            (6, 12),
            "rxe rounds a shared queue's size at 6.12, and did not at 6.1",
        ),
        request("without a ring", crate::want::EFAULT, |request| request.buf_addr = 0),
        request("without a record", crate::want::EFAULT, |request| request.db_addr = 0),
        request("reserved", EINVAL, |request| request.reserved0 = 1),
        request("reserved again", EINVAL, |request| request.reserved1 = 1),
        request("a user index, of none", Want::Ok, |request| request.uidx = 0xffff_ffff),
    ]
}

fn changes() -> Vec<Case> {
    let modify = |name, want, change: fn(&Rig, &mut ib_uverbs_modify_srq)| {
        case("shared receive queues", name, MODIFY, want, move |rig: &Rig| {
            let mut request = rig.modify_srq_request();
            change(rig, &mut request);
            rig.run(&rig.modify_srq(&request))
        })
    };
    vec![
        modify("a limit", Want::Ok, |_, request| request.srq_limit = 15),
        modify("a limit over the size", EINVAL, |_, request| request.srq_limit = 16),
        modify("nothing", Want::Ok, |_, request| request.attr_mask = 0),
        modify("no queue", NO_OBJECT, |_, request| request.srq_handle = 999),
        modify("a PD", EINVAL, |rig, request| request.srq_handle = rig.pd()),
        modify("of size 0", EINVAL, |_, request| request.attr_mask = IB_SRQ_MAX_WR),
        case("shared receive queues", "a limit is told", QUERY, Want::Is("15 2 3"), |rig| {
            rig.send(&rig.modify_srq(&rig.modify_srq_request()))?;
            let cmd = rig.query_srq(rig.srq());
            rig.send(&cmd)?;
            let answer: ib_uverbs_query_srq_resp = rig.answer(&cmd, UVERBS_ATTR_CORE_OUT);
            let ib_uverbs_query_srq_resp { max_wr, max_sge, srq_limit, .. } = answer;
            Ok(format!("{max_wr} {max_sge} {srq_limit}"))
        }),
        case("shared receive queues", "query no queue", QUERY, NO_OBJECT, |rig| {
            rig.run(&rig.query_srq(999))
        }),
        case("shared receive queues", "query a CQ", QUERY, EINVAL, |rig| {
            rig.run(&rig.query_srq(rig.cq()))
        }),
    ]
}

fn users() -> Vec<Case> {
    let with = |name, want, run: fn(&Rig) -> crate::want::Outcome| {
        case("shared receive queues", name, USED, want, run)
    };
    vec![
        with("destroyed", Want::Is("0"), |rig| {
            let cmd = rig.destroy(UVERBS_OBJECT_SRQ, rig.srq());
            rig.send(&cmd)?;
            Ok(rig.answer::<u32>(&cmd, UVERBS_ATTR_DESTROY_SRQ_RESP).to_string())
        }),
        with("PD with a queue", EBUSY, |rig| {
            rig.srq();
            rig.run(&rig.destroy(UVERBS_OBJECT_PD, rig.pd()))
        }),
        with("with a queue pair", Want::Is("EBUSY ok ok"), |rig| {
            let id = UVERBS_ATTR_CREATE_QP_SRQ_HANDLE;
            let made = rig.send(&rig.create_qp().handle(id, rig.srq()))?;
            let destroy = rig.destroy(UVERBS_OBJECT_SRQ, rig.srq());
            let refused = rig.run(&destroy).unwrap_err();
            rig.send(&rig.destroy(UVERBS_OBJECT_QP, made[0].data as u32))?;
            rig.send(&destroy)?;
            Ok(format!("{refused:?} ok ok"))
        })
        .only(World::ButMlx5Ib, "mlx5_ib refuses the queue pair that the case makes"),
        with("of a refused queue pair", Want::Is("ok"), |rig| {
            let id = UVERBS_ATTR_CREATE_QP_SRQ_HANDLE;
            let cmd = rig.create_qp().handle(id, rig.srq());
            let cmd = cmd.edit(UVERBS_ATTR_CREATE_QP_TYPE, |attr| attr.data = 77);
            rig.run(&cmd).unwrap_err();
            rig.send(&rig.destroy(UVERBS_OBJECT_SRQ, rig.srq()))?;
            Ok("ok".to_owned())
        }),
    ]
}
