//! Rings and doorbells for programs with their own data path, which then no longer call verbs for
//! the queue.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. A struct has as many bytes as
//! the program says.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::mem::offset_of;

use uverbs_core::Errno;
use uverbs_efa::direct::Direct;

use crate::base::answer::refuse;
use crate::device::gid::write_sized;
use crate::queues::cq::Cq;
use crate::queues::direct::DirectQp;
use crate::queues::qp::Qp;
use crate::sys::{ibv_cq, ibv_qp};

/// `struct efadv_cq_attr`. Without `doorbell` before rdma-core 59.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CqAttr {
    comp_mask: u64,
    buffer: *mut u8,
    entry_size: u32,
    num_entries: u32,
    doorbell: *mut u32,
}

/// `struct efadv_wq_attr`. Without `caps` before rdma-core 65.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct WqAttr {
    comp_mask: u64,
    buffer: *mut u8,
    entry_size: u32,
    num_entries: u32,
    doorbell: *mut u32,
    max_batch: u32,
    /// `EFADV_WQ_CAPS_64_BIT_REQ_ID`: numbers of requests have 16 bits here.
    caps: u16,
    reserved: [u8; 2],
}

const _: () = assert!(size_of::<CqAttr>() == 32 && size_of::<WqAttr>() == 40);

impl From<Direct> for WqAttr {
    fn from(queue: Direct) -> Self {
        Self {
            comp_mask: 0,
            buffer: queue.buffer,
            entry_size: queue.entry_size,
            num_entries: queue.entries,
            doorbell: queue.doorbell,
            max_batch: queue.batch,
            caps: 0,
            reserved: [0; 2],
        }
    }
}

pub(crate) unsafe extern "C" fn query_cq(cq: *const ibv_cq, attr: *mut CqAttr, len: u32) -> c_int {
    // SAFETY: by C's contract.
    let direct = unsafe { Cq::of(cq) }.direct();
    let len = len as usize;
    if len < offset_of!(CqAttr, doorbell) {
        return refuse(Errno::EINVAL);
    }
    let Some(ring) = direct.take() else { return refuse(Errno::EOPNOTSUPP) };
    let Direct { buffer, entry_size, entries, doorbell, .. } = ring;
    let found = CqAttr { comp_mask: 0, buffer, entry_size, num_entries: entries, doorbell };
    // SAFETY: by C's contract.
    unsafe { write_sized(attr, &found, len) };
    0
}

pub(crate) unsafe extern "C" fn query_qp_wqs(
    qp: *const ibv_qp,
    sq_attr: *mut WqAttr,
    rq_attr: *mut WqAttr,
    len: u32,
) -> c_int {
    // SAFETY: by C's contract.
    let queues = unsafe { Qp::of(qp) }.direct();
    let len = len as usize;
    if len < offset_of!(WqAttr, caps) {
        return refuse(Errno::EINVAL);
    }
    let Some(&DirectQp { send, recv }) = queues else { return refuse(Errno::EOPNOTSUPP) };
    let Some(recv) = recv else { return refuse(Errno::EINVAL) };
    // SAFETY: by C's contract.
    unsafe {
        write_sized(sq_attr, &send.into(), len);
        write_sized(rq_attr, &recv.into(), len);
    }
    0
}
