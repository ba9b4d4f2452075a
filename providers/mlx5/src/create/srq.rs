//! Creation of shared receive queues: mlx5's part of the commands.
//!
//! # Safety
//!
//! Rings and records are kept as in `create/qp.rs`.
#![allow(unsafe_code, reason = "hands ring memory to the device, and to the queue that owns it")]

use std::sync::Arc;

use uverbs_core::commands::srq::{CreateSrq, SrqKind};
use uverbs_core::error::Error;
use uverbs_core::memory::allocator::QueueMemory;
use uverbs_core::memory::dbrec::Dbrec;
use uverbs_core::memory::mapping::Mapping;
use uverbs_core::objects::context::unique_id;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::objects::srq::{Completes, SrqCore, SrqParts};
use uverbs_core::objects::xrcd::OpenXrcd;
use uverbs_core::provider::{NewSrq, SrqInit};
use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::slots::SlotTable;
use uverbs_core::queues::srq::SrqShared;
use uverbs_core::queues::tag_table::TagTable;
use uverbs_kernel_abi::mlx5::{mlx5_ib_create_srq, mlx5_ib_create_srq_resp};
use uverbs_mlx5_prm::ctrl::DS_BYTES;
use zerocopy::IntoBytes;

use crate::Context;
use crate::Mlx5;
use crate::Srq;
use crate::create::cq::check_uncompressed;
use crate::create::size::SrqSize;
use crate::recv::srq;
use crate::recv::tags::TagQueue;

const VERB: &str = "create_srq";

/// Memory that the device reads of a shared receive queue.
#[derive(Debug)]
struct SrqMemory {
    ring: Mapping,
    record: Dbrec,
}

/// Creates a shared receive queue (rdma-core `verbs.c:mlx5_create_srq`, `mlx5_create_srq_ex`).
pub(crate) fn create_srq(context: &Context, init: &SrqInit) -> Result<NewSrq<Mlx5>, Error> {
    init.check_context(&context.core)?;
    if let Some(cq) = own_cq(init) {
        check_uncompressed(VERB, cq)?;
    }
    let sizes = TagQueue::check(context, init)?;
    let size = SrqSize::new(init.max_wr, init.max_sge, &context.limits)?;
    let max_wr = size.entries - 1;
    Error::limit(VERB, "limit", init.limit, max_wr)?;
    let by = init.allocator.as_ref();
    let ring = context.memory.alloc_by(by, QueueMemory::Srq, size.bytes())?;
    let memory = Arc::new(SrqMemory { ring, record: context.dbrecs.alloc_by(by)? });
    let shared = Arc::new(SrqShared::new(size.entries, None));
    let xrcd = init.xrc.as_ref().map(|(domain, _)| domain.open(VERB)).transpose()?;
    let tags = sizes.map(|size| Arc::new(TagTable::new(size.tags, size.units)));
    let completes = completes(context, init, max_wr, &shared, tags.clone())?;
    let request = mlx5_ib_create_srq {
        buf_addr: memory.ring.addr(),
        db_addr: memory.record.addr(),
        uidx: completes.as_ref().map_or(0, |completes| completes.user.user_index.value()),
        ..Default::default()
    };
    let mut answer = mlx5_ib_create_srq_resp::default();
    let attr = CreateSrq {
        pd: init.pd.handle(),
        user_handle: unique_id(),
        // The kernel adds one and rounds up, which yields this ring. It computes a WQE's length
        // from the list's (mlx5_ib `srq.c:mlx5_ib_create_srq`).
        max_wr,
        max_sge: (1 << size.shift) / DS_BYTES as u32 - 1,
        limit: init.limit,
        kind: kind(init, xrcd.as_ref()),
        event_fd: context.core.event_file(),
    };
    let uverbs = context.core.uverbs();
    // SAFETY: the core object created next keeps ring and record, which are accessed only by raw
    // pointers.
    let created = unsafe { uverbs.create_srq(&attr, request.as_bytes(), answer.as_mut_bytes()) }
        .map_err(|error| uverbs.tell_memlock(error, memory.ring.len() as u64))?;
    let parts = SrqParts {
        handle: created.handle,
        srqn: answer.srqn,
        event_id: attr.user_handle,
        max_wr,
        max_sge: size.max_sge,
        pd: Arc::clone(&init.pd),
        shared: Arc::clone(&shared),
        completes,
        memory: Box::new(Arc::clone(&memory)),
    };
    // SAFETY: the kernel just created it from these parts, which were checked to belong to
    // `context`; `shared` is new.
    let core = unsafe { SrqCore::new(parts) };
    if let Some(cq) = own_cq(init) {
        cq.check_overrun(VERB)?;
    }
    if init.limit != 0 {
        // mlx5_ib ignores the limit in CREATE_SRQ.
        core.set_limit(init.limit, &[])?;
    }
    let tags = init.tags.as_ref().zip(tags);
    let tags = tags.map(|list| TagQueue::new(context, init, &core, list)).transpose()?;
    let parts = srq::SrqParts {
        start: memory.ring.ptr(),
        shift: size.shift,
        max_sge: size.max_sge,
        record: memory.record.ptr(),
        srqn: answer.srqn,
        shared,
        memory,
        tags,
    };
    // SAFETY: the ring has that length, in a page-aligned mapping; `memory` keeps it and the
    // record, and this is the first poster.
    let srq = unsafe { Srq::new(parts) };
    Ok(NewSrq { core, srq })
}

/// Completion queue of its receives; `None` for a plain queue, whose receives complete to the queue
/// pairs' completion queues.
fn own_cq(init: &SrqInit) -> Option<&Arc<CqCore>> {
    let tags = init.tags.as_ref().map(|tags| &tags.cq);
    init.xrc.as_ref().map(|(_, cq)| cq).or(tags)
}

fn kind(init: &SrqInit, xrcd: Option<&OpenXrcd<'_>>) -> SrqKind {
    match (&init.xrc, xrcd, &init.tags) {
        (Some((_, cq)), Some(xrcd), _) => SrqKind::Xrc { xrcd: xrcd.handle(), cq: cq.handle() },
        (.., Some(tags)) => SrqKind::Tags { cq: tags.cq.handle(), max_tags: tags.max_tags },
        _ => SrqKind::Plain,
    }
}

/// Additional parts of a queue for XRC or tag matching. Its completions carry its user index, like
/// completions of a queue pair.
fn completes(
    context: &Context,
    init: &SrqInit,
    max_wr: u32,
    shared: &Arc<SrqShared>,
    tags: Option<Arc<TagTable>>,
) -> Result<Option<Completes>, Error> {
    let Some(cq) = own_cq(init) else { return Ok(None) };
    let user = QpShared {
        user_index: context.indexes.take(VERB)?,
        qpn: 0,
        send: SlotTable::none(),
        recv: SlotTable::none(),
        srq: Some(Arc::clone(shared)),
        special: tags.clone().map(|tags| Box::new(tags) as _),
    };
    // A message that matches a tag may complete twice: at the match, and at its arrival.
    let messages = tags.as_ref().map_or(0, |tags| 2 * tags.tags());
    Ok(Some(Completes {
        domain: init.xrc.as_ref().map(|(domain, _)| Arc::clone(domain)),
        cq: Arc::clone(cq),
        most: max_wr.saturating_add(messages),
        user: Arc::new(user),
        tags,
    }))
}
