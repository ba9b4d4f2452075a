//! Creation of completion queues and queue pairs: mlx5's part of the commands.
//!
//! # Safety
//!
//! Commands name rings and records by address. Both are kept by the core object, which frees them
//! after the kernel confirmed the destruction, or leaks them. The poster and the poller also keep
//! them, and access them only by raw pointers.
#![allow(unsafe_code, reason = "hands ring memory to the device, and to the queue that owns it")]

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use uverbs_core::attr::{DciStreams, QpCap, QpType, SendOpSet};
use uverbs_core::commands::cq::CreateCq;
use uverbs_core::error::Error;
use uverbs_core::memory::allocator::QueueMemory;
use uverbs_core::memory::dbrec::Dbrec;
use uverbs_core::memory::mapping::Mapping;
use uverbs_core::objects::context::unique_id;
use uverbs_core::objects::cq::{CqCore, CqRoom};
use uverbs_core::objects::qp::QpCore;
use uverbs_core::provider::{CqInit, CqeSize, NewQp, QpInit};
use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::slots::SlotTable;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_CQE_RES_FORMAT_CSUM, MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD,
    MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX, MLX5_QP_FLAG_ALLOW_SCATTER_CQE,
    MLX5_QP_FLAG_DCI_STREAM, MLX5_QP_FLAG_SCATTER_CQE, MLX5_QP_FLAG_TYPE_DCI,
    MLX5_QP_FLAG_TYPE_DCT, MLX5_QP_FLAG_UAR_PAGE_INDEX, mlx5_ib_create_cq, mlx5_ib_create_cq_resp,
    mlx5_ib_create_qp, mlx5_ib_create_qp_dci_streams, mlx5_ib_create_qp_resp,
};
use uverbs_mlx5_prm::wqe::Service;
use zerocopy::IntoBytes;

use crate::Context;
use crate::Cq;
use crate::Mlx5;
use crate::Rq;
use crate::Sq;
use crate::cq::resize::Resizing;
use crate::cq::{CqParts, fill};
use crate::create::buffer::QpMemory;
use crate::create::size::{RecvSize, SendSize, check_vector, cq_entries};
use crate::create::srq::check_uncompressed;
use crate::device::ece;
use crate::device::uar::UarPage;
use crate::recv::ooo;
use crate::recv::queue::RqParts;
use crate::send::queue::SqParts;
use crate::send::wqe::Room;

/// Log2 of the size of a CQE.
fn shift_of(size: CqeSize) -> u32 {
    match size {
        CqeSize::Bytes64 => 6,
        CqeSize::Bytes128 => 7,
    }
}

/// Memory that the device writes of a completion queue, and the page that it is armed through.
#[derive(Debug)]
pub(crate) struct CqMemory {
    /// The ring; each resize replaces it.
    pub(crate) ring: Mutex<Mapping>,
    _record: Dbrec,
    _page: Arc<UarPage>,
}

/// UAR number of the non-cached page, for which CREATE_CQ has 16 bits.
fn arm_page(page: &UarPage) -> Result<u16, Error> {
    u16::try_from(page.page_id()).map_err(|_| Error::Unsupported {
        verb: "create_cq",
        what: format!("doorbell page number {} (over 65535)", page.page_id()),
    })
}

