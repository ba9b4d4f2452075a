//! Commands of rdmavt that differ from mlx5_ib's (`sw/rdmavt/{cq,qp,srq}.c`, and
//! `ib_uverbs_post_send` in `core/uverbs_cmd.c`).

use nix::errno::Errno;
use uverbs_kernel_abi::cq::{
    ib_uverbs_req_notify_cq, ib_uverbs_resize_cq, ib_uverbs_resize_cq_resp,
};
use uverbs_kernel_abi::device::{
    IB_ATOMIC_HCA, IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS, IB_UVERBS_DEVICE_BAD_PKEY_CNTR,
    IB_UVERBS_DEVICE_BAD_QKEY_CNTR, IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT,
    IB_UVERBS_DEVICE_RC_RNR_NAK_GEN, IB_UVERBS_DEVICE_SRQ_RESIZE, IB_UVERBS_DEVICE_SYS_IMAGE_GUID,
    ib_uverbs_ex_query_device, ib_uverbs_ex_query_device_resp, ib_uverbs_query_device_resp,
};
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::qp::ib_uverbs_qp_cap;
use uverbs_kernel_abi::srq::{IB_SRQ_LIMIT, IB_SRQ_MAX_WR, ib_uverbs_modify_srq};
use uverbs_kernel_abi::wc::{
    ib_uverbs_post_send, ib_uverbs_post_send_resp, ib_uverbs_send_wr, ib_uverbs_sge,
};
use uverbs_kernel_abi::write::{
    IB_USER_VERBS_CMD_FLAG_EXTENDED, IB_USER_VERBS_CMD_MODIFY_SRQ, IB_USER_VERBS_CMD_POST_SEND,
    IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, IB_USER_VERBS_CMD_RESIZE_CQ,
    IB_USER_VERBS_EX_CMD_QUERY_DEVICE,
};
use zerocopy::{FromBytes, IntoBytes};

use super::completions::{Completions, Notify};
use super::memory::Memory;
use super::receives::Receives;
use super::sends::Sends;
use super::{MAX_CQE, MAX_SGE, MAX_WR, Mapped, Queues, Rings};
use crate::backend::context::{QpContext, QpState, Service, SrqContext};
use crate::backend::error::errno;
use crate::backend::number::{Qpn, Queue};
use crate::kernel::call::{Call, Handler, Table, Write};
use crate::kernel::methods;
use crate::kernel::state::device::Device;
use crate::kernel::state::file::Context;
use crate::kernel::state::objects::{Cq, Object, Qp, Srq};
use crate::kernel::user::copy_to_user;
use crate::kernel::verbs::device::{context, event};
use crate::kernel::verbs::memory::{mr, pd};
use crate::kernel::verbs::packets::{ah, mcast};
use crate::kernel::verbs::queues::qp_request::{Asked, kind};
use crate::kernel::verbs::queues::{qp_modify, srq};

/// Methods and write commands of an rdmavt device.
pub(crate) static TABLE: Table = Table {
    methods: methods::METHODS,
    writes: &[
        context::QUERY_DEVICE,
        EX_QUERY_DEVICE,
        pd::ALLOC_PD,
        mr::REG_MR,
        ah::CREATE_AH,
        event::CREATE_COMP_CHANNEL,
        RESIZE_CQ,
        REQ_NOTIFY_CQ,
        qp_modify::MODIFY_QP,
        qp_modify::EX_MODIFY_QP,
        qp_modify::QUERY_QP,
        POST_SEND,
        mcast::ATTACH_MCAST,
        mcast::DETACH_MCAST,
        MODIFY_SRQ,
        srq::QUERY_SRQ,
    ],
    instead: &[
        (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, get_context as Handler),
        (UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, create_cq as Handler),
        (UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, create_qp as Handler),
        (UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE, create_srq as Handler),
    ],
    objects: &[
        UVERBS_OBJECT_DEVICE,
        UVERBS_OBJECT_ASYNC_EVENT,
        UVERBS_OBJECT_PD,
        UVERBS_OBJECT_AH,
        UVERBS_OBJECT_MR,
        UVERBS_OBJECT_COMP_CHANNEL,
        UVERBS_OBJECT_CQ,
        UVERBS_OBJECT_QP,
        UVERBS_OBJECT_SRQ,
    ],
};

