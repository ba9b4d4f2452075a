//! Work requests that are made piece by piece: an element is written when all of it is known.
//!
//! # Safety
//!
//! Each is one post.
#![allow(unsafe_code, reason = "posts by the caller's promise")]

use uverbs_core::provider::{PieceOps, SendOps};
use uverbs_core::queues::work::{Data, PostError, SendOp, Wr};

use crate::sq::{SendCursor, Sq};

/// What waits for its data.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    wr: Wr,
    op: SendOp,
}

// SAFETY: both calls together are one post.
unsafe impl PieceOps for Sq {
    type Begun = Begun;

    #[inline]
    unsafe fn open(
        &mut self,
        _: &mut SendCursor,
        wr: Wr,
        op: SendOp,
        begun: &mut Option<Begun>,
    ) -> Result<(), PostError> {
        *begun = Some(Begun { wr, op });
        Ok(())
    }

    #[inline]
    unsafe fn close(
        &mut self,
        at: &mut SendCursor,
        begun: &Begun,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        // SAFETY: the caller's promise.
        unsafe { self.post(at, begun.wr, begun.op, data) }
    }
}
