//! Posts to queues whose device is a test.
#![allow(unsafe_code, reason = "posts, which is unsafe, to rings that no device reads")]

use std::sync::Arc;

use uverbs_core::memory::frame::{Frame, Slab};
use uverbs_core::memory::mapping::Mapping;
use uverbs_core::memory::post::Source;
use uverbs_core::objects::mr::MrCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::provider::{RecvOps, SendOps};
use uverbs_core::queues::work::{Data, Destination, PostError, SendOp, Sge, Wr};

/// A slab of `count` frames, which no device knows.
///
/// # Panics
///
/// When memory is short.
#[must_use]
pub fn slab(pd: &Arc<PdCore>, frame_len: u32, count: u32) -> Slab {
    // SAFETY: no region is deregistered behind a test's door.
    let region = unsafe { MrCore::new(Arc::clone(pd), 1, 0x1100, 0x1100) };
    let memory = Mapping::new(frame_len as usize * count as usize).expect("memory");
    // SAFETY: new and zeroed, and no device knows it.
    unsafe { Slab::new(memory, region, frame_len, count) }
}

/// Number of frames that can be taken now.
#[must_use]
pub fn free(slab: &Slab) -> usize {
    std::iter::from_fn(|| slab.take()).collect::<Vec<_>>().len()
}

/// Posts one send, which owns `frame`, and rings. Returns its slot.
///
/// # Errors
///
/// As for [`SendOps::post`].
pub fn post_send(
    sq: &mut impl SendOps,
    wr: Wr,
    op: SendOp,
    data: Data<'_>,
    frame: Option<Frame>,
) -> Result<u32, PostError> {
    let mut at = sq.begin();
    // SAFETY: no device reads the memory.
    let slot = unsafe { sq.post(&mut at, wr, op, data) }?;
    finish(sq, at, slot, frame);
    Ok(slot)
}

/// Posts one send to a destination, which owns `frame`, and rings. Returns its slot.
///
/// # Errors
///
/// As for [`SendOps::post_to`].
pub fn post_send_to<S: SendOps>(
    sq: &mut S,
    (wr, op): (Wr, SendOp),
    to: Destination<'_, S::Ah>,
    data: Data<'_>,
    frame: Option<Frame>,
) -> Result<u32, PostError> {
    let mut at = sq.begin();
    // SAFETY: no device reads the memory, and the handle is of the queue's domain.
    let slot = unsafe { sq.post_to(&mut at, wr, op, to, data) }?;
    finish(sq, at, slot, frame);
    Ok(slot)
}

/// Gives a post its frame, and rings.
fn finish<S: SendOps>(sq: &mut S, at: S::Cursor, slot: u32, frame: Option<Frame>) {
    if let Some(frame) = frame {
        // SAFETY: the slot of the post just made.
        unsafe { sq.own(&at, slot, frame.hold()) };
    }
    // SAFETY: the cursor is from the last `begin`.
    unsafe { sq.ring(at) };
}

/// Posts one receive, which owns `frame`, and rings. Returns its slot.
///
/// # Errors
///
/// As for [`RecvOps::post`].
pub fn post_recv(
    rq: &mut impl RecvOps,
    id: u64,
    list: &[Sge],
    frame: Option<Frame>,
) -> Result<u32, PostError> {
    let mut at = rq.begin();
    // SAFETY: no device writes the memory.
    let slot = unsafe { rq.post(&mut at, id, list) }?;
    if let Some(frame) = frame {
        // SAFETY: the slot of the post just made.
        unsafe { rq.own(&at, slot, frame.hold()) };
    }
    // SAFETY: the cursor is from the last `begin`.
    unsafe { rq.ring(at) };
    Ok(slot)
}
