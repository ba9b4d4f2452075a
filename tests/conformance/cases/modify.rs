//! States of a queue pair: which change is allowed from where, and with which attributes.

use nix::errno::Errno;
use uverbs_kernel_abi::objects::UVERBS_ATTR_CORE_OUT;
use uverbs_kernel_abi::qp::*;

use super::ah::{LONG_TABLE, ON_ETHERNET};
use super::case;
use super::mr::NO_OBJECT;
use crate::case::{Case, World};
use crate::rig::Rig;
use crate::want::{EINVAL, ENODATA, EOPNOTSUPP, Want};

const MODIFY: &str = "core/uverbs_cmd.c:modify_qp";
const TABLE: &str = "core/verbs.c:ib_modify_qp_is_ok";

/// Source and destination must be both IPv4 or both IPv6.
pub(super) const RESOLVE: &str =
    "core/verbs.c:ib_resolve_unicast_gid_dmac; core/addr.c:rdma_resolve_ip";

/// `IB_QP_ATTR_STANDARD_BITS`.
const STANDARD: u32 = (IB_QP_DEST_QPN << 1) - 1;

/// A change that works: the state before it, the request, the attributes that it needs and those
/// that it may have.
struct Step {
    name: &'static str,
    from: u8,
    request: fn(&Rig) -> ib_uverbs_modify_qp,
    required: u32,
    optional: u32,
}

const RTS_OPTIONAL: u32 =
    IB_QP_CUR_STATE | IB_QP_ACCESS_FLAGS | IB_QP_MIN_RNR_TIMER | IB_QP_PATH_MIG_STATE;

const STEPS: [Step; 5] = [
    Step {
        name: "RESET to INIT",
        from: IB_QPS_RESET,
        request: Rig::to_init,
        required: IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS,
        optional: 0,
    },
    Step {
        name: "INIT to RTR",
        from: IB_QPS_INIT,
        request: Rig::to_rtr,
        required: IB_QP_STATE
            | IB_QP_AV
            | IB_QP_PATH_MTU
            | IB_QP_DEST_QPN
            | IB_QP_RQ_PSN
            | IB_QP_MAX_DEST_RD_ATOMIC
            | IB_QP_MIN_RNR_TIMER,
        optional: IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX,
    },
    Step {
        name: "RTR to RTS",
        from: IB_QPS_RTR,
        request: Rig::to_rts,
        required: IB_QP_STATE
            | IB_QP_TIMEOUT
            | IB_QP_RETRY_CNT
            | IB_QP_RNR_RETRY
            | IB_QP_SQ_PSN
            | IB_QP_MAX_QP_RD_ATOMIC,
        optional: RTS_OPTIONAL,
    },
    Step {
        name: "INIT to INIT",
        from: IB_QPS_INIT,
        request: Rig::to_init,
        required: IB_QP_STATE,
        optional: IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS,
    },
    Step {
        name: "RTS to RTS",
        from: IB_QPS_RTS,
        request: |rig| bare(rig, IB_QPS_RTS),
        required: IB_QP_STATE,
        optional: RTS_OPTIONAL,
    },
];

/// Takes a new queue pair to a state by its usual way.
fn bring(rig: &Rig, state: u8) {
    match state {
        IB_QPS_ERR => {
            rig.bring_to(IB_QPS_INIT).expect("INIT");
            rig.send(&rig.modify(&bare(rig, IB_QPS_ERR))).expect("ERR");
        }
        IB_QPS_RESET => {}
        state => rig.bring_to(state).expect("a state on the way"),
    }
}

fn bare(rig: &Rig, state: u8) -> ib_uverbs_modify_qp {
    ib_uverbs_modify_qp {
        qp_handle: rig.qp(),
        attr_mask: IB_QP_STATE,
        qp_state: state,
        ..Default::default()
    }
}

pub(super) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for step in &STEPS {
        all.extend(masks(step));
    }
    all.extend(states());
    all.extend(values());
    all.extend(queries());
    all
}

const RXE_WITHOUT_STATE: Want = Want::Since((6, 2), &EINVAL, &Want::Ok);
/// Measured: EINVAL at 6.12, EOPNOTSUPP at 7.2.
const MLX5_RATE: Want = Want::Since((7, 0), &EINVAL, &EOPNOTSUPP);
const MLX5_REFUSES: Want = Want::Driver { mlx5: &EINVAL, rxe: &Want::Ok };