/// `IB_ATOMIC_GLOB` (`hw/hfi1/verbs.c:hfi1_fill_device_attr`).
const IB_ATOMIC_GLOB: u32 = IB_ATOMIC_HCA + 1;
/// IEEE OUI of Intel, and PCI device of Omni-Path 100.
const VENDOR: u32 = 0x1175;
const PART: u32 = 0x24f0;

/// Attributes of the device, where they differ (`hw/hfi1/verbs.c:hfi1_fill_device_attr`).
pub(crate) fn attributes(told: ib_uverbs_query_device_resp) -> ib_uverbs_query_device_resp {
    let flags = IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT
        | IB_UVERBS_DEVICE_SYS_IMAGE_GUID
        | IB_UVERBS_DEVICE_RC_RNR_NAK_GEN
        | IB_UVERBS_DEVICE_BAD_PKEY_CNTR
        | IB_UVERBS_DEVICE_BAD_QKEY_CNTR
        | IB_UVERBS_DEVICE_SRQ_RESIZE;
    ib_uverbs_query_device_resp {
        vendor_id: VENDOR,
        vendor_part_id: PART,
        device_cap_flags: flags as u32,
        max_qp_wr: MAX_WR,
        max_sge: MAX_SGE,
        max_sge_rd: MAX_SGE,
        max_cqe: MAX_CQE,
        max_mw: 0,
        max_srq_wr: MAX_WR,
        max_srq_sge: MAX_SGE,
        atomic_cap: IB_ATOMIC_GLOB,
        ..told
    }
}

fn get_context(call: &mut Call<'_>) -> Result<(), Errno> {
    let comp_vectors = call.device.config.comp_vectors;
    call.output_optional(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, &comp_vectors)?;
    call.output_optional(
        UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT,
        &IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS,
    )?;
    if call.file.has_context() {
        return Err(Errno::EINVAL);
    }
    call.file.context = Some(Context { cqe_version: 0, devx: false, tot_bfregs: 0 });
    Ok(())
}

const EX_QUERY_DEVICE: Write = Write {
    command: IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_QUERY_DEVICE,
    request: 0,
    response: 0,
    handler: query_device,
};

fn query_device(call: &mut Call<'_>) -> Result<(), Errno> {
    if !call.file.has_context() {
        return Err(Errno::EINVAL);
    }
    let request: ib_uverbs_ex_query_device = call.request()?;
    if request.comp_mask != 0 || request.reserved != 0 {
        return Err(Errno::EINVAL);
    }
    let base = context::attributes(call.device);
    let response_length = call.response_length::<ib_uverbs_ex_query_device_resp>();
    let device_cap_flags_ex = base.device_cap_flags.into();
    let response = ib_uverbs_ex_query_device_resp {
        base,
        response_length,
        device_cap_flags_ex,
        ..Default::default()
    };
    call.respond(&response)
}

fn rings(device: &mut Device) -> Result<&mut Rings, Errno> {
    device.rings.as_deref_mut().ok_or(Errno::EOPNOTSUPP)
}

/// Answers the offset of a ring, if there is room for it.
fn answer_offset(call: &mut Call<'_>, of: Mapped) -> Result<(), Errno> {
    if call.len(UVERBS_ATTR_UHW_OUT) < size_of::<u64>() {
        return Ok(());
    }
    let file = call.file.id;
    let offset = rings(call.device)?.offset(file, of);
    call.driver_output(offset.as_bytes())
}

