//! EFA's functions to create queues. Error numbers and their order are from rdma-core
//! `verbs.c:efa_check_qp_attr`, `efa_check_qp_limits`, `efadv_create_cq`.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. A struct has as many bytes as
//! the program says.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::mem::{offset_of, zeroed};

use uverbs_core::Errno;
use uverbs_core::provider::CqInit;
use uverbs_efa::Limits;
use zerocopy::{FromBytes, IntoBytes};

use crate::base::answer::{given, null};
use crate::efadv::caps::{has_inline_writes, inline_bytes, limits};
use crate::efadv::sized::read;
use crate::poll::current::EFA;
use crate::queues::cq::{Cq, EfaCq};
use crate::queues::make_cq::create_as;
use crate::queues::make_qp::{self, ATTR_PD, ATTR_SEND_OPS, Own, Srd};
use crate::queues::qp::DRIVER;
use crate::sys::{
    ibv_context, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_gid, ibv_pd, ibv_qp, ibv_qp_ex,
    ibv_qp_init_attr, ibv_qp_init_attr_ex,
};

/// `struct efadv_qp_init_attr`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes)]
#[repr(C)]
pub(crate) struct QpAttr {
    comp_mask: u64,
    driver_qp_type: u32,
    flags: u16,
    sl: u8,
    reserved: u8,
    /// `EFADV_WR_EX_WITH_PROCESSING_HINTS`, since rdma-core 65.
    wr_flags: u64,
}

/// `EFADV_QP_DRIVER_TYPE_SRD`.
const SRD: u32 = 0;
/// `EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV`, `EFADV_QP_FLAGS_INLINE_WRITE`.
const UNSOLICITED_WRITES: u16 = 1;
const INLINE_WRITES: u16 = 1 << 1;
/// `IBV_QP_EX_WITH_*`: SEND, WRITE, READ, each with its kinds.
const SENDS: u64 = 1 << 2 | 1 << 3;
const WRITES: u64 = 1 | 1 << 1;
const READS: u64 = 1 << 4;

/// `struct efadv_cq_init_attr`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes)]
#[repr(C)]
pub(crate) struct CqAttr {
    comp_mask: u64,
    wc_flags: u64,
    /// `EFADV_CQ_INIT_FLAGS_EXT_MEM_DMABUF`, since rdma-core 65.
    flags: u64,
    ext_mem_dmabuf: [u64; 4],
}

const _: () = assert!(size_of::<QpAttr>() == 24 && size_of::<CqAttr>() == 56);

/// `EFADV_WC_EX_WITH_SGID`, `EFADV_WC_EX_WITH_IS_UNSOLICITED`.
const WITH_SGID: u64 = 1;
const WITH_UNSOLICITED: u64 = 1 << 1;

/// Checks the attributes of an SRD queue pair. Returns its own part.
fn check(limits: &Limits, attr: &ibv_qp_init_attr_ex, own: &QpAttr) -> Result<Own, Errno> {
    let flags = [
        (limits.unsolicited_writes, UNSOLICITED_WRITES),
        (has_inline_writes(limits), INLINE_WRITES),
    ];
    let known = flags.into_iter().filter(|(has, _)| *has).fold(0, |all, (_, flag)| all | flag);
    let mut ops = SENDS;
    if limits.read {
        ops |= READS;
    }
    if limits.write {
        ops |= WRITES;
    }
    let has_ops = attr.comp_mask & ATTR_SEND_OPS != 0;
    if own.driver_qp_type != SRD
        || own.flags & !known != 0
        || attr.comp_mask & !(ATTR_PD | ATTR_SEND_OPS) != 0
    {
        return Err(Errno::EOPNOTSUPP);
    }
    if attr.comp_mask & ATTR_PD == 0 {
        return Err(Errno::EINVAL);
    }
    if has_ops && attr.send_ops_flags & !ops != 0 || own.wr_flags != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let cap = &attr.cap;
    if attr.send_cq.is_null()
        || attr.recv_cq.is_null()
        || !attr.srq.is_null()
        || cap.max_send_sge > limits.max_sq_sge.into()
        || cap.max_recv_sge > limits.max_rq_sge.into()
        || cap.max_send_wr > limits.max_sq_wr
        || cap.max_recv_wr > limits.max_rq_wr
        || cap.max_inline_data > inline_bytes(limits).into()
    {
        return Err(Errno::EINVAL);
    }
    let unsolicited_writes = own.flags & UNSOLICITED_WRITES != 0;
    let inline_writes = own.flags & INLINE_WRITES != 0;
    let srd = Srd { unsolicited_writes, inline_writes, service_level: own.sl };
    Ok(Own { srd: Some(srd), ..Own::default() })
}

/// Creates an SRD queue pair.
pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *const ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
    own: *const QpAttr,
    len: u32,
) -> *mut ibv_qp {
    // SAFETY: by C's contract.
    let limits = match unsafe { limits(context) } {
        Ok(limits) => limits,
        Err(errno) => return null(errno),
    };
    // SAFETY: by C's contract.
    let (attr, own) = unsafe { (&mut *attr, read(own, len, offset_of!(QpAttr, flags))) };
    let own = own.and_then(|own| match () {
        () if attr.qp_type != DRIVER || own.comp_mask != 0 || own.reserved != 0 => {
            Err(Errno::EINVAL)
        }
        () => check(&limits, attr, &own),
    });
    match own {
        // SAFETY: by C's contract.
        Ok(own) => given(unsafe { make_qp::create_extended(attr, own) }),
        Err(errno) => null(errno),
    }
}