/// Each attribute added to a good request, or taken from it.
fn masks(step: &'static Step) -> impl Iterator<Item = Case> {
    (0..32).map(move |bit| {
        let mask = 1u32 << bit;
        let (verb, want) = match mask {
            // A change within a state needs no state to go to.
            IB_QP_STATE if step.required == IB_QP_STATE => ("without", Want::Ok),
            // Without a state to go to, rxe asks the table only up to some version between 6.1 and
            // 6.12.
            IB_QP_STATE => ("without", Want::Driver { mlx5: &EINVAL, rxe: &RXE_WITHOUT_STATE }),
            _ if step.required & mask != 0 => ("without", EINVAL),
            _ if step.optional & mask != 0 => ("with", Want::Ok),
            _ if STANDARD & mask != 0 => ("with", EINVAL),
            _ => ("with", EOPNOTSUPP),
        };
        case("transitions", format!("{} {verb} bit {bit}", step.name), TABLE, want, move |rig| {
            bring(rig, step.from);
            let mut request = (step.request)(rig);
            // Optional attributes of the good request stay in the mask.
            request.attr_mask = match step.optional & mask {
                0 => request.attr_mask ^ mask,
                _ => request.attr_mask | mask,
            };
            request.cur_qp_state = step.from;
            rig.run(&rig.modify(&request))
        })
    })
}

/// Each state asked for from each other, with nothing but the state.
fn states() -> Vec<Case> {
    let names = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"];
    let from = [IB_QPS_RESET, IB_QPS_INIT, IB_QPS_RTR, IB_QPS_RTS, IB_QPS_ERR];
    let mut all = Vec::new();
    for from in from {
        for to in 0..=7u8 {
            let want = match (from, to) {
                (_, IB_QPS_RESET) => Want::Ok,
                (IB_QPS_RESET, _) => EINVAL,
                (_, IB_QPS_ERR) => Want::Ok,
                (IB_QPS_INIT, IB_QPS_INIT) | (IB_QPS_RTS, IB_QPS_RTS) => Want::Ok,
                // mlx5 has no way into SQD (hw/mlx5/qp.c:__mlx5_ib_modify_qp, optab).
                (IB_QPS_RTS, IB_QPS_SQD) => Want::Driver { mlx5: &EINVAL, rxe: &Want::Ok },
                _ => EINVAL,
            };
            let name = names.get(usize::from(to)).copied().unwrap_or("state 7");
            let name = format!("{} to {name} alone", names[usize::from(from)]);
            all.push(case("transitions", name, TABLE, want, move |rig| {
                bring(rig, from);
                rig.run(&rig.modify(&bare(rig, to)))
            }));
        }
    }
    all
}

