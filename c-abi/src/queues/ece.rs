//! Enhanced connection establishment: options of a device's make that both ends of a connection
//! agree on, and the answers of C's providers for devices without.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::mem::MaybeUninit;

use uverbs::provider::AnyContext;
use uverbs_core::Errno;
use uverbs_core::attr::Ece;

use crate::base::answer::refuse;
use crate::device::context::Context;
use crate::queues::qp::Qp;
use crate::sys::{ibv_ece, ibv_qp};

/// `PCI_VENDOR_ID_MELLANOX`, whose options they are.
const VENDOR: u32 = 0x15b3;

/// # Safety
///
/// C's contract.
unsafe fn is_mlx5(qp: *const ibv_qp) -> bool {
    // SAFETY: by C's contract.
    matches!(unsafe { Context::of((*qp).context) }.ops(), AnyContext::Mlx5(_))
}

pub(crate) unsafe extern "C" fn query_ece(
    qp: *mut ibv_qp,
    ece: *mut MaybeUninit<ibv_ece>,
) -> c_int {
    // SAFETY: by C's contract.
    unsafe {
        if !is_mlx5(qp) {
            return refuse(Errno::EOPNOTSUPP);
        }
        let options = Qp::of(qp).object().ece().options;
        (*ece).write(ibv_ece { vendor_id: VENDOR, options, comp_mask: 0 });
    }
    0
}

pub(crate) unsafe extern "C" fn set_ece(qp: *mut ibv_qp, ece: *const ibv_ece) -> c_int {
    // SAFETY: by C's contract.
    let (known, ece, of) = unsafe { (is_mlx5(qp), &*ece, Qp::of(qp)) };
    if !known {
        return refuse(Errno::EOPNOTSUPP);
    }
    if ece.comp_mask != 0 || ece.vendor_id != VENDOR {
        return refuse(Errno::EINVAL);
    }
    let set = of.object().set_ece(Ece { vendor: ece.vendor_id, options: ece.options });
    if set.is_err() { refuse(Errno::EOPNOTSUPP) } else { 0 }
}
