//! Changes and queries of queue pairs (`modify_qp` and `ib_uverbs_query_qp` in `core/uverbs_cmd.c`,
//! `_ib_modify_qp` in `core/verbs.c`, `mlx5_ib_modify_qp`, `mlx5_set_path` and `mlx5_ib_query_qp`
//! in `hw/mlx5/qp.c`).

use nix::errno::Errno;
use uverbs_kernel_abi::mlx5::{mlx5_ib_modify_qp, mlx5_ib_modify_qp_resp};
use uverbs_kernel_abi::objects::UVERBS_ATTR_UHW_OUT;
use uverbs_kernel_abi::qp::{
    IB_MIG_MIGRATED, IB_QP_ACCESS_FLAGS, IB_QP_ALT_PATH, IB_QP_AV, IB_QP_CUR_STATE, IB_QP_DEST_QPN,
    IB_QP_EN_SQD_ASYNC_NOTIFY, IB_QP_MAX_DEST_RD_ATOMIC, IB_QP_MAX_QP_RD_ATOMIC,
    IB_QP_MIN_RNR_TIMER, IB_QP_PATH_MTU, IB_QP_PKEY_INDEX, IB_QP_PORT, IB_QP_QKEY,
    IB_QP_RATE_LIMIT, IB_QP_RETRY_CNT, IB_QP_RNR_RETRY, IB_QP_RQ_PSN, IB_QP_SQ_PSN, IB_QP_STATE,
    IB_QP_TIMEOUT, IB_UVERBS_QPT_DRIVER, IB_UVERBS_QPT_XRC_INI, IB_UVERBS_QPT_XRC_TGT,
    ib_uverbs_ex_modify_qp, ib_uverbs_ex_modify_qp_resp, ib_uverbs_modify_qp, ib_uverbs_qp_dest,
    ib_uverbs_query_qp, ib_uverbs_query_qp_resp,
};
use uverbs_kernel_abi::write::{
    IB_USER_VERBS_CMD_FLAG_EXTENDED, IB_USER_VERBS_CMD_MODIFY_QP, IB_USER_VERBS_CMD_QUERY_QP,
    IB_USER_VERBS_EX_CMD_MODIFY_QP,
};
use zerocopy::IntoBytes;

use crate::backend::address::Address;
use crate::backend::config::{Config, agree};
use crate::backend::context::{AddressVector, Mtu, QpAttrs, QpState};
use crate::backend::error::errno;
use crate::backend::number::{Qpn, Queue};
use crate::backend::psn::Psn;
use crate::kernel::call::{Call, Write, zero_extended};
use crate::kernel::state::device::Device;
use crate::kernel::state::objects::Object;
use crate::kernel::transition;
use crate::kernel::verbs::memory::mr::{access_flags, queue_rights};
use crate::kernel::verbs::queues::dct;

/// MODIFY_QP.
pub(crate) const MODIFY_QP: Write = Write {
    command: IB_USER_VERBS_CMD_MODIFY_QP,
    request: size_of::<ib_uverbs_modify_qp>(),
    response: 0,
    handler: modify,
};

/// Extended MODIFY_QP.
pub(crate) const EX_MODIFY_QP: Write = Write {
    command: IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_MODIFY_QP,
    request: 0,
    response: 0,
    handler: modify_ex,
};

/// QUERY_QP.
pub(crate) const QUERY_QP: Write = Write {
    command: IB_USER_VERBS_CMD_QUERY_QP,
    request: size_of::<ib_uverbs_query_qp>(),
    response: size_of::<ib_uverbs_query_qp_resp>(),
    handler: query,
};

/// `IB_QP_ATTR_STANDARD_BITS`: all bits up to DEST_QPN, included.
const STANDARD: u32 = (IB_QP_DEST_QPN << 1) - 1;
/// Mask of PSNs and QPNs.
const MASK_24: u32 = 0xff_ffff;

fn modify(call: &mut Call<'_>) -> Result<(), Errno> {
    let request: ib_uverbs_modify_qp = call.request()?;
    if request.attr_mask & !STANDARD != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    change(call, request, 0)
}

