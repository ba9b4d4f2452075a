//! States of UC and UD queue pairs, and the ways into SQD and out of SQD and SQE: which attributes
//! each change must and may be given.

use nix::errno::Errno;
use uverbs_kernel_abi::objects::UVERBS_ATTR_CORE_OUT;
use uverbs_kernel_abi::qp::*;

use super::case;
use crate::case::{Case, World};
use crate::rig::Rig;
use crate::want::{EINVAL, EOPNOTSUPP, Want};

const TABLE: &str = "core/verbs.c:ib_modify_qp_is_ok";

/// `IB_QP_ATTR_STANDARD_BITS`.
const STANDARD: u32 = (IB_QP_DEST_QPN << 1) - 1;
/// Outcome of a request without a new state: mlx5 refuses it, and so does rxe from some version
/// between 6.1 and 6.12 on.
const WITHOUT_STATE: Want = Want::Driver { mlx5: &EINVAL, rxe: &RXE_WITHOUT_STATE };
const RXE_WITHOUT_STATE: Want = Want::Since((6, 2), &EINVAL, &Want::Ok);

/// A change that works, with the attributes that it needs and those that it may have. An alternate
/// path is among neither: its port, 0, is refused before the table is looked at.
struct Step {
    kind: u8,
    from: u8,
    to: u8,
    required: u32,
    optional: u32,
}

const fn step(kind: u8, from: u8, to: u8, required: u32, optional: u32) -> Step {
    Step { kind, from, to, required, optional }
}

const UC_OPTIONAL: u32 = IB_QP_CUR_STATE | IB_QP_ACCESS_FLAGS | IB_QP_PATH_MIG_STATE;
const UD_OPTIONAL: u32 = IB_QP_CUR_STATE | IB_QP_QKEY;
const RC_OPTIONAL: u32 = UC_OPTIONAL | IB_QP_MIN_RNR_TIMER;

const STEPS: [Step; 8] = [
    step(
        IB_UVERBS_QPT_UC,
        IB_QPS_RESET,
        IB_QPS_INIT,
        IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS,
        0,
    ),
    step(
        IB_UVERBS_QPT_UC,
        IB_QPS_INIT,
        IB_QPS_RTR,
        IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN,
        IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX,
    ),
    step(IB_UVERBS_QPT_UC, IB_QPS_RTR, IB_QPS_RTS, IB_QP_SQ_PSN, UC_OPTIONAL),
    step(IB_UVERBS_QPT_UC, IB_QPS_RTS, IB_QPS_RTS, 0, UC_OPTIONAL),
    step(
        IB_UVERBS_QPT_UD,
        IB_QPS_RESET,
        IB_QPS_INIT,
        IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_QKEY,
        0,
    ),
    step(IB_UVERBS_QPT_UD, IB_QPS_INIT, IB_QPS_RTR, 0, IB_QP_PKEY_INDEX | IB_QP_QKEY),
    step(IB_UVERBS_QPT_UD, IB_QPS_RTR, IB_QPS_RTS, IB_QP_SQ_PSN, UD_OPTIONAL),
    step(IB_UVERBS_QPT_UD, IB_QPS_RTS, IB_QPS_RTS, 0, UD_OPTIONAL),
];

/// Transitions that mlx5 rejects (`hw/mlx5/qp.c:__mlx5_ib_modify_qp`, `optab`).
const DRAINS: [Step; 9] = [
    step(IB_UVERBS_QPT_RC, IB_QPS_RTS, IB_QPS_SQD, 0, IB_QP_EN_SQD_ASYNC_NOTIFY),
    step(IB_UVERBS_QPT_UC, IB_QPS_RTS, IB_QPS_SQD, 0, IB_QP_EN_SQD_ASYNC_NOTIFY),
    step(IB_UVERBS_QPT_UD, IB_QPS_RTS, IB_QPS_SQD, 0, IB_QP_EN_SQD_ASYNC_NOTIFY),
    step(
        IB_UVERBS_QPT_RC,
        IB_QPS_SQD,
        IB_QPS_SQD,
        0,
        IB_QP_PORT
            | IB_QP_AV
            | IB_QP_TIMEOUT
            | IB_QP_RETRY_CNT
            | IB_QP_RNR_RETRY
            | IB_QP_MAX_QP_RD_ATOMIC
            | IB_QP_MAX_DEST_RD_ATOMIC
            | IB_QP_ACCESS_FLAGS
            | IB_QP_PKEY_INDEX
            | IB_QP_MIN_RNR_TIMER
            | IB_QP_PATH_MIG_STATE,
    ),
    // No path: its port is taken along, which the table doesn't have here.
    step(
        IB_UVERBS_QPT_UC,
        IB_QPS_SQD,
        IB_QPS_SQD,
        0,
        IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX | IB_QP_PATH_MIG_STATE,
    ),
    step(IB_UVERBS_QPT_UD, IB_QPS_SQD, IB_QPS_SQD, 0, IB_QP_PKEY_INDEX | IB_QP_QKEY),
    step(IB_UVERBS_QPT_RC, IB_QPS_SQD, IB_QPS_RTS, 0, RC_OPTIONAL),
    step(IB_UVERBS_QPT_UC, IB_QPS_SQD, IB_QPS_RTS, 0, UC_OPTIONAL),
    step(IB_UVERBS_QPT_UD, IB_QPS_SQD, IB_QPS_RTS, 0, UD_OPTIONAL),
];