/// Creates a completion queue (rdma-core `verbs.c:create_cq`).
pub(crate) fn create_cq(context: &Context, init: &CqInit) -> Result<(Arc<CqCore>, Cq), Error> {
    init.check_context(&context.core)?;
    let entries = cq_entries("create_cq", init.entries, context.limits.cqe)?;
    check_vector(init.comp_vector, &context.limits)?;
    let shift = shift_of(init.cqe_size);
    if init.compressed && init.cqe_size != CqeSize::Bytes64 {
        let what = "compressed CQEs of 128 bytes".to_owned();
        return Err(Error::Unsupported { verb: "create_cq", what });
    }
    let padding = match init.padded {
        true if init.cqe_size == CqeSize::Bytes128 => MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD,
        true => {
            let what = "padded CQEs of 64 bytes".to_owned();
            return Err(Error::Unsupported { verb: "create_cq", what });
        }
        false => 0,
    };
    let page = Arc::clone(context.uars.non_cached());
    let uar_page_index = arm_page(&page)?;
    let (by, len) = (init.allocator.as_ref(), (entries as usize) << shift);
    let ring = context.memory.alloc_by(by, QueueMemory::Cq, len)?;
    let record = context.dbrecs.alloc_by(by)?;
    let (start, record_at, arm) = (ring.ptr(), record.ptr(), page.arm());
    // SAFETY: the ring is new and has that length.
    unsafe { fill(start, entries, shift) };
    let request = mlx5_ib_create_cq {
        buf_addr: ring.addr(),
        db_addr: record.addr(),
        cqe_size: 1 << shift,
        flags: MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX | padding,
        uar_page_index,
        cqe_comp_en: init.compressed.into(),
        cqe_comp_res_format: if init.compressed { MLX5_IB_CQE_RES_FORMAT_CSUM } else { 0 },
        ..Default::default()
    };
    let mut answer = mlx5_ib_create_cq_resp::default();
    let attr = CreateCq {
        // The kernel adds one and rounds up to this ring (`cq.c:mlx5_ib_create_cq`).
        entries: entries - 1,
        user_handle: unique_id(),
        comp_vector: init.comp_vector,
        channel: init.channel.as_ref().map(|channel| channel.as_fd()),
        event_fd: context.core.event_file(),
        flags: init.flags(),
    };
    let uverbs = context.core.uverbs();
    // SAFETY: the core object created next keeps ring and record, which are accessed only by raw
    // pointers.
    let created = unsafe { uverbs.create_cq(&attr, request.as_bytes(), answer.as_mut_bytes()) }
        .map_err(|error| uverbs.tell_memlock(error, ring.len() as u64))?;
    let room = CqRoom::new(init.entries, entries)
        .ignoring_overrun(init.counts_queues())
        .compressed(init.compressed);
    let memory = Arc::new(CqMemory { ring: Mutex::new(ring), _record: record, _page: page });
    let resizing = Resizing {
        memory: Arc::clone(&memory),
        pool: context.memory.clone(),
        allocator: init.allocator.clone(),
        limit: context.limits.cqe,
    };
    let (of, memory) = (Arc::clone(&context.core), Box::new(memory));
    let (number, channel) = (answer.cqn, init.channel.clone());
    // SAFETY: the kernel just created it with this memory, and only this object has its handle.
    let core =
        unsafe { CqCore::new(of, created.handle, number, room, attr.user_handle, channel, memory) };
    let parts = CqParts {
        start,
        entries,
        shift,
        record: record_at,
        arm,
        core: Arc::clone(&core),
        resizing: Some(resizing),
        compressed: init.compressed,
    };
    // SAFETY: page-aligned; `core` keeps ring, record and page; this is the first poller.
    let cq = unsafe { Cq::new(parts) };
    Ok((core, cq))
}

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

/// Flags for scatter to CQE, of short messages and also of responses, which requires that each send
/// has a signal flag (`MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE`). Not for a shared receive queue,
/// because the poller does not know its ring.
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
    if context.ece {
        // SAFETY: mlx5_ib's request contains numbers only.
        unsafe { core.knows_ece(&ece::DRIVER, answer.ece_options) };
    }
    if init.out_of_order {
        // SAFETY: its slot table allows receives out of order.
        unsafe { ooo::announce(&core) };
    }
    // SAFETY: just created, and not posted to; after an error it is dropped here.
    unsafe { core.check_overrun() }?;
    let sq = SqParts {
        start: memory.send(),
        units: send.units,
        max_wr: send.max_wr,
        record: memory.record.ptr(),
        doorbell: memory.register.doorbell(),
        qpn: created.qpn,
        room: Room { max_sge: send.max_sge, max_inline: send.max_inline },
        service: match init.qp_type {
            QpType::Rc => Service::Rc,
            QpType::Uc => Service::Uc,
            QpType::Ud => Service::Ud,
            QpType::XrcIni => Service::Xrc,
            QpType::Dci | QpType::Dct => Service::Dc,
            QpType::RawPacket => Service::Raw,
        },
        packets: (init.qp_type == QpType::RawPacket).then_some(context.limits.packets),
        rekeys: !matches!(init.qp_type, QpType::Ud | QpType::RawPacket)
            && init.send_ops.is_some_and(|ops| ops.contains(SendOpSet::REKEY)),
        shared: Arc::clone(&shared),
        memory: Arc::clone(&memory) as _,
    };
    let rq = RqParts {
        start: memory.recv(),
        entries: recv.entries,
        max_wr: max_recv_wr,
        shift: recv.shift,
        // Unlimited without a receive queue: a post then fails for the missing queue.
        max_sge: if init.srq.is_some() { u32::MAX } else { recv.max_sge },
        record: memory.record.ptr(),
        qpn: created.qpn,
        shared,
        memory,
    };
    // SAFETY: rings of these sizes, kept by `memory` in a page-aligned mapping, the receive ring a
    // multiple of 64 bytes. The slot tables have as many slots, and no other poster.
    let sq = unsafe { Sq::new(sq) };
    // SAFETY: the contract of `Rq::new` holds for the same reasons.
    let rq = unsafe { Rq::new(rq) };
    Ok(NewQp { core, sq, rq })
}
