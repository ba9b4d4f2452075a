//! Dynamic connections: initiators and targets, which are queue pairs of mlx5's own type.

use nix::errno::Errno;
use uverbs_kernel_abi::mlx5::*;
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::qp::*;

use super::case;
use crate::case::{Case, World};
use crate::cmd::Cmd;
use crate::rig::Rig;
use crate::want::{EBUSY, EINVAL, EOPNOTSUPP, Want};

const CREATE: &str = "hw/mlx5/qp.c:process_vendor_flags, check_qp_attr";
const DCI: &str = "hw/mlx5/qp.c:modify_dci_qp_is_ok";
const DCT: &str = "hw/mlx5/qp.c:mlx5_ib_modify_dct";
const QUERY: &str = "hw/mlx5/qp.c:mlx5_ib_dct_query_qp";

/// `IB_QP_ATTR_STANDARD_BITS`.
const STANDARD: u32 = (IB_QP_DEST_QPN << 1) - 1;

/// A change of an initiator: the states, and the attributes that it needs and may have.
struct Step {
    from: u8,
    to: u8,
    required: u32,
    optional: u32,
}

const STEPS: [Step; 4] = [
    Step {
        from: IB_QPS_RESET,
        to: IB_QPS_INIT,
        required: IB_QP_PKEY_INDEX | IB_QP_PORT,
        optional: 0,
    },
    Step {
        from: IB_QPS_INIT,
        to: IB_QPS_RTR,
        required: IB_QP_PATH_MTU,
        optional: IB_QP_PKEY_INDEX | IB_QP_AV,
    },
    Step {
        from: IB_QPS_RTR,
        to: IB_QPS_RTS,
        required: IB_QP_TIMEOUT
            | IB_QP_RETRY_CNT
            | IB_QP_RNR_RETRY
            | IB_QP_MAX_QP_RD_ATOMIC
            | IB_QP_SQ_PSN,
        optional: IB_QP_MIN_RNR_TIMER,
    },
    Step { from: IB_QPS_RTS, to: IB_QPS_RTS, required: 0, optional: IB_QP_MIN_RNR_TIMER },
];

const TARGET_INIT: u32 = IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX | IB_QP_PORT;
const TARGET_RTR: u32 = IB_QP_MIN_RNR_TIMER | IB_QP_AV | IB_QP_PATH_MTU;

/// CREATE_QP of mlx5's own type with these flags and no receives.
fn create(rig: &Rig, flags: u32) -> Cmd {
    let cmd = rig.create_qp();
    let cap = cmd.find(UVERBS_ATTR_CREATE_QP_CAP).expect("sizes").data;
    rig.memory.edit(cap, |cap: &mut ib_uverbs_qp_cap| {
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
    });
    let driver = cmd.find(UVERBS_ATTR_UHW_IN).expect("driver data").data;
    rig.memory.edit(driver, |request: &mut mlx5_ib_create_qp| {
        (request.rq_wqe_count, request.rq_wqe_shift) = (0, 0);
        request.flags |= flags;
        if flags & MLX5_QP_FLAG_TYPE_DCT != 0 {
            request.sq_buf_addr = 0x1234;
        }
    });
    cmd.edit(UVERBS_ATTR_CREATE_QP_TYPE, |attr| attr.data = IB_UVERBS_QPT_DRIVER.into())
}

fn srq(rig: &Rig) -> Result<u32, Errno> {
    let driver = mlx5_ib_create_srq {
        buf_addr: rig.memory.alloc(4096, 4096),
        db_addr: rig.memory.alloc(8, 64),
        uidx: 0xff_ffff,
        ..Default::default()
    };
    let cmd = rig
        .cmd(UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE)
        .handle(UVERBS_ATTR_CREATE_SRQ_HANDLE, 0u32)
        .handle(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, rig.pd())
        .constant(UVERBS_ATTR_CREATE_SRQ_TYPE, 0)
        .input(&rig.memory, UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, &0xdc_u64)
        .input(&rig.memory, UVERBS_ATTR_CREATE_SRQ_MAX_WR, &15u32)
        .input(&rig.memory, UVERBS_ATTR_CREATE_SRQ_MAX_SGE, &1u32)
        .input(&rig.memory, UVERBS_ATTR_CREATE_SRQ_LIMIT, &0u32)
        .output(&rig.memory, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, 4)
        .output(&rig.memory, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, 4)
        .input(&rig.memory, UVERBS_ATTR_UHW_IN, &driver)
        .output(&rig.memory, UVERBS_ATTR_UHW_OUT, size_of::<mlx5_ib_create_srq_resp>());
    Ok(rig.send(&cmd)?[0].data as u32)
}

/// A target and its shared receive queue.
fn target(rig: &Rig) -> Result<(u32, u32), Errno> {
    let srq = srq(rig)?;
    let cmd = create(rig, MLX5_QP_FLAG_TYPE_DCT).handle(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, srq);
    Ok((rig.send(&cmd)?[0].data as u32, srq))
}

