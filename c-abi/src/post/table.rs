//! Tables of post functions. The queue pair's type selects the table; opcode and shape of a list's
//! first work request select the function. Each function checks and stores only what its kind
//! needs.
//!
//! # Safety
//!
//! By C's contract (crate root), a list's work requests, SGEs and handles are valid.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;

use crate::post::send::{SendSide, Sends};
use crate::post::single::{list, single, slow};
use crate::queues::qp::{Qp, UD};
use crate::sys::{
    IBV_SEND_INLINE, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_SEND,
    ibv_send_wr,
};

// Shapes: data of a work request, as far as functions are specialised for it.
/// One SGE.
pub(crate) const ONE: u8 = 0;
/// Any other number of SGEs.
pub(crate) const LIST: u8 = 1;
/// Inline data of one element.
pub(crate) const INLINE: u8 = 2;
/// Inline data of one element that fits the first inline segment: one store pattern.
pub(crate) const SMALL: u8 = 3;
pub(crate) const SMALL_BYTES: u32 = 12;
/// Inline data of any other number of elements.
const OTHER: u8 = 4;

/// Opcodes with a function: `IBV_WR_*` below this. The table has each opcode twice, for SGEs and
/// for inline data. The number equals the inline flag, so `opcode | flag` is the index.
const OPCODES: u32 = 8;
const _: () = assert!(IBV_WR_ATOMIC_FETCH_AND_ADD < OPCODES && IBV_SEND_INLINE == OPCODES);

pub(crate) type Post =
    unsafe extern "C" fn(&Qp, *const ibv_send_wr, *mut *const ibv_send_wr) -> c_int;

/// Post functions of a queue pair.
#[derive(Debug)]
pub(crate) struct Posts {
    /// Indexed by the first work request's opcode and inline flag.
    by_kind: [Post; 2 * OPCODES as usize],
    slow: Post,
}

impl Posts {
    /// Post functions of a queue pair with this send queue and type `IBV_QPT_*`.
    pub(crate) fn new(side: &SendSide, kind: u32) -> &'static Self {
        match side {
            SendSide::Mlx5(_) => of_kind::<uverbs_mlx5::Sq>(kind),
            SendSide::Rxe(_) => of_kind::<uverbs_rxe::Sq>(kind),
            #[cfg(feature = "any-siw")]
            SendSide::Siw(_) => of_kind::<uverbs_siw::Sq>(kind),
            SendSide::None => Self::none(),
        }
    }

    /// Post functions of a queue pair without a send queue.
    pub(crate) fn none() -> &'static Self {
        const { &Self::all_of(slow::<uverbs_mlx5::Sq>) }
    }

    /// Function for a list that begins with `first`; `None` for an opcode outside the table. Not a
    /// choice of two addresses, so that a post needs one load.
    #[inline(always)]
    pub(crate) fn of(&self, first: &ibv_send_wr) -> Option<Post> {
        let in_table = first.opcode < OPCODES;
        let kind = first.opcode | first.send_flags & IBV_SEND_INLINE;
        if in_table { self.by_kind.get(kind as usize).copied() } else { None }
    }

    /// The function for any list.
    pub(crate) fn slow(&self) -> Post {
        self.slow
    }

    const fn all_of(slow: Post) -> Self {
        Self { by_kind: [slow; 2 * OPCODES as usize], slow }
    }

    /// Sets the functions of an opcode, for SGEs and for inline data.
    const fn with(mut self, opcode: u32, pieces: Post, inline: Option<Post>) -> Self {
        self.by_kind[opcode as usize] = pieces;
        if let Some(inline) = inline {
            self.by_kind[(opcode | IBV_SEND_INLINE) as usize] = inline;
        }
        self
    }

    const fn of_connections<S: Sends>() -> Self {
        const SEND: u32 = IBV_WR_SEND;
        const WRITE: u32 = IBV_WR_RDMA_WRITE;
        const READ: u32 = IBV_WR_RDMA_READ;
        const ADD: u32 = IBV_WR_ATOMIC_FETCH_AND_ADD;
        Self::all_of(slow::<S>)
            .with(SEND, with_pieces::<S, SEND, false>, Some(with_bytes::<S, SEND, false>))
            .with(WRITE, with_pieces::<S, WRITE, false>, Some(with_bytes::<S, WRITE, false>))
            .with(READ, with_pieces::<S, READ, false>, None)
            .with(ADD, with_pieces::<S, ADD, false>, None)
    }

    const fn of_datagrams<S: Sends>() -> Self {
        const SEND: u32 = IBV_WR_SEND;
        let inline = with_bytes::<S, SEND, true>;
        Self::all_of(slow::<S>).with(SEND, with_pieces::<S, SEND, true>, Some(inline))
    }
}

