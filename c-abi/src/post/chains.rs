//! Iterates over a list of C's work requests of one opcode and shape, for providers that write WQEs
//! in place.
//!
//! # Safety
//!
//! By C's contract (crate root), the list, its SGEs and handles are valid and unchanged during the
//! post.
#![allow(unsafe_code, reason = "pointers of C")]

use std::hint::assert_unchecked;
use std::marker::PhantomData;

use uverbs_core::provider::{Alike, Request, Requests};
use uverbs_core::queues::work::{Data, Destination, SendFlags, SendOp};

use crate::post::request::{bytes, destination, flags, pieces, plain_op};
use crate::post::send::Sends;
use crate::post::shape::{INLINE, ONE, SMALL, SMALL_BYTES, shape};
use crate::sys::{IBV_SEND_FENCE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED, ibv_send_wr};

/// Work requests of a list, up to the first one of another opcode or shape.
pub(crate) struct Chain<'a, S, const OPCODE: u32, const SHAPE: u8> {
    /// Flags added to each work request: [`Qp::signal`](crate::queues::qp::Qp::signal).
    signal: u32,
    /// Next work request, or null.
    wr: *const ibv_send_wr,
    links: PhantomData<ChainWr<'a, S, OPCODE, SHAPE>>,
}

impl<S, const OPCODE: u32, const SHAPE: u8> Chain<'_, S, OPCODE, SHAPE> {
    #[inline(always)]
    pub(crate) fn new(signal: u32, wr: *const ibv_send_wr) -> Self {
        Self { signal, wr, links: PhantomData }
    }

    /// First work request that is not posted, or null.
    #[inline(always)]
    pub(crate) fn left(&self) -> *const ibv_send_wr {
        self.wr
    }
}

impl<'a, S: Sends, const OPCODE: u32, const SHAPE: u8> Requests for Chain<'a, S, OPCODE, SHAPE> {
    type One = ChainWr<'a, S, OPCODE, SHAPE>;

    #[inline(always)]
    fn first(&self) -> Option<Self::One> {
        // SAFETY: C's contract: null, or the next work request of the list.
        let wr = unsafe { self.wr.as_ref() }?;
        // SAFETY: C's contract: a valid work request.
        unsafe { is_of::<OPCODE, SHAPE>(wr) }.then(|| ChainWr::new(self.signal, wr))
    }

    #[inline(always)]
    fn advance(&mut self) {
        // SAFETY: C's contract: null, or the next work request of the list.
        if let Some(wr) = unsafe { self.wr.as_ref() } {
            self.wr = wr.next;
        }
    }
}

/// Work request of opcode `OPCODE` and shape `SHAPE`.
pub(crate) struct ChainWr<'a, S, const OPCODE: u32, const SHAPE: u8> {
    /// Flags added to the work request: [`Qp::signal`](crate::queues::qp::Qp::signal).
    signal: u32,
    flags: u32,
    wr: &'a ibv_send_wr,
    provider: PhantomData<S>,
}

impl<S, const OPCODE: u32, const SHAPE: u8> Clone for ChainWr<'_, S, OPCODE, SHAPE> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<S, const OPCODE: u32, const SHAPE: u8> Copy for ChainWr<'_, S, OPCODE, SHAPE> {}

impl<'a, S, const OPCODE: u32, const SHAPE: u8> ChainWr<'a, S, OPCODE, SHAPE> {
    #[inline(always)]
    pub(crate) fn new(signal: u32, wr: &'a ibv_send_wr) -> Self {
        Self { signal, flags: wr.send_flags, wr, provider: PhantomData }
    }
}

// SAFETY: by C's contract the program does not change the work request during the post.
unsafe impl<S: Sends, const OPCODE: u32, const SHAPE: u8> Request
    for ChainWr<'_, S, OPCODE, SHAPE>
{
    type Ah = S::Ah;

    const ALIKE: Alike = match SHAPE {
        ONE => Alike::Piece,
        SMALL => Alike::Inline,
        _ => Alike::No,
    };

    #[inline(always)]
    fn id(&self) -> u64 {
        self.wr.wr_id
    }

    #[inline(always)]
    fn flags(&self) -> SendFlags {
        flags(self.flags | self.signal)
    }

    #[inline(always)]
    fn op(&self) -> SendOp {
        plain_op::<OPCODE>(self.wr)
    }

    #[inline(always)]
    fn to(&self) -> Option<Destination<'_, S::Ah>> {
        // SAFETY: C's contract; called for UD only.
        unsafe { destination::<S>(self.wr) }
    }

    #[inline(always)]
    fn data(&self) -> Data<'_> {
        // SAFETY: C's contract; the work request has shape `SHAPE`.
        unsafe { carried::<SHAPE>(self.wr) }
    }
}

/// Tests for opcode and shape. A single SGE with flags other than fence, signaled and solicited
/// (`IBV_SEND_IP_CSUM`) has neither: the slow path posts it.
///
/// # Safety
///
/// C's contract.
#[inline(always)]
unsafe fn is_of<const OPCODE: u32, const SHAPE: u8>(wr: &ibv_send_wr) -> bool {
    const FLAGS: u32 = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
    wr.opcode == OPCODE
        && match SHAPE {
            // The test excludes all other flags, so the flags need no mask afterwards.
            ONE => wr.send_flags & !FLAGS == 0 && wr.num_sge == 1,
            // SAFETY: C's contract.
            _ => unsafe { shape(wr) == SHAPE },
        }
}

/// Data of a work request of shape `SHAPE`.
///
/// # Safety
///
/// C's contract; the work request has this shape.
#[inline(always)]
pub(crate) unsafe fn carried<'a, const SHAPE: u8>(wr: &ibv_send_wr) -> Data<'a> {
    // SAFETY: C's contract: `num_sge` elements; one at least of the shapes that read one.
    unsafe {
        match SHAPE {
            ONE => Data::One(wr.sg_list.read_unaligned()),
            INLINE => Data::Inline(bytes(&wr.sg_list.read_unaligned())),
            SMALL => {
                let bytes = bytes(&wr.sg_list.read_unaligned());
                assert_unchecked(bytes.len() <= SMALL_BYTES as usize);
                Data::Inline(bytes)
            }
            _ => Data::List(pieces(wr.sg_list, wr.num_sge)),
        }
    }
}
