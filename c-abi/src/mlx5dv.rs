//! Where the queues of a ConnectX lie, for programs that drive them by themselves.
//!
//! # Safety
//!
//! C's contract. Addresses are handed out: what a program does with them is its part.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};

use uverbs::provider::AnyCq;
use uverbs_core::Errno;

use crate::answer::refuse;
use crate::cq::Cq;
use crate::qp::Qp;
use crate::recv::RecvSide;
use crate::send::SendSide;
use crate::sys::{ibv_cq, ibv_qp};

/// `struct mlx5dv_qp`, up to `comp_mask`.
#[repr(C)]
struct Mlx5Qp {
    dbrec: *mut u32,
    sq: Ring,
    rq: Ring,
    bf_reg: *mut c_void,
    bf_size: u32,
    comp_mask: u64,
}

#[repr(C)]
struct Ring {
    buf: *mut c_void,
    wqe_cnt: u32,
    stride: u32,
}

/// `struct mlx5dv_cq`.
#[repr(C)]
struct Mlx5Cq {
    buf: *mut c_void,
    dbrec: *mut u32,
    cqe_cnt: u32,
    cqe_size: u32,
    cq_uar: *mut c_void,
    cqn: u32,
    comp_mask: u64,
}

/// `struct mlx5dv_obj`, up to completion queues.
#[repr(C)]
pub(crate) struct Objects {
    qp: *const ibv_qp,
    qp_out: *mut Mlx5Qp,
    cq: *const ibv_cq,
    cq_out: *mut Mlx5Cq,
}

/// `MLX5DV_OBJ_QP`, `MLX5DV_OBJ_CQ`.
const QP: u64 = 1;
const CQ: u64 = 2;

/// Where the doorbell page has the register that arms (PRM, "UAR page").
const ARM_AT: usize = 0x20;

/// # Safety
///
/// C's contract.
unsafe fn qp_of(qp: *const ibv_qp) -> Option<Mlx5Qp> {
    // SAFETY: C's contract.
    let qp = unsafe { Qp::of(qp) };
    let (send, recv) = (qp.send().lock(), qp.recv().lock());
    let (SendSide::Mlx5(side), RecvSide::Mlx5(rq)) = (&*send, &*recv) else { return None };
    let (sq, rq) = (side.sq.raw_parts(), rq.raw_parts());
    let ring = |buf: *mut u8, bytes: usize, stride: usize| Ring {
        buf: buf.cast(),
        wqe_cnt: bytes.checked_div(stride).unwrap_or(0) as u32,
        stride: stride as u32,
    };
    Some(Mlx5Qp {
        dbrec: sq.dbrec,
        sq: ring(sq.buf, sq.bytes, sq.stride),
        rq: ring(rq.buf, rq.bytes, rq.stride),
        bf_reg: sq.register.cast(),
        bf_size: sq.register_bytes as u32,
        comp_mask: 0,
    })
}

/// # Safety
///
/// C's contract.
unsafe fn cq_of(cq: *const ibv_cq) -> Option<Mlx5Cq> {
    // SAFETY: C's contract.
    let poll = unsafe { Cq::of(cq) }.poll().lock();
    let AnyCq::Mlx5(poll) = &*poll else { return None };
    let raw = poll.raw_parts();
    Some(Mlx5Cq {
        buf: raw.buf.cast(),
        dbrec: raw.dbrec,
        cqe_cnt: (raw.bytes / raw.stride) as u32,
        cqe_size: raw.stride as u32,
        cq_uar: raw.arm.wrapping_byte_sub(ARM_AT).cast(),
        cqn: raw.cqn,
        comp_mask: 0,
    })
}

/// Of queue pairs and completion queues; none of what a mask of extensions asks for.
pub(crate) unsafe extern "C" fn init_obj(objects: *const Objects, kinds: u64) -> c_int {
    if kinds & !(QP | CQ) != 0 {
        return refuse(Errno::EOPNOTSUPP);
    }
    if kinds == 0 {
        return refuse(Errno::EINVAL);
    }
    // SAFETY: C's contract: of each kind that is asked for there are an object and room.
    unsafe {
        let objects = &*objects;
        if kinds & QP != 0 {
            let Some(qp) = qp_of(objects.qp) else { return refuse(Errno::EOPNOTSUPP) };
            objects.qp_out.write(qp);
        }
        if kinds & CQ != 0 {
            let Some(cq) = cq_of(objects.cq) else { return refuse(Errno::EOPNOTSUPP) };
            objects.cq_out.write(cq);
        }
    }
    0
}