/// Post functions of a queue pair type.
fn of_kind<S: Sends>(kind: u32) -> &'static Posts {
    match kind {
        ..UD => const { &Posts::of_connections::<S>() },
        UD => const { &Posts::of_datagrams::<S>() },
        // Raw packets and sends with a destination take the slow path; some types take no sends.
        _ => const { &Posts::all_of(slow::<S>) },
    }
}

/// Posts a list whose first work request has SGEs.
///
/// # Safety
///
/// C's contract; the first one's opcode is `OPCODE`.
unsafe extern "C" fn with_pieces<S: Sends, const OPCODE: u32, const UD: bool>(
    qp: &Qp,
    wr: *const ibv_send_wr,
    bad: *mut *const ibv_send_wr,
) -> c_int {
    // SAFETY: C's contract; the branch establishes the shape.
    unsafe {
        if (*wr).num_sge == 1 {
            one_or_more::<S, OPCODE, ONE, UD>(qp, wr, bad)
        } else {
            one_or_more::<S, OPCODE, LIST, UD>(qp, wr, bad)
        }
    }
}

/// Posts a list whose first work request has inline data.
///
/// # Safety
///
/// C's contract; the first work request's opcode is `OPCODE`.
unsafe extern "C" fn with_bytes<S: Sends, const OPCODE: u32, const UD: bool>(
    qp: &Qp,
    wr: *const ibv_send_wr,
    bad: *mut *const ibv_send_wr,
) -> c_int {
    // SAFETY: C's contract; the branch establishes the shape.
    unsafe {
        match shape(&*wr) {
            SMALL => one_or_more::<S, OPCODE, SMALL, UD>(qp, wr, bad),
            INLINE => one_or_more::<S, OPCODE, INLINE, UD>(qp, wr, bad),
            _ => slow::<S>(qp, wr, bad),
        }
    }
}

/// Posts a list whose first work request has opcode `OPCODE` and shape `SHAPE`.
///
/// # Safety
///
/// C's contract; the first work request has this opcode and shape.
#[inline(always)]
unsafe fn one_or_more<S: Sends, const OPCODE: u32, const SHAPE: u8, const UD: bool>(
    qp: &Qp,
    wr: *const ibv_send_wr,
    bad: *mut *const ibv_send_wr,
) -> c_int {
    // SAFETY: by the contract of `one_or_more`.
    unsafe {
        if (*wr).next.is_null() {
            single::<S, OPCODE, SHAPE, UD>(qp, wr, bad)
        } else {
            list::<S, OPCODE, SHAPE, UD>(qp, wr, bad)
        }
    }
}

/// Shape of a work request's data.
///
/// # Safety
///
/// C's contract.
#[inline(always)]
pub(crate) unsafe fn shape(wr: &ibv_send_wr) -> u8 {
    match (wr.send_flags & IBV_SEND_INLINE != 0, wr.num_sge) {
        (false, 1) => ONE,
        (false, _) => LIST,
        // SAFETY: C's contract: the list has one element.
        (true, 1) if unsafe { (*wr.sg_list).len } <= SMALL_BYTES => SMALL,
        (true, 1) => INLINE,
        (true, _) => OTHER,
    }
}
