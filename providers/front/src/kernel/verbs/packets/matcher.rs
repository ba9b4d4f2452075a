//! Flow matchers, and rules in the device's format (`UVERBS_HANDLER(MLX5_IB_METHOD_CREATE_FLOW)`,
//! `raw_fs_rule_add` in `hw/mlx5/fs.c`).
//!
//! Rules match received packets alone, since the device has no other tables in process. It has no
//! counters, tables and TIRs of DEVX either, and no changes of headers, which rules could name.

use nix::errno::Errno;
use uverbs_kernel_abi::flow::IB_FLOW_ATTR_FLAGS_EGRESS;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX, MLX5_IB_ATTR_CREATE_FLOW_DEST_QP,
    MLX5_IB_ATTR_CREATE_FLOW_FLAGS, MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS,
    MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP, MLX5_IB_ATTR_CREATE_FLOW_HANDLE,
    MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, MLX5_IB_ATTR_CREATE_FLOW_MATCHER,
    MLX5_IB_ATTR_CREATE_FLOW_TAG, MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE,
    MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS, MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE,
    MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE, MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA,
    MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, MLX5_IB_METHOD_CREATE_FLOW,
    MLX5_IB_METHOD_FLOW_MATCHER_CREATE, MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_OBJECT_FLOW_MATCHER,
    MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX, MLX5_IB_UAPI_FLOW_TABLE_TYPE_RDMA_TX,
    mlx5_ib_match_params,
};
use uverbs_kernel_abi::objects::{UVERBS_OBJECT_FLOW, UVERBS_OBJECT_QP};
use uverbs_kernel_abi::qp::IB_UVERBS_QPT_RAW_PACKET;
use uverbs_mlx5_prm::cmd::flow::{fte_match_param, fte_match_set_lyr_2_4};

use crate::backend::steering::MATCH_LEN;
use crate::kernel::attr::{AttrSpec as A, Use};
use crate::kernel::call::{Call, Method};
use crate::kernel::state::flows::{MULTICAST, PRIORITIES, Param, REST, Rule};
use crate::kernel::state::objects::{Flow, Matcher, Object};
use crate::kernel::verbs::packets::flow_spec::TAGS;

/// Bytes of a matcher's mask and of a rule's value.
const MATCH_PARAMS: usize = size_of::<mlx5_ib_match_params>();

/// FLOW_MATCHER.CREATE.
pub(crate) const CREATE: Method = Method {
    object: MLX5_IB_OBJECT_FLOW_MATCHER,
    method: MLX5_IB_METHOD_FLOW_MATCHER_CREATE,
    attrs: &[
        A::idr(MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE, MLX5_IB_OBJECT_FLOW_MATCHER, Use::New),
        A::ptr_in_upto(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, MATCH_PARAMS),
        A::ptr_in(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE, 2),
        A::ptr_in(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA, 1),
        A::flags_in(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS).optional(),
        A::const_in(MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE).optional(),
    ],
    handler: create,
};

/// FLOW.CREATE_FLOW.
pub(crate) const CREATE_RULE: Method = Method {
    object: UVERBS_OBJECT_FLOW,
    method: MLX5_IB_METHOD_CREATE_FLOW,
    attrs: &[
        A::idr(MLX5_IB_ATTR_CREATE_FLOW_HANDLE, UVERBS_OBJECT_FLOW, Use::New),
        A::ptr_in_upto(MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, MATCH_PARAMS).read_early(),
        A::idr(MLX5_IB_ATTR_CREATE_FLOW_MATCHER, MLX5_IB_OBJECT_FLOW_MATCHER, Use::Read),
        A::idr(MLX5_IB_ATTR_CREATE_FLOW_DEST_QP, UVERBS_OBJECT_QP, Use::Read).optional(),
        A::idr(MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX, MLX5_IB_OBJECT_DEVX_OBJ, Use::Read).optional(),
        A::ptr_in(MLX5_IB_ATTR_CREATE_FLOW_TAG, 4).optional(),
        A::flags_in(MLX5_IB_ATTR_CREATE_FLOW_FLAGS).optional(),
    ],
    handler: create_rule,
};

fn create(call: &mut Call<'_>) -> Result<(), Errno> {
    let handle = call.object(MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE).ok_or(Errno::ENOENT)?;
    let matcher = Matcher {
        criteria: call.bytes(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK)?.ok_or(Errno::ENOENT)?,
        priority: call.input(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE)?,
        enable: call.input(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA)?,
        receives: receives(call)?,
    };
    call.put_object(handle, Object::Matcher(matcher));
    Ok(())
}

/// Direction of a matcher's packets (`mlx5_ib_matcher_ns`).
fn receives(call: &Call<'_>) -> Result<bool, Errno> {
    let (table, flags) = (MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE, MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS);
    match (call.has(table), call.has(flags)) {
        (true, true) => Err(Errno::EINVAL),
        (true, false) => {
            let table = call.constant(table, MLX5_IB_UAPI_FLOW_TABLE_TYPE_RDMA_TX.into())?;
            Ok(table == MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX.into())
        }
        (false, _) => Ok(call.flags(flags, IB_FLOW_ATTR_FLAGS_EGRESS)? == 0),
    }
}

