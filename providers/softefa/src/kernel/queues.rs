//! Completion queues and queue pairs (`efa_create_cq`, `efa_create_qp`).

use nix::errno::Errno;
use uverbs_kernel_abi::cq::ib_uverbs_destroy_cq_resp;
use uverbs_kernel_abi::efa::io::{efa_io_rx_cdesc, efa_io_rx_cdesc_ex, efa_io_rx_desc};
use uverbs_kernel_abi::efa::{
    EFA_CREATE_CQ_RESP_DB_OFF, EFA_CREATE_CQ_WITH_COMPLETION_CHANNEL, EFA_CREATE_CQ_WITH_SGID,
    EFA_CREATE_QP_WITH_UNSOLICITED_WRITE_RECV, EFA_QP_DRIVER_TYPE_SRD,
    EFA_QUERY_DEVICE_CAPS_CQ_NOTIFICATIONS, EFA_QUERY_DEVICE_CAPS_CQ_WITH_SGID,
    EFA_QUERY_DEVICE_CAPS_UNSOLICITED_WRITE_RECV, efa_ibv_create_cq, efa_ibv_create_cq_resp,
    efa_ibv_create_qp, efa_ibv_create_qp_resp,
};
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::qp::{
    IB_QPS_RESET, IB_UVERBS_QPT_DRIVER, IB_UVERBS_QPT_UD, ib_uverbs_destroy_qp_resp,
    ib_uverbs_qp_cap,
};
use zerocopy::IntoBytes;

use super::File;
use super::call::Call;
use super::device::{MAX_CQE, MAX_LLQ, MAX_RQ_WR, MAX_SGE, MAX_SQ_WR, channel};
use super::memory::destroy;
use crate::device::area::Area;
use crate::device::objects::{Cq, Object, Qp, RecvQueue, SendQueue, SubCq};
use crate::device::world::{Part, World};

/// Bytes of an SGE of a receive.
const SGE: u32 = size_of::<efa_io_rx_desc>() as u32;
/// Offset of the first element of a send queue in its page.
const LLQ_OFFSET: usize = 64;
/// RNR retries of a queue pair that names none: they do not end.
const RNR_RETRY: u8 = 7;

/// CQ_CREATE.
pub(super) fn create_cq(world: &mut World, file: File, call: &mut Call<'_>) -> Result<(), Errno> {
    let entries = call.number(UVERBS_ATTR_CREATE_CQ_CQE)? as u32;
    let part: efa_ibv_create_cq = call.driver()?;
    let (caps, sub_cqs) = (world.boards[file.board].caps, world.boards[file.board].sub_cqs);
    let sizes = [size_of::<efa_io_rx_cdesc>(), size_of::<efa_io_rx_cdesc_ex>()];
    let has_channel = part.flags & EFA_CREATE_CQ_WITH_COMPLETION_CHANNEL != 0;
    let has_gids = part.flags & EFA_CREATE_CQ_WITH_SGID != 0;
    let flags = EFA_CREATE_CQ_WITH_COMPLETION_CHANNEL | EFA_CREATE_CQ_WITH_SGID;
    // GIDs are in long entries.
    let sizes = if has_gids { &sizes[1..] } else { &sizes };
    let is_known = part.comp_mask == 0
        && part.reserved_58 == [0; 5]
        && part.flags & !flags == 0
        && sizes.contains(&(part.cq_entry_size as usize))
        && part.num_sub_cqs == sub_cqs;
    if !is_known || entries == 0 || entries > MAX_CQE || !entries.is_power_of_two() {
        return Err(Errno::EINVAL);
    }
    let needed = [
        (has_channel, EFA_QUERY_DEVICE_CAPS_CQ_NOTIFICATIONS),
        (has_gids, EFA_QUERY_DEVICE_CAPS_CQ_WITH_SGID),
    ];
    if needed.into_iter().any(|(is_asked, cap)| is_asked && caps & cap == 0) {
        return Err(Errno::EOPNOTSUPP);
    }
    let channel = if call.has(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL) {
        let fd = call.number(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL)?;
        Some(channel(world, file, fd)?).filter(|_| has_channel)
    } else {
        None
    };
    let handle = world.new_number();
    let bytes = usize::from(part.num_sub_cqs) * (entries * part.cq_entry_size) as usize;
    let cq = Cq {
        ring: Area::new("softefa-cq", bytes)?,
        register: Area::new("softefa-cq-doorbell", size_of::<u32>())?,
        entries,
        entry_size: part.cq_entry_size,
        has_gids,
        rings: vec![SubCq::default(); part.num_sub_cqs.into()],
        channel,
        user_handle: call.number(UVERBS_ATTR_CREATE_CQ_USER_HANDLE)?,
        seen: 0,
        armed: false,
        events: 0,
    };
    let has_register = caps & EFA_QUERY_DEVICE_CAPS_CQ_NOTIFICATIONS != 0;
    let answer = efa_ibv_create_cq_resp {
        comp_mask: if has_register { EFA_CREATE_CQ_RESP_DB_OFF } else { 0 },
        q_mmap_key: Part::CqRing.key(handle),
        q_mmap_size: cq.ring.len() as u64,
        cq_idx: handle as u16,
        db_mmap_key: Part::CqRegister.key(handle),
        ..Default::default()
    };
    call.output(UVERBS_ATTR_CREATE_CQ_RESP_CQE, &entries.to_ne_bytes())?;
    call.respond_driver(&answer)?;
    call.set(UVERBS_ATTR_CREATE_CQ_HANDLE, handle.into());
    world.objects.insert(handle, (file.owner(), Object::Cq(cq)));
    Ok(())
}