/// CREATE_QP of an initiator, and of a target.
pub(crate) fn new_initiator(rig: &Rig) -> Cmd {
    create(rig, MLX5_QP_FLAG_TYPE_DCI)
}

/// CREATE_QP of an initiator with these streams: log2 of those at once, and of those stopped.
pub(super) fn with_streams(rig: &Rig, [concurrent, errored]: [u8; 2]) -> Cmd {
    let flags = if concurrent | errored == 0 { 0 } else { MLX5_QP_FLAG_DCI_STREAM };
    let cmd = create(rig, MLX5_QP_FLAG_TYPE_DCI | flags);
    let driver = cmd.find(UVERBS_ATTR_UHW_IN).expect("driver data").data;
    rig.memory.edit(driver, |request: &mut mlx5_ib_create_qp| {
        request.dci_streams = mlx5_ib_create_qp_dci_streams {
            log_num_concurent: concurrent,
            log_num_errored: errored,
        };
    });
    cmd
}

/// To RTS.
pub(super) fn bring_up(rig: &Rig, qp: u32) -> Result<(), Errno> {
    STEPS.iter().take(3).try_for_each(|step| {
        rig.send(&rig.modify(&request(rig, qp, step.to, step.required))).map(drop)
    })
}

pub(crate) fn new_target(rig: &Rig) -> Cmd {
    let srq = srq(rig).unwrap_or(999);
    create(rig, MLX5_QP_FLAG_TYPE_DCT).handle(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, srq)
}

/// A request with every field filled in.
fn request(rig: &Rig, qp: u32, to: u8, mask: u32) -> ib_uverbs_modify_qp {
    let (init, rts) = (rig.to_init(), rig.to_rts());
    ib_uverbs_modify_qp {
        qp_handle: qp,
        attr_mask: IB_QP_STATE | mask,
        qp_state: to,
        port_num: init.port_num,
        qp_access_flags: init.qp_access_flags,
        timeout: rts.timeout,
        retry_cnt: rts.retry_cnt,
        rnr_retry: rts.rnr_retry,
        sq_psn: rts.sq_psn,
        max_rd_atomic: rts.max_rd_atomic,
        ..rig.to_rtr()
    }
}

/// MODIFY_QP with room for the driver's answer.
fn modify(rig: &Rig, request: &ib_uverbs_modify_qp, room: usize) -> Cmd {
    let cmd = rig.modify(request);
    match room {
        0 => cmd,
        _ => cmd.output(&rig.memory, UVERBS_ATTR_UHW_OUT, room),
    }
}

/// Each attribute added to a good request, or taken from it.
fn masks(step: &'static Step) -> impl Iterator<Item = Case> {
    (0..32).map(move |bit| {
        let mask = 1u32 << bit;
        let (verb, want) = match mask {
            _ if (IB_QP_STATE | step.required) & mask != 0 => ("without", EINVAL),
            _ if step.optional & mask != 0 => ("with", Want::Ok),
            _ if STANDARD & mask != 0 => ("with", EINVAL),
            _ => ("with", EOPNOTSUPP),
        };
        let name = format!("initiator, {} to {} {verb} bit {bit}", step.from, step.to);
        case("dynamic connections", name, DCI, want, move |rig| {
            let qp = rig.send(&create(rig, MLX5_QP_FLAG_TYPE_DCI))?[0].data as u32;
            for before in STEPS.iter().take_while(|before| before.from < step.from) {
                rig.send(&rig.modify(&request(rig, qp, before.to, before.required)))?;
            }
            let mut request = request(rig, qp, step.to, step.required);
            request.attr_mask ^= mask;
            request.cur_qp_state = step.from;
            rig.run(&rig.modify(&request))
        })
    })
}

/// Cases for a target with each bit of the mask flipped; a target has two transitions.
fn target_masks(to: u8, required: u32) -> impl Iterator<Item = Case> {
    (0..32).map(move |bit| {
        let mask = 1u32 << bit;
        let (verb, want) = match mask {
            _ if (IB_QP_STATE | required) & mask != 0 => ("without", EINVAL),
            _ if STANDARD & mask != 0 => ("with", EINVAL),
            _ => ("with", EOPNOTSUPP),
        };
        let name = format!("target, to {to} {verb} bit {bit}");
        case("dynamic connections", name, DCT, want, move |rig| {
            let (dct, _) = target(rig)?;
            if to == IB_QPS_RTR {
                rig.send(&rig.modify(&request(rig, dct, IB_QPS_INIT, TARGET_INIT)))?;
            }
            let mut request = request(rig, dct, to, required);
            request.attr_mask ^= mask;
            rig.run(&modify(rig, &request, size_of::<mlx5_ib_modify_qp_resp>()))
        })
    })
}

