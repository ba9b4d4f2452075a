//! Creation of queue pairs: mlx5's part of the commands.
//!
//! # Safety
//!
//! Commands name rings and records by address. Both are kept by the core object, which frees them
//! after the kernel confirmed the destruction, or leaks them. The poster and the poller also keep
//! them, and access them only by raw pointers.
#![allow(unsafe_code, reason = "hands ring memory to the device, and to the queue that owns it")]

use std::sync::Arc;

use uverbs_core::attr::{DciStreams, QpCap, QpType, SendOpSet};
use uverbs_core::error::Error;
use uverbs_core::objects::qp::QpCore;
use uverbs_core::provider::{NewQp, QpInit};
use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::slots::SlotTable;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_CREATE_QP_RESP_MASK_TISN, MLX5_QP_FLAG_ALLOW_SCATTER_CQE, MLX5_QP_FLAG_DCI_STREAM,
    MLX5_QP_FLAG_SCATTER_CQE, MLX5_QP_FLAG_TYPE_DCI, MLX5_QP_FLAG_TYPE_DCT,
    MLX5_QP_FLAG_UAR_PAGE_INDEX, mlx5_ib_create_qp, mlx5_ib_create_qp_dci_streams,
    mlx5_ib_create_qp_resp,
};
use uverbs_mlx5_prm::wqe::Service;
use zerocopy::IntoBytes;

use crate::Context;
use crate::Mlx5;
use crate::Rq;
use crate::Sq;
use crate::create::buffer::QpMemory;
use crate::create::cq::check_uncompressed;
use crate::create::size::{RecvSize, SendSize};
use crate::device::ece;
use crate::recv::ooo;
use crate::recv::queue::RqParts;
use crate::send::queue::SqParts;
use crate::send::wqe::WqeLimits;

/// The driver's part of CREATE_QP. A DC target has no rings; its access key is in the field of a
/// raw packet queue's address (rdma-core `verbs.c:create_dct`).
fn qp_request(
    init: &QpInit,
    memory: &QpMemory,
    (send, recv): (&SendSize, &RecvSize),
    (uidx, ece_options): (u32, u32),
) -> mlx5_ib_create_qp {
    let kind = match init.qp_type {
        QpType::Dct => {
            return mlx5_ib_create_qp {
                sq_buf_addr: init.dc_key,
                flags: MLX5_QP_FLAG_TYPE_DCT,
                uidx,
                ece_options,
                ..Default::default()
            };
        }
        QpType::Dci if init.streams.is_some() => MLX5_QP_FLAG_TYPE_DCI | MLX5_QP_FLAG_DCI_STREAM,
        QpType::Dci => MLX5_QP_FLAG_TYPE_DCI,
        _ => 0,
    };
    mlx5_ib_create_qp {
        buf_addr: memory.addr(),
        db_addr: memory.record.addr(),
        sq_wqe_count: send.units,
        rq_wqe_count: recv.entries,
        rq_wqe_shift: recv.shift,
        flags: MLX5_QP_FLAG_UAR_PAGE_INDEX | kind | scatter_flags(init),
        // Send and receive queue of a raw packet queue pair are two device objects.
        sq_buf_addr: match init.qp_type {
            QpType::RawPacket => memory.send_addr(),
            _ => 0,
        },
        uidx,
        bfreg_index: memory.register.page_id(),
        ece_options,
        dci_streams: match init.streams {
            Some(DciStreams { log_concurrent, log_errored }) => mlx5_ib_create_qp_dci_streams {
                log_num_concurent: log_concurrent,
                log_num_errored: log_errored,
            },
            None => Default::default(),
        },
        ..Default::default()
    }
}

/// Flags for scatter to CQE of short received messages and of READ and atomic responses. Responses
/// need `MLX5_QP_FLAG_ALLOW_SCATTER_CQE`, because sends are signaled one by one (no `sq_sig_all`).
/// Not for a shared receive queue, because the poller does not know its ring.
fn scatter_flags(init: &QpInit) -> u32 {
    let has_rings = matches!(init.qp_type, QpType::Rc | QpType::Uc) && init.srq.is_none();
    // Also not for receives that complete out of order.
    match init.scatter_to_cqe && has_rings && !init.out_of_order {
        true => MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE,
        false => 0,
    }
}

