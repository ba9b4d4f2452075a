//! Work queues, tables of them, and queue pairs over a table.

use uverbs_kernel_abi::mlx5::{
    MLX5_IB_CREATE_WQ_STRIDING_RQ, MLX5_QP_FLAG_SCATTER_CQE, MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC,
    MLX5_RX_HASH_DST_IPV6, MLX5_RX_HASH_FUNC_TOEPLITZ, MLX5_RX_HASH_INNER, MLX5_RX_HASH_SRC_IPV4,
    MLX5_RX_HASH_SRC_PORT_TCP, MLX5_RX_HASH_SRC_PORT_UDP, mlx5_ib_create_qp_resp,
    mlx5_ib_create_qp_rss, mlx5_ib_create_wq, mlx5_ib_modify_wq,
};
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::qp::{
    IB_QP_PORT, IB_QP_STATE, IB_QPS_INIT, IB_UVERBS_QPT_RAW_PACKET, IB_UVERBS_QPT_RC,
    IB_UVERBS_QPT_UC, IB_UVERBS_QPT_UD, ib_uverbs_modify_qp, ib_uverbs_qp_cap,
};
use uverbs_kernel_abi::wq::*;
use uverbs_kernel_abi::write::{
    IB_USER_VERBS_CMD_FLAG_EXTENDED, IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL,
    IB_USER_VERBS_EX_CMD_MODIFY_WQ,
};
use zerocopy::IntoBytes;

use super::case;
use super::mr::NO_OBJECT;
use crate::case::{Case, World};
use crate::cmd::Cmd;
use crate::rig::Rig;
use crate::want::{EBUSY, EINVAL, ENOSPC, ENOSYS, EOPNOTSUPP, EPROTONOSUPPORT, Outcome, Want};

const CREATE: &str = "core/uverbs_std_types_wq.c:UVERBS_METHOD_WQ_CREATE";
const MLX5: &str = "hw/mlx5/qp.c:mlx5_ib_create_wq";
const MODIFY: &str = "core/uverbs_cmd.c:ib_uverbs_ex_modify_wq; hw/mlx5/qp.c:mlx5_ib_modify_wq";
const TABLE: &str = "core/uverbs_cmd.c:ib_uverbs_ex_create_rwq_ind_table";
const RSS: &str = "hw/mlx5/qp.c:create_rss_raw_qp_tir";
const USED: &str = "core/verbs.c:ib_destroy_wq_user; core/uverbs_std_types.c";

/// Outcome of all work queue methods on InfiniBand, where mlx5_ib does not support them.
const NO_QUEUES: Want = Want::Either(&EPROTONOSUPPORT, &EOPNOTSUPP);

/// A case with `want` on an Ethernet port, and a refusal on InfiniBand.
fn ethernet(
    name: &'static str,
    source: &'static str,
    want: &'static Want,
    run: impl Fn(&Rig) -> Outcome + 'static,
) -> Case {
    let want = Want::Link { ethernet: want, infiniband: &NO_QUEUES };
    case("work queues", name, source, want, run)
}

/// WQ_CREATE of eight receives.
fn create(rig: &Rig, change: impl Fn(&mut mlx5_ib_create_wq)) -> Cmd {
    let mut request = mlx5_ib_create_wq {
        buf_addr: rig.memory.alloc(8 * 16, 4096),
        db_addr: rig.memory.alloc(8, 64),
        rq_wqe_count: 8,
        rq_wqe_shift: 4,
        user_index: 0x4321,
        ..Default::default()
    };
    change(&mut request);
    rig.cmd(UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_CREATE)
        .handle(UVERBS_ATTR_CREATE_WQ_HANDLE, 0u32)
        .input(&rig.memory, UVERBS_ATTR_CREATE_WQ_USER_HANDLE, &0xfeed_u64)
        .handle(UVERBS_ATTR_CREATE_WQ_PD_HANDLE, rig.pd())
        .handle(UVERBS_ATTR_CREATE_WQ_CQ_HANDLE, rig.cq())
        .constant(UVERBS_ATTR_CREATE_WQ_TYPE, IB_UVERBS_WQT_RQ.into())
        .input(&rig.memory, UVERBS_ATTR_CREATE_WQ_MAX_WR, &8u32)
        .input(&rig.memory, UVERBS_ATTR_CREATE_WQ_MAX_SGE, &1u32)
        .input(&rig.memory, UVERBS_ATTR_CREATE_WQ_FLAGS, &0u32)
        .output(&rig.memory, UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, 4)
        .output(&rig.memory, UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, 4)
        .output(&rig.memory, UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, 4)
        .input(&rig.memory, UVERBS_ATTR_UHW_IN, &request)
        .output(&rig.memory, UVERBS_ATTR_UHW_OUT, 8)
}

