//! Changes of the tag list of a tag-matching shared receive queue.
//!
//! A program names a tag by its index in the list, as with C's provider.
//!
//! # Safety
//!
//! By C's contract (crate root), the memory named by a work request stays registered until its
//! completion.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;

use uverbs_core::provider::SrqOps;
use uverbs_core::queues::tag_work::{Tag, TagHandle, TagOp, TagWr};
use uverbs_core::queues::work::{PostError, Sge};

use crate::post::request::errno;
use crate::queues::srq::Srq;
use crate::sys::{
    IBV_OPS_SIGNALED, IBV_OPS_TM_SYNC, IBV_WR_TAG_ADD, IBV_WR_TAG_DEL, IBV_WR_TAG_SYNC, ibv_ops_wr,
    ibv_srq,
};

pub(crate) unsafe extern "C" fn post_srq_ops(
    srq: *mut ibv_srq,
    mut wr: *mut ibv_ops_wr,
    bad: *mut *mut ibv_ops_wr,
) -> c_int {
    // SAFETY: by C's contract.
    let srq = unsafe { Srq::of(srq) };
    let mut queue = srq.queue().lock();
    // SAFETY: the lock is held, which guards the value.
    let tags = unsafe { &mut *srq.tags() };
    let mut code = 0;
    queue.begin_tags();
    // SAFETY: C's contract: `wr` is null or the next change of the list.
    while let Some(one) = unsafe { wr.as_mut() } {
        // SAFETY: by C's contract.
        if let Err(error) = unsafe { change(&mut *queue, tags, one) } {
            code = errno(error);
            // SAFETY: by C's contract.
            unsafe { *bad = wr };
            break;
        }
        wr = one.next;
    }
    // SAFETY: C's contract: the queue is not destroyed during the post.
    unsafe { queue.ring_tags() };
    code
}

/// Posts a change of the list, and records the handle of an added tag.
///
/// # Safety
///
/// C's contract.
unsafe fn change(
    queue: &mut impl SrqOps,
    tags: &mut [Option<TagHandle>],
    wr: &mut ibv_ops_wr,
) -> Result<(), PostError> {
    // A queue without tag matching has no list.
    if tags.is_empty() {
        return Err(PostError::BadOperation);
    }
    let op = match wr.opcode {
        IBV_WR_TAG_ADD => {
            let add = &wr.tm.add;
            let into = match add.sg_list.is_null() || add.num_sge == 0 {
                true => Sge { addr: 0, len: 0, lkey: 0 },
                // SAFETY: by C's contract a list; C's provider uses the first SGE only.
                false => unsafe { add.sg_list.read_unaligned() },
            };
            TagOp::Add { tag: Tag::masked(add.tag, add.mask), recv_id: add.recv_wr_id, into }
        }
        IBV_WR_TAG_DEL => {
            let tag = tags.get(wr.tm.handle as usize).copied().flatten();
            TagOp::Remove(tag.ok_or(PostError::UnknownTag)?)
        }
        IBV_WR_TAG_SYNC => TagOp::Sync,
        _ => return Err(PostError::BadOperation),
    };
    let has = |flag| wr.flags & flag != 0;
    let unexpected = has(IBV_OPS_TM_SYNC).then_some(wr.tm.unexpected_cnt as u16);
    let asked = TagWr { id: wr.wr_id, signaled: has(IBV_OPS_SIGNALED), unexpected };
    // SAFETY: by C's contract.
    let handle = unsafe { queue.change_tags(asked, &op) }?;
    if op == TagOp::Remove(handle) && !asked.signaled {
        // SAFETY: by C's contract. The index is free at once, as with C's provider.
        unsafe { queue.ring_tags() };
    }
    if let TagOp::Add { .. } = op {
        wr.tm.handle = handle.place();
        if let Some(place) = tags.get_mut(handle.place() as usize) {
            *place = Some(handle);
        }
    }
    Ok(())
}