/// Creates an SRD queue pair without `ibv_wr_*`.
pub(crate) unsafe extern "C" fn create_driver_qp(
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
    driver_qp_type: u32,
) -> *mut ibv_qp {
    // SAFETY: by C's contract.
    let (context, init) = unsafe { ((*pd).context, &mut *init) };
    // SAFETY: by C's contract.
    if let Err(errno) = unsafe { limits(context) } {
        return null(errno);
    }
    if init.qp_type != DRIVER {
        return null(Errno::EINVAL);
    }
    // SAFETY: numbers and pointers, for which 0 is valid.
    let mut attr = ibv_qp_init_attr_ex {
        qp_context: init.qp_context,
        send_cq: init.send_cq,
        recv_cq: init.recv_cq,
        srq: init.srq,
        cap: init.cap,
        qp_type: init.qp_type,
        sq_sig_all: init.sq_sig_all,
        comp_mask: ATTR_PD,
        pd,
        ..unsafe { zeroed() }
    };
    let own = QpAttr { comp_mask: 0, driver_qp_type, flags: 0, sl: 0, reserved: 0, wr_flags: 0 };
    // SAFETY: by C's contract; the attributes are local variables.
    let qp = unsafe { create_qp_ex(context, &raw mut attr, &own, size_of::<QpAttr>() as u32) };
    if !qp.is_null() {
        init.cap = attr.cap;
    }
    qp
}

/// Creates a completion queue whose completions tell EFA's members.
pub(crate) unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    attr: *const ibv_cq_init_attr_ex,
    own: *const CqAttr,
    len: u32,
) -> *mut ibv_cq_ex {
    // SAFETY: by C's contract.
    let limits = match unsafe { limits(context) } {
        Ok(limits) => limits,
        Err(errno) => return null(errno),
    };
    // SAFETY: by C's contract.
    let own = match unsafe { read(own, len, offset_of!(CqAttr, flags)) } {
        Ok(own) if own.comp_mask == 0 => own,
        _ => return null(Errno::EINVAL),
    };
    let mut known = 0;
    if limits.sender_gids {
        known |= WITH_SGID;
    }
    if limits.unsolicited_writes {
        known |= WITH_UNSOLICITED;
    }
    if own.wc_flags & !known != 0 || own.flags != 0 {
        return null(Errno::EOPNOTSUPP);
    }
    let asked = |bit| own.wc_flags & bit != 0;
    let change = |init: &mut CqInit| init.sender_gids = asked(WITH_SGID);
    // SAFETY: by C's contract.
    let cq = unsafe { create_as(context, &*attr, change) };
    if !cq.is_null() {
        let functions = EfaCq {
            comp_mask: 0,
            wc_read_sgid: if asked(WITH_SGID) { Some(read_sgid) } else { None },
            wc_is_unsolicited: if asked(WITH_UNSOLICITED) { Some(is_unsolicited) } else { None },
        };
        // SAFETY: a queue of this library, which the program does not have yet.
        unsafe {
            Cq::efa(cq).write(functions);
            Cq::of(cq.cast()).look_for(EFA);
        }
    }
    cq
}

pub(crate) unsafe extern "C" fn cq_from_ibv_cq_ex(cq: *mut ibv_cq_ex) -> *mut EfaCq {
    // SAFETY: C's contract: a queue of ours.
    unsafe { Cq::efa(cq) }
}

/// `struct efadv_qp`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct EfaQp {
    comp_mask: u64,
    wr_set_processing_hints: Option<unsafe extern "C" fn(*mut Self, u32)>,
}

/// Functions of every queue pair: none has processing hints.
static EFA_QP: EfaQp = EfaQp { comp_mask: 0, wr_set_processing_hints: None };

pub(crate) unsafe extern "C" fn qp_from_ibv_qp_ex(_: *mut ibv_qp_ex) -> *mut EfaQp {
    (&raw const EFA_QP).cast_mut()
}

/// GID of the sender of the current completion. `-ENOENT` if it has an address handle.
unsafe extern "C" fn read_sgid(cq: *const EfaCq, gid: *mut ibv_gid) -> c_int {
    // SAFETY: C's contract: between `start_poll` and `end_poll`.
    match unsafe { (*Cq::of_efa(cq).shown()).sender_gid } {
        Some(raw) => {
            // SAFETY: by C's contract.
            unsafe { *gid = ibv_gid { raw } };
            0
        }
        None => -Errno::ENOENT.raw(),
    }
}

/// True if the current completion consumed no receive.
unsafe extern "C" fn is_unsolicited(cq: *const EfaCq) -> bool {
    // SAFETY: C's contract: between `start_poll` and `end_poll`.
    unsafe { (*Cq::of_efa(cq).shown()).is_unsolicited }
}
