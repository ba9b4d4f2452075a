//! Creation and destruction of queue pairs (`uverbs_std_types_qp.c`; `mlx5_ib_create_qp` in
//! `hw/mlx5/qp.c`).

use std::collections::BTreeSet;
use std::sync::Arc;

use nix::errno::Errno;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_CREATE_QP_RESP_MASK_RQN, MLX5_IB_CREATE_QP_RESP_MASK_SQN,
    MLX5_IB_CREATE_QP_RESP_MASK_TIRN, MLX5_IB_CREATE_QP_RESP_MASK_TISN,
    MLX5_QP_FLAG_ALLOW_SCATTER_CQE, MLX5_QP_FLAG_BFREG_INDEX, MLX5_QP_FLAG_DCI_STREAM,
    MLX5_QP_FLAG_SCATTER_CQE, MLX5_QP_FLAG_UAR_PAGE_INDEX, mlx5_ib_create_qp,
    mlx5_ib_create_qp_resp,
};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_CREATE_QP_CAP, UVERBS_ATTR_CREATE_QP_EVENT_FD, UVERBS_ATTR_CREATE_QP_HANDLE,
    UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, UVERBS_ATTR_CREATE_QP_PD_HANDLE,
    UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, UVERBS_ATTR_CREATE_QP_RESP_CAP,
    UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE,
    UVERBS_ATTR_CREATE_QP_SOURCE_QPN, UVERBS_ATTR_CREATE_QP_SRQ_HANDLE,
    UVERBS_ATTR_CREATE_QP_USER_HANDLE, UVERBS_ATTR_CREATE_QP_XRCD_HANDLE,
    UVERBS_ATTR_DESTROY_QP_RESP,
};
use uverbs_kernel_abi::qp::{
    IB_UVERBS_QP_CREATE_SQ_SIG_ALL, IB_UVERBS_QPT_XRC_TGT, ib_uverbs_destroy_qp_resp,
    ib_uverbs_qp_cap,
};
use zerocopy::IntoBytes;

use crate::backend::context::{CqeScatter, DciStreams, QpContext, RqContext, Service, SqContext};
use crate::backend::error::errno;
use crate::backend::number::{Cqn, Qpn, Queue, UarNumber};
use crate::backend::region::Region;
use crate::kernel::call::Call;
use crate::kernel::state::objects::{Object, Qp};
use crate::kernel::state::raw_queues::RawQueues;
use crate::kernel::verbs::queues::dct;
use crate::kernel::verbs::queues::qp_request::{
    Asked, Queues, check_flags, driver_request, flags, kind,
};
use crate::kernel::verbs::queues::xrc::{self, TargetAsked};
use crate::kernel::verbs::queues::{raw_packet, rss};
use crate::uar::UarPage;

/// `MLX5_IB_INVALID_BFREG`.
const INVALID_BFREG: u32 = 1 << 31;

/// QP.CREATE.
pub(crate) fn create(call: &mut Call<'_>) -> Result<(), Errno> {
    let kind = kind(call)?;
    if kind == IB_UVERBS_QPT_XRC_TGT {
        let asked = target(call)?;
        return xrc::create_target(call, &asked);
    }
    if let Some(table) = call.object(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE) {
        return rss::create_qp(call, kind, table);
    }
    let mut asked = Asked::read(call, kind)?;
    let request = driver_request(call)?;
    asked.subtype(request.flags)?;
    if asked.service == Service::Dct {
        dct::create(call, &asked, &request)?;
        return answer(call, 0, (asked.cap, 0), mlx5_ib_create_qp_resp::default());
    }
    let queues = Queues::check(call, &asked, &request)?;
    let uar = uar_page(call, &request)?;

    let (qpn, pinned, raw) = match asked.service {
        Service::Raw => {
            let made = raw_packet::create(call, &asked, &request, &queues)?;
            (made.qpn, made.pinned, Some(made.raw))
        }
        _ => {
            let context = context(call, &request, &queues, &asked)?;
            let (qp, pinned) = call.device.create_qp(request.buf_addr, queues.bytes(), context)?;
            (qp.number(), pinned, None)
        }
    };
    let told = told(call, &request, qpn, raw.as_ref());
    let made = raw.as_ref().map_or([Some(Queue::Qp(qpn)), None], RawQueues::queues);

    let held = [asked.pd, asked.send_cq, asked.recv_cq].into_iter().chain(asked.srq);
    let held: Vec<_> = held.collect();
    held.iter().for_each(|handle| call.file.objects.hold(*handle));
    for queue in made.into_iter().flatten() {
        call.device.qp_owners.insert(queue, vec![(call.file.id, asked.handle)]);
    }
    let qp = Qp {
        // Spread over the ports, as by firmware.
        lag_port: 1 + (qpn.0 & 1) as u8,
        qpn,
        kind,
        held,
        user_handle: asked.user_handle,
        async_file: call.file.events.async_file(asked.event_file),
        async_events: 0,
        cap: queues.cap(),
        sq_sig_all: asked.sq_sig_all,
        groups: BTreeSet::new(),
        pinned,
        _uar: Some(uar),
        raw,
    };
    call.put_object(asked.handle, Object::Qp(Box::new(qp)));
    answer(call, qpn.0, (asked.cap, queues.rq_count), told)
}

