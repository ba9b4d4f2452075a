//! Vendors' options (ECE) of ids: what this end says in its request or answer, and what the peer
//! said. For an id with a queue pair the library agrees on them (rdma-core
//! `cma.c:ucma_process_conn_resp_ece`, `rdma_create_qp_ex`); a program with queue pairs of its own
//! asks by `rdma_get_remote_ece` and says by `rdma_set_local_ece`.
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
use crate::ece::{query_ece, set_ece};
use crate::sys::{ibv_ece, ibv_qp};

/// Options of an id; of vendor 0 where none were said.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    local: Ece,
    pub(crate) remote: Ece,
}

impl Options {
    /// What a request says.
    pub(crate) fn asked(self) -> Ece {
        self.local
    }

    /// What an answer says: by the number of the vendor who asked.
    pub(crate) fn answered(self) -> Ece {
        Ece { vendor: self.remote.vendor, options: self.local.options }
    }
}

/// The options of a queue pair; none of a device that knows none.
///
/// # Safety
///
/// C's contract.
unsafe fn of_qp(qp: *mut ibv_qp) -> Ece {
    let mut ece = MaybeUninit::uninit();
    // SAFETY: by C's contract; it is written where the answer is 0.
    unsafe {
        if query_ece(qp, &raw mut ece) != 0 {
            return Ece::default();
        }
        let ibv_ece { vendor_id: vendor, options, .. } = ece.assume_init();
        Ece { vendor, options }
    }
}

/// Has a queue pair's next change ask for these, where its device knows options.
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

/// A queue pair was made: this end says what it knows, and it asks for what the peer said if the
/// peer's request was there first. Another vendor's options are none.
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

/// A queue pair was brought to INIT: what its device granted of a request's options is said.
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

/// The peer's answer came: the queue pair asks for what both have. Another vendor's is an error.
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
    // A kernel or a peer without options says vendor 0 and none.
    // SAFETY: by C's contract.
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