/// Creates a queue pair (rdma-core `verbs.c:create_qp`).
pub(crate) fn create_qp(context: &Context, init: &QpInit) -> Result<NewQp<Mlx5>, Error> {
    init.check_context(&context.core)?;
    if init.qp_type == QpType::Srd {
        let what = "SRD (EFA has it, mlx5 has DC)".to_owned();
        return Err(Error::Unsupported { verb: "create_qp", what });
    }
    if init.qp_type == QpType::RawPacket {
        context.check_ethernet("create_qp")?;
    }
    if let Some(streams) = init.streams {
        context.check_streams(streams)?;
    }
    // Compressed CQEs can report only consecutive receives.
    if init.srq.is_some() || init.out_of_order {
        check_uncompressed("create_qp", &init.recv_cq)?;
    }
    let mut send = SendSize::new(init.qp_type, init.send_ops, &init.cap, &context.limits)?;
    if init.exact_lists {
        if init.send_ops.is_some_and(|ops| ops.contains(SendOpSet::REKEY)) {
            send = send.as_libmlx5(&init.cap, &context.limits);
        }
        send.max_sge = send.max_sge.min(init.cap.max_send_sge);
    }
    let (recv, max_recv_wr) = context.recv_size(init)?;
    let user_index = context.indexes.take("create_qp")?;
    let register = context.uars.register(init.doorbell)?;
    let memory = Arc::new(QpMemory::new(context, &send, &recv, register, init)?);
    let numbers = (user_index.value(), ece::trigger(context));
    let request = qp_request(init, &memory, (&send, &recv), numbers);
    let mut answer = mlx5_ib_create_qp_resp::default();
    let scatters = request.flags & MLX5_QP_FLAG_SCATTER_CQE != 0;
    // Requests the original sizes; the rounded sizes are internal.
    let attr = init.request(&init.cap, &context.core);
    let uverbs = context.core.uverbs();
    // SAFETY: the core object created next keeps rings and record, reached by raw pointers only.
    let created = unsafe { uverbs.create_qp(&attr, request.as_bytes(), answer.as_mut_bytes()) }
        .map_err(|error| uverbs.tell_memlock(error, memory.len() as u64))?;
    let shared = Arc::new(QpShared {
        user_index,
        send: SlotTable::new(send.units),
        recv: match init.srq {
            Some(_) => SlotTable::none(),
            None if init.out_of_order => SlotTable::new(recv.entries).in_any_order(),
            None => SlotTable::new(recv.entries),
        },
        srq: init.srq.as_ref().map(|srq| Arc::clone(srq.shared())),
        qpn: created.qpn,
        special: scatters.then(|| memory.work_rings(&send, &recv, context.dump_fill)),
    });
    let cap = QpCap {
        max_send_wr: send.max_wr,
        max_recv_wr,
        max_send_sge: send.max_sge,
        max_recv_sge: recv.max_sge,
        max_inline_data: send.max_inline,
    };
    let kept = Box::new(Arc::clone(&memory));
    let parts = init.parts(&created, attr.user_handle, cap, &shared, kept);
    // SAFETY: the kernel just created it from these parts, all of `context`; `shared` is new.
    let core = unsafe { QpCore::new(parts) };
    record(context, init, &core, &answer);
    // SAFETY: just created, and not posted to; after an error it is dropped here.
    unsafe { core.check_overrun() }?;
    let sq = sq_parts(context, init, &send, &memory, &shared);
    let rq = rq_parts(init, (&recv, max_recv_wr), memory, shared);
    // SAFETY: rings of these sizes, kept by `memory` in a page-aligned mapping, the receive ring a
    // multiple of 64 bytes. The slot tables have as many slots, and no other poster.
    let sq = unsafe { Sq::new(sq) };
    // SAFETY: the contract of `Rq::new` holds for the same reasons.
    let rq = unsafe { Rq::new(rq) };
    Ok(NewQp { core, sq, rq })
}

/// Records properties of a new queue pair that the kernel answered or will be told.
fn record(context: &Context, init: &QpInit, core: &QpCore, answer: &mlx5_ib_create_qp_resp) {
    if context.ece {
        // SAFETY: mlx5_ib's request contains numbers only.
        unsafe { core.knows_ece(&ece::DRIVER, answer.ece_options) };
    }
    if answer.comp_mask & MLX5_IB_CREATE_QP_RESP_MASK_TISN != 0 {
        core.sends_by(answer.tisn);
    }
    if init.out_of_order {
        // SAFETY: its slot table allows receives out of order.
        unsafe { ooo::announce(core) };
    }
}

fn sq_parts(
    context: &Context,
    init: &QpInit,
    size: &SendSize,
    memory: &Arc<QpMemory>,
    shared: &Arc<QpShared>,
) -> SqParts {
    let is_raw = init.qp_type == QpType::RawPacket;
    let rekeys = init.send_ops.is_some_and(|ops| ops.contains(SendOpSet::REKEY));
    SqParts {
        start: memory.send(),
        units: size.units,
        max_wr: size.max_wr,
        record: memory.record.ptr(),
        doorbell: memory.register.doorbell(),
        qpn: shared.qpn,
        room: WqeLimits { max_sge: size.max_sge, max_inline: size.max_inline },
        service: match init.qp_type {
            QpType::Rc => Service::Rc,
            QpType::Uc => Service::Uc,
            QpType::Ud => Service::Ud,
            QpType::XrcIni => Service::Xrc,
            QpType::Dci | QpType::Dct => Service::Dc,
            // SRD was refused.
            QpType::RawPacket | QpType::Srd => Service::Raw,
        },
        packets: is_raw.then_some(context.limits.packets),
        rekeys: rekeys && !is_raw && init.qp_type != QpType::Ud,
        shared: Arc::clone(shared),
        page_offset: memory.register.mmap_offset(),
        memory: Arc::clone(memory) as _,
    }
}

fn rq_parts(
    init: &QpInit,
    (size, max_wr): (&RecvSize, u32),
    memory: Arc<QpMemory>,
    shared: Arc<QpShared>,
) -> RqParts {
    RqParts {
        start: memory.recv(),
        entries: size.entries,
        max_wr,
        shift: size.shift,
        // Unlimited without a receive queue: a post then fails for the missing queue.
        max_sge: if init.srq.is_some() { u32::MAX } else { size.max_sge },
        record: memory.record.ptr(),
        qpn: shared.qpn,
        shared,
        memory,
    }
}
