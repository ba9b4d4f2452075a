//! The data path as a program calls it, one function each, so that its machine code can be looked
//! at.
//!
//! `cargo xtask counts` takes these functions out of this program and compares them with `x86_64/`.
//!
//! # Safety
//!
//! Posts memory by keys that the caller keeps registered. The device is null and accesses no
//! memory.
#![allow(unsafe_code, reason = "raw posts are what is looked at")]

use uverbs::raw::{Data, Sge};
use uverbs::unstable::mlx5::Mlx5;
use uverbs::{Batch, CompletionQueue, Frame, PostError, RecvQueue, SendQueue, Unposted, Wr};

/// Sums over the fields of completions, in place of a program's use of them.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) ids: u64,
    pub(crate) bytes: u64,
    pub(crate) failed: u64,
}

/// One SEND, and its doorbell.
#[inline(never)]
pub(crate) fn post_one(queue: &mut SendQueue<Mlx5>, id: u64, sge: Sge) -> Result<(), PostError> {
    let mut batch = queue.batch();
    // SAFETY: see the file's text.
    unsafe { batch.raw().send(id, Data::One(sge)) }?;
    batch.ring();
    Ok(())
}

/// A SEND for each piece, the last one signaled, and one doorbell.
#[inline(never)]
pub(crate) fn post_chain(
    queue: &mut SendQueue<Mlx5>,
    id: u64,
    pieces: &[Sge],
) -> Result<(), PostError> {
    let mut batch = queue.batch();
    let Some((last, pieces)) = pieces.split_last() else { return Ok(()) };
    for piece in pieces {
        // SAFETY: see the file's text.
        unsafe { batch.raw().send(Wr::new(id).unsignaled(), Data::One(*piece)) }?;
    }
    // SAFETY: see the file's text.
    unsafe { batch.raw().send(id, Data::One(*last)) }?;
    batch.ring();
    Ok(())
}

/// The doorbell alone.
#[inline(never)]
pub(crate) fn ring(batch: Batch<'_, Mlx5>) {
    batch.ring();
}

/// One SEND of a frame, and its doorbell.
#[inline(never)]
pub(crate) fn send_frame(
    queue: &mut SendQueue<Mlx5>,
    id: u64,
    frame: Frame,
) -> Result<(), Unposted> {
    let mut batch = queue.batch();
    batch.send(id, frame)?;
    batch.ring();
    Ok(())
}

/// One receive, and its record.
#[inline(never)]
pub(crate) fn recv_one(queue: &mut RecvQueue<Mlx5>, id: u64, sge: Sge) -> Result<(), PostError> {
    let mut batch = queue.batch();
    // SAFETY: see the file's text.
    unsafe { batch.post_raw(id, &[sge]) }?;
    batch.ring();
    Ok(())
}

/// One receive of a frame, and its record.
#[inline(never)]
pub(crate) fn recv_frame(
    queue: &mut RecvQueue<Mlx5>,
    id: u64,
    frame: Frame,
) -> Result<(), Unposted> {
    let mut batch = queue.batch();
    batch.post(id, frame)?;
    batch.ring();
    Ok(())
}

/// Sixteen completions at most.
#[inline(never)]
pub(crate) fn poll_burst(queue: &mut CompletionQueue<Mlx5>, seen: &mut Seen) -> usize {
    let mut count = 0;
    let mut burst = queue.poll(16);
    while let Some(completion) = burst.next() {
        count += 1;
        seen.ids += completion.id();
        if completion.result().is_err() {
            seen.failed += 1;
        } else if completion.is_recv() {
            seen.bytes += u64::from(completion.byte_len());
        }
    }
    count
}