/// CQ_DESTROY.
pub(super) fn destroy_cq(world: &mut World, file: File, call: &mut Call<'_>) -> Result<(), Errno> {
    let handle = call.handle(UVERBS_ATTR_DESTROY_CQ_HANDLE)?;
    let cq = world.cq_mut(handle).map(|cq| (cq.events, cq.channel));
    destroy(world, file, call, UVERBS_ATTR_DESTROY_CQ_HANDLE)?;
    let (mut events, channel) = cq.unwrap_or_default();
    if let Some(channel) = channel.and_then(|channel| world.channel_mut(channel)) {
        events = events.saturating_sub(channel.retract(handle));
    }
    let answer = ib_uverbs_destroy_cq_resp { comp_events_reported: events, ..Default::default() };
    call.output(UVERBS_ATTR_DESTROY_CQ_RESP, answer.as_bytes())
}

/// QP_CREATE.
pub(super) fn create_qp(world: &mut World, file: File, call: &mut Call<'_>) -> Result<(), Errno> {
    let cap: ib_uverbs_qp_cap = call.input(UVERBS_ATTR_CREATE_QP_CAP)?;
    let part: efa_ibv_create_qp = call.driver()?;
    let (pd, send_cq, recv_cq) = (
        call.handle(UVERBS_ATTR_CREATE_QP_PD_HANDLE)?,
        call.handle(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE)?,
        call.handle(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE)?,
    );
    let is_pd = matches!(world.of(file.number, pd)?, Object::Pd);
    let are_cqs = [send_cq, recv_cq]
        .into_iter()
        .all(|cq| matches!(world.of(file.number, cq), Ok(Object::Cq(_))));
    if part.comp_mask != 0 || part.reserved_98 != [0; 5] || !is_pd || !are_cqs {
        return Err(Errno::EINVAL);
    }
    let is_srd = match call.number(UVERBS_ATTR_CREATE_QP_TYPE)? {
        kind if kind == u64::from(IB_UVERBS_QPT_UD) => false,
        kind if kind == u64::from(IB_UVERBS_QPT_DRIVER) => true,
        _ => return Err(Errno::EOPNOTSUPP),
    };
    let has_srq = call.has(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE);
    let caps = world.boards[file.board].caps;
    let has_writes = is_srd && caps & EFA_QUERY_DEVICE_CAPS_UNSOLICITED_WRITE_RECV != 0;
    let known = if has_writes { EFA_CREATE_QP_WITH_UNSOLICITED_WRITE_RECV } else { 0 };
    if part.flags & !known != 0 || has_srq || part.driver_qp_type != EFA_QP_DRIVER_TYPE_SRD {
        return Err(Errno::EOPNOTSUPP);
    }
    let least = u32::from(world.boards[file.board].min_sq_wr);
    let wqe = check_sizes(&cap, &part, least)?;
    let handle = world.new_number();
    let qp = Qp {
        pd,
        qpn: world.free_qpn(file.board).ok_or(Errno::ENOMEM)?,
        is_srd,
        is_unsolicited: part.flags & EFA_CREATE_QP_WITH_UNSOLICITED_WRITE_RECV != 0,
        state: IB_QPS_RESET,
        qkey: 0,
        sq_psn: 0,
        rnr_retry: RNR_RETRY,
        cap,
        send_cq,
        recv_cq,
        counters: Vec::new(),
        sq: SendQueue {
            llq: Area::new("softefa-llq", part.sq_ring_size as usize + LLQ_OFFSET)?,
            offset: LLQ_OFFSET,
            register: Area::new("softefa-sq-doorbell", size_of::<u32>())?,
            elements: cap.max_send_wr,
            wqe: wqe as usize,
            taken: 0,
        },
        rq: RecvQueue {
            ring: Area::new("softefa-rq", part.rq_ring_size as usize)?,
            register: Area::new("softefa-rq-doorbell", size_of::<u32>())?,
            elements: part.rq_ring_size / SGE,
            taken: 0,
        },
    };
    let answer = efa_ibv_create_qp_resp {
        llq_desc_offset: LLQ_OFFSET as u32,
        rq_mmap_key: Part::RqRing.key(handle),
        rq_mmap_size: qp.rq.ring.len() as u64,
        rq_db_mmap_key: Part::RqRegister.key(handle),
        sq_db_mmap_key: Part::SqRegister.key(handle),
        llq_desc_mmap_key: Part::Llq.key(handle),
        recv_sub_cq_idx: world.boards[file.board].sub_cqs - 1,
        ..Default::default()
    };
    call.output(UVERBS_ATTR_CREATE_QP_RESP_CAP, cap.as_bytes())?;
    call.output(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &u32::from(qp.qpn).to_ne_bytes())?;
    call.respond_driver(&answer)?;
    call.set(UVERBS_ATTR_CREATE_QP_HANDLE, handle.into());
    world.objects.insert(handle, (file.owner(), Object::Qp(Box::new(qp))));
    Ok(())
}

