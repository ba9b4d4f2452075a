//! Which function posts a work request: by the queue pair, and by opcode and shape of the first one
//! of a list. Each has its kind's checks and stores and no other's.
//!
//! # Safety
//!
//! As in `post.rs`.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;

use crate::post::{alike, any, chain, lone};
use crate::qp::{Qp, UD};
use crate::send::{SendSide, Sends};
use crate::sys::{
    IBV_SEND_INLINE, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_SEND,
    ibv_send_wr,
};

/// Shapes: what a work request carries, as far as functions are made for it. One piece:
pub(crate) const ONE: u8 = 0;
/// Any other number of pieces.
pub(crate) const LIST: u8 = 1;
/// One piece of inline data.
pub(crate) const INLINE: u8 = 2;
/// Inline data that fits its first segment, which is a case of its own for the processor.
pub(crate) const SMALL: u8 = 3;
pub(crate) const SMALL_BYTES: u32 = 12;
/// Inline data in any other number of pieces.
const OTHER: u8 = 4;
const SHAPES: usize = 5;

/// More than the highest of `IBV_WR_*` that has a function.
const OPCODES: usize = 8;
const _: () = assert!((IBV_WR_ATOMIC_FETCH_AND_ADD as usize) < OPCODES);

pub(crate) type Post =
    unsafe extern "C" fn(&Qp, *const ibv_send_wr, *mut *const ibv_send_wr) -> c_int;

type ByShape = [[Post; OPCODES]; SHAPES];

/// The functions of a queue pair.
#[derive(Debug)]
pub(crate) struct Posts {
    lone: ByShape,
    chain: ByShape,
    any: Post,
}

impl Posts {
    /// Those of a queue pair with this send queue, of the kind `IBV_QPT_*`.
    pub(crate) fn new(side: &SendSide, kind: u32) -> &'static Self {
        match side {
            SendSide::Mlx5(_) => of_kind::<uverbs_mlx5::Sq>(kind),
            SendSide::Rxe(_) => of_kind::<uverbs_rxe::Sq>(kind),
            #[cfg(feature = "any-siw")]
            SendSide::Siw(_) => of_kind::<uverbs_siw::Sq>(kind),
            SendSide::None => Self::none(),
        }
    }

    /// Those of a queue pair without one.
    pub(crate) fn none() -> &'static Self {
        const { &Self::all_of(any::<uverbs_mlx5::Sq>) }
    }

    /// The function for a list of work requests that begins with this one.
    ///
    /// # Safety
    ///
    /// C's contract.
    #[inline(always)]
    pub(crate) unsafe fn of(&self, first: &ibv_send_wr) -> Post {
        let opcode = first.opcode as usize;
        if opcode >= OPCODES {
            return self.any;
        }
        let by_shape = if first.next.is_null() { &self.lone } else { &self.chain };
        // SAFETY: C's contract.
        let shape = unsafe { shape(first) };
        by_shape[shape as usize][opcode]
    }

    const fn all_of(any: Post) -> Self {
        let none = [[any; OPCODES]; SHAPES];
        Self { lone: none, chain: none, any }
    }

    const fn of_connections<S: Sends>() -> Self {
        let mut posts = Self::all_of(any::<S>);
        posts.add::<S, IBV_WR_SEND, ONE, false>();
        posts.add::<S, IBV_WR_SEND, SMALL, false>();
        posts.add::<S, IBV_WR_SEND, INLINE, false>();
        posts.add::<S, IBV_WR_SEND, LIST, false>();
        posts.add::<S, IBV_WR_RDMA_WRITE, ONE, false>();
        posts.add::<S, IBV_WR_RDMA_WRITE, SMALL, false>();
        posts.add::<S, IBV_WR_RDMA_WRITE, INLINE, false>();
        posts.add::<S, IBV_WR_RDMA_WRITE, LIST, false>();
        posts.add::<S, IBV_WR_RDMA_READ, ONE, false>();
        posts.add::<S, IBV_WR_ATOMIC_FETCH_AND_ADD, ONE, false>();
        posts
    }

    const fn of_datagrams<S: Sends>() -> Self {
        let mut posts = Self::all_of(any::<S>);
        posts.add::<S, IBV_WR_SEND, ONE, true>();
        posts.add::<S, IBV_WR_SEND, SMALL, true>();
        posts.add::<S, IBV_WR_SEND, INLINE, true>();
        posts
    }

    /// Adds those of one kind. Inline data that isn't small is copied by a call.
    const fn add<S: Sends, const OPCODE: u32, const SHAPE: u8, const TO: bool>(&mut self) {
        let (one, more): (Post, Post) = if S::IN_PLACE && SHAPE != INLINE {
            (lone::<S, OPCODE, SHAPE, TO>, chain::<S, OPCODE, SHAPE, TO>)
        } else {
            (alike::<S, OPCODE, SHAPE, TO, true>, alike::<S, OPCODE, SHAPE, TO, false>)
        };
        self.lone[SHAPE as usize][OPCODE as usize] = one;
        self.chain[SHAPE as usize][OPCODE as usize] = more;
    }
}

/// Those of a provider's queue pair.
fn of_kind<S: Sends>(kind: u32) -> &'static Posts {
    match kind {
        ..UD => const { &Posts::of_connections::<S>() },
        UD => const { &Posts::of_datagrams::<S>() },
        // Each send names where it goes, or is a whole packet, or it takes none.
        _ => const { &Posts::all_of(any::<S>) },
    }
}

/// # Safety
///
/// C's contract.
#[inline(always)]
pub(crate) unsafe fn shape(wr: &ibv_send_wr) -> u8 {
    match (wr.send_flags & IBV_SEND_INLINE != 0, wr.num_sge) {
        (false, 1) => ONE,
        (false, _) => LIST,
        // SAFETY: C's contract: there is one.
        (true, 1) if unsafe { (*wr.sg_list).len } <= SMALL_BYTES => SMALL,
        (true, 1) => INLINE,
        (true, _) => OTHER,
    }
}