/// CQ.CREATE (`rvt_create_cq`).
fn create_cq(call: &mut Call<'_>) -> Result<(), Errno> {
    let comp_vector: u32 = call.input(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR)?;
    let entries: u32 = call.input(UVERBS_ATTR_CREATE_CQ_CQE)?;
    let user_handle: u64 = call.input(UVERBS_ATTR_CREATE_CQ_USER_HANDLE)?;
    let flags = call.flags(UVERBS_ATTR_CREATE_CQ_FLAGS, u32::MAX)?;
    if comp_vector >= call.device.config.comp_vectors
        || flags != 0
        || !(1..=MAX_CQE).contains(&entries)
    {
        return Err(Errno::EINVAL);
    }
    let handle = call.object(UVERBS_ATTR_CREATE_CQ_HANDLE).ok_or(Errno::ENOENT)?;
    let channel = call.object(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL);
    let event_file = call.object(UVERBS_ATTR_CREATE_CQ_EVENT_FD);
    let made = Completions::new(entries)?;
    let uar = rings(call.device)?.uar();
    let cqn = call.device.hca.create_cq(made.context(uar)).map_err(errno)?;
    rings(call.device)?.cqs.insert(cqn, made);
    call.device.cq_owners.insert(cqn, (call.file.id, handle));
    let cq = Cq {
        cqn,
        entries,
        user_handle,
        channel,
        async_file: call.file.events.async_file(event_file),
        comp_events: 0,
        async_events: 0,
        pinned: 0,
        _uar: None,
    };
    call.put_object(handle, Object::Cq(cq));
    answer_offset(call, Mapped::Cq(cqn))?;
    call.output(UVERBS_ATTR_CREATE_CQ_RESP_CQE, &entries)
}

/// RESIZE_CQ (`rvt_resize_cq`).
const RESIZE_CQ: Write = Write {
    command: IB_USER_VERBS_CMD_RESIZE_CQ,
    request: size_of::<ib_uverbs_resize_cq>(),
    response: size_of::<ib_uverbs_resize_cq_resp>(),
    handler: resize_cq,
};

fn resize_cq(call: &mut Call<'_>) -> Result<(), Errno> {
    let request: ib_uverbs_resize_cq = call.request()?;
    let cqn = call.file.objects.cq(request.cq_handle)?.cqn;
    if !(1..=MAX_CQE).contains(&request.cqe) {
        return Err(Errno::EINVAL);
    }
    let cq = rings(call.device)?.cqs.get_mut(&cqn).ok_or(Errno::EINVAL)?;
    cq.resize(request.cqe)?;
    if let Some(Object::Cq(cq)) = call.file.objects.get_mut(request.cq_handle) {
        cq.entries = request.cqe;
    }
    answer_offset(call, Mapped::Cq(cqn))?;
    call.respond(&ib_uverbs_resize_cq_resp { cqe: request.cqe, reserved: 0 })
}

/// REQ_NOTIFY_CQ (`rvt_req_notify_cq`).
const REQ_NOTIFY_CQ: Write = Write {
    command: IB_USER_VERBS_CMD_REQ_NOTIFY_CQ,
    request: size_of::<ib_uverbs_req_notify_cq>(),
    response: 0,
    handler: req_notify_cq,
};

fn req_notify_cq(call: &mut Call<'_>) -> Result<(), Errno> {
    let request: ib_uverbs_req_notify_cq = call.request()?;
    let cqn = call.file.objects.cq(request.cq_handle)?.cqn;
    let notify = if request.solicited_only != 0 { Notify::Solicited } else { Notify::Any };
    rings(call.device)?.cqs.get_mut(&cqn).ok_or(Errno::EINVAL)?.arm(notify);
    Ok(())
}

