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
use uverbs_core::provider::{CqInit, CqeSize, MiniCqe};
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX, MLX5_IB_CQE_RES_FORMAT_CSUM, MLX5_IB_CQE_RES_FORMAT_HASH,
    MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD, MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX,
    mlx5_ib_create_cq, mlx5_ib_create_cq_resp,
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

/// UAR page of the queue's doorbell, as CREATE_CQ names it.
#[derive(Clone, Copy, Debug, Default)]
struct ArmPage {
    /// Number and flag in the driver's part of the request.
    index: u16,
    flag: u16,
    /// Attribute for a number of more than 16 bits (cards with a large BAR). Since Linux 6.11;
    /// older kernels answer `EPROTONOSUPPORT`.
    attribute: Option<(u16, u32)>,
}

impl ArmPage {
    /// rdma-core `verbs.c:create_cq`.
    fn of(page: &UarPage) -> Self {
        match u16::try_from(page.page_id()) {
            Ok(index) => {
                Self { index, flag: MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX, attribute: None }
            }
            Err(_) => {
                let attribute = Some((MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX, page.page_id()));
                Self { attribute, ..Self::default() }
            }
        }
    }
}

/// Creates a completion queue (rdma-core `verbs.c:create_cq`).
pub(crate) fn create_cq(context: &Context, init: &CqInit) -> Result<(Arc<CqCore>, Cq), Error> {
    init.check_context(&context.core)?;
    let entries = cq_entries("create_cq", init.entries, context.limits.cqe)?;
    check_vector(init.comp_vector, &context.limits)?;
    let shift = shift_of(init.cqe_size);
    if init.compressed.is_some() && init.cqe_size != CqeSize::Bytes64 {
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
    let by_page = ArmPage::of(&page);
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
        flags: by_page.flag | padding,
        uar_page_index: by_page.index,
        cqe_comp_en: init.compressed.is_some().into(),
        cqe_comp_res_format: init.compressed.map_or(0, format_of),
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
        driver: by_page.attribute,
    };
    let uverbs = context.core.uverbs();
    // SAFETY: the core object created next keeps ring and record, which are accessed only by raw
    // pointers.
    let created = unsafe { uverbs.create_cq(&attr, request.as_bytes(), answer.as_mut_bytes()) }
        .map_err(|error| uverbs.tell_memlock(error, ring.len() as u64))?;
    let room = CqRoom::new(init.entries, entries)
        .ignoring_overrun(init.counts_queues())
        .compressed(init.compressed.is_some());
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
        compressed: init.compressed.is_some(),
    };
    // SAFETY: page-aligned; `core` keeps ring, record and page; this is the first poller.
    let cq = unsafe { Cq::new(parts) };
    Ok((core, cq))
}

/// Format of mini CQEs for the kernel.
fn format_of(mini: MiniCqe) -> u8 {
    match mini {
        MiniCqe::Hash => MLX5_IB_CQE_RES_FORMAT_HASH,
        _ => MLX5_IB_CQE_RES_FORMAT_CSUM,
    }
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