fn new_wq(rig: &Rig) -> Result<u32, nix::errno::Errno> {
    Ok(rig.send(&create(rig, |_| ()))?[0].data as u32)
}

fn modify(rig: &Rig, request: &ib_uverbs_ex_modify_wq) -> Cmd {
    let command = IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_MODIFY_WQ;
    rig.cmd(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE)
        .constant(UVERBS_ATTR_WRITE_CMD, command.into())
        .input(&rig.memory, UVERBS_ATTR_CORE_IN, request)
        .input(&rig.memory, UVERBS_ATTR_UHW_IN, &mlx5_ib_modify_wq::default())
}

/// CREATE_RWQ_IND_TBL of so many places as the logarithm says, with these queues.
fn table(rig: &Rig, log: u32, queues: &[u32]) -> Cmd {
    let command = IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL;
    let head = ib_uverbs_ex_create_rwq_ind_table { comp_mask: 0, log_ind_tbl_size: log };
    let mut bytes = [head.as_bytes(), queues.as_bytes()].concat();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    rig.cmd(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE)
        .constant(UVERBS_ATTR_WRITE_CMD, command.into())
        .bytes(&rig.memory, UVERBS_ATTR_CORE_IN, &bytes)
        .output(&rig.memory, UVERBS_ATTR_CORE_OUT, 16)
        .output(&rig.memory, UVERBS_ATTR_UHW_OUT, 8)
}

fn new_table(rig: &Rig, queues: &[u32]) -> Result<u32, nix::errno::Errno> {
    let cmd = table(rig, queues.len().ilog2(), queues);
    rig.send(&cmd)?;
    let answer: ib_uverbs_ex_create_rwq_ind_table_resp = rig.answer(&cmd, UVERBS_ATTR_CORE_OUT);
    Ok(answer.ind_tbl_handle)
}

/// QP_CREATE over a table.
fn rss(rig: &Rig, table: u32, change: impl Fn(&mut mlx5_ib_create_qp_rss)) -> Cmd {
    let mut request = mlx5_ib_create_qp_rss {
        rx_hash_fields_mask: MLX5_RX_HASH_SRC_IPV4 | MLX5_RX_HASH_SRC_PORT_UDP,
        rx_hash_function: MLX5_RX_HASH_FUNC_TOEPLITZ,
        rx_key_len: 40,
        ..Default::default()
    };
    change(&mut request);
    rig.cmd(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE)
        .handle(UVERBS_ATTR_CREATE_QP_HANDLE, 0u32)
        .handle(UVERBS_ATTR_CREATE_QP_PD_HANDLE, rig.pd())
        .handle(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, table)
        .constant(UVERBS_ATTR_CREATE_QP_TYPE, IB_UVERBS_QPT_RAW_PACKET.into())
        .input(&rig.memory, UVERBS_ATTR_CREATE_QP_USER_HANDLE, &0xbeef_u64)
        .input(&rig.memory, UVERBS_ATTR_CREATE_QP_CAP, &ib_uverbs_qp_cap::default())
        .output(&rig.memory, UVERBS_ATTR_CREATE_QP_RESP_CAP, size_of::<ib_uverbs_qp_cap>())
        .output(&rig.memory, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, 4)
        .input(&rig.memory, UVERBS_ATTR_UHW_IN, &request)
        .output(&rig.memory, UVERBS_ATTR_UHW_OUT, size_of::<mlx5_ib_create_qp_resp>())
}

fn new_rss(rig: &Rig) -> Result<(u32, u32, u32), nix::errno::Errno> {
    let wq = new_wq(rig)?;
    let table = new_table(rig, &[wq, wq])?;
    Ok((rig.send(&rss(rig, table, |_| ()))?[0].data as u32, table, wq))
}

