//! State of queue pairs for copies that the device makes (`mlx5dv_wr_memcpy`).

use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::error::Error;
use uverbs_core::objects::qp::QpCore;
use uverbs_mlx5::{CopyCaps, CopyScratch, allow_copies};

use crate::memory::pd::Pd;

/// State of a queue pair that copies memory (`mlx5dv_wr_memcpy`).
#[derive(Debug)]
pub(crate) struct Copies {
    pub(crate) caps: CopyCaps,
    pub(crate) scratch: Arc<CopyScratch>,
}

impl Copies {
    /// Prepares a new queue pair of this domain for copies (rdma-core `verbs.c:qp_init_wr_memcpy`).
    pub(crate) fn new(pd: &Pd) -> Result<Self, Error> {
        let caps = caps(pd.context().mlx5());
        let (context, caps) = caps.ok_or(Error::kernel("create_qp", Errno::EOPNOTSUPP))?;
        let scratch = pd.scratch().of(|| context.copy_scratch(pd.core()))?;
        Ok(Self { caps, scratch })
    }

    /// Enables copies in the device; called when the queue pair came to INIT.
    pub(crate) fn allow(&self, qp: &QpCore) -> Result<(), Error> {
        if self.caps.must_allow { allow_copies(qp) } else { Ok(()) }
    }
}

/// Device and its copy capabilities. `None`: copies are unsupported.
fn caps(context: Option<&uverbs_mlx5::Context>) -> Option<(&uverbs_mlx5::Context, CopyCaps)> {
    let context = context?;
    Some((context, context.copy_caps().ok()??))
}

/// Maximum bytes of a copy; 0 if unsupported.
pub(crate) fn longest(context: &uverbs_mlx5::Context) -> usize {
    caps(Some(context)).map_or(0, |(_, caps)| caps.max_len as usize)
}
