//! Clock of the device: the pages that the driver maps (rdma-core `mlx5.c:mlx5_map_clock_info`,
//! `mlx5_map_internal_clock`).

use std::sync::Arc;

use uverbs_core::error::Error;
use uverbs_core::memory::pages::page_size;
use uverbs_core::objects::clock::DeviceClock;
use uverbs_core::objects::context::ContextCore;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET, MLX5_IB_CLOCK_INFO_V1,
    MLX5_IB_MMAP_CLOCK_INFO, MLX5_IB_MMAP_CORE_CLOCK, mlx5_ib_alloc_ucontext_resp, mmap_offset,
};

/// Clock properties from the response to opening the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    has_info: bool,
    /// Offset of the counter in its page, if it can be mapped.
    offset: Option<u64>,
}

impl Clock {
    pub(crate) fn new(answer: &mlx5_ib_alloc_ucontext_resp) -> Self {
        let mask = MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET;
        let has_counter = answer.comp_mask & mask != 0;
        Self {
            has_info: answer.clock_info_versions & 1 << MLX5_IB_CLOCK_INFO_V1 != 0,
            offset: has_counter.then_some(answer.hca_core_clock_offset),
        }
    }
}

/// Maps the available pages.
pub(crate) fn map(
    core: &Arc<ContextCore>,
    clock: Clock,
    real_time: bool,
) -> Result<DeviceClock, Error> {
    if !clock.has_info {
        let what = "the clock page (needs Linux 4.11)".to_owned();
        return Err(Error::Unsupported { verb: "query_rt_values", what });
    }
    let page = page_size();
    let map = |command, index, what| {
        let offset = mmap_offset(command, index, page as u64);
        let pages = core.uverbs().door().mmap_read_only(page, offset);
        pages.map_err(|errno| Error::System { what, errno })
    };
    let info = map(MLX5_IB_MMAP_CLOCK_INFO, MLX5_IB_CLOCK_INFO_V1, "mmap of clock information")?;
    let counter = match clock.offset {
        None => None,
        Some(offset) => {
            let pages = map(MLX5_IB_MMAP_CORE_CLOCK, 0, "mmap of the device's clock")?;
            Some((pages, offset as usize % page))
        }
    };
    Ok(DeviceClock::new(info, counter)?.in_real_time(real_time))
}