/// The driver's part of the answer. Firmware returns its ECE options if a client asks for any.
/// Raw packet queues are no queue pair for firmware, and have none. DEVX gets the numbers of their
/// objects (`create_raw_packet_qp`).
fn told(
    call: &Call<'_>,
    request: &mlx5_ib_create_qp,
    qpn: Qpn,
    raw: Option<&RawQueues>,
) -> mlx5_ib_create_qp_resp {
    let Some(raw) = raw else {
        let own = || call.device.hca.ece(Queue::Qp(qpn)).unwrap_or(call.device.config.ece);
        let ece_options = if request.ece_options == 0 { 0 } else { own() };
        return mlx5_ib_create_qp_resp { ece_options, ..Default::default() };
    };
    let mut told = mlx5_ib_create_qp_resp::default();
    if call.file.context.is_some_and(|context| context.devx) {
        let number = |queue: Option<Qpn>| queue.map(|queue| queue.0);
        for (mask, field, number) in [
            (MLX5_IB_CREATE_QP_RESP_MASK_TISN, &mut told.tisn, raw.tis),
            (MLX5_IB_CREATE_QP_RESP_MASK_SQN, &mut told.sqn, number(raw.sqn)),
            (MLX5_IB_CREATE_QP_RESP_MASK_TIRN, &mut told.tirn, raw.tir),
            (MLX5_IB_CREATE_QP_RESP_MASK_RQN, &mut told.rqn, number(raw.rqn)),
        ] {
            if let Some(number) = number {
                *field = number;
                told.comp_mask |= mask;
            }
        }
    }
    told
}

fn answer(
    call: &mut Call<'_>,
    qpn: u32,
    (cap, rq_count): (ib_uverbs_qp_cap, u32),
    told: mlx5_ib_create_qp_resp,
) -> Result<(), Errno> {
    let response = mlx5_ib_create_qp_resp { bfreg_index: INVALID_BFREG, ..told };
    call.driver_output(response.as_bytes())?;
    // `set_rq_size` clears the receive limits of a QP without receive queue.
    let answer = match rq_count {
        0 => ib_uverbs_qp_cap { max_recv_wr: 0, max_recv_sge: 0, ..cap },
        _ => cap,
    };
    call.output_or_zero(UVERBS_ATTR_CREATE_QP_RESP_CAP, &answer)?;
    call.output(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &qpn)
}

/// Parses the request for an XRC target.
fn target(call: &Call<'_>) -> Result<TargetAsked, Errno> {
    let cap: ib_uverbs_qp_cap = call.input(UVERBS_ATTR_CREATE_QP_CAP)?;
    let user_handle: u64 = call.input(UVERBS_ATTR_CREATE_QP_USER_HANDLE)?;
    let others = [
        UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE,
        UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE,
        UVERBS_ATTR_CREATE_QP_PD_HANDLE,
        UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE,
    ];
    if others.into_iter().any(|attr| call.has(attr)) {
        return Err(Errno::EINVAL);
    }
    let xrcd = call.object(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE).ok_or(Errno::ENOENT)?;
    let flags = flags(call)?;
    check_flags(IB_UVERBS_QPT_XRC_TGT, flags & !IB_UVERBS_QP_CREATE_SQ_SIG_ALL)?;
    if call.has(UVERBS_ATTR_CREATE_QP_SOURCE_QPN) {
        return Err(Errno::EOPNOTSUPP);
    }
    // The SRQ must be of XRC, and is ignored: each packet names its SRQ.
    if let Some(srq) = call.object(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE)
        && !call.file.objects.srq(srq)?.is_xrc
    {
        return Err(Errno::EINVAL);
    }
    let event_file = call.object(UVERBS_ATTR_CREATE_QP_EVENT_FD);
    let handle = call.object(UVERBS_ATTR_CREATE_QP_HANDLE).ok_or(Errno::ENOENT)?;
    Ok(TargetAsked { xrcd, user_handle, event_file, handle, cap })
}