fn kind_name(kind: u8) -> &'static str {
    match kind {
        IB_UVERBS_QPT_UC => "UC",
        IB_UVERBS_QPT_UD => "UD",
        _ => "RC",
    }
}

fn state_name(state: u8) -> &'static str {
    ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"][usize::from(state)]
}

/// A request with every field filled in, for a queue pair of that number.
fn request(rig: &Rig, qp: u32, to: u8, mask: u32) -> ib_uverbs_modify_qp {
    let (init, rtr, rts) = (rig.to_init(), rig.to_rtr(), rig.to_rts());
    ib_uverbs_modify_qp {
        qp_handle: qp,
        attr_mask: IB_QP_STATE | mask,
        qp_state: to,
        port_num: init.port_num,
        qp_access_flags: init.qp_access_flags,
        qkey: 0x1111,
        timeout: rts.timeout,
        retry_cnt: rts.retry_cnt,
        rnr_retry: rts.rnr_retry,
        sq_psn: rts.sq_psn,
        max_rd_atomic: rts.max_rd_atomic,
        ..rtr
    }
}

/// A new queue pair of a kind, brought to a state by its usual way.
fn brought(rig: &Rig, kind: u8, state: u8) -> Result<u32, Errno> {
    let qp = rig.qp_of(kind);
    let way = [IB_QPS_INIT, IB_QPS_RTR, IB_QPS_RTS, IB_QPS_SQD];
    for &to in way.iter().take_while(|&&to| to <= state) {
        let mask = match (kind, to) {
            (_, IB_QPS_SQD) => 0,
            (IB_UVERBS_QPT_RC, IB_QPS_INIT) => rig.to_init().attr_mask,
            (IB_UVERBS_QPT_RC, IB_QPS_RTR) => rig.to_rtr().attr_mask,
            (IB_UVERBS_QPT_RC, _) => rig.to_rts().attr_mask,
            _ => STEPS
                .iter()
                .find(|step| (step.kind, step.to) == (kind, to))
                .map_or(0, |step| step.required),
        };
        rig.send(&rig.modify(&request(rig, qp, to, mask)))?;
    }
    if state == IB_QPS_SQD {
        drained(rig, qp)?;
    }
    Ok(qp)
}

/// Waits until nothing is being sent, before which rxe refuses what comes after SQD.
fn drained(rig: &Rig, qp: u32) -> Result<(), Errno> {
    for _ in 0..2000 {
        let cmd = rig.query_qp(qp);
        rig.send(&cmd)?;
        let answer: ib_uverbs_query_qp_resp = rig.answer(&cmd, UVERBS_ATTR_CORE_OUT);
        if answer.sq_draining == 0 {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Err(Errno::ETIMEDOUT)
}

/// Each attribute added to a good request, or taken from it.
fn masks(step: &'static Step) -> impl Iterator<Item = Case> {
    let way =
        format!("{} {} to {}", kind_name(step.kind), state_name(step.from), state_name(step.to));
    (0..32).map(move |bit| {
        let mask = 1u32 << bit;
        let (verb, want) = match mask {
            // It then stays where it is, and needs nothing for that.
            IB_QP_STATE if step.required == 0 => ("without", Want::Ok),
            IB_QP_STATE => ("without", WITHOUT_STATE),
            _ if step.required & mask != 0 => ("without", EINVAL),
            _ if step.optional & mask != 0 => ("with", Want::Ok),
            _ if STANDARD & mask != 0 => ("with", EINVAL),
            _ => ("with", EOPNOTSUPP),
        };
        case("steps", format!("{way} {verb} bit {bit}"), TABLE, want, move |rig| {
            let qp = brought(rig, step.kind, step.from)?;
            let mut request = request(rig, qp, step.to, step.required);
            request.attr_mask ^= mask;
            request.cur_qp_state = step.from;
            rig.run(&rig.modify(&request))
        })
    })
}

pub(super) fn cases() -> Vec<Case> {
    let mut all: Vec<_> = STEPS.iter().flat_map(masks).collect();
    let drains = DRAINS.iter().flat_map(masks);
    all.extend(drains.map(|case| case.only(World::Rxe, "mlx5_ib has no way into SQD")));
    for step in &DRAINS[..3] {
        let name = format!("{} RTS to SQD on mlx5", kind_name(step.kind));
        let source = "hw/mlx5/qp.c:__mlx5_ib_modify_qp";
        let refused = case("steps", name, source, EINVAL, move |rig| {
            let qp = brought(rig, step.kind, IB_QPS_RTS)?;
            rig.run(&rig.modify(&request(rig, qp, IB_QPS_SQD, 0)))
        });
        all.push(refused.only(World::Mlx5, "rxe has SQD"));
    }
    // The program says that it is in SQE, and the device knows better.
    for kind in [IB_UVERBS_QPT_RC, IB_UVERBS_QPT_UC, IB_UVERBS_QPT_UD] {
        let want = match kind {
            IB_UVERBS_QPT_RC => EINVAL,
            _ => Want::Driver { mlx5: &EINVAL, rxe: &Want::Ok },
        };
        let name = format!("{} RTS called SQE to RTS", kind_name(kind));
        all.push(case("steps", name, TABLE, want, move |rig| {
            let qp = brought(rig, kind, IB_QPS_RTS)?;
            let mut request = request(rig, qp, IB_QPS_RTS, IB_QP_CUR_STATE);
            request.cur_qp_state = IB_QPS_SQE;
            rig.run(&rig.modify(&request))
        }));
    }
    all
}