/// Values that are out of range.
fn values() -> Vec<Case> {
    let with = |name, source, step: usize, want, change: fn(&Rig, &mut ib_uverbs_modify_qp)| {
        let step = &STEPS[step];
        case("attributes", format!("{}: {name}", step.name), source, want, move |rig: &Rig| {
            bring(rig, step.from);
            let mut request = (step.request)(rig);
            change(rig, &mut request);
            rig.run(&rig.modify(&request))
        })
    };
    let ex = |name, want, change: fn(&mut ib_uverbs_ex_modify_qp)| {
        let source = "core/uverbs_cmd.c:ib_uverbs_ex_modify_qp";
        case("attributes", format!("extended: {name}"), source, want, move |rig: &Rig| {
            let mut request = ib_uverbs_ex_modify_qp { base: rig.to_init(), ..Default::default() };
            change(&mut request);
            rig.run(&rig.modify_ex(&request))
        })
    };
    let driver = "hw/mlx5/qp.c:mlx5_ib_modify_qp; sw/rxe/rxe_qp.c:rxe_qp_chk_attr";
    let path = "core/verbs.c:rdma_fill_sgid_attr";
    vec![
        with("no QP", MODIFY, 0, NO_OBJECT, |_, qp| qp.qp_handle = 999),
        with("QP 0xffffffff", MODIFY, 0, NO_OBJECT, |_, qp| qp.qp_handle = u32::MAX),
        with("a PD as QP", MODIFY, 0, EINVAL, |rig, qp| qp.qp_handle = rig.pd()),
        with("no QP, and an unknown attribute", MODIFY, 0, EOPNOTSUPP, |_, qp| {
            (qp.qp_handle, qp.attr_mask) = (999, 1 << 24);
        }),
        with("port 0", MODIFY, 0, EINVAL, |_, qp| qp.port_num = 0),
        with("port 2", MODIFY, 0, EINVAL, |_, qp| qp.port_num = 2),
        with("port 255", MODIFY, 0, EINVAL, |_, qp| qp.port_num = 255),
        with("state 7", MODIFY, 0, EINVAL, |_, qp| qp.qp_state = 7),
        with("state 255", MODIFY, 0, EINVAL, |_, qp| qp.qp_state = 255),
        with("current state 7", MODIFY, 0, EINVAL, |_, qp| {
            qp.attr_mask |= IB_QP_CUR_STATE;
            qp.cur_qp_state = 7;
        }),
        with("P_Key index 1000", driver, 0, MLX5_REFUSES, |_, qp| qp.pkey_index = 1000),
        with("P_Key index 0xffff", driver, 0, MLX5_REFUSES, |_, qp| qp.pkey_index = 0xffff),
        with("reserved bytes", MODIFY, 0, Want::Ok, |_, qp| qp.reserved = [1; 2]),
        with("unknown rights", driver, 0, Want::Ok, |_, qp| qp.qp_access_flags |= 1 << 4),
        with("a field that isn't asked for", MODIFY, 0, Want::Ok, |_, qp| qp.path_mtu = 99),
        with("MTU 0", driver, 1, MLX5_REFUSES, |_, qp| qp.path_mtu = 0),
        with("MTU 6", driver, 1, EINVAL, |_, qp| qp.path_mtu = 6),
        with("MTU 255", driver, 1, EINVAL, |_, qp| qp.path_mtu = 255),
        with("reads to serve 255", driver, 1, MLX5_REFUSES, |_, qp| qp.max_dest_rd_atomic = 255),
        with("path port 0", MODIFY, 1, EINVAL, |_, qp| qp.dest.port_num = 0),
        with("path port 2", MODIFY, 1, EINVAL, |_, qp| qp.dest.port_num = 2),
        with("no GRH", path, 1, ON_ETHERNET, |_, qp| qp.dest.is_global = 0),
        with("an empty GID", path, 1, ENODATA, |rig, qp| qp.dest.sgid_index = rig.empty_gid()),
        with("no GID", path, 1, EINVAL, |rig, qp| qp.dest.sgid_index = rig.no_gid())
            .only(World::Mlx5, LONG_TABLE),
        with("GID of another family", RESOLVE, 1, ON_ETHERNET, |_, qp| qp.dest.dgid = [0; 16]),
        with(
            "a GID that nobody has",
            RESOLVE,
            1,
            Want::Link { ethernet: &Want::Err(Errno::ETIMEDOUT), infiniband: &Want::Ok },
            |_, qp| {
                qp.dest.dgid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 203, 0, 113, 1];
            },
        )
        .only(World::Kernel, "softhca has no routes: every address of the family is a neighbour"),
        with("a multicast GID", path, 1, Want::Ok, |_, qp| qp.dest.dgid = [0xff; 16]),
        with("RNR timer 255", driver, 1, Want::Ok, |_, qp| qp.min_rnr_timer = 255),
        with("QPN over 24 bits", driver, 1, Want::Ok, |_, qp| qp.dest_qp_num = u32::MAX),
        with("PSN over 24 bits", driver, 1, Want::Ok, |_, qp| qp.rq_psn = u32::MAX),
        with(
            "alternate path",
            MODIFY,
            1,
            Want::Link { ethernet: &EINVAL, infiniband: &Want::Either(&Want::Ok, &EINVAL) },
            |_, qp| {
                qp.attr_mask |= IB_QP_ALT_PATH;
                (qp.alt_dest, qp.alt_port_num) = (qp.dest, 1);
            },
        ),
        with("alternate path of port 0", MODIFY, 1, EINVAL, |_, qp| {
            qp.attr_mask |= IB_QP_ALT_PATH;
            qp.alt_dest = qp.dest;
        }),
        with("reads to send 255", driver, 2, EINVAL, |_, qp| qp.max_rd_atomic = 255),
        with("retries 255", driver, 2, Want::Ok, |_, qp| qp.retry_cnt = 255),
        with("RNR retries 255", driver, 2, Want::Ok, |_, qp| qp.rnr_retry = 255),
        with("timeout 255", driver, 2, Want::Driver { mlx5: &Want::Ok, rxe: &EINVAL }, |_, qp| {
            qp.timeout = 255
        }),
        with("current state RESET", TABLE, 2, EINVAL, |_, qp| {
            qp.attr_mask |= IB_QP_CUR_STATE;
            qp.cur_qp_state = IB_QPS_RESET;
        }),
        with("current state RTS", TABLE, 2, EINVAL, |_, qp| {
            qp.attr_mask |= IB_QP_CUR_STATE;
            qp.cur_qp_state = IB_QPS_RTS;
        }),
        ex("good", Want::Ok, |_| ()),
        ex("reserved", Want::Ok, |qp| qp.reserved = 1),
        ex("rate limit", Want::Driver { mlx5: &MLX5_RATE, rxe: &EOPNOTSUPP }, |qp| {
            qp.base.attr_mask |= IB_QP_RATE_LIMIT
        }),
        ex("an unknown attribute", EOPNOTSUPP, |qp| qp.base.attr_mask |= 1 << 24),
        ex("bit 31", EOPNOTSUPP, |qp| qp.base.attr_mask |= 1 << 31),
        case(
            "attributes",
            "extended: the length of the answer",
            "core/uverbs_cmd.c:ib_uverbs_ex_modify_qp",
            Want::Is("0 8"),
            |rig| {
                let base = rig.to_init();
                let cmd = rig.modify_ex(&ib_uverbs_ex_modify_qp { base, ..Default::default() });
                rig.send(&cmd)?;
                let answer: ib_uverbs_ex_modify_qp_resp = rig.answer(&cmd, UVERBS_ATTR_CORE_OUT);
                Ok(format!("{} {}", answer.comp_mask, answer.response_length))
            },
        ),
    ]
}