fn modify_ex(call: &mut Call<'_>) -> Result<(), Errno> {
    let request: ib_uverbs_ex_modify_qp = call.request()?;
    if request.base.attr_mask & !(STANDARD | IB_QP_RATE_LIMIT) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    change(call, request.base, request.rate_limit)?;
    let response_length = call.response_length::<ib_uverbs_ex_modify_qp_resp>();
    call.respond(&ib_uverbs_ex_modify_qp_resp { comp_mask: 0, response_length })
}

/// Modifies a queue pair. `rate`: value for the mask's rate limit bit, in kilobits per second.
fn change(call: &mut Call<'_>, mut request: ib_uverbs_modify_qp, rate: u32) -> Result<(), Errno> {
    if let Ok(dct) = call.file.objects.dct(request.qp_handle) {
        let port = dct.port;
        check_ports(&mut request, port)?;
        return dct::modify(call, &request);
    }
    let qp = call.file.objects.qp(request.qp_handle)?;
    if qp.raw.is_some() {
        return change_raw(call, request, rate);
    }
    let (qpn, kind) = (qp.qpn, qp.kind);
    let queue = Queue::Qp(qpn);
    let (actual, mut attrs) = call.device.hca.query_qp(queue).map_err(errno)?;
    check_ports(&mut request, attrs.port)?;
    request.attr_mask &= !left_out(kind);
    let mask = request.attr_mask;
    let from = match mask & IB_QP_CUR_STATE {
        0 => actual,
        _ => transition::state(request.cur_qp_state).ok_or(Errno::EINVAL)?,
    };
    let to = match mask & IB_QP_STATE {
        0 => from,
        _ => transition::state(request.qp_state).ok_or(Errno::EINVAL)?,
    };
    // `_ib_modify_qp` checks the paths before the driver checks the rest.
    if mask & IB_QP_AV != 0 {
        attrs.path = path(call.device, &request.dest)?;
    }
    if mask & IB_QP_ALT_PATH != 0 {
        // RoCE has no path migration, and for InfiniBand this device lacks the `apm` capability.
        return Err(Errno::EINVAL);
    }
    // From here on as `mlx5_ib_modify_qp`.
    let own = driver_request(call)?;
    if !transition::is_ok(kind, from, to, mask) {
        return Err(Errno::EINVAL);
    }
    let config = &call.device.config;
    // `validate_rd_atomic`.
    let most =
        if kind == IB_UVERBS_QPT_DRIVER { config.max_dc_rd_atomic } else { config.max_rd_atomic };
    if mask & IB_QP_PKEY_INDEX != 0 && request.pkey_index >= call.device.config.pkey_table_len
        || mask & IB_QP_MAX_QP_RD_ATOMIC != 0 && request.max_rd_atomic > most
        || mask & IB_QP_MAX_DEST_RD_ATOMIC != 0
            && request.max_dest_rd_atomic > config.max_dest_rd_atomic
    {
        return Err(Errno::EINVAL);
    }
    if from == QpState::Reset && to == QpState::Reset {
        return Ok(());
    }
    let command = transition::command(from, to).ok_or(Errno::EINVAL)?;
    if mask & IB_QP_PATH_MTU != 0 {
        let mtu = path_mtu(call.device, request.path_mtu).ok_or(Errno::EINVAL)?;
        // mlx5_ib passes on any valid MTU; firmware refuses one above the port's.
        if mtu > call.device.config.active_mtu {
            return Err(Errno::EINVAL);
        }
        attrs.path_mtu = mtu;
    }
    apply(&mut attrs, &request, &call.device.config);
    attrs.ece = own.ece_options;
    call.device.hca.modify_qp(queue, command, &attrs).map_err(errno)?;
    if let (QpState::Reset, Some(rings)) = (to, &mut call.device.rings) {
        rings.reset(qpn);
    }
    let works = |state| matches!(state, QpState::Init | QpState::Rtr | QpState::Rts);
    let up = works(to) && (works(from) || from == QpState::Reset);
    let common = || agree(call.device.config.ece, own.ece_options);
    let answer = mlx5_ib_modify_qp_resp {
        response_length: size_of::<mlx5_ib_modify_qp_resp>() as u32,
        ece_options: if up { call.device.hca.ece(queue).unwrap_or_else(common) } else { 0 },
        ..mlx5_ib_modify_qp_resp::default()
    };
    if call.len(UVERBS_ATTR_UHW_OUT) < size_of_val(&answer) {
        return Ok(());
    }
    call.driver_output(answer.as_bytes())
}

