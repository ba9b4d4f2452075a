//! Creation of completion queues: mlx5's part of the commands.
//!
//! # Safety
//!
//! Commands name rings and records by address. Both are kept by the core object, which frees them
//! after the kernel confirmed the destruction, or leaks them. The poster and the poller also keep
//! them, and access them only by raw pointers.
#![allow(unsafe_code, reason = "hands ring memory to the device, and to the queue that owns it")]

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use uverbs_core::commands::cq::CreateCq;
use uverbs_core::error::Error;
use uverbs_core::memory::allocator::QueueMemory;
use uverbs_core::objects::context::unique_id;
use uverbs_core::objects::cq::{CqCore, CqRoom};
use uverbs_core::provider::{CqInit, CqeSize};
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_CQE_RES_FORMAT_CSUM, MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD,
    MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX, mlx5_ib_create_cq, mlx5_ib_create_cq_resp,
};
use zerocopy::IntoBytes;

use crate::Context;
use crate::Cq;
use crate::cq::resize::Resizing;
use crate::cq::{CqParts, fill};
use crate::create::buffer::CqMemory;
use crate::create::size::{check_vector, cq_entries};
use crate::device::uar::UarPage;

/// Log2 of the size of a CQE.
fn shift_of(size: CqeSize) -> u32 {
    match size {
        CqeSize::Bytes64 => 6,
        CqeSize::Bytes128 => 7,
    }
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
    let memory = Arc::new(CqMemory { ring: Mutex::new(ring), record, page });
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

/// Rejects a completion queue with compressed CQEs for a shared receive queue, because only the
/// first of several compressed CQEs names its receive.
pub(crate) fn check_uncompressed(verb: &'static str, cq: &CqCore) -> Result<(), Error> {
    if !cq.is_compressed() {
        return Ok(());
    }
    let what = "shared receive queues with compressed CQEs".to_owned();
    Err(Error::Unsupported { verb, what })
}
