//! Addresses of a ConnectX's queues, for programs that access the rings directly
//! (`mlx5dv_init_obj`).
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. The program is responsible for
//! its use of the returned addresses.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};

use uverbs::provider::{AnyAh, AnyCq, AnySrq};
use uverbs_core::Errno;

use crate::base::answer::refuse;
use crate::memory::dm::Dm;
use crate::memory::pd::Pd;
use crate::post::recv_side::RecvSide;
use crate::post::send::SendSide;
use crate::queues::ah::Ah;
use crate::queues::cq::Cq;
use crate::queues::qp::Qp;
use crate::queues::srq::Srq;
use crate::queues::wq::Wq;
use crate::sys::{ibv_ah, ibv_cq, ibv_dm, ibv_pd, ibv_qp, ibv_srq, ibv_wq};

/// `struct mlx5dv_qp`, up to the offset of the doorbell page. Without its bit in `comp_mask`, the
/// program's struct may end before the offset.
#[repr(C)]
struct Mlx5Qp {
    dbrec: *mut u32,
    sq: Ring,
    rq: Ring,
    bf_reg: *mut c_void,
    bf_size: u32,
    comp_mask: u64,
    uar_mmap_offset: i64,
}

/// `struct mlx5dv_rwq`.
#[repr(C)]
struct Mlx5Wq {
    buf: *mut c_void,
    dbrec: *mut u32,
    wqe_cnt: u32,
    stride: u32,
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

/// `struct mlx5dv_srq`.
#[repr(C)]
struct Mlx5Srq {
    buf: *mut c_void,
    dbrec: *mut u32,
    stride: u32,
    head: u32,
    tail: u32,
    comp_mask: u64,
    srqn: u32,
}

/// `struct mlx5dv_dm`, up to `comp_mask`.
#[repr(C)]
struct Mlx5Dm {
    buf: *mut c_void,
    length: u64,
    comp_mask: u64,
}

/// `struct mlx5dv_ah`.
#[repr(C)]
struct Mlx5Ah {
    av: *const c_void,
    comp_mask: u64,
}

/// `struct mlx5dv_pd`.
#[repr(C)]
struct Mlx5Pd {
    pdn: u32,
    comp_mask: u64,
}

/// `struct mlx5dv_obj`, up to protection domains.
#[repr(C)]
pub(crate) struct Objects {
    qp: *const ibv_qp,
    qp_out: *mut Mlx5Qp,
    cq: *const ibv_cq,
    cq_out: *mut Mlx5Cq,
    srq: *const ibv_srq,
    srq_out: *mut Mlx5Srq,
    rwq: *const ibv_wq,
    rwq_out: *mut Mlx5Wq,
    dm: *const ibv_dm,
    dm_out: *mut Mlx5Dm,
    ah: *const ibv_ah,
    ah_out: *mut Mlx5Ah,
    pd: *const ibv_pd,
    pd_out: *mut Mlx5Pd,
}

/// `MLX5DV_OBJ_QP`, `MLX5DV_OBJ_CQ`, `MLX5DV_OBJ_SRQ`, `MLX5DV_OBJ_RWQ`, `MLX5DV_OBJ_DM`,
/// `MLX5DV_OBJ_AH`, `MLX5DV_OBJ_PD`.
const QP: u64 = 1;
const CQ: u64 = 2;
const SRQ: u64 = 4;
const WQ: u64 = 8;
const DM: u64 = 0x10;
const AH: u64 = 0x20;
const PD: u64 = 0x40;
/// `MLX5DV_QP_MASK_UAR_MMAP_OFFSET`.
const PAGE_OFFSET: u64 = 1;
/// `MLX5DV_SRQ_MASK_SRQN`.
const SRQN: u64 = 1;

/// Offset of the CQ arm register in the doorbell page (PRM, "UAR page").
const ARM_AT: usize = 0x20;

/// # Safety
///
/// C's contract.
unsafe fn qp_of(qp: *const ibv_qp, asked: u64) -> Option<Mlx5Qp> {
    // SAFETY: by C's contract.
    let qp = unsafe { Qp::of(qp) };
    let (send, recv) = (qp.send().lock(), qp.recv().lock());
    let (SendSide::Mlx5(side), RecvSide::Mlx5(rq)) = (&*send, &*recv) else { return None };
    side.sq.expect_own_wqes();
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
        comp_mask: asked & PAGE_OFFSET,
        uar_mmap_offset: sq.page_offset as i64,
    })
}

/// # Safety
///
/// C's contract.
unsafe fn wq_of(wq: *const ibv_wq) -> Option<Mlx5Wq> {
    // SAFETY: by C's contract.
    let queue = unsafe { Wq::of(wq) }.queue().lock();
    let RecvSide::Mlx5(rq) = &*queue else { return None };
    let raw = rq.raw_parts();
    Some(Mlx5Wq {
        buf: raw.buf.cast(),
        dbrec: raw.dbrec,
        wqe_cnt: (raw.bytes / raw.stride) as u32,
        stride: raw.stride as u32,
        comp_mask: 0,
    })
}