/// QP.CREATE (`rvt_create_qp`).
fn create_qp(call: &mut Call<'_>) -> Result<(), Errno> {
    let kind = kind(call)?;
    let asked = Asked::read(call, kind)?;
    let cap = asked.cap;
    let most = |wr: u32, sge: u32| wr > MAX_WR || sge > MAX_SGE;
    let receives = asked.srq.is_none();
    let is_empty = cap.max_send_wr | cap.max_send_sge | cap.max_recv_wr | cap.max_recv_sge == 0;
    if !matches!(asked.service, Service::Rc | Service::Uc | Service::Ud)
        || most(cap.max_send_wr, cap.max_send_sge)
        || receives && (most(cap.max_recv_wr, cap.max_recv_sge) || is_empty)
    {
        return Err(Errno::EINVAL);
    }
    let objects = &call.file.objects;
    let pd = objects.pd(asked.pd)?.pdn;
    let (send_cq, recv_cq) = (objects.cq(asked.send_cq)?.cqn, objects.cq(asked.recv_cq)?.cqn);
    let srq = asked.srq.map(|srq| objects.srq(srq)).transpose()?.map(|srq| srq.srqn);
    let uar = rings(call.device)?.uar();
    let sizes = (cap.max_send_wr, cap.max_send_sge);
    let queues = Queues {
        sends: Sends::new(asked.service, sizes, asked.sq_sig_all, uar)?,
        receives: match receives {
            true => Some(Receives::new(cap.max_recv_wr, cap.max_recv_sge, cap.max_recv_wr, false)?),
            false => None,
        },
        srq,
        record: Memory::own(8)?,
        closed: false,
    };
    let context = QpContext {
        send_cq,
        recv_cq,
        sq: Some(queues.sends.context()),
        rq: queues.receives.as_ref().map(Receives::context),
        srq,
        doorbell_record: queues.doorbell_record(),
        uar,
        ..QpContext::bare(asked.service, pd, send_cq)
    };
    let queue = call.device.hca.create_qp(context).map_err(errno)?;
    let qpn = queue.number();
    rings(call.device)?.qps.insert(qpn, queues);
    let held = [asked.pd, asked.send_cq, asked.recv_cq].into_iter().chain(asked.srq);
    let held: Vec<_> = held.collect();
    held.iter().for_each(|handle| call.file.objects.hold(*handle));
    call.device.qp_owners.insert(queue, vec![(call.file.id, asked.handle)]);
    let cap = ib_uverbs_qp_cap { max_inline_data: 0, ..cap };
    let qp = Qp {
        qpn,
        kind,
        held,
        user_handle: asked.user_handle,
        async_file: call.file.events.async_file(asked.event_file),
        async_events: 0,
        cap,
        sq_sig_all: asked.sq_sig_all,
        groups: Default::default(),
        pinned: 0,
        lag_port: 1,
        _uar: None,
        raw: None,
    };
    call.put_object(asked.handle, Object::Qp(Box::new(qp)));
    match receives {
        true => answer_offset(call, Mapped::Qp(qpn))?,
        false => call.driver_output(&[0; 8])?,
    }
    call.output_or_zero(UVERBS_ATTR_CREATE_QP_RESP_CAP, &cap)?;
    call.output(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &qpn.0)
}