/// Path MTU of a code. rdmavt also takes Omni-Path's codes, and the port's MTU for greater ones
/// (`hw/hfi1/qp.c`, `get_pmtu_from_attr` and `mtu_from_qp`).
fn path_mtu(device: &Device, code: u8) -> Option<Mtu> {
    if device.rings.is_none() {
        return Mtu::from_code(code);
    }
    let asked = if OPA_MTUS.contains(&code) { Some(Mtu::B4096) } else { Mtu::from_code(code) };
    asked.map(|asked| asked.min(device.config.active_mtu))
}

/// Codes of 8192 and 10240 bytes.
const OPA_MTUS: [u8; 2] = [6, 7];

/// The driver's request, which may be missing.
pub(crate) fn driver_request(call: &Call<'_>) -> Result<mlx5_ib_modify_qp, Errno> {
    let bytes = call.driver_input()?;
    let known = size_of::<mlx5_ib_modify_qp>();
    if !bytes.is_empty() && bytes.len() < known {
        return Err(Errno::EINVAL);
    }
    if bytes.get(known..).is_some_and(|rest| rest.iter().any(|byte| *byte != 0)) {
        return Err(Errno::EOPNOTSUPP);
    }
    let request: mlx5_ib_modify_qp = zero_extended(&bytes);
    if request.comp_mask != 0 || request.burst_info.reserved != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(request)
}

/// Modifies a raw packet QP, whose state only the driver knows.
fn change_raw(
    call: &mut Call<'_>,
    mut request: ib_uverbs_modify_qp,
    rate: u32,
) -> Result<(), Errno> {
    let qp = call.file.objects.qp(request.qp_handle)?;
    let raw = qp.raw.as_ref().ok_or(Errno::EINVAL)?;
    check_ports(&mut request, 0)?;
    if raw.is_spread() {
        return Err(Errno::ENOSYS);
    }
    let mask = request.attr_mask;
    let from = match mask & IB_QP_CUR_STATE {
        0 => raw.state(call.device),
        _ => transition::state(request.cur_qp_state).ok_or(Errno::EINVAL)?,
    };
    let to = match mask & IB_QP_STATE {
        0 => from,
        _ => transition::state(request.qp_state).ok_or(Errno::EINVAL)?,
    };
    if !transition::is_ok(qp.kind, from, to, mask) {
        return Err(Errno::EINVAL);
    }
    if from == QpState::Reset && to == QpState::Reset {
        return Ok(());
    }
    let command = transition::command(from, to).ok_or(Errno::EINVAL)?;
    if mask & IB_QP_RATE_LIMIT != 0 && rate != 0 {
        // The device has no packet pacing (`mlx5_core/rl.c:mlx5_rl_add_rate_raw`).
        return Err(Errno::EOPNOTSUPP);
    }
    raw.modify(call.device, command)?;
    if let Some(Object::Qp(qp)) = call.file.objects.get_mut(request.qp_handle)
        && let Some(raw) = &mut qp.raw
    {
        raw.state = to;
        if mask & IB_QP_PORT != 0 {
            raw.port = request.port_num;
        }
    }
    Ok(())
}

/// Attributes that a kind lacks, and that are ignored silently (`modify_qp_mask`).
fn left_out(kind: u8) -> u32 {
    match kind {
        IB_UVERBS_QPT_XRC_INI => IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER,
        IB_UVERBS_QPT_XRC_TGT => IB_QP_MAX_QP_RD_ATOMIC | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY,
        _ => 0,
    }
}