pub(super) fn cases() -> Vec<Case> {
    let with = |name: &'static str, source, want, run: fn(&Rig) -> Result<String, Errno>| {
        case("dynamic connections", name, source, want, run)
    };
    let mut all = vec![
        with("an initiator", CREATE, Want::Ok, |rig| rig.run(&create(rig, MLX5_QP_FLAG_TYPE_DCI))),
        with("neither", CREATE, EINVAL, |rig| rig.run(&create(rig, 0))),
        with("both", CREATE, EINVAL, |rig| {
            rig.run(&create(rig, MLX5_QP_FLAG_TYPE_DCI | MLX5_QP_FLAG_TYPE_DCT))
        }),
        with("an initiator that receives", CREATE, EINVAL, |rig| {
            let cmd = create(rig, MLX5_QP_FLAG_TYPE_DCI);
            let cap = cmd.find(UVERBS_ATTR_CREATE_QP_CAP).expect("sizes").data;
            rig.memory.edit(cap, |cap: &mut ib_uverbs_qp_cap| cap.max_recv_wr = 1);
            rig.run(&cmd)
        }),
        with("an initiator with streams", CREATE, Want::Ok, |rig| {
            rig.run(&with_streams(rig, [3, 4]))
        }),
        with("a target", CREATE, Want::Ok, |rig| target(rig).map(|_| String::new())),
        with("a target without receives", CREATE, EINVAL, |rig| {
            rig.run(&create(rig, MLX5_QP_FLAG_TYPE_DCT))
        }),
        with("a target's receives are in use", CREATE, EBUSY, |rig| {
            let (_, srq) = target(rig)?;
            rig.run(&rig.destroy(UVERBS_OBJECT_SRQ, srq))
        }),
        with("a target's number", DCT, Want::Is("16, and a number"), |rig| {
            let (dct, _) = target(rig)?;
            rig.send(&rig.modify(&request(rig, dct, IB_QPS_INIT, TARGET_INIT)))?;
            let up = request(rig, dct, IB_QPS_RTR, TARGET_RTR);
            let cmd = modify(rig, &up, size_of::<mlx5_ib_modify_qp_resp>());
            rig.send(&cmd)?;
            let answer: mlx5_ib_modify_qp_resp = rig.answer(&cmd, UVERBS_ATTR_UHW_OUT);
            let kind = if answer.dctn == 0 { "none" } else { "a number" };
            Ok(format!("{}, and {kind}", answer.response_length))
        }),
        with("a target to ERR", DCT, EINVAL, |rig| {
            let (dct, _) = target(rig)?;
            rig.send(&rig.modify(&request(rig, dct, IB_QPS_INIT, TARGET_INIT)))?;
            rig.run(&rig.modify(&request(rig, dct, IB_QPS_ERR, 0)))
        }),
        with("a target to RTR at once", DCT, EINVAL, |rig| {
            let (dct, _) = target(rig)?;
            let up = request(rig, dct, IB_QPS_RTR, TARGET_RTR);
            rig.run(&modify(rig, &up, size_of::<mlx5_ib_modify_qp_resp>()))
        }),
        with("a query before RTR", QUERY, EINVAL, |rig| {
            let (dct, _) = target(rig)?;
            rig.run(&rig.query_qp(dct))
        }),
        with("a target at work, destroyed", DCT, Want::Ok, |rig| {
            let (dct, srq) = target(rig)?;
            rig.send(&rig.modify(&request(rig, dct, IB_QPS_INIT, TARGET_INIT)))?;
            let up = request(rig, dct, IB_QPS_RTR, TARGET_RTR);
            rig.send(&modify(rig, &up, size_of::<mlx5_ib_modify_qp_resp>()))?;
            rig.send(&rig.destroy(UVERBS_OBJECT_QP, dct))?;
            rig.run(&rig.destroy(UVERBS_OBJECT_SRQ, srq))
        }),
    ];
    for room in [0, 4, 7, 8] {
        let want = if room < 8 { EINVAL } else { Want::Ok };
        let name = format!("a target's number, with room for {room} bytes");
        all.push(case("dynamic connections", name, DCT, want, move |rig| {
            let (dct, _) = target(rig)?;
            rig.send(&rig.modify(&request(rig, dct, IB_QPS_INIT, TARGET_INIT)))?;
            rig.run(&modify(rig, &request(rig, dct, IB_QPS_RTR, TARGET_RTR), room))
        }));
    }
    all.extend(STEPS.iter().flat_map(masks));
    all.extend(target_masks(IB_QPS_INIT, TARGET_INIT));
    all.extend(target_masks(IB_QPS_RTR, TARGET_RTR));
    all.into_iter().map(|case| case.only(World::Mlx5, "soft-RoCE has no DC")).collect()
}