pub(super) fn cases() -> Vec<Case> {
    let mut all = queues();
    all.extend(changes());
    all.extend(tables());
    all.extend(queue_pairs());
    let why = "work queues are ConnectX's";
    let mut all: Vec<_> = all.into_iter().map(|case| case.only(World::Mlx5, why)).collect();
    all.extend(states_that_are_none());
    all
}

fn queues() -> Vec<Case> {
    let request = |name, want, change: fn(&mut mlx5_ib_create_wq)| {
        ethernet(name, MLX5, want, move |rig| rig.run(&create(rig, change)))
    };
    let attr = |name, source, want, id, data: u64| {
        ethernet(name, source, want, move |rig| {
            rig.run(&create(rig, |_| ()).edit(id, |attr| attr.data = data))
        })
    };
    let flags = UVERBS_ATTR_CREATE_WQ_FLAGS;
    vec![
        request("a queue", &Want::Ok, |_| ()),
        request("no entries", &EINVAL, |wq| wq.rq_wqe_count = 0),
        request("entries of half a segment", &EINVAL, |wq| wq.rq_wqe_shift = 3),
        request("a striding queue", &EOPNOTSUPP, |wq| {
            wq.comp_mask = MLX5_IB_CREATE_WQ_STRIDING_RQ;
        }),
        request("comp_mask", &EOPNOTSUPP, |wq| wq.comp_mask = 2),
        request("entries that are no power of two", &Want::Ok, |wq| wq.rq_wqe_count = 5),
        attr("a type that isn't there", CREATE, &EINVAL, UVERBS_ATTR_CREATE_WQ_TYPE, 1),
        attr("a flag that isn't there", CREATE, &EINVAL, flags, 1 << 4),
        attr("with VLAN tags taken out", MLX5, &Want::Ok, flags, 1),
        attr("with check sequences", MLX5, &EOPNOTSUPP, flags, 2),
        attr("more receives than any queue", MLX5, &EINVAL, UVERBS_ATTR_CREATE_WQ_MAX_WR, 1 << 20),
        ethernet("it says what was asked for", CREATE, &Want::Is("8 1"), |rig| {
            let cmd = create(rig, |_| ());
            rig.send(&cmd)?;
            let room: u32 = rig.answer(&cmd, UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR);
            let list: u32 = rig.answer(&cmd, UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE);
            Ok(format!("{room} {list}"))
        }),
        ethernet("destroyed", CREATE, &Want::Ok, |rig| {
            let wq = new_wq(rig)?;
            rig.run(&rig.destroy(UVERBS_OBJECT_WQ, wq))
        }),
        ethernet("its completion queue destroyed", USED, &EBUSY, |rig| {
            new_wq(rig)?;
            rig.run(&rig.destroy(UVERBS_OBJECT_CQ, rig.cq()))
        }),
    ]
}

/// MODIFY_WQ of a new queue to RDY, changed.
fn with(name: &'static str, want: &'static Want, change: fn(&mut ib_uverbs_ex_modify_wq)) -> Case {
    ethernet(name, MODIFY, want, move |rig| {
        let (wq_handle, wq_state) = (new_wq(rig)?, IB_WQS_RDY);
        let attr_mask = IB_WQ_STATE;
        let mut request =
            ib_uverbs_ex_modify_wq { attr_mask, wq_handle, wq_state, ..Default::default() };
        change(&mut request);
        rig.run(&modify(rig, &request))
    })
}

/// Linux, 6.12 at least, refuses these and forgets to let go of the queue, which then can't be
/// destroyed: the kernel warns when the file is closed (`ib_uverbs_ex_modify_wq`).
fn states_that_are_none() -> Vec<Case> {
    let all = [
        with("a state that isn't there", &EINVAL, |wq| wq.wq_state = 3),
        with("from a state that isn't there", &EINVAL, |wq| {
            (wq.attr_mask, wq.curr_wq_state) = (IB_WQ_STATE | IB_WQ_CUR_STATE, 3);
        }),
    ];
    let why = "Linux keeps the queue locked, and warns";
    all.into_iter().map(|case| case.only(World::Here, why)).collect()
}