/// UAR page of the QP's doorbell (`_create_user_qp`).
fn uar_page(call: &Call<'_>, request: &mlx5_ib_create_qp) -> Result<Arc<UarPage>, Errno> {
    let by_page = MLX5_QP_FLAG_UAR_PAGE_INDEX;
    // A register chosen by index, or by the kernel, needs static pages; a context with dynamic UARs
    // has none.
    if request.flags & (by_page | MLX5_QP_FLAG_BFREG_INDEX) != by_page {
        return Err(Errno::EINVAL);
    }
    call.file.objects.uar_page(request.bfreg_index).ok_or(Errno::EINVAL)
}

/// Context for firmware (`_create_user_qp`).
fn context(
    call: &Call<'_>,
    request: &mlx5_ib_create_qp,
    queues: &Queues,
    asked: &Asked,
) -> Result<QpContext, Errno> {
    let objects = &call.file.objects;
    let pd = objects.pd(asked.pd)?.pdn;
    let (send_cq, recv_cq) = (objects.cq(asked.send_cq)?.cqn, objects.cq(asked.recv_cq)?.cqn);
    // The send queue follows the receive queue (`qp->sq.offset`).
    let rq = queues.log_rq_entries().map(|log| RqContext {
        region: Region::Flat { addr: request.buf_addr, len: queues.rq_bytes() },
        log_entries: log as u8,
        stride_shift: queues.rq_shift as u8,
    });
    let sq = (queues.sq_count != 0).then(|| SqContext {
        region: Region::Flat { addr: request.buf_addr + queues.rq_bytes(), len: queues.sq_bytes() },
        log_wqebbs: queues.log_sq_units(),
    });
    let cqe_version = call.file.context.as_ref().map_or(0, |context| context.cqe_version);
    Ok(QpContext {
        recv_cq,
        sq,
        rq,
        srq: asked.srq.map(|srq| objects.srq(srq)).transpose()?.map(|srq| srq.srqn),
        doorbell_record: request.db_addr,
        uar: UarNumber(request.bfreg_index),
        user_index: request.uidx,
        cqe_version,
        scatter: scatter(call, request, asked, (send_cq, recv_cq))?,
        streams: streams(request, asked.service),
        ece: request.ece_options,
        // mlx5_ib does not tell the hardware of SQ_SIG_ALL: the provider sets the bit in each WQE.
        ..QpContext::bare(asked.service, pd, send_cq)
    })
}

/// Streams of a DC initiator (`create_dci`). None if both numbers are 0; ignored for other queue
/// pairs.
fn streams(request: &mlx5_ib_create_qp, service: Service) -> Option<DciStreams> {
    let asked = request.dci_streams;
    let streams =
        DciStreams { log_channels: asked.log_num_concurent, log_errored: asked.log_num_errored };
    let named = request.flags & MLX5_QP_FLAG_DCI_STREAM != 0 && service == Service::Dci;
    let any = streams.log_channels != 0 || streams.log_errored != 0;
    (named && any).then_some(streams)
}

/// Limits of payload in CQEs (`_create_user_qp`, `configure_requester_scat_cqe`). The requester's
/// limit needs a QP that signals each send, or whose client sets the flag for it.
fn scatter(
    call: &Call<'_>,
    request: &mlx5_ib_create_qp,
    asked: &Asked,
    (send_cq, recv_cq): (Cqn, Cqn),
) -> Result<CqeScatter, Errno> {
    if request.flags & MLX5_QP_FLAG_SCATTER_CQE == 0 {
        return Ok(CqeScatter::default());
    }
    let large = |cqn| Ok(call.device.hca.cqe_size(cqn).map_err(errno)? == 128);
    let bytes = |large: bool| if large { 64 } else { 32 };
    let all = asked.sq_sig_all || request.flags & MLX5_QP_FLAG_ALLOW_SCATTER_CQE != 0;
    let large_sends = large(send_cq)?;
    Ok(CqeScatter {
        requester: match asked.service {
            Service::Rc if all => bytes(large_sends),
            // Payload in 64-byte CQEs needs a separate capability (`dc_req_scat_data_cqe`).
            Service::Dci if all && large_sends => bytes(true),
            _ => 0,
        },
        responder: match asked.service {
            Service::Rc | Service::Uc => bytes(large(recv_cq)?),
            _ => 0,
        },
    })
}

/// QP.DESTROY: the destroy attribute has destroyed the QP.
pub(crate) fn destroy(call: &mut Call<'_>) -> Result<(), Errno> {
    let response = ib_uverbs_destroy_qp_resp {
        events_reported: call.destroyed.unwrap_or_default().async_events,
    };
    call.output(UVERBS_ATTR_DESTROY_QP_RESP, &response)
}