/// Checks the sizes of a queue pair. Returns the bytes of a send.
fn check_sizes(cap: &ib_uverbs_qp_cap, part: &efa_ibv_create_qp, least: u32) -> Result<u32, Errno> {
    let sends = cap.max_send_wr;
    let wqe = part.sq_ring_size.checked_div(sends).unwrap_or(0);
    let is_possible = [64, 128].contains(&wqe)
        && sends.is_power_of_two()
        && sends * wqe == part.sq_ring_size
        && (least..=MAX_SQ_WR).contains(&sends)
        && part.sq_ring_size <= MAX_LLQ
        && part.rq_ring_size.is_multiple_of(SGE)
        && (part.rq_ring_size / SGE).is_power_of_two()
        && part.rq_ring_size / SGE <= MAX_RQ_WR
        && cap.max_recv_wr * cap.max_recv_sge * SGE <= part.rq_ring_size
        && cap.max_send_sge <= MAX_SGE.into()
        && cap.max_recv_sge <= MAX_SGE.into()
        && cap.max_inline_data <= if wqe == 128 { 80 } else { 32 };
    if !is_possible {
        return Err(Errno::EINVAL);
    }
    Ok(wqe)
}

/// QP_DESTROY.
pub(super) fn destroy_qp(world: &mut World, file: File, call: &mut Call<'_>) -> Result<(), Errno> {
    destroy(world, file, call, UVERBS_ATTR_DESTROY_QP_HANDLE)?;
    let answer = ib_uverbs_destroy_qp_resp::default();
    call.output(UVERBS_ATTR_DESTROY_QP_RESP, answer.as_bytes())
}
