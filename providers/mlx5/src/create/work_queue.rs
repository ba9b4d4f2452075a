//! Work queues, RSS tables, and queue pairs over a table: the driver's part of creating them
//! (rdma-core `verbs.c`, `create_wq`, `mlx5_create_rwq_ind_table`, `mlx5_cmd_create_rss_qp`).
//!
//! # Safety
//!
//! A work queue's command names ring and record by address. Both are kept by the core object, which
//! frees them after the kernel confirmed the destruction, or leaks them. The poster also keeps
//! them, and accesses them only by raw pointers.
#![allow(unsafe_code, reason = "hands ring memory to the device, and to the queue that owns it")]

use std::sync::Arc;

use uverbs_core::attr::RssHash;
use uverbs_core::commands::wq::CreateWq;
use uverbs_core::error::Error;
use uverbs_core::memory::dbrec::Dbrec;
use uverbs_core::memory::mapping::Mapping;
use uverbs_core::objects::context::unique_id;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::objects::rss::{IndTableCore, RssCore};
use uverbs_core::objects::wq::{WqCore, WqParts};
use uverbs_core::provider::{ContextOps, NewWq, WqInit};
use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::slots::SlotTable;
use uverbs_kernel_abi::mlx5::{
    MLX5_RX_HASH_FUNC_TOEPLITZ, mlx5_ib_create_qp_resp, mlx5_ib_create_qp_rss, mlx5_ib_create_wq,
    mlx5_ib_create_wq_resp, mlx5_ib_modify_wq,
};
use uverbs_kernel_abi::wq::IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING;
use zerocopy::IntoBytes;

use crate::create::size::RecvSize;
use crate::recv::queue::RqParts;
use crate::{Context, Mlx5, Rq};

/// `struct mlx5_ib_modify_wq`: all fields are reserved.
const CHANGE: [u8; size_of::<mlx5_ib_modify_wq>()] = [0; size_of::<mlx5_ib_modify_wq>()];

/// Memory that the device reads of a work queue.
#[derive(Debug)]
struct WqMemory {
    ring: Mapping,
    record: Dbrec,
}

/// Creates a work queue (rdma-core `verbs.c:create_wq`).
pub(crate) fn create(context: &Context, init: &WqInit) -> Result<NewWq<Mlx5>, Error> {
    init.check_context(&context.core)?;
    context.check_ethernet("create_wq")?;
    let size = RecvSize::of_wq(init.max_wr, init.max_sge, &context.limits)?;
    let ring = context.memory.alloc(size.bytes())?;
    let memory = Arc::new(WqMemory { ring, record: context.dbrecs.alloc()? });
    let user_index = context.indexes.take("create_wq")?;
    let request = mlx5_ib_create_wq {
        buf_addr: memory.ring.addr(),
        db_addr: memory.record.addr(),
        rq_wqe_count: size.entries,
        rq_wqe_shift: size.shift,
        user_index: user_index.value(),
        ..Default::default()
    };
    let mut answer = mlx5_ib_create_wq_resp::default();
    let attr = CreateWq {
        pd: init.pd.handle(),
        cq: init.cq.handle(),
        user_handle: unique_id(),
        // The requested sizes; the driver's request has the size of the ring.
        max_wr: init.max_wr,
        max_sge: init.max_sge,
        flags: if init.strips_vlan { IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING } else { 0 },
        event_fd: context.core.event_file(),
    };
    let uverbs = context.core.uverbs();
    // SAFETY: the core object created next keeps ring and record, which are accessed only by raw
    // pointers.
    let created = unsafe { uverbs.create_wq(&attr, request.as_bytes(), answer.as_mut_bytes()) }
        .map_err(|error| uverbs.tell_memlock(error, memory.ring.len() as u64))?;
    let shared = Arc::new(QpShared {
        user_index,
        qpn: created.wqn,
        send: SlotTable::none(),
        recv: SlotTable::new(size.entries),
        srq: None,
        special: None,
    });
    let parts = WqParts {
        handle: created.handle,
        wqn: created.wqn,
        event_id: attr.user_handle,
        max_wr: size.entries,
        max_sge: size.max_sge,
        pd: Arc::clone(&init.pd),
        cq: Arc::clone(&init.cq),
        shared: Arc::clone(&shared),
        change: &CHANGE,
        memory: Box::new(Arc::clone(&memory)),
    };
    // SAFETY: the kernel just created it from these parts, which were checked to belong to
    // `context`; `shared` is new.
    let core = unsafe { WqCore::new(parts) };
    init.cq.check_overrun("create_wq")?;
    let parts = RqParts {
        start: memory.ring.ptr(),
        entries: size.entries,
        max_wr: size.entries,
        shift: size.shift,
        max_sge: size.max_sge,
        record: memory.record.ptr(),
        qpn: created.wqn,
        shared,
        memory,
    };
    // SAFETY: the ring has that length, in a page-aligned mapping; `memory` keeps it and the
    // record. The slot table has as many slots, and this is the first poster.
    let rq = unsafe { Rq::new(parts) };
    Ok(NewWq { core, rq })
}

/// Creates an RSS table (rdma-core `verbs.c:mlx5_create_rwq_ind_table`).
pub(crate) fn create_table(
    context: &Context,
    queues: Vec<Arc<WqCore>>,
) -> Result<Arc<IndTableCore>, Error> {
    let most = context.device_attr().rss.max_rwq_indirection_table_size;
    IndTableCore::create(&context.core, queues, most)
}

/// Creates an RSS queue pair (rdma-core `verbs.c:mlx5_cmd_create_rss_qp`).
pub(crate) fn create_rss_qp(
    pd: &Arc<PdCore>,
    table: &Arc<IndTableCore>,
    hash: &RssHash,
) -> Result<Arc<RssCore>, Error> {
    hash.check(table.queues().len())?;
    let mut request = mlx5_ib_create_qp_rss {
        rx_hash_fields_mask: hash.fields.bits(),
        rx_hash_function: MLX5_RX_HASH_FUNC_TOEPLITZ,
        rx_key_len: hash.key.len() as u8,
        ..Default::default()
    };
    request.rx_hash_key[..hash.key.len()].copy_from_slice(&hash.key);
    let mut answer = mlx5_ib_create_qp_resp::default();
    // SAFETY: the request holds numbers, no address.
    unsafe { RssCore::create(pd, table, request.as_bytes(), answer.as_mut_bytes()) }
}