fn changes() -> Vec<Case> {
    // States one after the other, each from the one before; the outcome is the last one's.
    let states = |name, want, to: &'static [u32]| {
        ethernet(name, MODIFY, want, move |rig| {
            let wq_handle = new_wq(rig)?;
            let mut last = Ok(String::new());
            for &wq_state in to {
                let attr_mask = IB_WQ_STATE;
                let request =
                    ib_uverbs_ex_modify_wq { attr_mask, wq_handle, wq_state, ..Default::default() };
                last = rig.run(&modify(rig, &request));
            }
            last
        })
    };
    use self::{IB_WQS_ERR as ERR, IB_WQS_RDY as RDY, IB_WQS_RESET as RESET};
    vec![
        states("RDY", &Want::Ok, &[RDY]),
        states("RDY to RDY", &Want::Ok, &[RDY, RDY]),
        states("RDY to ERR", &Want::Ok, &[RDY, ERR]),
        states("ERR to RDY", &EINVAL, &[RDY, ERR, RDY]),
        states("ERR to RESET", &Want::Ok, &[RDY, ERR, RESET]),
        states("RDY to RESET", &Want::Ok, &[RDY, RESET]),
        states("RESET to ERR", &EINVAL, &[ERR]),
        states("round and up again", &Want::Ok, &[RDY, ERR, RESET, RDY]),
        with("nothing to change", &EINVAL, |wq| wq.attr_mask = 0),
        with("an attribute that isn't there", &EINVAL, |wq| wq.attr_mask |= 8),
        with("from another state than its own", &EINVAL, |wq| {
            (wq.attr_mask, wq.curr_wq_state) = (IB_WQ_STATE | IB_WQ_CUR_STATE, IB_WQS_ERR);
        }),
        with("no queue", &NO_OBJECT, |wq| wq.wq_handle = 999),
        with("VLAN tags taken out", &Want::Ok, |wq| {
            let flag = IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING;
            (wq.attr_mask, wq.flags, wq.flags_mask) = (IB_WQ_STATE | IB_WQ_FLAGS, flag, flag);
        }),
        with("padding", &EOPNOTSUPP, |wq| {
            let flag = IB_UVERBS_WQ_FLAGS_PCI_WRITE_END_PADDING;
            (wq.attr_mask, wq.flags, wq.flags_mask) = (IB_WQ_STATE | IB_WQ_FLAGS, flag, flag);
        }),
    ]
}

fn tables() -> Vec<Case> {
    let of = |name, want, log: u32, count: usize| {
        ethernet(name, TABLE, want, move |rig| {
            let wq = new_wq(rig)?;
            rig.run(&table(rig, log, &vec![wq; count]))
        })
    };
    vec![
        of("a table of one", &Want::Ok, 0, 1),
        of("a table of four", &Want::Ok, 2, 4),
        of("a table whose list is short", &ENOSPC, 3, 4),
        of("a table of more than any", &EINVAL, 14, 4),
        of("a table of more than the device's", &EINVAL, 13, 1 << 13),
        ethernet("a table of a queue that isn't there", TABLE, &NO_OBJECT, |rig| {
            let wq = new_wq(rig)?;
            rig.run(&table(rig, 1, &[wq, 999]))
        }),
        ethernet("a table with a PD", TABLE, &EINVAL, |rig| {
            let wq = new_wq(rig)?;
            rig.run(&table(rig, 1, &[wq, rig.pd()]))
        }),
        ethernet("a table's queue destroyed", USED, &EBUSY, |rig| {
            let wq = new_wq(rig)?;
            new_table(rig, &[wq])?;
            rig.run(&rig.destroy(UVERBS_OBJECT_WQ, wq))
        }),
        ethernet("the queue of a table that is gone", USED, &Want::Ok, |rig| {
            let wq = new_wq(rig)?;
            let table = new_table(rig, &[wq, wq])?;
            rig.send(&rig.destroy(UVERBS_OBJECT_RWQ_IND_TBL, table))?;
            rig.run(&rig.destroy(UVERBS_OBJECT_WQ, wq))
        }),
    ]
}

