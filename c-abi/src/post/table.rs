//! Tables of post functions. The queue pair's type selects the table; opcode and shape of a list's
//! first work request select the function. Each function checks and stores only what its kind
//! needs.
//!
//! # Safety
//!
//! By C's contract (crate root), a list's work requests, SGEs and handles are valid.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;

use crate::post::mlx5_ops::OPS;
use crate::post::posts::Posts;
use crate::post::send::{SendSide, Sends};
use crate::post::shape::{INLINE, LIST, ONE, SMALL, shape};
use crate::post::single::{list, single, slow};
use crate::queues::qp::{DRIVER, Functions, Qp, UD};
use crate::sys::{
    IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_SEND, ibv_send_wr,
};

/// Functions of a queue pair with this send queue and type `IBV_QPT_*`.
pub(crate) fn functions(side: &SendSide, kind: u32) -> Functions {
    let posts = match side {
        SendSide::Mlx5(_) => of_kind::<uverbs_mlx5::Sq>(kind),
        SendSide::Rxe(_) => of_kind::<uverbs_rxe::Sq>(kind),
        SendSide::Siw(_) => of_kind::<uverbs_siw::Sq>(kind),
        SendSide::Rdmavt(_) => of_kind::<uverbs_rdmavt::Sq>(kind),
        SendSide::Efa(_) => of_kind::<uverbs_efa::Sq>(kind),
        SendSide::None => const { &Posts::all_of(slow::<uverbs_mlx5::Sq>) },
    };
    Functions { posts, mlx5: OPS }
}

/// Post functions of a queue pair type.
fn of_kind<S: Sends>(kind: u32) -> &'static Posts {
    match kind {
        ..UD => const { &of_connections::<S>() },
        UD => const { &of_datagrams::<S>() },
        DRIVER if S::DRIVER_NAMES_PEERS => const { &of_datagrams::<S>() },
        // Raw packets and sends with a destination take the slow path; some types take no sends.
        _ => const { &Posts::all_of(slow::<S>) },
    }
}

const fn of_connections<S: Sends>() -> Posts {
    const SEND: u32 = IBV_WR_SEND;
    const WRITE: u32 = IBV_WR_RDMA_WRITE;
    const READ: u32 = IBV_WR_RDMA_READ;
    const ADD: u32 = IBV_WR_ATOMIC_FETCH_AND_ADD;
    Posts::all_of(slow::<S>)
        .with(SEND, with_pieces::<S, SEND, false>, Some(with_bytes::<S, SEND, false>))
        .with(WRITE, with_pieces::<S, WRITE, false>, Some(with_bytes::<S, WRITE, false>))
        .with(READ, with_pieces::<S, READ, false>, None)
        .with(ADD, with_pieces::<S, ADD, false>, None)
}

const fn of_datagrams<S: Sends>() -> Posts {
    const SEND: u32 = IBV_WR_SEND;
    let inline = with_bytes::<S, SEND, true>;
    Posts::all_of(slow::<S>).with(SEND, with_pieces::<S, SEND, true>, Some(inline))
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
        } else if (*wr).sg_list.is_aligned() {
            one_or_more::<S, OPCODE, LIST, UD>(qp, wr, bad)
        } else {
            slow::<S>(qp, wr, bad)
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