/// SRQ.CREATE (`rvt_create_srq`).
fn create_srq(call: &mut Call<'_>) -> Result<(), Errno> {
    let pd = call.object(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE).ok_or(Errno::ENOENT)?;
    let max_sge: u32 = call.input(UVERBS_ATTR_CREATE_SRQ_MAX_SGE)?;
    let max_wr: u32 = call.input(UVERBS_ATTR_CREATE_SRQ_MAX_WR)?;
    let limit: u32 = call.input(UVERBS_ATTR_CREATE_SRQ_LIMIT)?;
    let user_handle: u64 = call.input(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE)?;
    let handle = call.object(UVERBS_ATTR_CREATE_SRQ_HANDLE).ok_or(Errno::ENOENT)?;
    let event_file = call.object(UVERBS_ATTR_CREATE_SRQ_EVENT_FD);
    if call.constant(UVERBS_ATTR_CREATE_SRQ_TYPE, u64::from(u32::MAX))? != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if !(1..=MAX_SGE).contains(&max_sge) || !(1..=MAX_WR).contains(&max_wr) {
        return Err(Errno::EINVAL);
    }
    // The device's queue serves every later size.
    let made = Receives::new(max_wr, max_sge, MAX_WR, true)?;
    let (region, log_entries, stride_shift) = made.queue();
    let context = SrqContext {
        pd: call.file.objects.pd(pd)?.pdn,
        region,
        log_entries,
        stride_shift,
        doorbell_record: made.doorbells().addr(0),
        limit: u16::try_from(limit.min(max_wr)).unwrap_or_default(),
        xrc: None,
        tags: None,
    };
    let srqn = call.device.hca.create_srq(context).map_err(errno)?;
    rings(call.device)?.srqs.insert(srqn, made);
    call.file.objects.hold(pd);
    call.device.srq_owners.insert(srqn, (call.file.id, handle));
    let srq = Srq {
        srqn,
        held: vec![pd],
        is_xrc: false,
        user_handle,
        async_file: call.file.events.async_file(event_file),
        async_events: 0,
        max_wr,
        max_sge,
        pinned: 0,
    };
    call.put_object(handle, Object::Srq(srq));
    answer_offset(call, Mapped::Srq(srqn))?;
    call.output(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, &max_wr)?;
    call.output(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, &max_sge)
}

/// MODIFY_SRQ (`rvt_modify_srq`).
const MODIFY_SRQ: Write = Write {
    command: IB_USER_VERBS_CMD_MODIFY_SRQ,
    request: size_of::<ib_uverbs_modify_srq>(),
    response: 0,
    handler: modify_srq,
};

fn modify_srq(call: &mut Call<'_>) -> Result<(), Errno> {
    let request: ib_uverbs_modify_srq = call.request()?;
    let srq = call.file.objects.srq(request.srq_handle)?;
    let (srqn, most) = (srq.srqn, srq.max_wr);
    let sets_limit = request.attr_mask & IB_SRQ_LIMIT != 0;
    let now = call.device.hca.query_srq(srqn).map_err(errno)?;
    let limit = if sets_limit { request.srq_limit } else { now.into() };
    if request.attr_mask & IB_SRQ_MAX_WR == 0 {
        if !sets_limit {
            return Ok(());
        }
        if limit > most {
            return Err(Errno::EINVAL);
        }
        return call.device.hca.modify_srq(srqn, limit as u16).map_err(errno);
    }
    if request.max_wr > MAX_WR || limit > request.max_wr {
        return Err(Errno::EINVAL);
    }
    // The request of the driver is the address where the offset goes.
    let own = call.driver_input()?;
    let address = own.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
    if let Some(address) = address {
        copy_to_user(address, &[0; 8])?;
    }
    rings(call.device)?.srqs.get_mut(&srqn).ok_or(Errno::EINVAL)?.resize(request.max_wr)?;
    call.device.hca.modify_srq(srqn, limit as u16).map_err(errno)?;
    if let Some(Object::Srq(srq)) = call.file.objects.get_mut(request.srq_handle) {
        srq.max_wr = request.max_wr;
    }
    let file = call.file.id;
    let offset = rings(call.device)?.offset(file, Mapped::Srq(srqn));
    match address {
        Some(address) => copy_to_user(address, &offset.to_ne_bytes()),
        None => Ok(()),
    }
}

/// POST_SEND.
const POST_SEND: Write = Write {
    command: IB_USER_VERBS_CMD_POST_SEND,
    request: size_of::<ib_uverbs_post_send>(),
    response: size_of::<ib_uverbs_post_send_resp>(),
    handler: post_send,
};