/// # Safety
///
/// C's contract.
unsafe fn cq_of(cq: *const ibv_cq) -> Option<Mlx5Cq> {
    // SAFETY: by C's contract.
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

/// Describes a shared receive queue to which nothing was posted. Its free list of WQEs then belongs
/// to the program.
///
/// # Safety
///
/// C's contract.
unsafe fn srq_of(srq: *const ibv_srq, asked: u64) -> Result<Mlx5Srq, Errno> {
    // SAFETY: by C's contract.
    let srq = unsafe { Srq::of(srq) };
    let AnySrq::Mlx5(queue) = &*srq.queue().lock() else { return Err(Errno::EOPNOTSUPP) };
    let raw = queue.raw_parts();
    if raw.counter != 0 {
        return Err(Errno::EBUSY);
    }
    Ok(Mlx5Srq {
        buf: raw.buf.cast(),
        dbrec: raw.dbrec,
        stride: raw.stride as u32,
        head: raw.head,
        tail: (raw.bytes / raw.stride) as u32 - 1,
        comp_mask: asked & SRQN,
        srqn: raw.srqn,
    })
}

/// # Safety
///
/// C's contract.
unsafe fn ah_of(ah: *const ibv_ah) -> Result<Mlx5Ah, Errno> {
    // SAFETY: by C's contract.
    let AnyAh::Mlx5(ah) = unsafe { Ah::of(ah) }.any() else { return Err(Errno::EOPNOTSUPP) };
    Ok(Mlx5Ah { av: ah.raw_vector().cast(), comp_mask: 0 })
}

/// # Safety
///
/// C's contract.
unsafe fn pd_of(pd: *const ibv_pd) -> Result<Mlx5Pd, Errno> {
    // SAFETY: by C's contract.
    let pd = unsafe { Pd::of(pd) };
    let context = pd.context().mlx5().ok_or(Errno::EOPNOTSUPP)?;
    let pdn = context.pdn(pd.core()).map_err(|error| error.to_errno())?;
    Ok(Mlx5Pd { pdn, comp_mask: 0 })
}

/// Fills in the structs. Supported extensions (`comp_mask`): the SRQ number and the
/// offset of a queue pair's doorbell page.
///
/// # Safety
///
/// C's contract: of each kind that is asked for there are an object and room.
unsafe fn fill(objects: &Objects, kinds: u64) -> Result<(), Errno> {
    // SAFETY: by the contract of `fill`.
    unsafe {
        if kinds & QP != 0 {
            let to = objects.qp_out;
            let found = qp_of(objects.qp, (*to).comp_mask).ok_or(Errno::EOPNOTSUPP)?;
            ((*to).dbrec, (*to).sq, (*to).rq) = (found.dbrec, found.sq, found.rq);
            ((*to).bf_reg, (*to).bf_size) = (found.bf_reg, found.bf_size);
            (*to).comp_mask = found.comp_mask;
            if found.comp_mask & PAGE_OFFSET != 0 {
                (*to).uar_mmap_offset = found.uar_mmap_offset;
            }
        }
        if kinds & CQ != 0 {
            objects.cq_out.write(cq_of(objects.cq).ok_or(Errno::EOPNOTSUPP)?);
        }
        if kinds & SRQ != 0 {
            let to = objects.srq_out;
            let found = srq_of(objects.srq, (*to).comp_mask)?;
            // Without the bit, the struct may lack room for the number.
            ((*to).buf, (*to).dbrec, (*to).stride) = (found.buf, found.dbrec, found.stride);
            ((*to).head, (*to).tail, (*to).comp_mask) = (found.head, found.tail, found.comp_mask);
            if found.comp_mask & SRQN != 0 {
                (*to).srqn = found.srqn;
            }
        }
        if kinds & WQ != 0 {
            objects.rwq_out.write(wq_of(objects.rwq).ok_or(Errno::EOPNOTSUPP)?);
        }
        if kinds & DM != 0 {
            let core = Dm::core(objects.dm);
            let (buf, length) = (core.as_ptr().cast(), core.len() as u64);
            objects.dm_out.write(Mlx5Dm { buf, length, comp_mask: 0 });
        }
        if kinds & AH != 0 {
            objects.ah_out.write(ah_of(objects.ah)?);
        }
        if kinds & PD != 0 {
            objects.pd_out.write(pd_of(objects.pd)?);
        }
    }
    Ok(())
}

/// Describes queue pairs, completion queues, unused shared receive queues, work queues, device
/// memory, address handles and protection domains.
pub(crate) unsafe extern "C" fn init_obj(objects: *const Objects, kinds: u64) -> c_int {
    if kinds & !(QP | CQ | SRQ | WQ | DM | AH | PD) != 0 {
        return refuse(Errno::EOPNOTSUPP);
    }
    if kinds == 0 {
        return refuse(Errno::EINVAL);
    }
    // SAFETY: by C's contract.
    match unsafe { fill(&*objects, kinds) } {
        Ok(()) => 0,
        Err(errno) => refuse(errno),
    }
}
