//! States of queue pairs (`efa_modify_qp`, `efa_query_qp`).

use nix::errno::Errno;
use uverbs_kernel_abi::efa::EFA_QUERY_DEVICE_CAPS_RNR_RETRY;
use uverbs_kernel_abi::qp::{
    IB_QP_CUR_STATE, IB_QP_EN_SQD_ASYNC_NOTIFY, IB_QP_PKEY_INDEX, IB_QP_PORT, IB_QP_QKEY,
    IB_QP_RNR_RETRY, IB_QP_SQ_PSN, IB_QP_STATE, IB_QPS_ERR, IB_QPS_INIT, IB_QPS_RESET, IB_QPS_RTR,
    IB_QPS_RTS, IB_QPS_SQD, IB_QPS_SQE, ib_uverbs_modify_qp, ib_uverbs_query_qp,
    ib_uverbs_query_qp_resp,
};

use super::File;
use super::call::Call;
use crate::device::objects::{Object, Qp};
use crate::device::world::World;

/// Attributes that a change must have, and those that it may have in addition (kernel
/// `efa_verbs.c`, `srd_qp_state_table`; `ib_verbs.c`, `qp_state_table` of UD).
fn attributes(from: u8, to: u8, is_srd: bool) -> Option<(u32, u32)> {
    let retry = if is_srd { IB_QP_RNR_RETRY } else { 0 };
    match (from, to) {
        (_, IB_QPS_RESET) => Some((0, 0)),
        (IB_QPS_RESET, IB_QPS_ERR) => None,
        (_, IB_QPS_ERR) => Some((0, 0)),
        (IB_QPS_RESET, IB_QPS_INIT) => Some((IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_QKEY, 0)),
        (IB_QPS_INIT, IB_QPS_INIT) => Some((0, IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_QKEY)),
        (IB_QPS_INIT, IB_QPS_RTR) => Some((0, IB_QP_PKEY_INDEX | IB_QP_QKEY)),
        (IB_QPS_RTR, IB_QPS_RTS) => Some((IB_QP_SQ_PSN, IB_QP_CUR_STATE | IB_QP_QKEY | retry)),
        (IB_QPS_RTS | IB_QPS_SQD | IB_QPS_SQE, IB_QPS_RTS) => {
            Some((0, IB_QP_CUR_STATE | IB_QP_QKEY))
        }
        (IB_QPS_RTS, IB_QPS_SQD) => Some((0, IB_QP_EN_SQD_ASYNC_NOTIFY)),
        (IB_QPS_SQD, IB_QPS_SQD) => Some((0, IB_QP_PKEY_INDEX | IB_QP_QKEY)),
        _ => None,
    }
}

fn check(qp: &Qp, caps: u32, attr: &ib_uverbs_modify_qp) -> Result<u8, Errno> {
    let known = IB_QP_STATE
        | IB_QP_CUR_STATE
        | IB_QP_EN_SQD_ASYNC_NOTIFY
        | IB_QP_PKEY_INDEX
        | IB_QP_PORT
        | IB_QP_QKEY
        | IB_QP_SQ_PSN
        | IB_QP_RNR_RETRY;
    let mask = attr.attr_mask;
    if mask & !known != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let is_current = mask & IB_QP_CUR_STATE == 0 || attr.cur_qp_state == qp.state;
    let to = if mask & IB_QP_STATE != 0 { attr.qp_state } else { qp.state };
    let (needed, allowed) = attributes(qp.state, to, qp.is_srd).ok_or(Errno::EINVAL)?;
    let given = mask & !IB_QP_STATE;
    if !is_current || given & needed != needed || given & !(needed | allowed) != 0 {
        return Err(Errno::EINVAL);
    }
    let is_here = (mask & IB_QP_PORT == 0 || attr.port_num == 1)
        && (mask & IB_QP_PKEY_INDEX == 0 || attr.pkey_index == 0);
    if !is_here {
        return Err(Errno::EINVAL);
    }
    if mask & IB_QP_RNR_RETRY != 0 {
        if caps & EFA_QUERY_DEVICE_CAPS_RNR_RETRY == 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if attr.rnr_retry > 7 {
            return Err(Errno::EINVAL);
        }
    }
    Ok(to)
}

/// MODIFY_QP.
pub(super) fn modify_qp(world: &mut World, file: File, call: &mut Call<'_>) -> Result<(), Errno> {
    let attr: ib_uverbs_modify_qp = call.request()?;
    let handle = attr.qp_handle;
    let Object::Qp(qp) = world.of(file.number, handle)? else { return Err(Errno::EINVAL) };
    let to = check(qp, world.boards[file.board].caps, &attr)?;
    if to == IB_QPS_RESET {
        world.forget(handle);
    }
    if to == IB_QPS_ERR {
        world.fail(handle);
    }
    let Some(qp) = world.qp_mut(handle) else { return Err(Errno::EINVAL) };
    qp.state = to;
    if to == IB_QPS_RESET {
        qp.sq.reset();
        qp.rq.reset();
    }
    if attr.attr_mask & IB_QP_QKEY != 0 {
        qp.qkey = attr.qkey;
    }
    if attr.attr_mask & IB_QP_SQ_PSN != 0 {
        qp.sq_psn = attr.sq_psn;
    }
    if attr.attr_mask & IB_QP_RNR_RETRY != 0 {
        qp.rnr_retry = attr.rnr_retry;
    }
    Ok(())
}

/// QUERY_QP.
pub(super) fn query_qp(world: &mut World, file: File, call: &mut Call<'_>) -> Result<(), Errno> {
    let request: ib_uverbs_query_qp = call.request()?;
    let Object::Qp(qp) = world.of(file.number, request.qp_handle)? else {
        return Err(Errno::EINVAL);
    };
    let answer = ib_uverbs_query_qp_resp {
        max_send_wr: qp.cap.max_send_wr,
        max_recv_wr: qp.cap.max_recv_wr,
        max_send_sge: qp.cap.max_send_sge,
        max_recv_sge: qp.cap.max_recv_sge,
        max_inline_data: qp.cap.max_inline_data,
        qkey: qp.qkey,
        sq_psn: qp.sq_psn,
        qp_state: qp.state,
        cur_qp_state: qp.state,
        port_num: 1,
        rnr_retry: qp.rnr_retry,
        ..Default::default()
    };
    call.respond(&answer)
}
