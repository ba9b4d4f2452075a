//! Shared receive queues (`uverbs_std_types_srq.c`, `ib_uverbs_modify_srq` and
//! `ib_uverbs_query_srq` in `core/uverbs_cmd.c`; `hw/mlx5/srq.c`).

use std::mem::offset_of;

use nix::errno::Errno;
use uverbs_kernel_abi::mlx5::{mlx5_ib_create_srq, mlx5_ib_create_srq_resp};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, UVERBS_ATTR_CREATE_SRQ_EVENT_FD,
    UVERBS_ATTR_CREATE_SRQ_HANDLE, UVERBS_ATTR_CREATE_SRQ_LIMIT,
    UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS, UVERBS_ATTR_CREATE_SRQ_MAX_SGE,
    UVERBS_ATTR_CREATE_SRQ_MAX_WR, UVERBS_ATTR_CREATE_SRQ_PD_HANDLE,
    UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR,
    UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, UVERBS_ATTR_CREATE_SRQ_TYPE,
    UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE,
    UVERBS_ATTR_DESTROY_SRQ_RESP,
};
use uverbs_kernel_abi::srq::{
    IB_SRQ_LIMIT, IB_SRQ_MAX_WR, IB_UVERBS_SRQT_BASIC, IB_UVERBS_SRQT_TM, IB_UVERBS_SRQT_XRC,
    ib_uverbs_destroy_srq_resp, ib_uverbs_modify_srq, ib_uverbs_query_srq,
    ib_uverbs_query_srq_resp,
};
use uverbs_kernel_abi::write::{IB_USER_VERBS_CMD_MODIFY_SRQ, IB_USER_VERBS_CMD_QUERY_SRQ};
use zerocopy::IntoBytes;

use crate::backend::context::{SrqContext, TagSrq, XrcSrq};
use crate::backend::error::errno;
use crate::backend::region::Region;
use crate::kernel::call::{Call, Write, zero_extended};
use crate::kernel::state::device::Device;
use crate::kernel::state::objects::{Object, Srq};
use crate::kernel::verbs::queues::qp_request::fits;

/// Bytes of an SGE, and of the link segment at the start of a WQE.
const SEGMENT: u32 = 16;

/// SRQ.CREATE.
pub(crate) fn create(call: &mut Call<'_>) -> Result<(), Errno> {
    let pd = call.object(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE).ok_or(Errno::ENOENT)?;
    let max_sge: u32 = call.input(UVERBS_ATTR_CREATE_SRQ_MAX_SGE)?;
    let max_wr: u32 = call.input(UVERBS_ATTR_CREATE_SRQ_MAX_WR)?;
    // Read and ignored: mlx5_ib arms a limit only in a later modify.
    let _limit: u32 = call.input(UVERBS_ATTR_CREATE_SRQ_LIMIT)?;
    let user_handle: u64 = call.input(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE)?;
    let kind = kind(call)?;
    let handle = call.object(UVERBS_ATTR_CREATE_SRQ_HANDLE).ok_or(Errno::ENOENT)?;
    let event_file = call.object(UVERBS_ATTR_CREATE_SRQ_EVENT_FD);

    // From here on as `mlx5_ib_create_srq`.
    let most = 1u32 << call.device.config.log_max_rq_entries;
    if max_wr >= most || max_sge > u32::from(call.device.config.max_rq_desc) / SEGMENT {
        return Err(Errno::EINVAL);
    }
    let entries = (max_wr + 1).next_power_of_two();
    let stride = ((max_sge + 1) * SEGMENT).next_power_of_two().max(2 * SEGMENT);
    let request = driver_request(call, !matches!(kind, Kind::Basic))?;
    let len = u64::from(entries) * u64::from(stride);
    let pinned = call.device.pin_queue(request.buf_addr, len, request.db_addr)?;
    let (user_index, cqe_version) = (request.uidx, cqe_version(call));
    let cq = |handle| call.file.objects.cq(handle).map(|cq| cq.cqn);
    let log_tags = log_tags(call.device, &kind).inspect_err(|_| call.device.unpin(pinned))?;
    let context = SrqContext {
        pd: call.file.objects.pd(pd)?.pdn,
        region: Region::Flat { addr: request.buf_addr, len },
        log_entries: entries.trailing_zeros() as u8,
        stride_shift: stride.trailing_zeros() as u8,
        doorbell_record: request.db_addr,
        limit: 0,
        xrc: match kind {
            Kind::Xrc { xrcd, cq: to } => {
                let xrcd = call.file.objects.xrcd(xrcd)?.number;
                Some(XrcSrq { xrcd, cq: cq(to)?, user_index, cqe_version })
            }
            _ => None,
        },
        tags: match kind {
            Kind::Tags { cq: to, .. } => {
                let cq = cq(to)?;
                Some(TagSrq { cq, user_index, cqe_version, log_tags, rendezvous: true })
            }
            _ => None,
        },
    };
    let created = call.device.hca.create_srq(context).map_err(errno);
    let srqn = created.inspect_err(|_| call.device.unpin(pinned))?;

    let held: Vec<_> = match kind {
        Kind::Basic => vec![pd],
        Kind::Xrc { xrcd, cq } => vec![pd, xrcd, cq],
        Kind::Tags { cq, .. } => vec![pd, cq],
    };
    held.iter().for_each(|handle| call.file.objects.hold(*handle));
    call.device.srq_owners.insert(srqn, (call.file.id, handle));
    let srq = Srq {
        srqn,
        held,
        is_xrc: matches!(kind, Kind::Xrc { .. }),
        user_handle,
        async_file: call.file.events.async_file(event_file),
        async_events: 0,
        max_wr: entries - 1,
        max_sge,
        pinned,
    };
    call.put_object(handle, Object::Srq(srq));
    let response = mlx5_ib_create_srq_resp { srqn: srqn.0, reserved: 0 };
    call.driver_output(response.as_bytes())?;
    call.output(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, &(entries - 1))?;
    call.output(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, &max_sge)?;
    match kind {
        Kind::Xrc { .. } => call.output(UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, &srqn.0),
        _ => Ok(()),
    }
}