/// Checks ports and states as the head of `modify_qp` does. The device has port 1 only.
fn check_ports(request: &mut ib_uverbs_modify_qp, current: u8) -> Result<(), Errno> {
    let mask = request.attr_mask;
    if mask & IB_QP_PORT != 0 && request.port_num != 1 {
        return Err(Errno::EINVAL);
    }
    if mask & IB_QP_AV != 0 {
        if request.dest.port_num != 1 {
            return Err(Errno::EINVAL);
        }
        if mask & IB_QP_STATE != 0 && request.qp_state == QpState::Rtr as u8 {
            if request.dest.port_num != current {
                return Err(Errno::EINVAL);
            }
        } else if mask & IB_QP_PORT == 0 {
            request.attr_mask |= IB_QP_PORT;
            request.port_num = request.dest.port_num;
        }
    }
    if mask & IB_QP_ALT_PATH != 0 && (request.alt_port_num != 1 || request.alt_dest.port_num != 1) {
        return Err(Errno::EINVAL);
    }
    let last = QpState::Err as u8;
    if mask & IB_QP_CUR_STATE != 0 && request.cur_qp_state > last
        || mask & IB_QP_STATE != 0 && request.qp_state > last
    {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Copies the attributes that the mask names. Fields narrower than their byte are truncated without
/// error, as `MLX5_SET` does; so are PSNs (`_ib_modify_qp`).
fn apply(attrs: &mut QpAttrs, request: &ib_uverbs_modify_qp, config: &Config) {
    let given = |bit: u32| request.attr_mask & bit != 0;
    if given(IB_QP_QKEY) {
        attrs.qkey = request.qkey;
    }
    if given(IB_QP_PKEY_INDEX) {
        attrs.pkey_index = request.pkey_index;
    }
    if given(IB_QP_PORT) {
        attrs.port = request.port_num;
    }
    if given(IB_QP_ACCESS_FLAGS) {
        attrs.access = queue_rights(request.qp_access_flags, config);
    }
    if given(IB_QP_DEST_QPN) {
        attrs.dest_qpn = Qpn(request.dest_qp_num & MASK_24);
    }
    if given(IB_QP_RQ_PSN) {
        attrs.rq_psn = Psn::new(request.rq_psn);
    }
    if given(IB_QP_SQ_PSN) {
        attrs.sq_psn = Psn::new(request.sq_psn);
    }
    if given(IB_QP_MAX_QP_RD_ATOMIC) {
        attrs.max_rd_atomic = request.max_rd_atomic;
    }
    if given(IB_QP_MAX_DEST_RD_ATOMIC) {
        attrs.max_dest_rd_atomic = request.max_dest_rd_atomic;
    }
    if given(IB_QP_MIN_RNR_TIMER) {
        attrs.min_rnr_timer = request.min_rnr_timer & 0x1f;
    }
    if given(IB_QP_TIMEOUT) {
        attrs.timeout = request.timeout & 0x1f;
    }
    if given(IB_QP_RETRY_CNT) {
        attrs.retry_cnt = request.retry_cnt & 7;
    }
    if given(IB_QP_RNR_RETRY) {
        attrs.rnr_retry = request.rnr_retry & 7;
    }
    attrs.en_sqd_async_notify =
        given(IB_QP_EN_SQD_ASYNC_NOTIFY) && request.en_sqd_async_notify != 0;
}

/// Resolves a path (`rdma_fill_sgid_attr`, `rdma_check_ah_attr`, `mlx5_set_path`).
///
/// # Errors
///
/// `EINVAL` without GRH on Ethernet, for a GID index outside of the table, or for GIDs of two
/// address families; `ENODATA` for an empty entry (`rdma_get_gid_attr`).
pub(crate) fn path(device: &Device, dest: &ib_uverbs_qp_dest) -> Result<AddressVector, Errno> {
    let config = &device.config;
    let global = dest.is_global != 0;
    let (src_gid, dst_gid) = (source(device, dest)?, if global { dest.dgid } else { [0; 16] });
    if config.is_ethernet() {
        check_families(&src_gid, &dst_gid)?;
    }
    let dst_lid = match config.is_ethernet() {
        true => 0,
        false => dest.dlid,
    };
    Ok(AddressVector {
        src: Address { gid: device.hca.resolve(src_gid), lid: config.lid },
        dst: Address { gid: device.hca.resolve(dst_gid), lid: dst_lid },
        dgid: dst_gid,
        sgid_index: dest.sgid_index,
        is_global: global,
        sl: dest.sl & 0xf,
        hop_limit: dest.hop_limit,
        traffic_class: dest.traffic_class,
        flow_label: dest.flow_label & 0xf_ffff,
        static_rate: dest.static_rate,
        src_path_bits: dest.src_path_bits & 0x7f,
        port: dest.port_num,
    })
}

/// Local GID of a path, zeros without GRH. Of a type without connection Linux resolves no more
/// (`_ib_modify_qp`, `is_qp_type_connected`).
///
/// # Errors
///
/// `EINVAL` without GRH on Ethernet, or for a GID index outside of the table; `ENODATA` for an
/// empty entry.
pub(crate) fn source(device: &Device, dest: &ib_uverbs_qp_dest) -> Result<[u8; 16], Errno> {
    match (dest.is_global != 0, device.config.is_ethernet()) {
        (true, _) => gid(device, u32::from(dest.sgid_index)),
        (false, false) => Ok([0; 16]),
        (false, true) => Err(Errno::EINVAL),
    }
}

/// Checks that a destination's MAC can be resolved (`ib_resolve_unicast_gid_dmac`,
/// `rdma_resolve_ip`): an IPv4 address has no route to another family. A multicast address contains
/// its MAC.
fn check_families(src: &[u8; 16], dst: &[u8; 16]) -> Result<(), Errno> {
    let is_ipv4 = |gid: &[u8; 16]| gid.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
    match dst[0] == 0xff || is_ipv4(src) == is_ipv4(dst) {
        true => Ok(()),
        false => Err(Errno::EINVAL),
    }
}

/// GID at an index (`rdma_get_gid_attr`).
pub(crate) fn gid(device: &Device, index: u32) -> Result<[u8; 16], Errno> {
    if index >= device.config.gid_table_len {
        return Err(Errno::EINVAL);
    }
    match device.config.gids.get(index as usize) {
        Some(entry) => Ok(entry.gid),
        None => Err(Errno::ENODATA),
    }
}

fn query(call: &mut Call<'_>) -> Result<(), Errno> {
    let request: ib_uverbs_query_qp = call.request()?;
    if let Ok(dct) = call.file.objects.dct(request.qp_handle) {
        let response = dct::query(dct, &request)?;
        return call.respond(&response);
    }
    let qp = call.file.objects.qp(request.qp_handle)?;
    let (state, attrs) = match &qp.raw {
        Some(raw) if raw.is_spread() => return Err(Errno::ENOSYS),
        Some(raw) => (raw.state(call.device), QpAttrs { port: raw.port, ..QpAttrs::default() }),
        None => call.device.hca.query_qp(Queue::Qp(qp.qpn)).map_err(errno)?,
    };
    let response = ib_uverbs_query_qp_resp {
        dest: destination(&attrs.path),
        max_send_wr: qp.cap.max_send_wr,
        max_recv_wr: qp.cap.max_recv_wr,
        max_send_sge: qp.cap.max_send_sge,
        max_recv_sge: qp.cap.max_recv_sge,
        max_inline_data: qp.cap.max_inline_data,
        qkey: attrs.qkey,
        rq_psn: attrs.rq_psn.get(),
        sq_psn: attrs.sq_psn.get(),
        dest_qp_num: attrs.dest_qpn.0,
        qp_access_flags: access_flags(attrs.access),
        pkey_index: attrs.pkey_index,
        qp_state: state as u8,
        cur_qp_state: state as u8,
        path_mtu: attrs.path_mtu as u8,
        path_mig_state: IB_MIG_MIGRATED,
        sq_draining: u8::from(attrs.sq_draining),
        max_rd_atomic: attrs.max_rd_atomic,
        max_dest_rd_atomic: attrs.max_dest_rd_atomic,
        min_rnr_timer: attrs.min_rnr_timer,
        port_num: attrs.port,
        timeout: attrs.timeout,
        retry_cnt: attrs.retry_cnt,
        rnr_retry: attrs.rnr_retry,
        sq_sig_all: u8::from(qp.sq_sig_all),
        ..ib_uverbs_query_qp_resp::default()
    };
    call.respond(&response)
}

fn destination(path: &AddressVector) -> ib_uverbs_qp_dest {
    ib_uverbs_qp_dest {
        dgid: path.dgid,
        flow_label: path.flow_label,
        dlid: path.dst.lid,
        reserved: 0,
        sgid_index: path.sgid_index,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        sl: path.sl,
        src_path_bits: path.src_path_bits,
        static_rate: path.static_rate,
        is_global: u8::from(path.is_global),
        port_num: path.port,
    }
}