fn create_rule(call: &mut Call<'_>) -> Result<(), Errno> {
    let handle = call.object(MLX5_IB_ATTR_CREATE_FLOW_HANDLE).ok_or(Errno::ENOENT)?;
    let of = call.object(MLX5_IB_ATTR_CREATE_FLOW_MATCHER).ok_or(Errno::ENOENT)?;
    let value = call.bytes(MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE)?.ok_or(Errno::ENOENT)?;
    let to = Target::of(call)?;
    let tag = match call.has(MLX5_IB_ATTR_CREATE_FLOW_TAG) {
        true => Some(call.input::<u32>(MLX5_IB_ATTR_CREATE_FLOW_TAG)?),
        false => None,
    };
    if tag.is_some_and(|tag| tag >= TAGS) {
        return Err(Errno::EINVAL);
    }
    let Some(Object::Matcher(matcher)) = call.file.objects.get(of) else {
        return Err(Errno::ENOENT);
    };
    let priority = u8::try_from(matcher.priority).ok().filter(|priority| *priority < PRIORITIES);
    let priority = priority.ok_or(Errno::ENOMEM)?;
    if !matcher.receives || !call.device.config.is_ethernet() {
        // There is no such flow table (`mlx5_get_flow_namespace`).
        return Err(Errno::EOPNOTSUPP);
    }
    let (criteria, value) = (param(&matcher.criteria)?, param(&value)?);
    if criteria.iter().zip(&value).any(|(mask, value)| value & !mask != 0) {
        // `check_valid_spec` of mlx5_core's `fs_core.c`.
        return Err(Errno::EINVAL);
    }
    let enable = matcher.enable;
    let table = match enable & 1 != 0 && is_multicast(&criteria, &value) {
        true => MULTICAST,
        false => 2 * priority + 1,
    };
    let Target { qp, tir, drops, next } = to;
    let rule = Rule { table, enable, criteria, value, tag, drops, next, tir, counter: None };
    let placed = vec![call.device.flows.add(call.device.hca.steering(), &rule)?];
    let held: Vec<_> = [Some(of), qp].into_iter().flatten().collect();
    held.iter().for_each(|held| call.file.objects.hold(*held));
    call.put_object(handle, Object::Flow(Flow { held, counters: None, placed }));
    Ok(())
}

/// Destination of a rule's packets.
struct Target {
    /// Handle of the queue pair.
    qp: Option<u32>,
    tir: Option<u32>,
    drops: bool,
    next: Option<u8>,
}

impl Target {
    /// Reads the destination (`get_dests`). The kernel gives a rule without one to firmware, which
    /// refuses it.
    fn of(call: &Call<'_>) -> Result<Self, Errno> {
        let (drops, misses) =
            (MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP, MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS);
        let flags = call.flags(MLX5_IB_ATTR_CREATE_FLOW_FLAGS, drops | misses);
        let flags = flags.map_err(|_| Errno::EINVAL)?;
        let qp = call.object(MLX5_IB_ATTR_CREATE_FLOW_DEST_QP);
        // DEVX objects of this device are keys.
        if call.has(MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX) {
            return Err(Errno::EINVAL);
        }
        match (qp, flags) {
            (Some(handle), 0) => {
                let of = call.file.objects.qp(handle).map_err(|_| Errno::EINVAL)?;
                let raw = of.raw.as_ref().filter(|_| of.kind == IB_UVERBS_QPT_RAW_PACKET);
                let tir = raw.and_then(|raw| raw.tir).ok_or(Errno::EINVAL)?;
                Ok(Self { qp, tir: Some(tir), drops: false, next: None })
            }
            (None, flags) if flags == drops => Ok(Self { qp, tir: None, drops: true, next: None }),
            // The next namespace with a table.
            (None, flags) if flags == misses => {
                Ok(Self { qp, tir: None, drops: false, next: Some(REST) })
            }
            _ => Err(Errno::EINVAL),
        }
    }
}

/// Match fields of a program. The device compares none beyond `MATCH_LEN`.
fn param(bytes: &[u8]) -> Result<Param, Errno> {
    let mut param = [0; MATCH_LEN];
    let (known, beyond) = bytes.split_at(bytes.len().min(MATCH_LEN));
    if beyond.iter().any(|byte| *byte != 0) {
        return Err(Errno::EINVAL);
    }
    param[..known.len()].copy_from_slice(known);
    Ok(param)
}

/// True if a rule is for multicast groups alone (`raw_fs_is_multicast`).
fn is_multicast(criteria: &Param, value: &Param) -> bool {
    use fte_match_set_lyr_2_4::{DMAC_47_16, DST_IPV4_DST_IPV6};
    let outer = [criteria, value].map(|param| fte_match_param::OUTER_HEADERS.of(param));
    // An IPv4 address is in the last four bytes of the IPv6 field. The kernel also wants the mask
    // to be a multicast address (`ipv4_is_multicast`).
    let ip = |outer: &[u8]| DST_IPV4_DST_IPV6.of(outer)[12] >> 4 == 0xe;
    let mac = |outer: &[u8]| DMAC_47_16.get(outer) >> 24 & 1 != 0;
    outer.iter().all(|outer| mac(outer)) || outer.iter().all(|outer| ip(outer))
}