/// Kind of an SRQ, with the objects that it needs.
enum Kind {
    Basic,
    Xrc { xrcd: u32, cq: u32 },
    Tags { cq: u32, max_tags: u32 },
}

fn kind(call: &Call<'_>) -> Result<Kind, Errno> {
    let kind = call.constant(UVERBS_ATTR_CREATE_SRQ_TYPE, u64::from(u32::MAX))?;
    let kind = u32::try_from(kind).map_err(|_| Errno::EINVAL)?;
    let object = |attr| call.object(attr).ok_or(Errno::ENOENT);
    match kind {
        IB_UVERBS_SRQT_BASIC => Ok(Kind::Basic),
        IB_UVERBS_SRQT_XRC => {
            let cq = object(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE)?;
            Ok(Kind::Xrc { xrcd: object(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE)?, cq })
        }
        IB_UVERBS_SRQT_TM => {
            let cq = object(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE)?;
            let max_tags = call.input(UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS)?;
            Ok(Kind::Tags { cq, max_tags })
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Log2 of the tag list's entries (`mlx5_ib_create_srq`, whose `ilog2` of 0 is -1).
fn log_tags(device: &Device, kind: &Kind) -> Result<u8, Errno> {
    let Kind::Tags { max_tags, .. } = kind else { return Ok(0) };
    let log = max_tags.checked_ilog2().map_or(0, |log| log as u8 + 1);
    if log > device.config.log_max_tags { Err(Errno::EINVAL) } else { Ok(log) }
}

/// CQE version of the context.
fn cqe_version(call: &Call<'_>) -> u8 {
    call.file.context.as_ref().map_or(0, |context| context.cqe_version)
}

/// Parses the driver's request (`create_srq_user`). The user index is checked if CQEs carry it
/// (`get_srq_user_index`).
fn driver_request(call: &Call<'_>, completes: bool) -> Result<mlx5_ib_create_srq, Errno> {
    let bytes = call.driver_input()?;
    if let Some(tail) = bytes.get(size_of::<mlx5_ib_create_srq>()..)
        && tail.iter().any(|byte| *byte != 0)
    {
        return Err(Errno::EINVAL);
    }
    let request: mlx5_ib_create_srq = zero_extended(&bytes);
    if (request.reserved0, request.reserved1) != (0, 0) {
        return Err(Errno::EINVAL);
    }
    let cqe_version = cqe_version(call);
    // A user index is optional in CQE version 0, and required in version 1.
    let is_given = bytes.len() >= offset_of!(mlx5_ib_create_srq, uidx) + size_of::<u32>();
    let is_right = match (is_given, cqe_version) {
        (false, version) => version == 0,
        (true, version) => fits(request.uidx, version),
    };
    match completes && !is_right {
        true => Err(Errno::EINVAL),
        false => Ok(request),
    }
}

/// MODIFY_SRQ.
pub(crate) const MODIFY_SRQ: Write = Write {
    command: IB_USER_VERBS_CMD_MODIFY_SRQ,
    request: size_of::<ib_uverbs_modify_srq>(),
    response: 0,
    handler: modify,
};

fn modify(call: &mut Call<'_>) -> Result<(), Errno> {
    let request: ib_uverbs_modify_srq = call.request()?;
    let srq = call.file.objects.srq(request.srq_handle)?;
    if request.attr_mask & IB_SRQ_MAX_WR != 0 {
        return Err(Errno::EINVAL);
    }
    if request.attr_mask & IB_SRQ_LIMIT == 0 {
        return Ok(());
    }
    if request.srq_limit > srq.max_wr {
        return Err(Errno::EINVAL);
    }
    // Cannot overflow: there are fewer than 2^16 receives.
    call.device.hca.modify_srq(srq.srqn, request.srq_limit as u16).map_err(errno)
}

/// QUERY_SRQ.
pub(crate) const QUERY_SRQ: Write = Write {
    command: IB_USER_VERBS_CMD_QUERY_SRQ,
    request: size_of::<ib_uverbs_query_srq>(),
    response: size_of::<ib_uverbs_query_srq_resp>(),
    handler: query,
};

fn query(call: &mut Call<'_>) -> Result<(), Errno> {
    let request: ib_uverbs_query_srq = call.request()?;
    let srq = call.file.objects.srq(request.srq_handle)?;
    let limit = call.device.hca.query_srq(srq.srqn).map_err(errno)?;
    let response = ib_uverbs_query_srq_resp {
        max_wr: srq.max_wr,
        max_sge: srq.max_sge,
        srq_limit: limit.into(),
        reserved: 0,
    };
    call.respond(&response)
}

/// SRQ.DESTROY: the destroy attribute has destroyed the queue.
pub(crate) fn destroy(call: &mut Call<'_>) -> Result<(), Errno> {
    let response = ib_uverbs_destroy_srq_resp {
        events_reported: call.destroyed.unwrap_or_default().async_events,
    };
    call.output(UVERBS_ATTR_DESTROY_SRQ_RESP, &response)
}