fn queue_pairs() -> Vec<Case> {
    let request = |name, want, change: fn(&mut mlx5_ib_create_qp_rss)| {
        ethernet(name, RSS, want, move |rig| {
            let wq = new_wq(rig)?;
            let table = new_table(rig, &[wq, wq])?;
            rig.run(&rss(rig, table, change))
        })
    };
    let of_type = |name, kind: u8| {
        ethernet(name, "hw/mlx5/qp.c:check_qp_attr", &EINVAL, move |rig| {
            let wq = new_wq(rig)?;
            let cmd = rss(rig, new_table(rig, &[wq, wq])?, |_| ());
            rig.run(&cmd.edit(UVERBS_ATTR_CREATE_QP_TYPE, |attr| attr.data = kind.into()))
        })
    };
    vec![
        request("a queue pair over a table", &Want::Ok, |_| ()),
        request("that hears itself", &Want::Ok, |qp| {
            qp.flags = MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC;
        }),
        request("with scatter to CQE", &EINVAL, |qp| qp.flags = MLX5_QP_FLAG_SCATTER_CQE),
        request("comp_mask of the queue pair", &EOPNOTSUPP, |qp| qp.comp_mask = 1),
        request("a function that isn't there", &EOPNOTSUPP, |qp| qp.rx_hash_function = 2),
        request("a short key", &EINVAL, |qp| qp.rx_key_len = 39),
        request("no field", &EINVAL, |qp| qp.rx_hash_fields_mask = 0),
        request("fields of the inner packet", &EOPNOTSUPP, |qp| {
            qp.rx_hash_fields_mask |= MLX5_RX_HASH_INNER;
        }),
        request("both versions of IP", &EINVAL, |qp| {
            qp.rx_hash_fields_mask |= MLX5_RX_HASH_DST_IPV6;
        }),
        request("UDP and TCP", &EINVAL, |qp| qp.rx_hash_fields_mask |= MLX5_RX_HASH_SRC_PORT_TCP),
        ethernet("no field, one queue", RSS, &Want::Ok, |rig| {
            let table = new_table(rig, &[new_wq(rig)?])?;
            rig.run(&rss(rig, table, |qp| qp.rx_hash_fields_mask = 0))
        }),
        of_type("of RC", IB_UVERBS_QPT_RC),
        of_type("of UC", IB_UVERBS_QPT_UC),
        of_type("of UD", IB_UVERBS_QPT_UD),
        ethernet("its number", RSS, &Want::Is("0"), |rig| {
            let wq = new_wq(rig)?;
            let cmd = rss(rig, new_table(rig, &[wq, wq])?, |_| ());
            rig.send(&cmd)?;
            Ok(rig.answer::<u32>(&cmd, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM).to_string())
        }),
        ethernet("with receives of its own", RSS, &EINVAL, |rig| {
            let wq = new_wq(rig)?;
            let cap = ib_uverbs_qp_cap { max_recv_wr: 1, ..Default::default() };
            let cmd = rss(rig, new_table(rig, &[wq, wq])?, |_| ());
            let cmd = cmd.without(UVERBS_ATTR_CREATE_QP_CAP);
            rig.run(&cmd.input(&rig.memory, UVERBS_ATTR_CREATE_QP_CAP, &cap))
        }),
        ethernet("brought to INIT", "hw/mlx5/qp.c:mlx5_ib_modify_qp", &ENOSYS, |rig| {
            let (qp_handle, ..) = new_rss(rig)?;
            let (attr_mask, qp_state, port_num) = (IB_QP_STATE | IB_QP_PORT, IB_QPS_INIT, 1);
            let request = ib_uverbs_modify_qp {
                qp_handle,
                attr_mask,
                qp_state,
                port_num,
                ..Default::default()
            };
            rig.run(&rig.modify(&request))
        }),
        ethernet("asked what it is set to", "hw/mlx5/qp.c:mlx5_ib_query_qp", &ENOSYS, |rig| {
            let (qp, ..) = new_rss(rig)?;
            rig.run(&rig.query_qp(qp))
        }),
        ethernet("its table destroyed", USED, &EBUSY, |rig| {
            let (_, table, _) = new_rss(rig)?;
            rig.run(&rig.destroy(UVERBS_OBJECT_RWQ_IND_TBL, table))
        }),
        ethernet("all destroyed", USED, &Want::Ok, |rig| {
            let (qp, table, wq) = new_rss(rig)?;
            rig.send(&rig.destroy(UVERBS_OBJECT_QP, qp))?;
            rig.send(&rig.destroy(UVERBS_OBJECT_RWQ_IND_TBL, table))?;
            rig.run(&rig.destroy(UVERBS_OBJECT_WQ, wq))
        }),
    ]
}
