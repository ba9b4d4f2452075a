//! Copies that the device makes: `mlx5dv_wr_memcpy`.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. Posts are made between
//! `wr_start` and its end, by that thread; what they name stays registered.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::sync::{Arc, Mutex, PoisonError, Weak};

use uverbs_core::Errno;
use uverbs_core::error::Error;
use uverbs_core::objects::qp::QpCore;
use uverbs_core::queues::work::Wr;
use uverbs_mlx5::{CopyCaps, CopyEnd, CopyScratch, allow_copies};

use crate::memory::pd::Pd;
use crate::post::extended::{Ex, of};
use crate::post::request::flags;

/// Scratch memory shared by the queue pairs of a domain. It lives as long as a queue pair uses it,
/// so it does not keep the domain from being destroyed.
#[derive(Debug, Default)]
pub(crate) struct Scratch(Mutex<Weak<CopyScratch>>);

impl Scratch {
    fn of(
        &self,
        make: impl FnOnce() -> Result<CopyScratch, Error>,
    ) -> Result<Arc<CopyScratch>, Error> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = known.upgrade() {
            return Ok(there);
        }
        let made = Arc::new(make()?);
        *known = Arc::downgrade(&made);
        Ok(made)
    }
}

/// State of a queue pair that copies memory (`mlx5dv_wr_memcpy`).
#[derive(Debug)]
pub(crate) struct Copies {
    caps: CopyCaps,
    scratch: Arc<CopyScratch>,
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

pub(crate) unsafe extern "C" fn wr_memcpy(
    ex: Ex,
    to_key: u32,
    to: u64,
    from_key: u32,
    from: u64,
    length: usize,
) {
    // SAFETY: by C's contract.
    let Some((qp, side, _)) = (unsafe { of(ex) }) else { return };
    let Some(Copies { caps, scratch }) = qp.copies() else {
        return side.build.refuse(Errno::EOPNOTSUPP);
    };
    let len = length as u64;
    if len == 0 || len > caps.max_len {
        return side.build.refuse(Errno::EINVAL);
    }
    // SAFETY: by C's contract; the program wrote the two members before.
    let (id, c_flags) = unsafe { ((*qp.c()).wr_id, (*qp.c()).wr_flags) };
    let wr = Wr { id, flags: flags(c_flags | qp.signal()) };
    let end = |addr, lkey| CopyEnd { addr, lkey };
    let copy = (end(from, from_key), end(to, to_key), len);
    // SAFETY: by C's contract; the cursor is of this queue's last `start`.
    side.post(|sq, at| unsafe { sq.post_copy(at, wr, copy, scratch) }.map(drop));
}
