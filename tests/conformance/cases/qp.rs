//! Creation and destruction of queue pairs.

use uverbs_kernel_abi::mlx5::*;
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::qp::*;

use super::case;
use crate::case::{Case, World};
use crate::rig::Rig;
use crate::want::{EFAULT, EINVAL, ENOENT, EOPNOTSUPP, EPERM, Want};

const CREATE: &str = "core/uverbs_std_types_qp.c:UVERBS_METHOD_QP_CREATE";
const MLX5: &str = "hw/mlx5/qp.c:mlx5_ib_create_qp";

const fn driver(mlx5: &'static Want, rxe: &'static Want) -> Want {
    Want::Driver { mlx5, rxe }
}

pub(super) fn cases() -> Vec<Case> {
    let mut all = kinds();
    all.extend(attributes());
    all.extend(capabilities());
    all.extend(driver_data());
    all
}

fn kinds() -> Vec<Case> {
    let kind = |kind: u64, want| {
        case("queue pairs", format!("type {kind:#x}"), CREATE, want, move |rig: &Rig| {
            rig.run(&rig.create_qp().edit(UVERBS_ATTR_CREATE_QP_TYPE, |attr| attr.data = kind))
        })
    };
    let others = |name, kind: u8, want| {
        case("queue pairs", name, CREATE, want, move |rig: &Rig| {
            let cmd = rig.create_qp();
            let cmd = cmd.edit(UVERBS_ATTR_CREATE_QP_TYPE, |attr| attr.data = kind.into());
            rig.run(
                &cmd.without(UVERBS_ATTR_CREATE_QP_PD_HANDLE)
                    .without(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE)
                    .without(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE),
            )
        })
    };
    vec![
        kind(0, EINVAL),
        kind(1, EINVAL),
        kind(IB_UVERBS_QPT_RC.into(), Want::Ok),
        kind(5, EINVAL),
        kind(6, EINVAL),
        kind(7, EINVAL),
        kind(IB_UVERBS_QPT_XRC_TGT.into(), EINVAL),
        kind(11, EINVAL),
        kind(254, EINVAL),
        kind(256 + 2, EINVAL),
        kind(1 << 32 | 2, EINVAL),
        others("XRC_TGT without a domain", IB_UVERBS_QPT_XRC_TGT, ENOENT),
        others("RC without a PD", IB_UVERBS_QPT_RC, ENOENT),
    ]
}

fn attributes() -> Vec<Case> {
    let handle = |name, id, value: u64, want| {
        case("queue pairs", name, CREATE, want, move |rig: &Rig| {
            rig.run(&rig.create_qp().handle(id, value))
        })
    };
    let wrong = |name, id, want| {
        case("queue pairs", name, CREATE, want, move |rig: &Rig| {
            rig.run(&rig.create_qp().handle(id, rig.pd()))
        })
    };
    let flags = |value: u32, want| {
        case("queue pairs", format!("flags {value:#x}"), CREATE, want, move |rig: &Rig| {
            let id = UVERBS_ATTR_CREATE_QP_FLAGS;
            rig.run(&rig.create_qp().input(&rig.memory, id, &value))
        })
    };
    vec![
        handle("no such SRQ", UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, 77, ENOENT),
        wrong("an SRQ that is a PD", UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, EINVAL),
        flags(IB_UVERBS_QP_CREATE_SQ_SIG_ALL, Want::Ok),
        flags(IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK, EINVAL),
        flags(IB_UVERBS_QP_CREATE_SCATTER_FCS, EINVAL),
        flags(1, EINVAL),
        flags(1 << 31, EINVAL),
        case("queue pairs", "a source number", CREATE, EOPNOTSUPP, |rig| {
            let id = UVERBS_ATTR_CREATE_QP_SOURCE_QPN;
            rig.run(&rig.create_qp().input(&rig.memory, id, &5u32))
        }),
        case("queue pairs", "another receive CQ", CREATE, Want::Ok, |rig| {
            let other = rig.new_cq();
            let id = UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE;
            rig.run(&rig.create_qp().edit(id, |attr| attr.data = other.into()))
        }),
        case("queue pairs", "a PD of another file", CREATE, ENOENT, |rig| {
            let other = Rig::new(&rig.target)?;
            for _ in 0..20 {
                other.new_pd()?;
            }
            let id = UVERBS_ATTR_CREATE_QP_PD_HANDLE;
            rig.run(&rig.create_qp().edit(id, |attr| attr.data = 19))
        }),
        case("queue pairs", "events of a new one", CREATE, Want::Is("0"), |rig| {
            let cmd = rig.destroy(UVERBS_OBJECT_QP, rig.qp());
            rig.send(&cmd)?;
            Ok(rig.answer::<u32>(&cmd, UVERBS_ATTR_DESTROY_QP_RESP).to_string())
        }),
        case(
            "queue pairs",
            "a destruction that can't answer is done",
            CREATE,
            Want::Is("EFAULT ENOENT"),
            |rig| {
                let hole = rig.memory.hole();
                let cmd = rig.destroy(UVERBS_OBJECT_QP, rig.qp());
                let cmd = cmd.edit(UVERBS_ATTR_DESTROY_QP_RESP, |attr| attr.data = hole);
                let [first, second] = [rig.run(&cmd), rig.run(&cmd)];
                Ok(format!("{:?} {:?}", first.unwrap_err(), second.unwrap_err()))
            },
        ),
        case(
            "queue pairs",
            "number and capabilities",
            CREATE,
            Want::Is("number true, caps true"),
            |rig| {
                let cmd = rig.create_qp();
                rig.send(&cmd)?;
                let number: u32 = rig.answer(&cmd, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM);
                let cap: ib_uverbs_qp_cap = rig.answer(&cmd, UVERBS_ATTR_CREATE_QP_RESP_CAP);
                let asked = Rig::cap();
                let enough =
                    cap.max_send_wr >= asked.max_send_wr && cap.max_recv_wr >= asked.max_recv_wr;
                Ok(format!("number {}, caps {enough}", number != 0 && number < 1 << 24))
            },
        ),
    ]
}

