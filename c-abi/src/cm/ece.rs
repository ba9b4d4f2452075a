//! Vendor options (ECE) of ids: options of this end in requests and replies, and options of the
//! peer. For an id with a queue pair the library negotiates them (rdma-core
//! `cma.c:ucma_process_conn_resp_ece`, `rdma_create_qp_ex`). A program that creates queue pairs by
//! `ibv_create_qp` calls `rdma_get_remote_ece` and `rdma_set_local_ece`.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::mem::MaybeUninit;

use uverbs_core::Errno;
use uverbs_core::attr::Ece;
use uverbs_core::error::Error;

use super::id::Id;
use super::sys::rdma_cm_id;
use super::{done, invalid};
use crate::queues::ece::{query_ece, set_ece};
use crate::sys::{ibv_ece, ibv_qp};

/// Options of a queue pair; zero if its device has none.
///
/// # Safety
///
/// C's contract.
unsafe fn of_qp(qp: *mut ibv_qp) -> Ece {
    let mut ece = MaybeUninit::uninit();
    // SAFETY: by C's contract; the struct is written if the call returns 0.
    unsafe {
        if query_ece(qp, &raw mut ece) != 0 {
            return Ece::default();
        }
        let ibv_ece { vendor_id: vendor, options, .. } = ece.assume_init();
        Ece { vendor, options }
    }
}

/// Sets the options that the queue pair's next change requests, if its device has options.
///
/// # Safety
///
/// C's contract.
unsafe fn ask(qp: *mut ibv_qp, Ece { vendor, options }: Ece) -> Result<(), Error> {
    let ece = ibv_ece { vendor_id: vendor, options, comp_mask: 0 };
    // SAFETY: by C's contract.
    match unsafe { set_ece(qp, &raw const ece) } {
        0 => Ok(()),
        errno if errno == Errno::EOPNOTSUPP.raw() => Ok(()),
        errno => Err(Error::kernel("ibv_set_ece", Errno::from_raw(errno))),
    }
}

/// Records the options of a new queue pair as this end's. If the peer's request came before,
/// requests its options from the device, unless they are another vendor's.
///
/// # Safety
///
/// C's contract.
pub(crate) unsafe fn made(id: *mut rdma_cm_id, qp: *mut ibv_qp) -> Result<(), Error> {
    // SAFETY: by C's contract.
    let (of, local) = unsafe { (Id::of(id), of_qp(qp)) };
    let remote = {
        let ece = &mut of.state().ece;
        ece.local = local;
        ece.remote
    };
    if remote.vendor == 0 {
        return Ok(());
    }
    let options = if remote.vendor == local.vendor { remote.options } else { 0 };
    // SAFETY: by C's contract.
    unsafe { ask(qp, Ece { options, ..local }) }
}

/// Records the options that the device granted when the queue pair came to INIT, for the reply.
///
/// # Safety
///
/// C's contract; the id has a queue pair.
pub(crate) unsafe fn granted(id: *mut rdma_cm_id) {
    // SAFETY: by C's contract.
    let (of, local) = unsafe { (Id::of(id), of_qp((*id).qp)) };
    let ece = &mut of.state().ece;
    if ece.remote.vendor != 0 {
        ece.local.options = local.options;
    }
}

/// Requests the options of the peer's reply from the device. Another vendor's options are an error.
///
/// # Safety
///
/// As [`granted`].
pub(crate) unsafe fn answer(id: *mut rdma_cm_id, said: Ece) -> Result<(), Error> {
    // SAFETY: by C's contract.
    let of = unsafe { Id::of(id) };
    let local = of.state().ece.asked();
    if said.vendor != 0 && said.vendor != local.vendor {
        return Err(invalid("rdma_get_cm_event"));
    }
    of.state().ece.remote.vendor = said.vendor;
    // SAFETY: by C's contract. A kernel or a peer without options sends vendor 0.
    unsafe { ask((*id).qp, Ece { vendor: local.vendor, options: said.options }) }
}

pub(crate) unsafe extern "C" fn set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    // SAFETY: by C's contract; both may be null.
    done(unsafe {
        match ece.as_ref() {
            Some(said)
                if !id.is_null()
                    && (*id).qp.is_null()
                    && said.vendor_id != 0
                    && said.comp_mask == 0 =>
            {
                let local = Ece { vendor: said.vendor_id, options: said.options };
                Id::of(id).state().ece.local = local;
                Ok(())
            }
            _ => Err(invalid("rdma_set_local_ece")),
        }
    })
}

pub(crate) unsafe extern "C" fn get_remote_ece(
    id: *mut rdma_cm_id,
    ece: *mut MaybeUninit<ibv_ece>,
) -> c_int {
    // SAFETY: by C's contract; both may be null.
    done(unsafe {
        match ece.as_mut() {
            Some(to) if !id.is_null() && (*id).qp.is_null() => {
                let Ece { vendor, options } = Id::of(id).state().ece.remote;
                to.write(ibv_ece { vendor_id: vendor, options, comp_mask: 0 });
                Ok(())
            }
            _ => Err(invalid("rdma_get_remote_ece")),
        }
    })
}