fn queries() -> Vec<Case> {
    let source = "core/uverbs_cmd.c:ib_uverbs_query_qp";
    let handle = |name, want, handle: fn(&Rig) -> u32| {
        case("queries", name, source, want, move |rig: &Rig| rig.run(&rig.query_qp(handle(rig))))
    };
    vec![
        handle("no QP", NO_OBJECT, |_| 999),
        handle("QP 0xffffffff", NO_OBJECT, |_| u32::MAX),
        handle("a PD", EINVAL, Rig::pd),
        case("queries", "states", source, Want::Is("0 1 2 3 6 0"), |rig| {
            let mut seen = Vec::new();
            let state = |rig: &Rig| -> Result<String, Errno> {
                let cmd = rig.query_qp(rig.qp());
                rig.send(&cmd)?;
                let qp: ib_uverbs_query_qp_resp = rig.answer(&cmd, UVERBS_ATTR_CORE_OUT);
                Ok(qp.qp_state.to_string())
            };
            seen.push(state(rig)?);
            let (error, reset) = (bare(rig, IB_QPS_ERR), bare(rig, IB_QPS_RESET));
            for step in [rig.to_init(), rig.to_rtr(), rig.to_rts(), error, reset] {
                rig.send(&rig.modify(&step))?;
                seen.push(state(rig)?);
            }
            Ok(seen.join(" "))
        }),
        case(
            "queries",
            "what was set",
            source,
            Want::Is(
                "mtu 3, qpn 0x50, psn 0x100 0x100, port 1, retries 7 7, timeout 14, reads 1 1, \
                timer 12, rights 0xe",
            ),
            |rig| {
                rig.bring_to(IB_QPS_RTS)?;
                let cmd = rig.query_qp(rig.qp());
                rig.send(&cmd)?;
                let qp: ib_uverbs_query_qp_resp = rig.answer(&cmd, UVERBS_ATTR_CORE_OUT);
                Ok(format!(
                    "mtu {}, qpn {:#x}, psn {:#x} {:#x}, port {}, retries {} {}, timeout {}, \
                    reads {} {}, timer {}, rights {:#x}",
                    qp.path_mtu,
                    qp.dest_qp_num,
                    qp.rq_psn,
                    qp.sq_psn,
                    qp.port_num,
                    qp.retry_cnt,
                    qp.rnr_retry,
                    qp.timeout,
                    qp.max_rd_atomic,
                    qp.max_dest_rd_atomic,
                    qp.min_rnr_timer,
                    qp.qp_access_flags & 0xe
                ))
            },
        ),
        case("queries", "a QP without room", source, crate::want::ENOSPC, |rig| {
            let cmd = rig.query_qp(rig.qp());
            rig.run(&cmd.edit(UVERBS_ATTR_CORE_OUT, |attr| attr.len = 127))
        }),
    ]
}