fn capabilities() -> Vec<Case> {
    let cap = |name, want, change: fn(&mut ib_uverbs_qp_cap)| {
        let source = "hw/mlx5/qp.c:set_rq_size, set_user_buf_size; sw/rxe/rxe_qp.c:rxe_qp_chk_cap";
        case("queue pairs", name, source, want, move |rig: &Rig| {
            let cmd = rig.create_qp();
            rig.memory.edit(cmd.find(UVERBS_ATTR_CREATE_QP_CAP).expect("caps").data, change);
            rig.run(&cmd)
        })
    };
    // mlx5_ib takes the send side from the provider's own request.
    vec![
        cap("send requests over the limit", driver(&Want::Ok, &EINVAL), |cap| {
            cap.max_send_wr = 1 << 24
        }),
        cap("receive requests over the limit", EINVAL, |cap| cap.max_recv_wr = 1 << 24),
        cap("send requests 0xffffffff", driver(&Want::Ok, &EINVAL), |cap| {
            cap.max_send_wr = u32::MAX
        }),
        cap("receive requests 0xffffffff", EINVAL, |cap| cap.max_recv_wr = u32::MAX),
        cap("send segments over the limit", driver(&Want::Ok, &EINVAL), |cap| {
            cap.max_send_sge = 1000
        }),
        cap("receive segments over the limit", driver(&Want::Ok, &EINVAL), |cap| {
            cap.max_recv_sge = 1000
        }),
        cap("inline data over the limit", driver(&Want::Ok, &EINVAL), |cap| {
            cap.max_inline_data = 1 << 20
        }),
    ]
}

fn driver_data() -> Vec<Case> {
    let request = |name, want, change: fn(&Rig, &mut mlx5_ib_create_qp)| {
        case("queue pairs", name, MLX5, want, move |rig: &Rig| {
            let cmd = rig.create_qp();
            let addr = cmd.find(UVERBS_ATTR_UHW_IN).expect("driver data").data;
            rig.memory.edit(addr, |request| change(rig, request));
            rig.run(&cmd)
        })
        .only(World::Mlx5, "the driver's data")
    };
    let rxe = |name, want, change: fn(&Rig, crate::cmd::Cmd) -> crate::cmd::Cmd| {
        let source = "sw/rxe/rxe_verbs.c:rxe_create_qp";
        case("queue pairs", name, source, want, move |rig: &Rig| {
            rig.run(&change(rig, rig.create_qp()))
        })
        .only(World::Rxe, "the driver's data")
    };
    vec![
        request("send queue no power of two", EINVAL, |_, qp| qp.sq_wqe_count = 15),
        request("send queue over the limit", EINVAL, |_, qp| qp.sq_wqe_count = 1 << 24),
        request("receive queue no power of two", Want::Ok, |_, qp| qp.rq_wqe_count = 7),
        request("receive stride over 32 bits", EINVAL, |_, qp| qp.rq_wqe_shift = 33),
        request("unknown driver flag", EINVAL, |_, qp| qp.flags |= 1 << 31),
        request("no user index", EINVAL, |_, qp| qp.uidx = 0xff_ffff),
        request("user index over 24 bits", EINVAL, |_, qp| qp.uidx = 1 << 24),
        request("buffer unmapped", EFAULT, |rig, qp| qp.buf_addr = rig.memory.hole()),
        request("record unmapped", EFAULT, |rig, qp| qp.db_addr = rig.memory.hole()),
        case("queue pairs", "short driver data", MLX5, EINVAL, |rig| {
            rig.run(&rig.create_qp().edit(UVERBS_ATTR_UHW_IN, |attr| attr.len = 47))
        })
        .only(World::Mlx5, "the driver's data"),
        // A device that has them, and a program that may, get as far as the driver's data, which is
        // another's.
        case(
            "queue pairs",
            "raw packets",
            CREATE,
            Want::Either(&EPERM, &Want::Either(&EINVAL, &EFAULT)),
            |rig| {
                let kind = u64::from(IB_UVERBS_QPT_RAW_PACKET);
                rig.run(&rig.create_qp().edit(UVERBS_ATTR_CREATE_QP_TYPE, |attr| attr.data = kind))
            },
        )
        .only(World::Mlx5, "rxe has none"),
        rxe("driver's input", EINVAL, |rig, cmd| cmd.input(&rig.memory, UVERBS_ATTR_UHW_IN, &0u64)),
        rxe("driver's room of 31 bytes", EINVAL, |_, cmd| {
            cmd.edit(UVERBS_ATTR_UHW_OUT, |attr| attr.len = 31)
        }),
        rxe("no room for the driver", EINVAL, |_, cmd| cmd.without(UVERBS_ATTR_UHW_OUT)),
        case("queue pairs", "the driver can't write", MLX5, EFAULT, |rig| {
            let hole = rig.memory.hole();
            rig.run(&rig.create_qp().edit(UVERBS_ATTR_UHW_OUT, |attr| attr.data = hole))
        }),
    ]
}