/// Parts of a POST_SEND: header, work requests, SGEs.
type Parts = (ib_uverbs_post_send, Vec<ib_uverbs_send_wr>, Vec<ib_uverbs_sge>);

fn parts(call: &Call<'_>) -> Result<Parts, Errno> {
    let bytes = call.bytes(UVERBS_ATTR_CORE_IN)?.unwrap_or_default();
    let (header, rest) =
        ib_uverbs_post_send::read_from_prefix(&bytes).map_err(|_| Errno::ENOSPC)?;
    let size = header.wqe_size as usize;
    if size < size_of::<ib_uverbs_send_wr>() {
        return Err(Errno::EINVAL);
    }
    let len = (header.wr_count as usize).checked_mul(size).ok_or(Errno::ENOSPC)?;
    let (wrs, sges) = rest.split_at_checked(len).ok_or(Errno::ENOSPC)?;
    let len = (header.sge_count as usize).checked_mul(size_of::<ib_uverbs_sge>());
    let sges = len.and_then(|len| sges.get(..len)).ok_or(Errno::ENOSPC)?;
    let wrs = wrs
        .chunks_exact(size)
        .filter_map(|wr| Some(ib_uverbs_send_wr::read_from_prefix(wr).ok()?.0));
    let sges = sges.chunks_exact(size_of::<ib_uverbs_sge>());
    let sges = sges.filter_map(|sge| ib_uverbs_sge::read_from_bytes(sge).ok());
    Ok((header, wrs.collect(), sges.collect()))
}

fn post_send(call: &mut Call<'_>) -> Result<(), Errno> {
    let (header, wrs, sges) = parts(call)?;
    let qpn = call.file.objects.qp(header.qp_handle)?.qpn;
    // The SGEs are counted before the first work request is posted.
    let wanted: u64 = wrs.iter().map(|wr| u64::from(wr.num_sge)).sum();
    if wanted > sges.len() as u64 {
        return Err(Errno::EINVAL);
    }
    let posted = post_all(call, qpn, &wrs, &sges);
    if let Some(rings) = &mut call.device.rings {
        rings.lone_send = posted.is_ok() && wrs.len() == 1;
    }
    let bad_wr = posted.map_or_else(|(at, _)| at as u32 + 1, |()| 0);
    call.respond(&ib_uverbs_post_send_resp { bad_wr })?;
    posted.map_err(|(_, errno)| errno)
}

/// Posts work requests up to the first that fails, whose place is in the error.
fn post_all(
    call: &mut Call<'_>,
    qpn: Qpn,
    wrs: &[ib_uverbs_send_wr],
    mut sges: &[ib_uverbs_sge],
) -> Result<(), (usize, Errno)> {
    let Device { hca, config, rings, .. } = &mut *call.device;
    let (state, attrs) = hca.query_qp(Queue::Qp(qpn)).map_err(|error| (0, errno(error)))?;
    let queues = rings.as_deref_mut().and_then(|rings| rings.qps.get_mut(&qpn));
    let qp = queues.ok_or((0, Errno::EINVAL))?;
    if matches!(state, QpState::Reset | QpState::Init | QpState::Rtr) {
        return Err((0, Errno::EINVAL));
    }
    let mut result = Ok(());
    for (at, wr) in wrs.iter().enumerate() {
        let (list, rest) = sges.split_at(wr.num_sge as usize);
        sges = rest;
        let to = match qp.sends.is_datagram().then(|| call.file.objects.get(wr.ud().ah)) {
            None => None,
            Some(Some(Object::Ah(ah))) => Some(ah.dest),
            Some(_) => {
                result = Err((at, Errno::EINVAL));
                break;
            }
        };
        let posted = qp.sends.post((hca, config), (qpn, &attrs), (wr, list), to.as_ref());
        if let Err(errno) = posted {
            result = Err((at, errno));
            break;
        }
    }
    qp.ring(hca, qpn);
    result
}
